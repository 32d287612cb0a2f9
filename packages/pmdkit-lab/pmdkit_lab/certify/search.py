"""Which loss is this? Somebody's own loss function, compared with every objective of pmdkit under every convention.

The gradients of both are taken on the ordinary batches of `probes`. They agree up to a factor, which may depend on the
batch as a sum, a mean or a width does, or they do not. Then those on the special batches must agree at the same factor.
A change that makes an objective agree is a slip.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import UsageError, unknown
from pmdkit.objectives import OBJECTIVES, REBEL, Batch, Objective, total, traits
from pmdkit.objectives.regulariser import kl_estimate
from pmdkit.objectives.trust_region import RADIUS
from pmdkit_lab.certify.probes import (
    DIFFERS,
    NOT_FINITE,
    PAIRS,
    Probe,
    near,
    ordinary,
    rows_apart,
    special,
)
from pmdkit_lab.certify.slips import Dial, Slip, at_old, at_reference, dials, slips, with_advantage

LossFunction = Callable[..., Tensor]
"""Maps logp [N, T], logp_old [N, T], reward [P, G] and mask [N, T], boolean, to one number; rows are prompt-major. A
fifth argument is logp_ref [N, T]."""

REL_TOL = 1e-6  # of a gradient: float32 leaves 3e-7, and a function may add a constant of 1e-8
SCREENING_TOL = 1e-5  # below it on the first batch, the others are looked at
NEAREST = 24  # candidates that are judged on all batches, although they do not agree on the first
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
LATER = ("dro", "sppo", "dr-grpo", "dapo", "asymre", "reinforce-pp", "opmd", "grpo-kl", "gmpo", "bapo", "rec", "flowrl")
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
    """

    name: str
    options: dict[str, Any]
    slips: tuple[str, ...]
    error: float
    same_value: bool

    @property
    def right(self) -> bool:
        """Whether it is an objective of pmdkit with nothing changed."""
        return self.error <= REL_TOL and not self.slips

    def sentence(self) -> str:
        """The verdict in one sentence."""
        options = ", ".join(f"{key}={value}" for key, value in self.options.items())
        what = f"{self.name} ({options})" if options else self.name
        places = [key for key, words in DIFFERS.items() if words in self.slips]
        said = self.slips
        if len(places) > 2:  # a difference that shows everywhere is none of those that the batches look for
            said = (
                *(x for x in said if x not in DIFFERS.values()),
                f"it differs on the batches {', '.join(places)} too",
            )
        slips = "; ".join(said)
        if not self.name:
            return slips
        if self.error > HINT_TOL and not slips.startswith("its gradient has"):
            return f"no objective here is this; nearest is {what}, {self.error:.1g} off"
        if self.error > REL_TOL:
            return f"no objective here is this; nearest is {what}, {self.error:.1g} off{'; ' if slips else ''}{slips}"
        value = "" if self.same_value else "; its value is another, its gradient is the same"
        return f"this is {what}{', but ' if self.slips else ''}{slips}{value}"


CERTIFIED = """\
Certified: the gradient by logp, at token ratios from e^-6 to e^6, drifts of a response up to 80 nats, masks with holes,
NaN off the mask, equal and negative rewards, groups of 2 to 8. Not certified: the rewards, mask and logp_old
that your trainer passes to the loss, the optimizer, and which KL divergence a KL term has (pmdkit certify --kl)."""


@dataclass(eq=False)
class Trial:
    """An objective with a slip or without, and its gradients, computed once each.

    Attributes:
        by_length: divide each response by its length.
        twin: the same without `by_length`, if its gradients row by row give those of this one.
        credit: gives advantages and temperatures in place of `objective`; the same ones, and they are at hand.
    """

    name: str
    options: dict[str, Any]
    objective: Objective
    slip: Slip
    by_length: bool
    with_ref: bool
    twin: "Trial | None" = None
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
        return slope * self.slip.sign

    def value(self, probe: Probe, logp: Tensor) -> Tensor:
        """The loss: the mean over the responses, each by its length or not."""
        batch = at_old(self.credit or self.objective, probe, self.with_ref)
        weight = torch.full_like(batch.weight, 1 / len(logp))
        if self.by_length:
            weight = weight / probe.mask.sum(1)
        batch = replace(batch, weight=weight, logp=logp)
        return total(self.objective, batch if self.slip.twist is None else self.slip.twist(batch, probe))


KINDS: dict[str, Callable[[], tuple[Probe, ...]]] = {"ordinary": ordinary, "near": near, "special": special}


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
        among: names of the objectives to compare with; empty for all.
        options: of the objectives to compare with, where they have them, such as clip_high=0.28.

    Raises:
        UsageError: the loss is not one finite number that depends on logp.
    """
    question = ask(loss)
    if all(not bool(slope.any()) for _, slope in question.slopes["ordinary"]):
        return Verdict("", {}, ("it has no gradient: logp is detached, or logp_old is logp itself",), 0.0, False)
    given = tuple(sorted(options.items()))
    found: list[tuple[float, float, Verdict]] = []
    # from the likely to the far-fetched; a later stage is entered if the earlier ones leave something to explain
    plain = trials(False, tau, given, among, question.with_ref)
    judge_all(question, plain, tau, found)
    if explained(found):
        return best(found)
    if question.with_ref:
        at_ref = Slip("pi_ref stands in the place of pi_old", at_reference)
        judge_all(question, [replace(x, slip=at_ref, twin=None, slopes={}) for x in plain], tau, found)
        if explained(found, 1):
            return best(found)
    fit_all(question, plain, tau, found)
    if explained(found, 1):
        return best(found)
    with_penalty(question, plain, tau, found)
    if explained(found, 1):
        return best(found)
    slipped = trials(True, tau, given, among, question.with_ref)
    judge_all(question, slipped, tau, found)
    if not explained(found, 1):
        fit_all(question, slipped, tau, found)
    verdict = best(found)
    slopes = [slope for _, slope in question.slopes["ordinary"]]
    if REL_TOL < verdict.error < ROUNDED_TOL and all(bool((x.bfloat16() == x).all()) for x in slopes):
        return replace(verdict, slips=("its gradient has the 8 bits of bfloat16: log-probabilities are cast to it",))
    return verdict


def assert_is(loss: LossFunction | Objective, name: str, tau: float = 0.1, **options: Any) -> None:
    """Assert that a loss is this objective at these options; to be called in a test, takes a second.

    Args:
        loss: a function, see `LossFunction`, or an objective.
        name: a key of OBJECTIVES.
        tau: the temperature that the loss was given, reward units.
        options: of the objective, such as clip_high=0.28 or norm="tokens"; the others are its defaults.

    Raises:
        AssertionError: the loss is another one; says what differs.
        UsageError: the loss is not one finite number.
    """
    if name not in OBJECTIVES:
        raise UsageError(f"{unknown('objective', name, OBJECTIVES)}")
    with_tau = {"tau": tau} if "tau" in {option.name for option in fields(OBJECTIVES[name])} else {}
    objective = OBJECTIVES[name](**options, **with_tau)
    question = ask(loss)
    uses = question.with_ref and bool(traits(objective).uses_reference)
    for by_length in (False, True):
        verdict = judge(question, Trial(name, {}, objective, Slip(), by_length, uses), tau)[2]
        if verdict.right and not verdict.options:
            return
    found = certify(loss, tau, (name,), **options)
    expected = ", ".join(f"{key}={value}" for key, value in options.items())
    raise AssertionError(
        f"the loss is not {name}{f' ({expected})' if options else ''}: {found.sentence()}\n{CERTIFIED}"
    )


def best(found: list[tuple[float, float, Verdict]]) -> Verdict:
    """The nearest, then the cheapest to explain."""
    return min(found, key=lambda each: each[:2])[2]


def explained(found: list[tuple[float, float, Verdict]], slips: int = 0) -> bool:
    """Whether an objective with at most so many slips agrees everywhere, or one differs where no slip can change it."""
    verdict = best(found)
    said = [slip for slip in verdict.slips if slip not in UNEXPLAINED]
    if verdict.error > REL_TOL or len(said) < len(verdict.slips):
        return False
    return len([slip for slip in said if slip not in FINAL]) <= slips


FINAL = [words for table in (DIFFERS, NOT_FINITE) for words in table.values()]
UNEXPLAINED = [DIFFERS["wide"], DIFFERS["narrow"], DIFFERS["long"]]
"Differences that a number in an objective, or a slip, may explain."


def judge_all(
    question: Question, candidates: list[Trial], tau: float, found: list[tuple[float, float, Verdict]]
) -> None:
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
    reduction, constant, error = factor([s for _, s in wanted], ours, batches)
    norm, slip = as_norm(trial, reduction)
    large = constant_in_words(constant, tau, error)
    words = [word for word in (trial.slip.words, *extra, slip, large) if word]
    cost = len(words) + 0.0
    if error <= REL_TOL:
        for probe, his, mine in zip(special(), question.slopes["special"], trial.on("special"), strict=True):
            difference = differs(probe, his, mine, constant * probe.factors[reduction])
            words += [difference] if difference else []
            cost += 1.5 * bool(difference)
    options = trial.options | (more or {}) | ({} if norm is None else {"norm": norm})
    gaps = [
        abs(float(his - trial.value(p, p.logp) * p.factors[reduction]))
        for (his, _), p in zip(wanted, batches, strict=True)
    ]
    value = not large and not isinstance(trial, Penalised) and max(gaps) < 1e-6
    cost += 0.1 * len(options) + (0.15 if trial.name in LATER else 0.0) - (0.01 if value else 0.0)
    verdict = Verdict(trial.name, options, tuple(words), error, value)
    return 0.0 if error <= REL_TOL else error, cost, verdict


def differs(probe: Probe, his: Slope, mine: Tensor, scale: float) -> str:
    """What to say of a loss on a special batch, empty if it agrees with the objective there."""
    if not bool(mine.isfinite().all()):  # the slip itself overflows, or reads NaN
        return "" if not bool(his[1].isfinite().all()) else DIFFERS[probe.name]
    if not bool(his[1].isfinite().all() and his[0].isfinite()):
        return NOT_FINITE.get(probe.name, DIFFERS[probe.name])
    return "" if float(rows_apart(his[1], scale * mine).max()) <= 2 * REL_TOL else DIFFERS[probe.name]


@lru_cache(maxsize=8)
def trials(
    slipped: bool, tau: float, options: tuple[tuple[str, Any], ...], among: tuple[str, ...], with_ref: bool
) -> list[Trial]:
    """Every candidate as it is, or with a slip each; kept, since another loss meets the same ones."""
    made = []
    for name, chosen, objective in candidates(tau, dict(options), among):
        again = name in ("dr-grpo", "grpo-kl") or {"trust_region", "scale"} & set(chosen) or chosen.get("std") == "mean"
        if slipped and (again or (chosen and name in LATER and name != "dapo")):
            continue  # another candidate times a constant, or too far-fetched for two changes
        for slip in slips(objective, tau) if slipped else [Slip()]:
            if changes_advantage(slip) and {"baseline", "std"} & set(chosen):
                continue  # the advantage is another anyway
            changed = objective
            if slip.objective is not None:
                changed = slip.objective(**{f.name: getattr(objective, f.name) for f in fields(objective)})  # type: ignore[arg-type]
            uses = with_ref and bool(traits(objective).uses_reference)
            bare = Trial(name, chosen, changed, slip, False, uses)
            made += [
                bare,
                replace(bare, by_length=True, twin=None if traits(objective).whole_groups else bare, slopes={}),
            ]
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
            if value != given.get(key, own[key])
        ]
        for chosen in [{}, *moved, *EXTRA_OPTIONS.get(name, [])]:
            try:
                yield name, chosen, kind(**given | chosen)
            except ValueError:  # an option of that name means something else here
                continue


FITTED = 6  # candidates whose numbers are searched: those nearest to the loss where no clip is reached


def fit_all(question: Question, candidates: list[Trial], tau: float, found: list[tuple[float, float, Verdict]]) -> None:
    """Search the numbers of those candidates that agree where clips and pulls hardly act, and add the verdicts."""
    usable = [x for x in candidates if fitted(x)]
    ranked = []
    for trial in usable:
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


def fitted(trial: Trial) -> bool:
    """Whether numbers are searched in a candidate: as it is, or with another advantage."""
    return not trial.slip.words or changes_advantage(trial.slip)


def changes_advantage(slip: Slip) -> bool:
    """Whether a slip replaces the advantage and nothing else."""
    return isinstance(slip.twist, partial) and slip.twist.func is with_advantage


def turn(trial: Trial, dial: Dial, values: tuple[float, ...]) -> Trial:
    """The candidate with its numbers at these values."""
    objective, other = dial.turned(trial.objective, values)
    first = trial.slip.twist

    def both(batch: Batch, probe: Probe) -> Batch:
        batch = batch if first is None else first(batch, probe)
        return batch if other is None else other(batch, probe)

    twist = None if first is None and other is None else both
    return replace(
        trial, objective=objective, slip=replace(trial.slip, twist=twist), credit=trial.objective, twin=None, slopes={}
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


def with_penalty(
    question: Question, candidates: list[Trial], tau: float, found: list[tuple[float, float, Verdict]]
) -> None:
    """Add the candidates that agree with the loss once a KL term is added, by least squares of the two gradients."""
    wanted = [s for _, s in question.slopes["ordinary"]]
    anchors = ("pi_ref", "pi_old") if question.with_ref else ("pi_old",)
    for trial in candidates:
        if trial.name == "grpo-kl":  # GRPO with such a term
            continue
        ours = trial.slope("ordinary", 0)
        if not bool(ours.any()):
            continue
        per_response = traits(trial.objective).level == "response"
        for anchor in anchors:
            for estimator in PENALTIES:
                pulls = hasattr(trial.objective, "tau")
                if anchor == "pi_old" and (pulls or (estimator == "k1" and not hasattr(trial.objective, "clip_low"))):
                    continue  # the pull, or a baseline, by another name
                for whole in (False, True) if per_response and (anchor, estimator) != ("pi_old", "k2") else (False,):
                    penalty = partial_penalty(estimator, anchor, whole, trial.by_length)
                    coefficients = two_columns(wanted[0], ours, penalty(ordinary()[0]))
                    if coefficients is None:
                        continue
                    beta = coefficients[1] / coefficients[0]
                    if abs(beta) < 1e-6:
                        continue
                    shown = float(f"{beta:.4g}")
                    beta = shown if abs(shown / beta - 1) < 1e-7 else beta
                    own = {f.name: getattr(trial, f.name) for f in fields(Trial)} | {"slopes": {}}
                    added = Penalised(**own, penalty=penalty, beta=beta)
                    what = f"{estimator} of log pi/{anchor} {'per response' if whole else 'per token'}"
                    said: tuple[str, ...] = ()
                    if beta < 0:
                        said = (f"the KL term ({what}) has the wrong sign: its coefficient is {beta:.4g}",)
                    elif estimator == "k3 of the inverse ratio":
                        said = (f"the KL term is {what}: e^s - 1 - s, not e^-s - 1 + s (coefficient {beta:.4g})",)
                    elif estimator == "k1":
                        said = (
                            f"the KL term is {what}, or log pi is added as an entropy bonus: "
                            f"as a loss, its expected gradient is 0 (coefficient {beta:.4g})",
                        )
                    elif estimator == "abs":
                        said = (
                            f"the KL term is {what}, which as a loss has the gradient of twice the total variation "
                            f"(coefficient {beta:.4g})",
                        )
                    more = {} if said else {"kl_coef": added.beta, "kl_estimator": estimator} | (
                        {} if anchor == "pi_ref" or not question.with_ref else {"anchor": "pi_old"})  # fmt: skip
                    verdict = judge(question, added, tau, said, more)
                    if verdict[0] == 0.0 and not set(verdict[2].slips) & set(DIFFERS.values()):
                        found.append(verdict)


def partial_penalty(estimator: str, anchor: str, whole: bool, by_length: bool) -> Callable[[Probe], Tensor]:
    """A function from a batch to the gradient of the mean KL term over its responses."""

    def penalty(probe: Probe) -> Tensor:
        logp = probe.logp.clone().requires_grad_()
        s = torch.where(probe.mask, logp - (probe.logp_ref if anchor == "pi_ref" else probe.logp_old), 0.0)
        s = s.sum(1, keepdim=True) if whole else s
        kind = PENALTIES[estimator]
        value = (kl_estimate(-s if "inverse" in estimator else s, kind) if kind else s.abs()).sum(1)
        tokens = probe.mask.sum(1) if by_length else torch.ones(len(logp))
        (slope,) = torch.autograd.grad((value / tokens / len(logp)).sum(), logp)
        return slope

    return penalty


@dataclass(eq=False)
class Penalised(Trial):
    """A candidate with beta times a KL term."""

    penalty: Callable[[Probe], Tensor] = field(default=lambda probe: probe.logp)
    beta: float = 0.0

    def compute(self, kind: str, i: int) -> Tensor:
        """The sum of both gradients."""
        return super().compute(kind, i) + self.beta * self.penalty(KINDS[kind]()[i])


def two_columns(wanted: Tensor, first: Tensor, second: Tensor) -> tuple[float, float] | None:
    """Coefficients of the sum of two gradients that is `wanted`, or None if no sum is."""
    columns = torch.stack([first.flatten(), second.flatten()], 1)
    gram = columns.T @ columns
    if float(torch.linalg.det(gram)) < 1e-10 * float(gram[0, 0] * gram[1, 1]):
        return None
    solution = torch.linalg.solve(gram, columns.T @ wanted.flatten())
    if float((columns @ solution - wanted.flatten()).norm() / wanted.norm()) > SCREENING_TOL:
        return None
    return float(solution[0]), float(solution[1])


def apart(wanted: Tensor, found: Tensor) -> float:
    """Relative distance of a gradient from the nearest multiple of another."""
    return float((wanted - found * (found * wanted).sum() / (found**2).sum()).norm() / wanted.norm())


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
