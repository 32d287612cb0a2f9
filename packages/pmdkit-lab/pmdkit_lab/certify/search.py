"""Which loss is this? Somebody's own loss function, compared with every objective of pmdkit under every convention.

The gradients of both are taken on the ordinary batches of `probes`. They agree up to a factor, which may depend on the
batch as a sum, a mean or a width does, or they do not. Then those on the special batches must agree at the same factor.
A change that makes an objective agree is a slip.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import UsageError, unknown
from pmdkit.objectives import OBJECTIVES, REBEL, Batch, DrGRPO, Objective, PMDPart, total, traits
from pmdkit.objectives.regulariser import kl_estimate
from pmdkit.objectives.trust_region import RADIUS
from pmdkit_lab.certify.probes import (
    DIFFERS,
    NOT_FINITE,
    OWN_DRAW,
    PAIRS,
    Probe,
    flat,
    near,
    ordinary,
    rows_apart,
    special,
)
from pmdkit_lab.certify.slips import (
    CHANGES,
    SHIPPED,
    STDS,
    Dial,
    Slip,
    advantages,
    at_old,
    at_reference,
    credit_options,
    dials,
    slips,
    with_changed_advantage,
    with_std,
)

LossFunction = Callable[..., Tensor]
"""Maps logp [N, T], logp_old [N, T], reward [P, G] and mask [N, T], boolean, to one number; rows are prompt-major. A
fifth argument is logp_ref [N, T]."""

REL_TOL = 1e-6  # of a gradient: float32 leaves 3e-7, and a function may add a constant of 1e-8
SCREENING_TOL = 1e-5  # below it on the first batch, the others are looked at
NEAREST = 24  # candidates that are judged on all batches, although they do not agree on the first
CREDIT_TOL = 5e-6  # of advantages: a constant of 1e-6 in the std may be there or not
COMMON = ("pmd-mean", "pmd-part", "rloo", "grpo", "dapo", "gspo", "cispo", "reinforce-pp", "pmd-token")
PAIRED = ("pmd-mean", "rloo", "grpo", "gspo", "cispo")
NEAR_TOL = 5e-3  # pulls and clips change less than this on the batches `near`
ROUNDED_TOL = 0.03  # bfloat16 leaves up to 1/256 in logp, and this in small differences
HINT_TOL = 1e-4  # at a larger distance, a slip that brings an objective nearer means nothing
VARIANTS: dict[str, list[Any]] = {
    "baseline": ["loo", "mean", "batch", "group", "log-mean-exp", "none"],
    "scale": ["half", "paper"],
    "std": ["population", "sample", "none", "mean"],
    "clip_mode": ["one-side", "two-side", "none"],
}
REGIONS = [region for region in RADIUS if region != "none"]
OPEN = {"clip_low": 50.0, "clip_high": 50.0}
WEIGHTED = {"importance_sampling": True}
EXTRA_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "pmd-token": [{"baseline": "mean", "trust_region": region} | OPEN for region in REGIONS],
    "rec": [
        WEIGHTED,
        {"clip_mode": "two-side"} | WEIGHTED,
        *({"clip_mode": "none", "trust_region": region} | WEIGHTED for region in ["none", *REGIONS]),
    ],
    "pmd-mean": [{"baseline": "mean", "scale": "paper"}],
}
LATER = ("dro", "sppo", "qrpo", "topr", "pmd-score", "tb", "dr-grpo", "dapo", "asymre", "reinforce-pp", "opmd",
         "grpo-kl", "gmpo", "bapo", "rec", "flowrl")  # fmt: skip
"Objectives that are another one at some option; the other one is named."
PENALTIES = {"k1": "k1", "k2": "k2", "k3": "k3", "k3 of the inverse ratio": "k3", "abs": ""}

Slope = tuple[Tensor, Tensor]
"Value of a loss and its gradient by logp."


@dataclass(frozen=True)
class Verdict:
    """The objective that a loss is, or that is nearest, with the options that are not its defaults.

    Attributes:
        slips: what differs from it, in words; empty if nothing does.
        error: relative distance of the gradients on the ordinary batches after all of that; above REL_TOL, nothing here
            is this loss.
        same_value: whether the values agree too, up to a constant that does not depend on the policy.
        also: another name for the same loss, as an objective with a slip or without.
    """

    name: str
    options: dict[str, Any]
    slips: tuple[str, ...]
    error: float
    same_value: bool
    also: str = ""

    @property
    def right(self) -> bool:
        """Whether it is an objective of pmdkit with nothing changed."""
        return self.error <= REL_TOL and not self.slips

    @property
    def called(self) -> str:
        """The name with the options."""
        options = ", ".join(f"{key}={value}" for key, value in self.options.items() if key != "width")
        width = self.options.get("width")
        constant = f", with every loss times {1 / width:.4g} (a constant length of {width})" if width else ""
        return f"{self.name}{f' ({options})' if options else ''}{constant}"

    def said(self) -> str:
        """The name with the options and what differs."""
        places = [key for key, words in DIFFERS.items() if words in self.slips]
        slips = self.slips
        if len(places) > 2:  # a difference that shows everywhere is none of those that the batches look for
            everywhere = f"it differs on the batches {', '.join(places)} too"
            slips = (*(x for x in slips if x not in DIFFERS.values()), everywhere)
        return f"{self.called}{', but ' if slips else ''}{'; '.join(slips)}"

    def sentence(self) -> str:
        """The verdict in one sentence."""
        if not self.name:
            return "; ".join(self.slips)
        if self.error > REL_TOL:
            hint = "; ".join(self.slips)
            if hint.startswith("its gradient has"):
                return f"this is {self.called} to {self.error:.1g}, but {hint}"
            nearest = f"no objective here is this; nearest is {self.called}, {self.error:.1g} off"
            return f"{nearest}; {hint}" if hint and self.error <= HINT_TOL else nearest
        slips = "this slip" if len(self.slips) == 1 else "these slips"
        same = "the same" if self.right else f"that of the objective with {slips}"
        value = "" if self.same_value else f"; its value is another, its gradient is {same}"
        also = f"; that is {self.also}" if self.also else ""
        return f"this is {self.said()}{also}{value}"


CERTIFIED = """\
Certified: the gradient by logp, at token ratios from e^-6 to e^6, drifts of a response up to 80 nats, masks with holes,
NaN off the mask, equal and negative rewards, groups of 2 to 8. Not certified: the rewards, mask and logp_old
that your trainer passes to the loss, the optimizer, and which KL divergence a KL term has (pmdkit certify --kl)."""


Found = list[tuple[float, float, Verdict]]
"Distance, cost and verdict of each candidate that was looked at."


@dataclass(eq=False)
class Trial:
    """An objective with a slip or without, and its gradients, computed once each.

    Attributes:
        changes: slips, applied in this order.
        by_length: divide each response by its length.
        twin: the same without `by_length`, if its gradients row by row give those of this one.
        alone: it is compared with this objective alone.
        credit: gives advantages and temperatures in place of `objective`; the same ones, and they are at hand.
    """

    name: str
    options: dict[str, Any]
    objective: Objective
    changes: tuple[Slip, ...]
    by_length: bool
    with_ref: bool
    twin: "Trial | None" = None
    alone: bool = False
    credit: Objective | None = None
    slopes: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    def on(self, kind: str) -> list[Tensor]:
        """Gradients on every batch of a kind: "ordinary", "near" or "special"."""
        return [self.slope(kind, i) for i in range(len(KINDS[kind]()))]

    def slope(self, kind: str, i: int) -> Tensor:
        """[N, T] the gradient by logp on one batch."""
        if (kind, i) not in self.slopes:
            self.slopes[kind, i] = self.compute(kind, i)
        return self.slopes[kind, i]

    def compute(self, kind: str, i: int) -> Tensor:
        """`slope`, computed, or taken from the candidate that differs in `by_length` alone."""
        probe = KINDS[kind]()[i]
        if self.twin is not None:
            return self.twin.slope(kind, i) / probe.mask.sum(1, keepdim=True)
        logp = probe.logp.clone().requires_grad_()
        value = self.value(probe, logp)
        if not value.requires_grad:
            return torch.zeros_like(logp)
        (slope,) = torch.autograd.grad(value, logp)
        return slope * math.prod(change.sign for change in self.changes)

    @property
    def slips(self) -> int:
        """How many of the changes are slips."""
        return sum(bool(change.words) for change in self.changes)

    def counted(self, probe: Probe) -> Probe:
        """The batch under the mask of the slips, for the numbers of tokens."""
        for change in self.changes:
            probe = probe if change.recount is None else replace(probe, mask=change.recount(probe.mask))
        return probe

    def with_change(self, slip: Slip, objective: Objective | None = None, **more: Any) -> "Trial":
        """This candidate with one more slip."""
        if slip.objective is not None:
            own = {f.name: getattr(self.objective, f.name) for f in fields(self.objective)}  # type: ignore[arg-type]
            objective = slip.objective(**own)
        changed = objective or self.objective
        return replace(self, objective=changed, changes=(*self.changes, slip), twin=None, slopes={}, **more)

    def divided(self) -> "Trial":
        """This candidate with each response divided by its length."""
        twin = None if traits(self.objective).whole_groups else self
        return replace(self, by_length=True, twin=twin, slopes={})

    def credited(self, probe: Probe, logp: Tensor) -> tuple[Batch, Probe]:
        """What the objective sees before any slip."""
        return at_old(self.credit or self.objective, probe, self.with_ref), probe

    def value(self, probe: Probe, logp: Tensor) -> Tensor:
        """The loss: the mean over the responses, each by its length or not."""
        batch, probe = self.credited(probe, logp)
        weight = torch.full_like(batch.weight, 1 / len(logp))
        if self.by_length:
            weight = weight / probe.mask.sum(1)
        batch = replace(batch, weight=weight, logp=logp)
        for change in self.changes:
            batch = batch if change.twist is None else change.twist(batch, probe)
        return total(self.objective, batch)


KINDS: dict[str, Callable[[], tuple[Probe, ...]]] = {
    "ordinary": ordinary, "near": near, "special": special, "flat": flat
}  # fmt: skip


@dataclass(frozen=True)
class Question:
    """The loss in question: its gradients on every batch.

    Attributes:
        with_ref: it also takes logp_ref.
    """

    slopes: dict[str, list[Slope]]
    with_ref: bool


def ask(loss: LossFunction | Objective) -> Question:
    """The gradients of a loss; on the special batches they need not be finite."""
    if isinstance(loss, Objective):
        with_ref = False
    else:
        names = [
            p.name for p in inspect.signature(loss).parameters.values() if p.default is p.empty or p.name == "logp_ref"
        ]
        with_ref = "logp_ref" in names or len(names) == 5
    return Question(
        {kind: [gradient_of(loss, p, with_ref, kind != "special") for p in make()] for kind, make in KINDS.items()},
        with_ref,
    )


def gradient_of(loss: LossFunction | Objective, probe: Probe, with_ref: bool, finite: bool) -> Slope:
    """Value and gradient by logp of the loss in question."""
    logp = probe.logp.clone().requires_grad_()
    if isinstance(loss, Objective):
        value = total(loss, replace(at_old(loss, probe, False), logp=logp))
    else:
        given = (logp, probe.logp_old.clone(), probe.reward.clone(), probe.mask.clone())
        value = loss(*given, probe.logp_ref.clone()) if with_ref else loss(*given)
    if not isinstance(value, Tensor) or value.ndim or (finite and not bool(torch.isfinite(value))):
        raise UsageError(
            f"the loss returned {value!r:.80}; expected one finite number, reduced over the batch, from "
            "(logp [N, T], logp_old [N, T], reward [P, G], mask [N, T]) or these and logp_ref [N, T]"
        )
    if not value.requires_grad:
        return value, torch.zeros_like(logp)
    slope = torch.autograd.grad(value, logp, allow_unused=True)[0]
    return value.detach(), torch.zeros_like(logp) if slope is None else slope


def certify(loss: LossFunction | Objective, tau: float = 0.1, among: tuple[str, ...] = (), **options: Any) -> Verdict:
    """Name the objective that a loss is, and what differs.

    Args:
        loss: a function, see `LossFunction`, or an objective.
        tau: the temperature that the loss was given, reward units.
        among: names of the objectives to compare with; empty for all. Then a name in that of the function counts:
            what is called `rloo_loss` and is another objective is compared with RLOO alone.
        options: of the objectives to compare with, where they have them, such as clip_high=0.28.

    Raises:
        UsageError: the loss is not one finite number that depends on logp.
    """
    question = ask(loss)
    if all(not bool(slope.any()) for _, slope in question.slopes["ordinary"]):
        return Verdict("", {}, ("it has no gradient: logp is detached, or logp_old is logp itself",), 0.0, False)
    plain = trials(tau, tuple(sorted(options.items())), among, question.with_ref)
    verdict = search(question, plain, tau)
    if among or verdict.error > REL_TOL:
        return verdict
    promise = promised(loss)
    if promise and not issubclass(OBJECTIVES[verdict.name], OBJECTIVES[promise]):
        other = certify(loss, tau, (promise,), **options)
        if other.error <= REL_TOL and (verdict.right or len(other.slips) <= len(verdict.slips)):
            return replace(other, also=verdict.called if verdict.right and other.slips else "")
    # a rarer objective at an option: say what it is in terms of a common one
    if verdict.right and verdict.name in LATER and verdict.name not in COMMON and set(verdict.options) - {"width"}:
        other = search(question, [x for x in plain if x.name not in LATER], tau, common=True)
        return replace(verdict, also=other.said() if other.error <= REL_TOL and len(other.slips) == 1 else "")
    return verdict


def search(question: Question, plain: list[Trial], tau: float, common: bool = False) -> Verdict:
    """The best explanation, from the likely to the far-fetched: a later stage is entered if the earlier ones fail."""
    found: Found = []
    judge_all(question, plain, tau, found)
    if explained(found, 0):
        return best(found)
    # What the loss takes as its advantage shows where pi = pi_old and all lengths are equal, whatever else it does.
    bases = credited(question, plain, tau) or [x for x in plain if not x.by_length]
    if common:
        judge_all(question, both_lengths(bases), tau, found)
        return best(found)
    if question.with_ref:
        at_ref = Slip("pi_ref stands in the place of pi_old", at_reference)
        judge_all(question, both_lengths([x.with_change(at_ref) for x in bases]), tau, found)
    fewest = min(x.slips for x in bases)
    own = [x for x in bases if x.slips == fewest]
    likely = [x for x in own if x.name in COMMON or x.alone]
    for some in (likely, [x for x in own if usual(x) and x not in likely], [x for x in bases if x.slips > fewest]):
        both = both_lengths(some)
        judge_all(question, both, tau, found)
        for stage in (fit_all, with_penalty, in_reward):
            if not explained(found, 1):
                stage(question, both, tau, found)
        if explained(found, 1):
            return best(found)
        slipped = both_lengths([x.with_change(slip) for x in some if usual(x) for slip in slips(x.objective, tau)])
        judge_all(question, slipped, tau, found)
        for stage in (with_penalty, fit_all):
            if not explained(found, 1):
                stage(question, [x for x in slipped if x.name in COMMON or x.alone], tau, found)
        if explained(found, 2):
            return best(found)
    judge_all(question, pairs(likely, tau), tau, found)
    verdict = best(found)
    slopes = [slope for _, slope in question.slopes["ordinary"]]
    if verdict.error > REL_TOL:
        for dtype, limit in ((torch.bfloat16, ROUNDED_TOL), (torch.float16, 0.1 * ROUNDED_TOL)):
            if verdict.error < limit and all(bool((x.to(dtype) == x).all()) for x in slopes):
                rounded = f"its gradient has the few bits of {str(dtype)[6:]}: log-probabilities are cast to it"
                return replace(verdict, slips=(rounded,))
    return verdict


def both_lengths(bare: list[Trial]) -> list[Trial]:
    """Candidates as they are, and with each response divided by its length."""
    return [y for x in bare for y in (x, x.divided())]


def promised(loss: LossFunction | Objective) -> str:
    """The longest name of an objective in that of a function, "dr-grpo" for "dr_grpo_loss"; empty if there is none."""
    words = re.findall("[a-z0-9]+", getattr(loss, "__name__", "").lower())
    said = {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
    return max((name for name in OBJECTIVES if name.replace("-", "") in said), key=len, default="")


def usual(trial: Trial) -> bool:
    """Whether a candidate is not another one times a constant, nor too far-fetched for two changes."""
    again = (trial.name in ("dr-grpo", "grpo-kl") and not trial.alone) or {"trust_region", "scale"} & set(trial.options)
    rare = trial.name in LATER and trial.name not in COMMON and set(trial.options) - {"std", "std_constant", "baseline"}
    return not (again or rare or trial.options.get("std") == "mean")


def credited(question: Question, plain: list[Trial], tau: float) -> list[Trial]:
    """Candidates whose advantage is that of the loss: their own, an option's, or another one as a slip."""
    wanted = torch.cat([-len(slope) * slope.sum(1) for _, slope in question.slopes["flat"]])
    rounded = all(bool((slope.bfloat16() == slope).all()) for _, slope in question.slopes["ordinary"])
    tol = ROUNDED_TOL if rounded else CREDIT_TOL
    bare = [x for x in plain if not x.by_length]
    bare += [x.with_change(slip) for x in bare if not x.options for slip in credit_options(x.objective)]
    # rows of advantages, and the candidates that have them
    known: dict[bytes, tuple[list[Tensor], list[Trial]]] = {}
    for trial in bare:
        rows = [-len(slope) * slope.sum(1) for slope in trial.on("flat")]
        key = (torch.cat(rows) * 1e9).round().numpy().tobytes()
        known.setdefault(key, (rows, []))[1].append(trial)
    pool = list(known.values())
    single = [x for x in bare if not x.changes and "std" not in x.options and usual(x)
              and ("baseline" not in x.options or x.name == "reinforce-pp")]  # fmt: skip
    for of_part in (False, True):
        some = [x for x in single if isinstance(x.objective, PMDPart) >= of_part]
        for slip in advantages(tau, of_part):
            rows = [slip.twist.args[0](probe.groups).flatten() for probe in flat()]  # type: ignore[union-attr]
            pool.append((rows, [with_credit(x, slip) for x in some]))
    made: list[Trial] = []
    for offset in (False, True):  # an entropy bonus adds one number to every row
        if not made:
            fitting = same_credit(wanted, [rows for rows, _ in pool], tol, offset)
            made = [x for (_, group), fits in zip(pool, fitting, strict=True) if fits for x in group]
    for words, change in CHANGES.items() if not made else ():
        changed = [[change(row, probe) for row, probe in zip(rows, flat(), strict=True)] for rows, _ in pool]
        slip = Slip(words, partial(with_changed_advantage, change))
        made += [x.with_change(slip) for (_, group), fits in zip(pool, same_credit(wanted, changed, tol), strict=True)
                 if fits for x in group]  # fmt: skip
    fewest = min((x.slips for x in made), default=0)
    return [x for x in made if x.slips <= fewest + (not rounded and x.slips == 1)]


def with_credit(trial: Trial, slip: Slip) -> Trial:
    """A candidate with another advantage; a small constant in its own std, as frameworks add one, is an option."""
    advantage = slip.twist.args[0]  # type: ignore[union-attr]
    keywords = getattr(advantage, "keywords", {})
    constant, std = keywords.get("constant", 0.0), next((s for s, c in STDS if c == keywords.get("correction")), "")
    same = with_std(trial.objective, std, constant) if constant <= SHIPPED and std else None
    if isinstance(trial.objective, DrGRPO):  # which is defined by having no std
        added = f", to which {constant:g} is added" if constant else ""
        words = f"the advantage is divided by the {std} std{added}"
        return trial.with_change(slip if same is None or repr_of(same) != repr_of(slip) else replace(slip, words=words))
    if same is None or repr_of(same) != repr_of(slip):
        return trial.with_change(slip)
    own = {} if trial.objective.std == std else {"std": std}  # type: ignore[attr-defined]
    more = {"std_constant": constant} if constant else {}
    return trial.with_change(same, options=trial.options | own | more)


def repr_of(slip: Slip) -> tuple[Any, Any]:
    """The function of an advantage and its numbers, to compare two slips."""
    advantage = slip.twist.args[0]  # type: ignore[union-attr]
    return advantage.func, advantage.keywords


def same_credit(wanted: Tensor, found: list[list[Tensor]], tol: float, offset: bool = False) -> list[bool]:
    """Whether each list of advantages is a multiple of the wanted ones, up to a reduction and, perhaps, an offset."""
    rows = torch.stack([torch.cat(each) for each in found]).double().nan_to_num()
    fits = torch.zeros(len(rows), dtype=torch.bool)
    for reduction in flat()[0].factors:
        factors = torch.cat([torch.full((p.reward.numel(),), p.factors[reduction]) for p in flat()]).double()
        scaled, target = rows * factors, wanted
        if offset:
            unit = factors / factors.norm()
            scaled, target = scaled - (scaled @ unit)[:, None] * unit, target - (target @ unit) * unit
        share = (scaled @ target / (scaled**2).sum(1).clamp_min(1e-300))[:, None]
        fits |= (scaled * share - target).norm(dim=1) <= tol * wanted.norm()
    return [bool(x) for x in fits]


def pairs(bases: list[Trial], tau: float) -> Iterator[Trial]:
    """The best known of some candidates with two slips at once in what they see."""
    for base in bases:
        if base.name not in PAIRED or len(base.options) > 2 or {"baseline", "scale"} & set(base.options):
            continue
        twists = [
            slip for slip in slips(base.objective, tau) if slip.twist is not None and "temperature" not in slip.words
        ]
        for i, first in enumerate(twists):
            for second in twists[i + 1 :]:
                yield base.with_change(first).with_change(second)


def assert_is(loss: LossFunction | Objective, name: str, tau: float = 0.1, **options: Any) -> None:
    """Assert that a loss is this objective at these options; to be called in a test, takes a second.

    Args:
        loss: a function, see `LossFunction`, or an objective.
        name: a key of OBJECTIVES.
        tau: the temperature that the loss was given, reward units.
        options: of the objective, such as clip_high=0.28 or norm="tokens"; the others are its defaults. std_constant is
            what is added to its std, such as 1e-6.

    Raises:
        AssertionError: the loss is another one; says what differs.
        UsageError: the loss is not one finite number.
    """
    if name not in OBJECTIVES:
        raise UsageError(f"{unknown('objective', name, OBJECTIVES)}")
    own = {option.name for option in fields(OBJECTIVES[name])}
    constant = options.get("std_constant")
    chosen = {key: value for key, value in options.items() if key != "std_constant"}
    objective = OBJECTIVES[name](**chosen, **({"tau": tau} if "tau" in own else {}))
    changes: tuple[Slip, ...] = ()
    if constant is not None:
        slip = with_std(objective, getattr(objective, "std", ""), constant)
        if slip is None:
            raise UsageError(f"{name} got std_constant={constant}; it divides by no std: leave it out")
        changes = (slip,)
    question = ask(loss)
    uses = question.with_ref and bool(traits(objective).uses_reference)
    for by_length in (False, True):
        verdict = judge(question, Trial(name, {}, objective, changes, by_length, uses), tau)[2]
        if verdict.right and not set(verdict.options) - {"width"}:
            return
    found = certify(loss, tau, (name,), **options)
    expected = ", ".join(f"{key}={value}" for key, value in options.items())
    raise AssertionError(f"the loss is not {name}{f' ({expected})' if options else ''}: {found.sentence()}")


def best(found: Found) -> Verdict:
    """The nearest, then the cheapest to explain."""
    return min(found, key=lambda each: each[:2])[2]


def explained(found: Found, slips: int) -> bool:
    """Whether an objective with so many slips, one more in its advantage or reduction, agrees everywhere."""
    verdict = best(found)
    if verdict.error > REL_TOL or set(verdict.slips) & set(DIFFERS.values()):
        return False
    return len(verdict.slips) <= slips + bool(slips)


def judge_all(question: Question, candidates: Iterable[Trial], tau: float, found: Found) -> None:
    """Add a verdict for every candidate that agrees on the first batch, and for the nearest of the others."""
    wanted = question.slopes["ordinary"][0][1]
    ranked = [(apart(wanted, slope), x) for x in candidates if bool((slope := x.slope("ordinary", 0)).any())]
    ranked.sort(key=lambda each: each[0])
    for place, (error, trial) in enumerate(ranked):
        if error > SCREENING_TOL and place >= NEAREST:
            break
        found.append(judge(question, trial, tau))


def judge(
    question: Question, trial: Trial, tau: float, extra: tuple[str, ...] = (), more: dict[str, Any] | None = None
) -> tuple[float, float, Verdict]:
    """Distance, cost and verdict of a candidate."""
    wanted, ours, batches = question.slopes["ordinary"], trial.on("ordinary"), ordinary()
    targets, count = [s for _, s in wanted], batches
    reduction, constant, error = factor(targets, ours, batches)
    recounts = any(change.recount for change in trial.changes)
    if recounts:  # tokens are counted under the wrong mask, or under the right one
        again = factor(targets, ours, counted := tuple(trial.counted(p) for p in batches))
        recounts = again[2] < error - REL_TOL
        if recounts:
            (reduction, constant, error), count = again, counted
    norm, slip = as_norm(trial, reduction)
    large = constant_in_words(constant, tau, error)
    width, value_scale = round(1 / constant) if constant > 0 else 0, 1.0
    if isinstance(trial.objective, DrGRPO) and norm == "none" and width > 1 and abs(width * constant - 1) < 1e-5:
        more, norm, large, value_scale = (more or {}) | {"width": width}, None, "", constant
    words = [word for word in (*(change.words for change in trial.changes), *extra, slip, large) if word]
    cost = len(words) + 0.2 * (slip in (PAIRS, OWN_DRAW))
    if error <= REL_TOL:
        for i, (probe, his) in enumerate(zip(special(), question.slopes["special"], strict=True)):
            place = trial.counted(probe) if recounts else probe
            difference = differs(trial, i, his, constant * place.factors[reduction])
            words += [difference] if difference else []
            cost += (1.5 if difference in DIFFERS.values() else 1.0) * bool(difference)
    options = trial.options | (more or {}) | ({} if norm is None else {"norm": norm})
    gaps = [
        abs(float(his - value_scale * trial.value(p, p.logp) * c.factors[reduction]))
        for (his, _), p, c in zip(wanted, batches, count, strict=True)
    ]
    value = not large and not isinstance(trial, Penalised) and max(gaps) < 1e-6
    cost += 0.1 * len(options) + (0.25 if trial.name in LATER else 0.0) - (0.01 if value else 0.0)
    verdict = Verdict(trial.name, options, tuple(words), error, value)
    return 0.0 if error <= REL_TOL else error, cost, verdict


def differs(trial: Trial, i: int, his: Slope, scale: float) -> str:
    """What to say of a loss on a special batch, empty if it agrees with the objective there."""
    probe, mine = special()[i], trial.slope("special", i)
    if not bool(mine.isfinite().all()):  # the slip itself overflows, or reads NaN
        return "" if not bool(his[1].isfinite().all()) else DIFFERS[probe.name]
    if not bool(his[1].isfinite().all() and his[0].isfinite()):
        return NOT_FINITE.get(probe.name, DIFFERS[probe.name])
    # a KL term in the reward makes the std of equal rewards small, so that a constant of 1e-8 in it shows
    tol = 1e-4 if isinstance(trial, Shaped) and probe.name == "silent" else 2 * REL_TOL
    if float(rows_apart(his[1], scale * mine).max()) <= tol:
        return ""
    for words, change in SPECIAL_SLIPS.get(probe.name, {}).items():
        slope, factor_ = change(trial, probe)
        if float(rows_apart(his[1], scale * factor_ * slope).max()) <= 2 * REL_TOL:
            return words
    return DIFFERS[probe.name]


def on_changed(trial: Trial, changed: Probe) -> Tensor:
    """The gradient of a candidate on another batch."""
    logp = changed.logp.clone().requires_grad_()
    (slope,) = torch.autograd.grad(replace(trial, twin=None).value(changed, logp), logp, allow_unused=True)
    return torch.zeros_like(logp) if slope is None else slope * math.prod(c.sign for c in trial.changes)


def with_rewards(change: Callable[[Tensor], Tensor], trial: Trial, probe: Probe) -> tuple[Tensor, float]:
    """The gradient with other rewards."""
    return on_changed(trial, replace(probe, reward=change(probe.reward))), 1.0


def with_mask(change: Callable[[Tensor], Tensor], own_length: bool, trial: Trial, probe: Probe) -> tuple[Tensor, float]:
    """The gradient under another mask; `own_length`: each row still counts with the length that it had."""
    mask = change(probe.mask)
    slope = on_changed(trial, replace(probe, mask=mask))
    if own_length and trial.by_length:
        slope = slope * (mask.sum(1) / probe.mask.sum(1))[:, None]
    return slope, 1.0


def without_silent(by_tokens: bool, trial: Trial, probe: Probe) -> tuple[Tensor, float]:
    """The gradient if groups of equal rewards count in no mean."""
    mixed = (probe.reward != probe.reward[:, :1]).any(1)
    tokens = probe.mask.sum(1).view(probe.reward.shape).sum(1)
    counts = tokens if by_tokens else torch.ones_like(tokens)
    return on_changed(trial, probe), float(counts.sum() / counts[mixed].sum())


SpecialSlip = Callable[[Trial, Probe], tuple[Tensor, float]]
"Maps a candidate and a special batch to the gradient with a slip there, and a factor of it."

SPECIAL_SLIPS: dict[str, dict[str, SpecialSlip]] = {
    "negative": {
        f"the rewards are {words}": partial(with_rewards, change)
        for words, change in {
            "clamped to [0, 1]": lambda reward: reward.clamp(0, 1),
            "clamped to [-1, 1]": lambda reward: reward.clamp(-1, 1),
            "at least 0: negative ones are set to 0": lambda reward: reward.clamp_min(0),
            "at most 1: larger ones are set to 1": lambda reward: reward.clamp_max(1),
            "under absolute value": torch.abs,
        }.items()
    },
    "silent": {
        "groups of equal rewards are left out of the mean over responses": partial(without_silent, False),
        "groups of equal rewards are left out of the mean over tokens": partial(without_silent, True),
    },
    "holes": {
        words + after: partial(with_mask, change, own)
        for own, after in ((False, ""), (True, " in the sum, not in the length"))
        for words, change in {
            "where the mask has a hole, it is taken as the first |y| columns": lambda mask: (
                torch.arange(mask.shape[1]) < mask.sum(1)[:, None]
            ),
            "tool output inside a response counts": lambda mask: (
                (mask.cumsum(1) > 0) & (mask.flip(1).cumsum(1).flip(1) > 0)
            ),
            "everything up to the last token of a response counts, tool output too": lambda mask: (
                mask.flip(1).cumsum(1).flip(1) > 0
            ),
            "tokens after a hole in the mask are left out": lambda mask: mask & (
                (~mask & (mask.cumsum(1) > 0)).cumsum(1) == 0
            ),
        }.items()
    },
}  # fmt: skip


@lru_cache(maxsize=8)
def trials(tau: float, options: tuple[tuple[str, Any], ...], among: tuple[str, ...], with_ref: bool) -> list[Trial]:
    """Every candidate as it is; kept, since another loss meets the same ones."""
    made = []
    for name, chosen, objective in candidates(tau, dict(options), among):
        uses = with_ref and bool(traits(objective).uses_reference)
        bare = Trial(name, chosen, objective, (), False, uses, alone=len(among) == 1)
        made += [bare, bare.divided()]
    return made


def candidates(
    tau: float, options: dict[str, Any], among: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any], Objective]]:
    """Every objective at its defaults, with one option of VARIANTS moved, or with the ones of EXTRA_OPTIONS."""
    for name in among or OBJECTIVES:
        kind = OBJECTIVES[name]
        own = {option.name: option.default for option in fields(kind)}
        given = {key: value for key, value in options.items() if key in own} | ({"tau": tau} if "tau" in own else {})
        moved = [
            {key: value}
            for key in VARIANTS
            if key in own
            for value in VARIANTS[key]
            if value != given.get(key, own[key]) and (name, key) != ("dr-grpo", "std")
        ]
        for chosen in [{}, *moved, *EXTRA_OPTIONS.get(name, [])]:
            try:
                yield name, chosen, kind(**given | chosen)
            except ValueError:  # an option of that name means something else here
                continue


FITTED = 6  # candidates whose numbers are searched: those nearest to the loss where no clip is reached


def fit_all(question: Question, candidates: Iterable[Trial], tau: float, found: Found) -> None:
    """Search the numbers of those candidates that agree where clips and pulls hardly act, and add the verdicts."""
    ranked = []
    for trial in candidates:
        slope = trial.slope("near", 0)
        if not bool(slope.any()) or apart(question.slopes["near"][0][1], slope) > NEAR_TOL:
            continue
        wanted = [s for _, s in question.slopes["near"]]
        reduction, constant, error = factor(wanted, trial.on("near"), near(), NEAR_TOL / 10)
        if error < NEAR_TOL:
            nice = next(
                (x for x in (1.0, -1.0, 2.0, 0.5, 1 / tau, tau, -2.0) if abs(constant / x - 1) < 0.01), constant
            )
            ranked.append((error, trial, reduction, nice))
    nearest = sorted(ranked, key=lambda each: each[0])[:FITTED]
    nearest.sort(key=lambda each: (len(each[1].options) + (as_norm(*each[1:3])[0] is not None), each[1].name in LATER))
    for _, trial, reduction, constant in nearest:
        for dial in dials(trial.objective, tau):
            fit = fit_dial(question, trial, dial, reduction, constant)
            if fit is None:
                continue
            values, turned = fit
            found.append(judge(question, turned, tau, (dial.sentence(trial.objective, values),)))
            if found[-1][0] == 0.0 and len(found[-1][2].slips) == 1:
                return


def turn(trial: Trial, dial: Dial, values: tuple[float, ...]) -> Trial:
    """The candidate with its numbers at these values."""
    objective, twist = dial.turned(trial.objective, values)
    return replace(trial, credit=trial.credit or trial.objective, twin=None, slopes={}).with_change(
        Slip("", twist), objective
    )


def misfit(question: Question, trial: Trial, names: tuple[str, ...], reduction: str, constant: float) -> float:
    """Mean over the rows of some special batches of the distance of the gradients."""
    apart_by = []
    for i, probe in enumerate(special()):
        if probe.name not in names:
            continue
        his, mine = question.slopes["special"][i][1], trial.slope("special", i)
        if bool(his.isfinite().all() and mine.isfinite().all()):
            apart_by.append(rows_apart(his, constant * probe.factors[reduction] * mine))
        else:
            apart_by.append(torch.ones(len(his)))
    return float(torch.cat(apart_by).mean())


def fit_dial(
    question: Question, trial: Trial, dial: Dial, reduction: str, constant: float
) -> tuple[tuple[float, ...], Trial] | None:
    """The values at which a candidate agrees with the loss, or None. First on the grids, then between their points."""
    seen: dict[tuple[float, ...], float] = {}

    def loss(values: tuple[float, ...]) -> float:
        if values not in seen:
            try:
                seen[values] = misfit(question, turn(trial, dial, values), dial.seen_on, reduction, constant)
            except ValueError:
                seen[values] = float("inf")
        return seen[values]

    values = dial.start(trial.objective)
    start = loss(values)
    # one number after another: bounds on different sides act on different tokens
    for _ in range(2):
        before = values
        for place, grid in enumerate(dial.grids):
            tried = [(*values[:place], x, *values[place + 1 :]) for x in dict.fromkeys((*grid, values[place]))]
            values = min(tried, key=loss)
        if values == before or loss(values) < REL_TOL / 10 or loss(values) > 0.5 * start:
            break
    if loss(values) > 0.5 * start and loss(values) > REL_TOL:
        return None
    if loss(values) > REL_TOL:
        for place, grid in enumerate(dial.grids):
            points = sorted({*grid, values[place]})
            position = points.index(values[place])
            low, high = points[max(position - 1, 0)], points[min(position + 1, len(points) - 1)]
            between = zoom if "clip_low" in dial.names else golden_section
            at = between(partial(at_place, loss, values, place), low, high)
            values = min(values, (*values[:place], at, *values[place + 1 :]), key=loss)
    good = max(loss(values), REL_TOL)
    if good > 1e-4:
        return None
    for place, value in enumerate(values):  # the shortest number that is as good: a bound lies between two tokens
        short = [(*values[:place], float(f"{value:.{digits}g}"), *values[place + 1 :]) for digits in (1, 2, 3, 4)]
        values = next((v for v in short if loss(v) <= good), values)
    return values, turn(trial, dial, values)


def at_place(loss: Callable[[tuple[float, ...]], float], values: tuple[float, ...], place: int, value: float) -> float:
    """The loss with one of the values replaced."""
    return loss((*values[:place], value, *values[place + 1 :]))


def zoom(loss: Callable[[float], float], low: float, high: float) -> float:
    """The point between low and high where a loss with steps is least: a bound acts where it passes a token."""
    for _ in range(5):
        points = [low + (high - low) * i / 8 for i in range(9)]
        best = min(range(9), key=lambda i: loss(points[i]))
        low, high = points[max(best - 1, 0)], points[min(best + 1, 8)]
    return points[best]


def golden_section(loss: Callable[[float], float], low: float, high: float) -> float:
    """The point between low and high where a loss with one minimum is least."""
    ratio = (5**0.5 - 1) / 2
    inner, outer = high - ratio * (high - low), low + ratio * (high - low)
    for _ in range(40):
        if loss(inner) <= loss(outer):
            high, outer, inner = outer, inner, outer - ratio * (outer - low)
            inner = high - ratio * (high - low)
        else:
            low, inner = inner, outer
            outer = low + ratio * (high - low)
    return (low + high) / 2


def with_penalty(question: Question, candidates: Iterable[Trial], tau: float, found: Found) -> None:
    """Add the candidates that agree with the loss once a KL term is added, by least squares of the two gradients."""
    wanted = [s for _, s in question.slopes["ordinary"]]
    usable = [x for x in candidates if x.name != "grpo-kl" and bool(x.slope("ordinary", 0).any())]
    if not usable:
        return
    ours = torch.stack([x.slope("ordinary", 0).flatten() for x in usable])
    for anchor, estimator, whole, by_length, padding in product(
        ("pi_ref", "pi_old") if question.with_ref else ("pi_old",),
        PENALTIES,
        (False, True),
        (False, True),
        (False, True),
    ):
        if (padding and (whole or anchor == "pi_old")) or (anchor, estimator, whole) == ("pi_old", "k2", True):
            continue
        penalty = partial(penalty_slope, estimator, anchor, whole, by_length, padding)
        column = penalty(ordinary()[0])
        for place in spans(wanted[0].flatten(), ours, column.flatten()):
            trial = usable[place]
            pulls = hasattr(trial.objective, "tau")
            if anchor == "pi_old" and (pulls or (estimator == "k1" and not hasattr(trial.objective, "clip_low"))):
                continue  # the pull, or a baseline, by another name
            added = fit_penalty(wanted, trial, penalty)
            if added is None:
                continue
            beta = added.beta
            what = f"{estimator} of log pi/{anchor} {'per response' if whole else 'per token'}"
            said: list[str] = []
            if beta < 0:
                said = [f"the KL term ({what}) has the wrong sign: its coefficient is {beta:.4g}"]
            elif estimator == "k3 of the inverse ratio":
                said = [f"the KL term is {what}: e^s - 1 - s, not e^-s - 1 + s (coefficient {beta:.4g})"]
            elif estimator == "k1":
                said = [f"the KL term is {what}, or log pi is added as an entropy bonus: "
                        f"as a loss, its expected gradient is 0 (coefficient {beta:.4g})"]  # fmt: skip
            elif estimator == "abs":
                said = [f"the KL term is {what}, which as a loss has the gradient of twice the total variation "
                        f"(coefficient {beta:.4g})"]  # fmt: skip
            if padding:
                said.append(f"padding counts in the KL term ({what}, coefficient {beta:.4g})")
            if added.share or by_length != trial.by_length:
                own = "averaged over each response" if by_length else "added up over tokens and averaged over responses"
                said.append(f"the KL term ({what}, coefficient {beta:.4g}) has another length rule than the loss: "
                            f"{added.share or own}")  # fmt: skip
            more = {} if said else {"kl_coef": beta, "kl_estimator": estimator} | (
                {} if anchor == "pi_ref" or not question.with_ref else {"anchor": "pi_old"})  # fmt: skip
            verdict = judge(question, added, tau, tuple(said), more)
            if verdict[0] == 0.0 and (padding or not set(verdict[2].slips) & set(DIFFERS.values())):
                found.append(verdict)


def spans(wanted: Tensor, ours: Tensor, column: Tensor) -> list[int]:
    """The rows of `ours` [K, M] that give `wanted` [M] together with a column [M]: at most 40, the nearest first."""
    unit = column / column.norm()
    target, rows = wanted - (wanted @ unit) * unit, ours - (ours @ unit)[:, None] * unit
    size = (rows**2).sum(1)
    free = size > 1e-10 * (ours**2).sum(1)
    share = torch.where(free, rows @ target / size.clamp_min(1e-300), 0.0)
    error = (share[:, None] * rows - target).norm(dim=1) / wanted.norm()
    return [int(i) for i in error.argsort()[:40] if error[i] < SCREENING_TOL and free[i]]


def fit_penalty(wanted: list[Tensor], trial: Trial, penalty: Callable[[Probe], Tensor]) -> "Penalised | None":
    """A candidate with the KL term at the coefficient that all ordinary batches share, or None."""
    first, second = [], []
    for target, ours, probe in zip(wanted, trial.on("ordinary"), ordinary(), strict=True):
        columns = torch.stack([ours.flatten(), penalty(probe).flatten()], 1)
        gram = columns.T @ columns
        if float(torch.linalg.det(gram)) < 1e-10 * float(gram[0, 0] * gram[1, 1]):
            return None
        solution = torch.linalg.solve(gram, columns.T @ target.flatten())
        first.append(float(solution[0]))
        second.append(float(solution[1]) / float(solution[0]))
    if max(map(abs, second)) < 1e-6:
        return None
    # the coefficient may change with the batch as one of its reductions does
    own, _, _ = shared(first)
    for share in ("", *(x for x in ordinary()[0].factors if x)):
        ratios = [x / p.factors[share] * p.factors[own] for x, p in zip(second, ordinary(), strict=True)]
        ratios = second if not share else ratios
        beta = sum(ratios) / len(ratios)
        if max(abs(x / beta - 1) for x in ratios) < 1e-4:
            shown = float(f"{beta:.4g}")
            beta = shown if abs(shown / beta - 1) < 1e-5 else beta
            given = {f.name: getattr(trial, f.name) for f in fields(Trial)} | {"slopes": {}, "twin": None}
            return Penalised(**given, penalty=penalty, beta=beta, share=share, own=own)
    return None


def shared(constants: list[float]) -> tuple[str, float, float]:
    """The reduction that explains the constants of the ordinary batches best."""
    return factor([torch.tensor([x]) for x in constants], [torch.ones(1)] * len(constants), ordinary())


def penalty_slope(estimator: str, anchor: str, whole: bool, by_length: bool, padding: bool, probe: Probe) -> Tensor:
    """The gradient of the mean KL term over the responses to a batch."""
    logp = probe.logp.clone().requires_grad_()
    mask = torch.ones_like(probe.mask) if padding else probe.mask
    s = torch.where(mask, logp - (probe.logp_ref if anchor == "pi_ref" else probe.logp_old), 0.0)
    s = s.sum(1, keepdim=True) if whole else s
    kind = PENALTIES[estimator]
    value = (kl_estimate(-s if "inverse" in estimator else s, kind) if kind else s.abs()).sum(1)
    tokens = probe.mask.sum(1) if by_length else torch.ones(len(logp))
    (slope,) = torch.autograd.grad((value / tokens / len(logp)).sum(), logp)
    return slope


@dataclass(eq=False)
class Penalised(Trial):
    """A candidate with beta times a KL term.

    Attributes:
        share: the reduction of the term where it is not that of the loss, which is `own`.
    """

    penalty: Callable[[Probe], Tensor] = field(default=lambda probe: probe.logp)
    beta: float = 0.0
    share: str = ""
    own: str = ""

    def compute(self, kind: str, i: int) -> Tensor:
        """The sum of both gradients."""
        probe = KINDS[kind]()[i]
        factors = probe.factors
        scale = self.beta * (factors[self.share] / factors[self.own] if self.share else 1.0)
        return super().compute(kind, i) + scale * self.penalty(probe)


@dataclass(eq=False)
class Shaped(Trial):
    """A candidate whose rewards are less by beta times a KL estimate of the response.

    Attributes:
        shape: the policies compared, the estimate, whether it is a mean over tokens, whether its gradient is kept.
    """

    shape: tuple[str, str, bool, bool] = ("pi_old", "k1", False, False)
    beta: float = 0.0

    def credited(self, probe: Probe, logp: Tensor) -> tuple[Batch, Probe]:
        """What the objective sees at these rewards."""
        policy, estimator, averaged, attached = self.shape
        moving = {"pi_old": probe.logp_old, "pi": logp}[policy]
        value = torch.where(
            probe.mask, kl_estimate(torch.where(probe.mask, moving - probe.logp_ref, 0.0), estimator), 0.0
        )
        value = value.sum(1) / (probe.mask.sum(1) if averaged else 1)
        value = value if attached else value.detach()
        changed = replace(probe, reward=probe.reward - self.beta * value.view(probe.reward.shape))
        batch, objective = super().credited(probe, logp)[0], self.credit or self.objective
        return replace(batch, advantage=objective.advantage(changed.groups).flatten()), changed


def in_reward(question: Question, candidates: Iterable[Trial], tau: float, found: Found) -> None:
    """Add the candidates that agree with the loss once a KL term is taken from the reward."""
    if not question.with_ref:
        return
    wanted = question.slopes["ordinary"][0][1]
    for trial in candidates:
        if not usual(trial) or trial.name in ("grpo-kl", "flowrl") or not bool(trial.slope("ordinary", 0).any()):
            continue
        for shape in product(("pi_old", "pi"), ("k1", "k2", "k3"), (False, True), (False, True)):
            if shape[0] == "pi_old" and shape[3]:
                continue
            given = {f.name: getattr(trial, f.name) for f in fields(Trial)} | {"twin": None}
            shaped = partial(replace, Shaped(**given, shape=shape))
            base, beta, step = trial.slope("ordinary", 0), 0.0, 1e-3
            for _ in range(6):  # Newton's steps, since a std makes the advantage nonlinear in beta
                at = shaped(beta=beta, slopes={}).slope("ordinary", 0) if beta else base
                ahead = shaped(beta=beta + step, slopes={}).slope("ordinary", 0)
                columns = torch.stack([at.flatten(), (ahead - at).flatten() / step], 1)
                constant, move = torch.linalg.lstsq(columns, wanted.flatten()[:, None]).solution[:, 0].tolist()
                error = float(
                    (columns @ torch.tensor([constant, move]).double() - wanted.flatten()).norm() / wanted.norm()
                )
                if error > 0.3 or constant == 0:
                    break
                beta, step = beta + move / constant, 1e-5
                if abs(move / constant) < 1e-9:
                    break
            if error > SCREENING_TOL or abs(beta) < 1e-6:
                continue
            shown = float(f"{beta:.4g}")
            beta = shown if abs(shown / beta - 1) < 1e-5 else beta
            policy, estimator, averaged, attached = shape
            wrong = {
                "has the wrong sign": beta < 0,
                "is a mean over tokens, not a sum": averaged,
                "is not detached: the gradient also goes through the reward": attached,
                "is that of the policy that learns, not of pi_old": policy == "pi" and not attached,
            }
            what = f"the KL term in the reward ({estimator} of log {policy}/pi_ref, coefficient {beta:.4g})"
            said = [f"{what} {words}" for words, so in wrong.items() if so]
            more = {} if said else {"kl_coef": beta, "kl_estimator": estimator, "kl_in": "reward"}
            found.append(judge(question, shaped(beta=beta, slopes={}), tau, tuple(said), more))


def share(wanted: Tensor, found: Tensor) -> float:
    """The multiple of a gradient that is nearest to another."""
    return float((found * wanted).sum() / (found**2).sum().clamp_min(1e-300))


def apart(wanted: Tensor, found: Tensor) -> float:
    """Relative distance of a gradient from the nearest multiple of another."""
    return float((wanted - found * share(wanted, found)).norm() / wanted.norm())


def factor(wanted: list[Tensor], found: list[Tensor], batches: Any, tol: float = REL_TOL) -> tuple[str, float, float]:
    """The reduction that explains the lengths of the gradients best, the constant that is left, and the error."""
    target, best = torch.cat([x.flatten() for x in wanted]), ("", 1.0, float("inf"))
    for reduction in batches[0].factors:
        scaled = [slope * probe.factors[reduction] for slope, probe in zip(found, batches, strict=True)]
        flat = torch.cat([x.flatten() for x in scaled])
        constant, error = float(flat @ target / (flat @ flat)), apart(target, flat)
        if error < best[2] - tol:
            best = (reduction, constant, error)
    return best


def constant_in_words(constant: float, tau: float, error: float) -> str:
    """What a constant factor is, empty for 1."""
    close = max(10 * error, 1e-6)
    sign = "the sign is wrong" if constant < 0 else ""
    names: dict[float, str] = {}
    for value, name in ((tau, "tau"), (2 * tau, "2 tau"), (tau / 2, "tau / 2")):
        names |= {1 / value: f"divided by {name}", value: f"times {name}"}
    names |= {1.0: "", 2.0: "twice as large", 0.5: "half as large"}  # whatever tau is
    size = next((name for value, name in names.items() if abs(abs(constant) / value - 1) < close), None)
    return ", ".join(word for word in (sign, f"{abs(constant):.4g} times as large" if size is None else size) if word)


def as_norm(trial: Trial, reduction: str) -> tuple[str | None, str]:
    """The length rule as the option `norm`, None if it is the objective's own; or what the reduction is in words."""
    objective, by_length = trial.objective, trial.by_length
    if reduction == PAIRS and isinstance(objective, REBEL):  # the mean over pairs of different responses
        reduction = ""
    if reduction in (PAIRS, OWN_DRAW):
        return as_norm(trial, "")[0], reduction
    norms = {
        (False, ""): "none",
        (True, ""): "length",
        (False, "divided by the tokens of the batch (norm tokens)"): "tokens",
    }
    if objective.norm == "max":  # whose budget is the longest response here
        norms[False, "divided by the longest response of the batch"] = "max"
    norm = norms.get((by_length, reduction))
    if norm is None:
        return ("length" if by_length and objective.norm != "length" else None), reduction
    return (None if norm == objective.norm else norm), ""


__all__ = ["CERTIFIED", "Verdict", "assert_is", "certify"]
