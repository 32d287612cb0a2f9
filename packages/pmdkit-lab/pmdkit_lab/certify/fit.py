"""The numbers of an objective, such as its clips, at which it is nearest to a loss: found by search."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from pmdkit_lab.certify.candidates import LATER
from pmdkit_lab.certify.probes import near, rows_apart, special
from pmdkit_lab.certify.slips import Dial, Slip, dials
from pmdkit_lab.certify.trial import REL_TOL, Question, Trial, apart, factor
from pmdkit_lab.certify.verdict import Found, as_norm, judge

NEAR_TOL = 5e-3  # pulls and clips change less than this on the batches `near`
FITTED = 6  # candidates whose numbers are searched: those nearest to the loss where no clip is reached


def fit_all(question: Question, candidates: Iterable[Trial], tau: float, found: Found) -> None:
    """Search the numbers of those candidates that agree where clips and pulls hardly act, and add the verdicts."""
    wanted, ranked = [s for _, s in question.slopes["near"]], []
    first = [(apart(wanted[0], slope), x) for x in candidates if bool((slope := x.slope("near", 0)).any())]
    close = sorted((each for each in first if each[0] <= NEAR_TOL), key=lambda each: each[0])
    for _, trial in close[: 4 * FITTED]:
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
            tried = [(*values[:place], x, *values[place + 1 :]) for x in sorted({*grid, values[place]})]
            step = 4 if len(tried) > 16 else 1  # a bound further off is wrong on more tokens: one minimum
            near_best = tried.index(min((*tried[::step], values), key=loss))
            values = min(tried[max(near_best - step, 0) : near_best + step + 1], key=loss)
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

            def with_number(x: float, place: int = place, values: tuple[float, ...] = values) -> float:
                return loss((*values[:place], x, *values[place + 1 :]))

            at = between(with_number, low, high)
            values = min(values, (*values[:place], at, *values[place + 1 :]), key=loss)
    good = max(loss(values), REL_TOL)
    if good > 1e-4:
        return None
    for place, value in enumerate(values):  # the shortest number that is as good: a bound lies between two tokens
        short = [(*values[:place], float(f"{value:.{digits}g}"), *values[place + 1 :]) for digits in (1, 2, 3, 4)]
        values = next((v for v in short if loss(v) <= good), values)
    return values, turn(trial, dial, values)


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
