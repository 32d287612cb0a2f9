"""The target-error figures: squared error of leave-one-out targets, overall and split by right and wrong."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pmdkit import theory
from pmdkit.figures.style import style
from pmdkit.stats import Array
from pmdkit_lab.figures.bootstrap import bootstrap
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import COLOURS, TITLES, look

TAU, SEEDS = 0.05, 100  # from the caption
PS = np.array([0.01, 0.02, 0.05, 0.1, 0.2])  # the caption gives the ends
NS = 2 ** np.arange(2, 11)  # the caption gives none
LINE = np.unique(np.geomspace(4, 1024, 65).round().astype(int))  # where the exact lines are computed; contains NS
GROUP = 16  # responses per prompt in the paper's runs, for the sentence
MARKERS = ("o", "v", "s", "^", "D")
METHODS = ("pmd-part", "pmd-mean")


def target_error() -> Drawing:
    r"""Expected squared error of the targets, $E\,\overline{\Delta^2}$, and the same times $e^{B_+}$.

    Lines are exact sums over the binomial, points are means over SEEDS simulated groups with 95 % bootstrap intervals
    over seeds. Both methods see the same groups.

    Source: arXiv:2602.05933, figure target_estimation; eqs. loo-s-mean, loo-s-part and one_step_improvement.
    Differs: the caption gives the ends of p and no group sizes; the exact lines and the intervals are added.
    """
    data = {"p": PS, "n": NS.astype(float), "n line": LINE.astype(float)}
    for method in METHODS:
        scale = np.exp(theory.binary(PS, TAU, method).B_plus)[:, None]
        draws = theory.simulate_target_error(PS[:, None], NS, TAU, method, SEEDS, 0)
        low, high = bootstrap(draws.per_seed, np.ones(1))
        exact = theory.target_error(PS[:, None], LINE, TAU, method).mean
        for name, values in (("exact", exact), ("mean", draws.mean), ("low", low), ("high", high)):
            data[f"{name} {method}"] = values
            data[f"scaled {name} {method}"] = values * scale
    with style():
        figure = Figure(figsize=(7.0, 4.0))
        left, right = figure.subplots(1, 2)
        curves(left, data, "")
        curves(right, data, "scaled ")
        left.set(title="target error", ylabel=r"$E\,\overline{\Delta^2}$ (nats$^2$)")
        right.set(title=r"target error times $e^{B_+}$", ylabel=r"$e^{B_+}\,E\,\overline{\Delta^2}$ (nats$^2$)")
        legend(figure)
    part, mean = (data[f"exact {method}"] for method in METHODS)
    part_scaled, mean_scaled = (data[f"scaled exact {method}"] for method in METHODS)
    alt = (
        "Two panels on logarithmic axes against the group size n from 4 to 1024, with five pass rates p from 0.01 to "
        "0.2 each for PMD-part and PMD-mean. Left, the mean squared target error in nats squared: PMD-part starts at "
        f"{extent(part[:, 0])} and falls off a cliff where n passes a few times 1/p, to {extent(part[:, -1])} at n = "
        f"1024; PMD-mean is almost flat and ends at {mean[0, -1]:.2g} (p = 0.01) to {mean[-1, -1]:.2g} (p = 0.2). "
        f"Right, the same times e to the B+: PMD-part starts at {extent(part_scaled[:, 0])}, PMD-mean stays within "
        f"{extent(mean_scaled)}. tau = {TAU:g} on rewards {{0,1}}."
    )
    part, mean = part[:, LINE == GROUP], mean[:, LINE == GROUP]
    sentence = (
        f"With few draws PMD-part's targets are far off on hard prompts: at n = {GROUP}, p = 0.01 its error is "
        f"{part[0, 0]:.0f} nats^2 against PMD-mean's {mean[0, 0]:.1f}; at p = 0.2 it is {part[-1, 0]:.0f} against "
        f"{mean[-1, 0]:.0f}, the other way round. PMD-part's error vanishes once n is several times 1/p, PMD-mean's "
        "has a floor. Lines are exact; points are means of 100 seeds with 95 % bootstrap intervals. On the cliff the "
        "error comes from rare groups without a success, which 100 seeds can miss: points there fall off the line, and "
        "their intervals are too short."
    )
    return Drawing(figure, alt, sentence, data)


def curves(ax: Axes, data: dict[str, Array], kind: str) -> None:
    """Draw exact lines and simulated points with intervals, one colour per method and one marker per pass rate."""
    n = data["n"]
    for method in METHODS:
        for i, marker in enumerate(MARKERS):
            ax.plot(data["n line"], data[f"{kind}exact {method}"][i], **look(method) | {"linewidth": 1.1})
            mean, low, high = (data[f"{kind}{name} {method}"][i] for name in ("mean", "low", "high"))
            shown = ~np.isnan(mean)
            ax.vlines(n[shown], low[shown], high[shown], color=COLOURS[method], linewidth=0.9)
            ax.plot(n[shown], mean[shown], marker, color=COLOURS[method], ms=4.5, mec="white", mew=0.5)
    ax.set(xscale="log", yscale="log", xlabel="responses per prompt $n$")
    ax.set_xticks(NS, [str(n) for n in NS])
    ax.minorticks_off()


def legend(figure: Figure) -> None:
    """Put the temperature on both reward scales above, and one legend for both panels below."""
    figure.suptitle(rf"$\tau$ = {TAU:g} on rewards {{0,1}} ({2 * TAU:g} on ±1), {SEEDS} seeds", fontsize=9)
    handles = [Line2D([], [], **look(method), label=TITLES[method]) for method in METHODS]
    for p, marker in zip(PS, MARKERS, strict=True):
        handles.append(Line2D([], [], color="0.35", linestyle="none", marker=marker, label=f"$p$ = {p:g}"))
    figure.legend(handles=handles, loc="outside lower center", ncols=7, columnspacing=1.2, handletextpad=0.4)


def extent(values: Array) -> str:
    """Smallest and largest value in words, two digits each."""
    low, high = (float(f"{end(values):.2g}") for end in (np.min, np.max))
    return f"{low:g} to {high:g}"


def target_error_split() -> Drawing:
    r"""Expected squared error of the target of a response, given its own reward.

    Averages are pooled: every right response of every group counts once. Lines are exact; points are means over SEEDS
    simulated groups, with 95 % bootstrap intervals over groups. A point is missing where no group had such a response.

    Source: arXiv:2602.05933, figure target_actions.
    Differs: the paper does not say how it averages; averaging groups first gives other numbers.
    """
    data = {"p": PS, "n": NS.astype(float), "n line": LINE.astype(float)}
    for method in METHODS:
        exact = theory.target_error(PS[:, None], LINE, TAU, method)
        draws = theory.simulate_target_error(PS[:, None], NS, TAU, method, SEEDS, 0)
        sides = (
            ("right", exact.positive, draws.positive, draws.per_seed_positive, draws.positives),
            ("wrong", exact.negative, draws.negative, draws.per_seed_negative, NS[:, None] - draws.positives),
        )
        for side, line, points, per_seed, weights in sides:
            low, high = bootstrap(per_seed, weights)
            for name, values in (("exact", line), ("mean", points), ("low", low), ("high", high)):
                data[f"{side} {name} {method}"] = values
    with style():
        figure = Figure(figsize=(7.0, 4.0))
        left, right = figure.subplots(1, 2, sharey=True)
        for ax, side in ((left, "right"), (right, "wrong")):
            curves(ax, data, f"{side} ")
            ax.set(title=f"{side} responses")
        left.set_ylabel(r"$E[\Delta_i^2$ | own reward$]$ (nats$^2$)")
        legend(figure)
    error = {(side, method): data[f"{side} exact {method}"] for side in ("right", "wrong") for method in METHODS}
    alt = (
        "Two panels on logarithmic axes with a common scale: squared target error in nats squared against the group "
        "size n from 4 to 1024, for five pass rates p from 0.01 to 0.2. Left right responses, right wrong responses. "
        f"PMD-part's curves are the same in both: they start at {extent(error['right', 'pmd-part'][:, 0])} and fall "
        "off a cliff where n passes a few times 1/p. PMD-mean's are flat on the left, within "
        f"{extent(error['right', 'pmd-mean'])}; on the right they fall to {extent(error['wrong', 'pmd-mean'][:, -1])}. "
        f"tau = {TAU:g} on rewards {{0,1}}."
    )
    at = {key: float(values[0, LINE == GROUP][0]) for key, values in error.items()}
    sentence = (
        f"PMD-mean's error sits in the right responses: {at['right', 'pmd-mean']:.0f} nats^2 against "
        f"{at['wrong', 'pmd-mean']:.1f} for wrong ones at n = {GROUP}, p = 0.01. PMD-part's pooled error, "
        f"{at['right', 'pmd-part']:.0f} there, is the same for both: it does not depend on a response's own reward. "
        "Averages are pooled over all responses of a kind (the paper does not say)."
    )
    return Drawing(figure, alt, sentence, data)
