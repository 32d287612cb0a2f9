"""The verdict on one candidate, and the best of many."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pmdkit.objectives import REBEL, DrGRPO
from pmdkit_lab.certify.candidates import LATER
from pmdkit_lab.certify.probes import DIFFERS, OWN_DRAW, PAIRS, ordinary, special
from pmdkit_lab.certify.special import differs
from pmdkit_lab.certify.trial import REL_TOL, Question, Trial, apart, factor

SCREENING_TOL = 1e-5  # below it on the first batch, the others are looked at
NEAREST = 24  # candidates that are judged on all batches, although they do not agree on the first
HINT_TOL = 1e-4  # at a larger distance, a slip that brings an objective nearer means nothing


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
        if not self.error <= REL_TOL:  # NaN too
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
Certified as {}: the gradient by logp, at token ratios from e^-6 to e^6, drifts of a response up to
80 nats, masks with holes, NaN off the mask, equal and negative rewards, groups of 2 to 8. Not certified: the rewards,
mask and logp_old that your trainer passes to the loss, the optimizer, and which KL divergence a KL term has
(pmdkit certify --kl)."""


Found = list[tuple[float, float, Verdict]]
"Distance, cost and verdict of each candidate that was looked at."


def best(found: Found) -> Verdict:
    """The nearest, then the cheapest to explain."""
    return min(found, key=lambda each: each[:2])[2]


def explained(found: Found, slips: int) -> bool:
    """Whether an objective with so many slips, one more in its advantage or reduction, agrees everywhere."""
    verdict = best(found)
    if not verdict.error <= REL_TOL or set(verdict.slips) & set(DIFFERS.values()):
        return False
    return len(verdict.slips) <= slips + bool(slips)


def judge_all(question: Question, candidates: Iterable[Trial], tau: float, found: Found) -> None:
    """Add to `found` a verdict for the NEAREST nearest candidates, and for all that agree on the first batch.

    A candidate without a gradient on that batch gets no verdict.
    """
    wanted = question.slopes["ordinary"][0][1]
    ranked = [(apart(wanted, slope), x) for x in candidates if bool((slope := x.slope("ordinary", 0)).any())]
    ranked.sort(key=lambda each: each[0])
    for place, (error, trial) in enumerate(ranked):
        if not error <= SCREENING_TOL and place >= NEAREST:
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
    value = error <= REL_TOL and not large and trial.same_value and all(
        abs(float(his - value_scale * trial.value(p, p.logp) * c.factors[reduction])) < 1e-6
        for (his, _), p, c in zip(wanted, batches, count, strict=True)
    )  # fmt: skip
    cost += 0.1 * len(options) + (0.25 if trial.name in LATER else 0.0) - (0.01 if value else 0.0)
    verdict = Verdict(trial.name, options, tuple(words), error, value)
    return 0.0 if error <= REL_TOL else error, cost, verdict


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
