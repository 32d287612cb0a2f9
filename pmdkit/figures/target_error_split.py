"""The target error of right and of wrong responses apart. The two together: target_error.py, which also draws."""

from matplotlib.figure import Figure

from pmdkit import theory
from pmdkit.figures.drawing import Drawing
from pmdkit.figures.intervals import bootstrap
from pmdkit.figures.style import style
from pmdkit.figures.target_error import GROUP, LINE, METHODS, NS, PS, SEEDS, TAU, curves, extent, legend


def draw() -> Drawing:
    r"""Expected squared error of the target of a response, given its own reward.

    Averages are pooled: every right response of every group counts once. Lines are exact, points are SEEDS simulated
    groups with 95 % bootstrap intervals over groups; a point is missing where no group had such a response.

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
        f"{at['right', 'pmd-part']:.0f} there, is the same for both, for it does not depend on the own reward. "
        "Averages are pooled over all responses of a kind (the paper does not say)."
    )
    return Drawing(figure, alt, sentence, data)
