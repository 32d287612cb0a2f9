"""The numbers behind the paper's figures: lines are the theory, points are draws of it, descents end where it says."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pmdkit import theory
from pmdkit_lab import figures
from pmdkit_lab.figures import solutions
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.small_tau import binary_small_tau

METHODS = ("pmd-mean", "pmd-part")


@pytest.fixture(scope="module")
def drawings() -> dict[str, Drawing]:
    return {name: figures.draw(name) for name, entry in figures.FIGURES.items() if entry.source in ("exact", "draws")}


def test_the_log_partition_is_that_of_two_rewards(drawings: dict[str, Drawing]) -> None:
    """tau log(1 - p + p e^(1/tau)), by logsumexp; at p = 0 and 1 it is the mean reward itself."""
    data = drawings["fig1-left"].data
    p, tau = data["p"][1:-1], data["tau"][:, None]
    by_hand = tau * logsumexp([np.log1p(-p) + 0 * tau, np.log(p) + 1 / tau], axis=0)
    np.testing.assert_allclose(data["scaled_log_partition"][:, 1:-1], by_hand, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(data["scaled_log_partition"][:, [0, -1]], [[0, 1]] * len(tau), atol=1e-12)


def test_each_descent_ends_in_the_solution_of_its_own_problem(drawings: dict[str, Drawing]) -> None:
    """Tolerance: the integrator's own, 1e-10 per step, over some hundred steps."""
    data = drawings["fig1-right"].data
    problem = (solutions.PI, solutions.REWARD, solutions.DESCENT_TAU)
    for method, solve in (("pmd-mean", theory.pmd_mean), ("pmd-part", theory.pmd_part)):
        np.testing.assert_allclose(data[f"flow {method}"][0], solutions.PI, atol=1e-12)
        np.testing.assert_allclose(data[f"flow {method}"][-1], solve(*problem).probs, atol=1e-7)
    assert np.abs(data["flow pmd-mean"][-1] - data["flow pmd-part"][-1]).max() > 0.1


def test_ratios_are_the_theory_and_keep_the_policy_normalised(drawings: dict[str, Drawing]) -> None:
    data = drawings["fig2"].data
    for name, p, tau in (("p", data["p"], solutions.RATIO_TAU), ("tau", solutions.RATIO_P, data["tau"])):
        for method in METHODS:
            right, wrong = (data[f"exact {method} {side} {name}"] for side in ("right", "wrong"))
            exact = theory.binary(p, tau, method)
            np.testing.assert_allclose(right, exact.log_ratio_pos, rtol=1e-12)
            np.testing.assert_allclose(wrong, exact.log_ratio_neg, rtol=1e-12)
            np.testing.assert_allclose(p * np.exp(right) + (1 - p) * np.exp(wrong), 1, rtol=1e-12)


@pytest.mark.parametrize("tau", [0.01, 0.03, 0.05, 0.1])
def test_the_sentence_on_the_formulas_is_true(tau: float) -> None:
    """From p = 3 tau on, eta and the ratio of right responses are within 1 % of the paper's formulas; at tau not."""
    p = np.linspace(3 * tau, 0.95, 40)
    exact, rough = theory.binary(p, tau), binary_small_tau(p, tau)
    assert np.abs(rough.eta / exact.eta - 1).max() < 0.01
    assert np.abs(np.expm1(rough.log_ratio_pos - exact.log_ratio_pos)).max() < 0.01
    assert binary_small_tau(tau, tau).eta / theory.binary(tau, tau).eta < 0.9


def test_figure_1_left_as_it_is_drawn_and_told(drawings: dict[str, Drawing]) -> None:
    """The gap tau log Z - p is largest at p = tau - 1 / (e^(1/tau) - 1)."""
    drawing = drawings["fig1-left"]
    p, tau = drawing.data["p"], drawing.data["tau"]
    assert (p[0], p[80], p[-1], len(p)) == (0, 0.02, 1, 280)
    assert (np.diff(p) > 0).all()
    a = np.expm1(1 / tau)
    at = tau - 1 / a
    gaps = tau * np.log1p(a * at) - at
    assert all(f"{gap:.2f} at p = {x:.2g} (tau" in drawing.alt for gap, x in zip(gaps, found_at(p, at), strict=True))
    assert f"{gaps[1]:.2f} above it at tau = 0.05, {gaps[3]:.2f} at tau = 0.3, {gaps[4]:.2f}" in drawing.sentence


def found_at(grid: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The points of a grid next to these."""
    return grid[np.abs(grid - wanted[:, None]).argmin(1)]


def test_figure_1_right_as_it_is_drawn_and_told(drawings: dict[str, Drawing]) -> None:
    drawing = drawings["fig1-right"]
    np.testing.assert_allclose(drawing.data["tau"], 10 ** np.linspace(3, np.log10(2e-3), 400), rtol=1e-12)
    problem = (solutions.PI, solutions.REWARD, solutions.DESCENT_TAU)
    for method, solve in (("pmd-mean", theory.pmd_mean), ("pmd-part", theory.pmd_part)):
        np.testing.assert_allclose(drawing.data[f"solution {method}"], solve(*problem).probs, rtol=1e-12)
        for at in (0, 200, 399):
            at_tau = solve(*problem[:2], drawing.data["tau"][at])
            np.testing.assert_allclose(drawing.data[f"sweep {method}"][at], at_tau.probs, rtol=1e-9)
        assert f"{solve(*problem).probs @ solutions.REWARD:.2f}" in drawing.sentence


def test_figure_2_as_it_is_drawn_and_told(drawings: dict[str, Drawing]) -> None:
    """Only right responses have a limit, log 1/p; formulas are at every eighth point."""
    drawing = drawings["fig2"]
    data, panels = drawing.data, (("p", "right"), ("p", "wrong"), ("tau", "right"), ("tau", "wrong"))
    for ax, (name, side) in zip(drawing.figure.axes, panels, strict=True):
        lines = [line.get_xydata() for line in ax.lines]
        assert len(lines) == (5 if side == "right" else 4)
        for method, (exact, formula) in zip(("pmd-part", "pmd-mean"), (lines[:2], lines[2:4]), strict=True):
            x = data[name]
            np.testing.assert_array_equal(exact, np.stack([x, data[f"exact {method} {side} {name}"]], -1))
            np.testing.assert_array_equal(formula, np.stack([x, data[f"formula {method} {side} {name}"]], -1)[::8])
        if side == "right":
            top = np.log(1 / (x if name == "p" else np.full_like(x, solutions.RATIO_P)))
            np.testing.assert_allclose(lines[4], np.stack([x, top], -1), rtol=1e-12)
        assert ax.get_title().startswith(side)
        assert (ax.get_yscale() == "linear") == (side == "right")
    mean, part = (theory.binary(0.01, 0.05, method) for method in METHODS)
    assert f"{mean.log_ratio_pos:.2f} nats instead of PMD-part's {part.log_ratio_pos:.2f}" in drawing.sentence
    assert f"{-mean.log_ratio_neg:.2f} instead of {-part.log_ratio_neg:.1f}" in drawing.sentence


def test_target_errors_as_they_are_drawn_and_told(drawings: dict[str, Drawing]) -> None:
    """Lines are the theory, intervals of the draws hold them; words are of groups of 16."""
    tau, ps, ns = 0.05, np.array([0.01, 0.02, 0.05, 0.1, 0.2]), 2 ** np.arange(2, 11)
    whole, split = drawings["target-error"], drawings["target-error-split"]
    assert whole.figure.get_size_inches().tolist() == split.figure.get_size_inches().tolist() == [7, 4], "two panels"
    for method in METHODS:
        exact = theory.target_error(ps[:, None], whole.data["n line"].astype(int), tau, method)
        for data, key, line in ((whole.data, "", exact.mean), (split.data, "right ", exact.positive)):
            np.testing.assert_array_equal(data[f"{key}exact {method}"], line)
        np.testing.assert_array_equal(split.data[f"wrong exact {method}"], exact.negative)
        at = theory.target_error(ps[:, None], ns, tau, method)
        for data, key, line in ((whole.data, "", at.mean), (split.data, "right ", at.positive)):
            low, high = data[f"{key}low {method}"], data[f"{key}high {method}"]
            inside = np.mean((low <= line) & (line <= high))
            assert inside > 0.7, "of intervals of 95 %, which are too short where hardly a draw is right"
        scale = np.exp(theory.binary(ps, tau, method).B_plus)[:, None]
        for name in ("mean", "low", "high"):
            scaled = whole.data[f"{name} {method}"] * scale
            np.testing.assert_allclose(whole.data[f"scaled {name} {method}"], scaled, rtol=1e-12)
    part, mean = (theory.target_error([0.01, 0.2], 16, tau, method) for method in ("pmd-part", "pmd-mean"))
    assert part.mean[0] > 50 * mean.mean[0], "far larger for small p"
    assert part.mean[1] < mean.mean[1], "and smaller at 0.2"
    assert f"its error is {part.mean[0]:.0f} nats^2 against PMD-mean's {mean.mean[0]:.1f}" in whole.sentence
    assert f"at p = 0.2 it is {part.mean[1]:.0f} against {mean.mean[1]:.0f}" in whole.sentence
    assert f"{mean.positive[0]:.0f} nats^2 against {mean.negative[0]:.1f} for wrong ones" in split.sentence
