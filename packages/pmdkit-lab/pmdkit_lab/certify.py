"""Which loss is this? Somebody's own loss function, compared with every objective of pmdkit under every convention.

The gradients of both are taken on three ragged, stale, padded batches of draws. They agree up to a factor, which may
depend on the batch as a sum, a mean or a width does, or they do not. What has to be changed in an objective to get
there is a slip.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import UsageError
from pmdkit.objectives import OBJECTIVES, Batch, Groups, Objective, baselines, credit, total
from pmdkit.objectives.trust_region import RADIUS

LossFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"Maps logp [N, T], logp_old [N, T], reward [P, G] and mask [N, T], boolean, to one number; rows are prompt-major."
Twist = Callable[[Batch, "Case"], Batch]
"A slip: the batch that an objective sees in place of its own."

SAME = 1e-7  # of a gradient: a function may compute in float64 and still add a constant of 1e-8
NEAR = 1e-5  # below it on the first batch, the others are looked at
VARIANTS: dict[str, list[Any]] = {
    "baseline": ["loo", "mean", "batch", "group", "log-mean-exp", "none"],
    "scale": ["half", "paper"],
    "std": ["population", "sample", "none", "mean"],
    "clip_mode": ["one-side", "two-side", "none"],
}
REGIONS = [region for region in RADIUS if region != "none"]
OPEN = {"clip_low": 50.0, "clip_high": 50.0}
WEIGHTED = {"importance_sampling": True}
MORE: dict[str, list[dict[str, Any]]] = {
    "pmd-token": [
        OPEN,
        {"baseline": "mean"} | OPEN,
        *({"baseline": "mean", "trust_region": region} | OPEN for region in REGIONS),
    ],
    "rec": [
        WEIGHTED,
        {"clip_mode": "two-side"} | WEIGHTED,
        *({"clip_mode": "none", "trust_region": region} | WEIGHTED for region in ["none", *REGIONS]),
    ],
    "pmd-mean": [{"baseline": "mean", "scale": "paper"}],
}


@dataclass(frozen=True)
class Case:
    """Draws for P prompts, and a policy that has moved; the last columns hold no token of any response."""

    reward: Tensor
    logp: Tensor
    logp_old: Tensor
    mask: Tensor

    @property
    def groups(self) -> Groups:
        """The rewards, each draw with the same mass."""
        return Groups(self.reward, torch.full_like(self.reward, 1 / self.reward.shape[1]))

    @property
    def factors(self) -> dict[str, float]:
        """What a reduction may multiply by, in place of the mean over prompts of the mean over responses."""
        rows, width = self.mask.shape
        prompts, size = self.reward.shape
        tokens, longest = int(self.mask.sum()), int(self.mask.sum(1).max())
        return {
            "": 1.0,
            "a sum over the responses, not a mean": rows,
            "a sum over the prompts, not a mean": prompts,
            "a sum over the responses to a prompt, not a mean": size,
            "divided by the padded width": 1 / width,
            "divided by the longest response of the batch": 1 / longest,
            "divided by the tokens of the batch (norm tokens)": rows / tokens,
            "divided by the tokens of the batch, squared": (rows / tokens) ** 2,
        }


def cases() -> list[Case]:
    """Three batches that differ in prompts, responses, lengths and padding; rewards {0, 1}, then graded ones."""
    made = []
    for seed, (prompts, size, tokens, padding) in enumerate([(2, 4, 5, 2), (3, 3, 4, 1), (2, 5, 6, 3)]):
        random = torch.Generator().manual_seed(seed)

        def uniform(*shape: int, random: torch.Generator = random) -> Tensor:
            return torch.rand(*shape, generator=random, dtype=torch.float64)

        reward = uniform(prompts, size)
        if seed == 0:
            reward = torch.tensor([[1.0, 0, 0, 1], [0, 1, 0, 0]], dtype=torch.float64)
        length = torch.randint(1, tokens + 1, (prompts * size,), generator=random)
        length[0] = tokens
        mask = torch.arange(tokens + padding) < length[:, None]
        old = -0.2 - 2 * uniform(*mask.shape)
        logp = (old + 0.8 * (uniform(*mask.shape) - 0.5)).clamp_max(-0.02)
        made.append(Case(reward, logp, old, mask))
    return made


@dataclass(frozen=True)
class Verdict:
    """The objective that a loss is, or that is nearest, with the options that are not its defaults.

    Attributes:
        slips: what differs from it, in words; empty if nothing does.
        error: relative distance of the gradients after all of that; above SAME, nothing here is this loss.
        same_value: whether the values agree too, up to a constant that does not depend on the policy.
    """

    name: str
    options: dict[str, Any]
    slips: tuple[str, ...]
    error: float
    same_value: bool

    @property
    def right(self) -> bool:
        """Whether it is an objective of pmdkit with nothing changed."""
        return self.error <= SAME and not self.slips

    def sentence(self) -> str:
        """The verdict in one sentence."""
        options = ", ".join(f"{key}={value}" for key, value in self.options.items())
        what = f"{self.name} ({options})" if options else self.name
        slips = "; ".join(self.slips)
        if not self.name:
            return slips
        if self.error > SAME:
            return f"no objective here is this; nearest is {what}, {self.error:.1g} off{'; ' if slips else ''}{slips}"
        value = "" if self.same_value else "; its value is another, its gradient is the same"
        return f"this is {what}{', but ' if self.slips else ''}{slips}{value}"


def certify(loss: LossFunction | Objective, tau: float = 0.1, **options: Any) -> Verdict:
    """Name the objective that a loss is, and what differs.

    Args:
        loss: a function, see `LossFunction`, or an objective.
        tau: the temperature that the loss was given, reward units.
        options: of the objectives to compare with, where they have them, such as clip_high=0.28.

    Raises:
        UsageError: the loss is not one finite number that depends on logp.
    """
    batches = cases()
    wanted = [gradient_of(loss, case) for case in batches]
    if all(not bool(slope.any()) for _, slope in wanted):
        return Verdict("", {}, ("it has no gradient: logp is detached, or logp_old is logp itself",), 0.0, False)
    found: list[tuple[float, float, Verdict]] = []
    for slipped in (False, True):
        for one in trials(slipped, tau, tuple(sorted(options.items()))):
            error = apart(wanted[0][1], one.first[1])
            if error > NEAR and found and error > min(rank for rank, _, _ in found):
                continue
            others = [slopes_of(one.objective, case, one.twist)[one.shape] for case in batches[1:]]
            every = [one.first, *others]
            reduction, constant, error = factor([slope for _, slope in wanted], [s for _, s in every], batches)
            norm, slip = as_norm(one.objective, one.shape, reduction)
            large = constant_in_words(constant, tau, error)
            slips = tuple(word for word in (one.words, slip, large) if word)
            label = one.chosen if norm is None else one.chosen | {"norm": norm}
            triples = zip(wanted, every, batches, strict=True)
            gaps = [abs(float(his[0] - ours[0] * case.factors[reduction])) for his, ours, case in triples]
            value = not large and max(gaps) < 1e-9
            cost = len(slips) + 0.1 * len(label) + (0.05 if one.name in LATER else 0.0) - (0.01 if value else 0.0)
            found.append((0.0 if error <= SAME else error, cost, Verdict(one.name, label, slips, error, value)))
        best = min(found, key=lambda each: each[:2])[2]
        if best.right:
            break
    return best


@dataclass(frozen=True)
class Trial:
    """A twisted objective, with its value and gradient on the first batch."""

    name: str
    chosen: dict[str, Any]
    objective: Objective
    words: str
    twist: Twist | None
    shape: str
    first: tuple[Tensor, Tensor]


@lru_cache(maxsize=8)
def trials(slipped: bool, tau: float, options: tuple[tuple[str, Any], ...]) -> list[Trial]:
    """Every candidate as it is, or with a slip each; kept, since another loss meets the same ones."""
    case = cases()[0]
    return [
        Trial(name, chosen, objective, words, twist, shape, first)
        for name, chosen, objective in candidates(tau, dict(options))
        if not (slipped and "trust_region" in chosen)
        for words, twist in (twists(objective, tau) if slipped else {"": None}).items()
        for shape, first in slopes_of(objective, case, twist).items()
    ]


LATER = ("dro", "sppo", "dr-grpo", "dapo", "asymre", "reinforce-pp", "opmd", "grpo-kl", "gmpo", "bapo", "rec")
"Objectives that are another one at some option; the other one is named."


def candidates(tau: float, options: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Objective]]:
    """Every objective at its defaults, with one option of VARIANTS moved, or with the ones of MORE."""
    for name, kind in OBJECTIVES.items():
        own = {field.name: field.default for field in fields(kind)}
        given = {key: value for key, value in options.items() if key in own} | ({"tau": tau} if "tau" in own else {})
        moved = [{key: value} for key in VARIANTS if key in own for value in VARIANTS[key] if value != own[key]]
        for chosen in [{}, *moved, *MORE.get(name, [])]:
            try:
                yield name, chosen, kind(**given | chosen)
            except ValueError:  # an option of that name means something else here
                continue


def twists(objective: Objective, tau: float) -> dict[str, Twist]:
    """Slips of one kind each, by their words: a change of the batch that the objective then sees."""
    found: dict[str, Twist] = {words: partial(with_advantage, advantage) for words, advantage in ADVANTAGES.items()}
    found["the log ratio, or the reward, has the wrong sign"] = lambda batch, case: replace(
        batch, logp=2 * batch.logp_old - batch.logp
    )
    found["padding counts: the mask is not applied"] = lambda batch, case: replace(
        batch, mask=torch.ones_like(batch.mask), length=torch.full_like(batch.length, batch.mask.shape[1])
    )
    if hasattr(objective, "tau"):
        for words, value in (
            ("tau is not applied to the log ratio: as if it were 1", 1.0),
            ("the pull is twice as strong: tau counts twice", 2 * tau),
            ("the pull is half as strong: tau counts half", tau / 2),
        ):
            found[words] = partial(with_tau, value)
    if objective.loss(credit_of(objective, cases()[0])).ndim == 1:
        found["per token, where it should be per response"] = by_token
    else:
        found["per response, where it should be per token"] = lambda batch, case: batch.folded()
    return found


def with_advantage(advantage: Callable[[Groups], Tensor], batch: Batch, case: Case) -> Batch:
    """The batch with another advantage."""
    return replace(batch, advantage=advantage(case.groups).flatten())


def with_tau(tau: float, batch: Batch, case: Case) -> Batch:
    """The batch at another temperature; the advantage stays."""
    return replace(batch, tau=torch.full_like(batch.tau, tau))


def by_token(batch: Batch, case: Case) -> Batch:
    """Every token as a response of its own."""
    rows, columns = batch.mask.nonzero(as_tuple=True)
    each = batch[rows]
    logp, old = (x[rows, columns][:, None] for x in (batch.logp, batch.logp_old))
    one = torch.ones_like(logp, dtype=torch.bool)
    return replace(each, logp=logp, logp_old=old, mask=one, length=torch.ones_like(each.length))


def of_batch(groups: Groups, std: bool) -> Tensor:
    """Reward minus the mean of the batch, over its std or not."""
    centred = groups.reward - groups.reward.mean()
    return centred / groups.reward.std(correction=0) if std else centred


def with_constant(groups: Groups, constant: float, correction: int) -> Tensor:
    """The standardised reward with a small constant added to the std."""
    std = groups.reward.std(1, keepdim=True, correction=correction)
    return (groups.reward - groups.reward.mean(1, keepdim=True)) / (std + constant)


ADVANTAGES: dict[str, Callable[[Groups], Tensor]] = {
    "there is no baseline": lambda groups: groups.reward,
    "the baseline is the mean of the batch, not of the group": partial(of_batch, std=False),
    "mean and std are those of the batch, not of the group": partial(of_batch, std=True),
    "the mean includes a response's own draw": partial(baselines.minus_mean, baseline="mean"),
    "the mean leaves out a response's own draw": partial(baselines.minus_mean, baseline="loo"),
    "the advantage is divided by the population std": partial(baselines.standardised, std="population"),
    "the advantage is divided by the sample std": partial(baselines.standardised, std="sample"),
    **{
        f"{constant:g} is added to the {std} std": partial(with_constant, constant=constant, correction=correction)
        for constant in (1e-4, 1e-6)
        for std, correction in (("sample", 1), ("population", 0))
    },
}


def credit_of(objective: Objective, case: Case) -> Batch:
    """The batch at pi = pi_old, with the budget of the longest response."""
    return credit(objective, case.groups, case.logp_old, case.mask, width=int(case.mask.sum(1).max()))


def slopes_of(objective: Objective, case: Case, twist: Twist | None) -> dict[str, tuple[Tensor, Tensor]]:
    """Value and gradient by logp of a twisted objective: means over the responses, each by its length or not."""
    found = {}
    for shape in ("none", "length"):
        logp = case.logp.clone().requires_grad_()
        batch = credit_of(objective, case)
        tokens = case.mask.sum(1) if shape == "length" else torch.ones(len(logp))
        batch = replace(batch, weight=1 / tokens.to(logp) / len(logp), logp=logp)
        value = total(objective, batch if twist is None else twist(batch, case))
        (slope,) = torch.autograd.grad(value, logp)
        if bool(slope.any()):
            found[shape] = (value.detach(), slope)
    return found


def gradient_of(loss: LossFunction | Objective, case: Case) -> tuple[Tensor, Tensor]:
    """Value and gradient by logp of the loss in question."""
    logp = case.logp.clone().requires_grad_()
    if isinstance(loss, Objective):
        value = total(loss, replace(credit_of(loss, case), logp=logp))
    else:
        value = loss(logp, case.logp_old.clone(), case.reward.clone(), case.mask.clone())
    if not isinstance(value, Tensor) or value.ndim or not bool(torch.isfinite(value)):
        raise UsageError(
            f"the loss returned {value!r:.80}; expected one finite number, reduced over the batch, from "
            "(logp [N, T], logp_old [N, T], reward [P, G], mask [N, T])"
        )
    if not value.requires_grad:
        return value, torch.zeros_like(logp)
    slope = torch.autograd.grad(value, logp, allow_unused=True)[0]
    return value.detach(), torch.zeros_like(logp) if slope is None else slope


def apart(wanted: Tensor, found: Tensor) -> float:
    """Relative distance of a gradient from the nearest multiple of another."""
    return float((wanted - found * (found * wanted).sum() / (found**2).sum()).norm() / wanted.norm())


def factor(wanted: list[Tensor], found: list[Tensor], batches: list[Case]) -> tuple[str, float, float]:
    """The reduction that explains the lengths of the gradients best, the constant that is left, and the error."""
    target, best = torch.cat([x.flatten() for x in wanted]), ("", 1.0, float("inf"))
    for reduction in batches[0].factors:
        scaled = [slope * case.factors[reduction] for slope, case in zip(found, batches, strict=True)]
        flat = torch.cat([x.flatten() for x in scaled])
        constant, error = float(flat @ target / (flat @ flat)), apart(target, flat)
        if error < best[2] - SAME:
            best = (reduction, constant, error)
    return best


def constant_in_words(constant: float, tau: float, error: float) -> str:
    """What a constant factor is, empty for 1."""
    near = max(10 * error, 1e-6)
    sign = "the sign is wrong" if constant < 0 else ""
    names: dict[float, str] = {}
    for value, name in ((tau, "tau"), (2 * tau, "2 tau"), (tau / 2, "tau / 2")):
        names |= {1 / value: f"divided by {name}", value: f"times {name}"}
    names |= {1.0: "", 2.0: "twice as large", 0.5: "half as large"}  # whatever tau is
    size = next((name for value, name in names.items() if abs(abs(constant) / value - 1) < near), None)
    return ", ".join(word for word in (sign, f"{abs(constant):.4g} times as large" if size is None else size) if word)


def as_norm(objective: Objective, shape: str, reduction: str) -> tuple[str | None, str]:
    """The length rule as the option `norm`, None if it is the objective's own; or what the reduction is in words."""
    norms = {
        ("none", ""): "none",
        ("length", ""): "length",
        ("none", "divided by the tokens of the batch (norm tokens)"): "tokens",
    }
    if objective.norm == "max":  # whose budget is the longest response here
        norms["none", "divided by the longest response of the batch"] = "max"
    norm = norms.get((shape, reduction))
    if norm is None:
        return ("length" if shape == "length" and objective.norm != "length" else None), reduction
    return (None if norm == objective.norm else norm), ""
