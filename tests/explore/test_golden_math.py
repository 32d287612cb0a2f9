"""The mathematics of the explorables, run in Node, against pmdkit.theory and against mpmath with 40 digits: 1e-9."""

import mpmath
import numpy as np
import pytest

from pmdkit import theory
from pmdkit_lab.planner.timeline import timeline

from .in_node import in_node

METHODS = ("pmd-mean", "pmd-part")
RNG = np.random.default_rng(8)
TAUS = (0.005, 0.02, 0.05, 0.2, 1.0, 1000.0)  # the largest is beyond the sliders: there digits are easily lost
PS = (1e-3, 0.01, 0.05, 0.3, 0.5, 0.9, 0.999)


def simplex_cases():
    """Policies, rewards and temperatures: random ones, and the corners that break a solver."""
    cases = [(RNG.dirichlet(np.full(3, 0.7)), RNG.uniform(0, 1, 3), tau) for tau in TAUS for _ in range(12)]
    cases += [(np.array([0.6, 0.3, 0.1]), np.array([0.0, 0.7, 1.0]), tau) for tau in TAUS]
    cases += [(np.array([0.98, 0.01, 0.01]), np.array(r), tau) for r in ((0, 0, 1.0), (1.0, 0, 0)) for tau in TAUS]
    cases += [(np.array([0.3, 0.3, 0.4]), np.array([0.5, 0.5, 0.5001]), tau) for tau in TAUS]  # almost no signal
    cases += [(np.array([1 - 2e-12, 1e-12, 1e-12]), np.array([0.0, 0.5, 1.0]), tau) for tau in TAUS]
    return [(pi / pi.sum(), reward, tau) for pi, reward, tau in cases]


CALLS = """
const test = {
  histogram: async (seed, p, n, groups) => {
    const dice = new (await load("targets.js")).Dice(seed);
    const counts = Array(n + 1).fill(0);
    for (let k = 0; k < groups; k++) counts[dice.successes(p, n)] += 1;
    return counts;
  },
};
const called = given.module === "test" ? test : await load(given.module + ".js");
const found = [];
for (const each of given.arguments) found.push(await called[given.call](...each));
return found;
"""


@pytest.fixture(scope="module")
def javascript(node):
    """`javascript(module, call, argument lists)`: all results of one run of Node."""

    def run(module, call, arguments):
        rows = [[plain(a) for a in args] for args in arguments]
        return in_node(node, CALLS, {"module": module, "call": call, "arguments": rows})

    return run


def plain(value):
    """A NumPy array or number as JSON knows it."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def assert_close(got, want, rtol=1e-9, atol=0.0):
    np.testing.assert_allclose(np.asarray(got, float), want, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("call", "solve", "key", "centre"),
    [("pmdMean", theory.pmd_mean, "lam", "lam"), ("pmdPart", theory.pmd_part, "logZ", "log_z")],
)
def test_exact_steps_are_the_theory(javascript, call, solve, key, centre):
    """Theory itself is held against 40 digits by its own tests."""
    cases = simplex_cases()
    for got, (pi, reward, tau) in zip(javascript("pmd", call, cases), cases, strict=True):
        want = solve(pi, reward, tau)
        # a log ratio that crosses zero between two actions has no relative digits: nats of the largest one
        assert_close(got["logRatio"], want.log_ratio, atol=1e-10 * np.abs(want.log_ratio).max())
        assert_close(got["probs"], want.probs, atol=1e-300)
        assert_close(got[key], getattr(want, centre))
        assert sum(got["probs"]) == pytest.approx(1, abs=1e-12)


def test_wright_omega_against_mpmath(javascript):
    z = np.concatenate([np.linspace(-650, 750, 281), np.linspace(-6, 6, 121)])
    got = javascript("pmd", "omega", [[v] for v in z])
    with mpmath.workdps(40):
        want = [float(mpmath.lambertw(mpmath.exp(mpmath.mpf(float(v)))).real) for v in z]
    assert_close(got, want, rtol=1e-12)


@pytest.mark.slow
def test_the_mixed_problem_is_the_theory_and_holds_both_ends(javascript):
    cases = [case for case in simplex_cases() if case[0].min() > 1e-9]
    lams = [float(theory.pmd_mean(*case).lam) for case in cases]
    weights = [(*case, lam * factor) for case, lam in zip(cases, lams, strict=True) for factor in (0, 0.1, 1, 10)]
    for got, (pi, reward, tau, lam) in zip(javascript("pmd", "mixed", weights), weights, strict=True):
        want = theory.mixed(pi, reward, tau, lam)
        assert_close(got["logRatio"], want.log_ratio, atol=1e-9 * np.abs(want.log_ratio).max())
    at_mean = javascript("pmd", "mixed", [(*case, lam) for case, lam in zip(cases, lams, strict=True)])
    for got, case in zip(at_mean, cases, strict=True):
        assert_close(got["probs"], theory.pmd_mean(*case).probs, rtol=1e-7, atol=1e-300)


def test_divergences_are_the_theory(javascript):
    pairs = [(RNG.dirichlet(np.ones(3)), RNG.dirichlet(np.ones(3))) for _ in range(40)]
    pairs += [(p, p * (1 + 1e-5 * np.array([1, 0, -p[0] / p[2]]))) for p, _ in pairs[:10]]
    for call, function in (("kl", theory.kl), ("chi2", theory.chi2)):
        assert_close(javascript("pmd", call, pairs), [function(new, old) for new, old in pairs])


@pytest.mark.slow
def test_level_lines_have_their_level(javascript):
    """Every point of a line has the divergence it is drawn for, by pmdkit; and none outside the triangle."""
    pi = np.array([0.6, 0.3, 0.1])
    for weights, function in (((1, 0), theory.kl), ((0, 1), theory.chi2)):
        for level in (0.01, 0.2, 1.0):
            (points,) = javascript("geometry", "levelLine", [[pi, list(weights), level]])
            inside = np.array([point for point in points if point is not None])
            assert len(inside) > 8
            assert_close(function(inside / inside.sum(1, keepdims=True), pi), level, rtol=2e-5)


def test_binary_rewards_are_the_theory(javascript):
    for method in METHODS:
        cases = [(p, tau, method) for p in PS for tau in TAUS]
        for got, case in zip(javascript("pmd", "binary", cases), cases, strict=True):
            want = theory.binary(*case)
            assert_close(got["right"], want.log_ratio_pos)
            assert_close(got["wrong"], want.log_ratio_neg)
            if method == "pmd-mean":
                assert_close(got["lam"], want.lam)


def test_targets_of_a_group_are_the_theory(javascript):
    for method in METHODS:
        cases = [(s, n, tau, method) for n in (2, 5, 16) for s in range(n + 1) for tau in TAUS]
        for got, (s, n, tau, _) in zip(javascript("targets", "groupTargets", cases), cases, strict=True):
            targets = theory.leave_one_out_targets(np.arange(n) < s, tau, method)
            if s > 0:
                assert_close(got["right"], targets[0], atol=1e-12 / tau)
            if s < n:
                assert_close(got["wrong"], targets[-1], atol=1e-12 / tau)


def test_expected_errors_are_the_theory(javascript):
    for method in METHODS:
        cases = [(p, n, tau, method) for p in PS for n in (2, 16, 257) for tau in TAUS]
        for got, case in zip(javascript("targets", "targetError", cases), cases, strict=True):
            want = theory.target_error(*case)
            assert_close([got["right"], got["wrong"], got["mean"]], [want.positive, want.negative, want.mean])


def test_the_anchor_law_is_the_theory(javascript):
    """Where c is small it is a difference of two nearly equal numbers: 14 decimals in both."""
    cases = [(p, tau, n) for p in PS for tau in TAUS for n in (2, 4, 16, 257)]
    for got, case in zip(javascript("anchor", "anchor", cases), cases, strict=True):
        assert_close(got, theory.anchor(*case), atol=1e-13)
    sizes = [(p, n) for p in PS for n in (2, 4, 16, 257)]
    got = javascript("anchor", "threshold", sizes)
    assert_close(got, [theory.anchor_threshold(*each) for each in sizes])
    growths = [(c, tau, 0.2, 16) for c in (0, 0.3) for tau in TAUS]
    got = javascript("anchor", "growth", growths)
    assert_close(got, [theory.anchor_growth(c, tau, rate, 1.0, m) for c, tau, rate, m in growths])


def test_a_group_s_error_averages_to_the_expected_one(javascript):
    """Sum over S ~ Bin(n, p) of the error of a group with S successes; the binomial is SciPy's."""
    from scipy.stats import binom

    p, n, tau = 0.05, 16, 0.05
    for method in METHODS:
        errors = javascript("targets", "groupError", [(p, n, tau, method, s) for s in range(n + 1)])
        assert_close(binom.pmf(np.arange(n + 1), n, p) @ errors, theory.target_error(p, n, tau, method).mean)


def test_the_dice_are_fair(javascript):
    """Draws of the rollout lab have the binomial's frequencies: within 4 standard errors, cell by cell."""
    from scipy.stats import binom

    (counts,) = javascript("test", "histogram", [[7, 0.3, 8, 20_000]])
    pmf = binom.pmf(np.arange(9), 8, 0.3)
    error = np.sqrt(20_000 * pmf * (1 - pmf))
    assert (np.abs(np.array(counts) - 20_000 * pmf) < 4 * error).all()


@pytest.mark.parametrize(
    ("update", "lag", "in_flight"), [(0.6, 0, 0), (0.6, 1, 0), (0.6, 1, 1), (1.7, 1, 1), (2.3, 3, 1)]
)
def test_who_draws_the_tokens_of_a_step_is_what_the_plan_says(node, update, lag, in_flight):
    code = 'return (await load("../rollouts/authors.js")).schedule(...given)'
    told, plan = (
        in_node(node, code, [update, lag, in_flight, 30]),
        timeline(np.ones(30), np.full(30, update), lag, True),
    )
    np.testing.assert_allclose([step["begin"] for step in told], plan.generation[:, 0], atol=1e-9)
    np.testing.assert_allclose([step["updated"] for step in told], plan.update, atol=1e-9)
    ages = [
        sum((end - begin) * (s - version) for begin, end, version in step["authors"]) for s, step in enumerate(told)
    ]
    wanted = plan.age_in_flight if in_flight else np.arange(30) - plan.version
    np.testing.assert_allclose(ages, wanted, atol=1e-9)
