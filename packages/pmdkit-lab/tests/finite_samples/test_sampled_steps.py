"""One step from n draws: against all draws and a generic optimiser, 40 digits, and the ideal update."""

from itertools import product

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import minimize

from pmdkit import theory
from pmdkit_lab import finite_samples
from pmdkit_lab.finite_samples.fit_cells import fit_cells

METHODS = theory.METHODS


def by_optimiser(pi, share, target):
    """The lowest value of the regression over softmax policies that a generic optimiser finds from many starts."""
    log_pi = np.log(pi)

    def loss(logits):
        u = logits - np.logaddexp.reduce(logits) - log_pi
        c = share * (u - target)
        return (c * (u - target)).sum() / 2, c - c.sum() * np.exp(u) * pi

    rng = np.random.default_rng(0)
    starts = [log_pi, *(log_pi + rng.normal(0, 4, len(pi)) for _ in range(5))]
    starts += [log_pi + 8 * row for row in np.eye(len(pi))]
    found = [minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-11}) for start in starts]
    best = min(found, key=lambda one: one.fun)
    return best.fun, best.x - np.logaddexp.reduce(best.x) - log_pi


@pytest.mark.slow
def test_verifier_errors_are_summed_over_all_draws_and_verdicts():
    """Three draws, each right or wrong and judged rightly or not: 4^3 cases one by one."""
    p, tau, errors = 0.6, 0.3, {"false_positive": 0.1, "false_negative": 0.2}
    truth, verdict = np.array([1, 1, 0, 0]), np.array([1.0, 0.0, 1.0, 0.0])
    chance = np.array([p * 0.8, p * 0.2, (1 - p) * 0.1, (1 - p) * 0.9])
    for method in METHODS:
        mean = drop = 0.0
        for kinds in product(range(4), repeat=3):
            kind = list(kinds)
            target = theory.leave_one_out_targets(verdict[kind], tau, method)
            right = truth[kind] == 1
            share = np.array([right.mean(), 1 - right.mean()])
            goal = np.array([target[side].mean() if side.any() else 0.0 for side in (right, ~right)])
            if right.all() or not right.any():  # the undrawn cell has what is left, where something is
                seen = 0 if right.all() else 1
                pi = (p, 1 - p)
                mass = min(1.0, pi[seen] * np.exp(goal[seen]))
                after = mass if seen == 0 else 1 - mass
            else:
                after = p * np.exp(by_optimiser(np.array([p, 1 - p]), share, goal)[1][0])
            mean += np.prod(chance[kind]) * after
            drop += np.prod(chance[kind]) * (after < p - 1e-6)
        law = finite_samples.sampled_step(p, tau, 3, method, **errors)
        assert law.gain == pytest.approx(mean - p, abs=1e-6)
        assert law.drop == pytest.approx(drop, abs=1e-12)
    many = finite_samples.sampled_step(p, tau, 2000)  # 2001 outcomes of one group; of two they would be too many
    assert many.gain == pytest.approx(theory.pmd_mean([p, 1 - p], [1.0, 0.0], tau).probs[0] - p, abs=0.01)
    for name in errors:
        with pytest.raises(ValueError, match=f"{name} is 1; expected a probability"):
            finite_samples.sampled_step(p, tau, 3, **{name: 1})


@pytest.mark.slow
def test_the_minimiser_over_several_cells_is_the_best_of_many_starts():
    """All three cases: room left, too much asked for, too little. In the last the problem is not convex."""
    rng = np.random.default_rng(1)
    several = 0
    for _ in range(40):
        actions = int(rng.integers(2, 5))
        pi = rng.dirichlet(np.ones(actions) * 2) * 0.97 + 0.03 / actions
        share = rng.multinomial(12, pi) / 12 if rng.random() < 0.5 else rng.dirichlet(np.ones(actions) * 3)
        target = rng.normal(rng.choice([-5.0, 0.0, 2.0]), 2, actions)
        u = fit_cells(pi, share, target)
        seen = share > 0
        assert (pi * np.exp(u)).sum() == pytest.approx(1, abs=1e-12)
        value, _ = by_optimiser(pi, share, target)
        ours = (share[seen] * (u[seen] - target[seen]) ** 2).sum() / 2
        assert ours <= value + 1e-9  # where undrawn cells end at 0, an optimiser on logits only comes near
        assert ours >= value - 1e-3
        several += (pi * np.exp(target)).sum() < 0.5 and seen.all()
    assert several > 10  # the hard case is among them


def lowest_point(rate, w, s_right, s_wrong):
    """The pass rate with the lowest regression loss, in mpmath: minima are looked for in doubles, then solved for."""
    theta = np.linspace(-1, 1, 20001) * float(s_right - s_wrong + 30)
    log_x, log_y = -np.logaddexp(0, -theta), -np.logaddexp(0, theta)
    far_right, far_wrong = log_x - float(mp.log(rate) + s_right), log_y - float(mp.log(1 - rate) + s_wrong)
    values = float(w) * far_right**2 + float(1 - w) * far_wrong**2
    low = theta[1:-1][(values[1:-1] <= values[:-2]) & (values[1:-1] <= values[2:])]

    def gaps(t):
        return -mp.log1p(mp.exp(-t)) - mp.log(rate) - s_right, -mp.log1p(mp.exp(t)) - mp.log(1 - rate) - s_wrong

    def slope(t):
        x = 1 / (1 + mp.exp(-t))
        return w * gaps(t)[0] * (1 - x) - (1 - w) * gaps(t)[1] * x

    def loss(t):
        return w * gaps(t)[0] ** 2 + (1 - w) * gaps(t)[1] ** 2

    step = theta[1] - theta[0]
    roots = [mp.findroot(slope, (t - step, t + step), solver="anderson", tol=1e-60, verify=False) for t in low]
    return 1 / (1 + mp.exp(-min(roots, key=loss)))


@pytest.mark.parametrize(("p", "tau", "n"), [(0.01, 0.05, 8), (0.3, 0.5, 6), (1e-4, 0.01, 5), (0.97, 0.02, 6)])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.slow
def test_forty_digits(p, tau, n, method):
    """The law's mean and variance over the binomial, each minimiser to 40 digits."""
    mp.mp.dps = 40
    rate, exact_tau, mean, square = mp.mpf(p), mp.mpf(tau), mp.mpf(0), mp.mpf(0)
    for right in range(n + 1):
        after = rate
        if 0 < right < n:
            shares = [mp.mpf(peers) / (n - 1) for peers in (right - 1, right)]
            mean_values = [share / exact_tau for share in shares]
            part_values = [mp.log(1 + share * mp.expm1(1 / exact_tau)) for share in shares]
            high, low = mean_values if method == "pmd-mean" else part_values
            after = lowest_point(rate, mp.mpf(right) / n, 1 / exact_tau - high, -low)
        chance = mp.binomial(n, right) * rate**right * (1 - rate) ** (n - right)
        mean, square = mean + chance * after, square + chance * after**2
    law = finite_samples.sampled_step(p, tau, n, method)
    assert float(abs(law.gain - (mean - rate)) / rate) < 1e-11
    assert law.variance == pytest.approx(float(square - mean**2), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_response_seen_gives_the_update_of_the_theory(method):
    """With the policy's own shares and the exact baseline, the regression is the population problem."""
    best = theory.binary([0.01, 0.4], 0.1, method)
    law = finite_samples.sampled_step([0.01, 0.4], 0.1, 16, method)
    after = np.array([0.01, 0.4]) * np.exp(best.log_ratio_pos)
    np.testing.assert_allclose(law.ideal - law.chi2, after, rtol=1e-12)
    np.testing.assert_allclose(law.ideal - law.chi2 - law.support - law.targets, law.before + law.gain, rtol=1e-13)
    pi, reward = np.array([0.2, 0.3, 0.5]), np.array([0.3, 1.0, 0.1])
    best = (theory.pmd_mean if method == "pmd-mean" else theory.pmd_part)(pi, reward, 0.07)
    exact = (reward - pi @ reward) / 0.07 if method == "pmd-mean" else best.log_ratio
    np.testing.assert_allclose(fit_cells(pi, pi, exact), best.log_ratio, atol=1e-12)
    far = finite_samples.sampled_step(0.3, 0.3, 2048, method)  # and many draws come to the same
    assert abs(far.support) + abs(far.targets) < 5e-5 < abs(law.support + law.targets).min()


def test_drawn_groups_agree_with_the_exact_law():
    exact = finite_samples.sampled_step(0.2, 0.2, 6)
    drawn = finite_samples.simulate_sampled_step([0.2, 0.8], [1.0, 0.0], 0.2, 6, draws=1000, rng=3)
    assert abs(drawn.gain - exact.gain) < 4 * np.sqrt(exact.variance / 1000)
    assert drawn.fit == pytest.approx(exact.fit, rel=0.2)
    assert drawn.chi2 == pytest.approx(exact.chi2, abs=1e-12)
    law = finite_samples.simulate_sampled_step(
        [0.1, 0.2, 0.3, 0.4], [1.0, 0.6, 0.3, 0.0], 0.1, 8, "pmd-part", draws=200
    )
    loss = law.chi2 + law.support + law.targets
    assert law.ideal - loss == pytest.approx(law.before + law.gain, abs=1e-12)


def test_a_smaller_target_error_fits_closer_and_does_not_gain_more():
    """The figures of docs/use/finite-samples.md: hard prompts in groups of 16 at tau = 0.05."""
    mean, part = (finite_samples.sampled_step(0.00184, 0.05, 16, method) for method in METHODS)
    error = [theory.target_error(0.00184, 16, 0.05, method).mean for method in METHODS]
    assert error[1] / error[0] == pytest.approx(360, abs=3)
    assert part.fit / mean.fit > 1000
    assert (round(float(mean.gain), 4), round(float(part.gain), 4)) == (0.0230, 0.0290)
    assert mean.still == part.still == pytest.approx(0.971, abs=5e-4)
    # in groups that say nothing neither moves, and both are as far off as their own ideal step is long
    best = theory.binary(0.00184, 0.05, "pmd-part")
    length = 0.00184 * best.log_ratio_pos**2 + (1 - 0.00184) * best.log_ratio_neg**2
    assert part.still * length / part.fit == pytest.approx(0.998, abs=5e-4)
    # one right response among 16: its target is too high, those of the wrong ones are too low
    target = theory.leave_one_out_targets(np.eye(16)[0], 0.05, "pmd-part")[:2]
    far = target - np.array([best.log_ratio_pos, best.log_ratio_neg])
    assert [round(float(x), 1) for x in (*target, *far)] == [20.0, -17.3, 13.7, -3.6]
    # all groups: what is left after the chi2 term is the support and the baseline
    mean, part = (finite_samples.sampled_step(0.01, 0.05, 16, method) for method in METHODS)
    assert [round(float(x), 2) for x in (mean.chi2, mean.support, mean.targets)] == [0.62, 0.13, 0.12]
    assert [round(float(x), 2) for x in (part.chi2, part.support, part.targets)] == [0.0, 0.0, 0.84]


@pytest.mark.parametrize("k", [0, 0.05, 1])
def test_a_group_of_equal_verdicts_moves_nothing_at_any_pass_rate(k):
    """Even where what rounding leaves of 1 - (1 - p) is a visible part of p."""
    law = finite_samples.sampled_step(2.07e-8, 0.0015, 2, k=k)
    assert (law.drop, law.still) == (0, pytest.approx(1 - 2 * 2.07e-8 * (1 - 2.07e-8), abs=1e-15))
    p, wrong = 1.6e-5, 0.21  # three wrong ones that are all called right or all called wrong: (1 - p)^3 (w^3 + (1-w)^3)
    law = finite_samples.sampled_step(p, 0.0042, 3, k=k, false_positive=wrong)
    silent = (1 - p) ** 3 * (wrong**3 + (1 - wrong) ** 3)
    assert law.probability[np.abs(law.pass_rates / p - 1) == 0].sum() == pytest.approx(silent, rel=1e-4)


def test_the_part_that_is_lost_to_chi2_is_none_for_pmd_part_but_for_verifier_errors():
    assert abs(finite_samples.sampled_step(0.3, 0.2, 4, "pmd-part").chi2) < 1e-15
    law = finite_samples.sampled_step(0.3, 0.2, 4, "pmd-part", false_negative=0.2)
    assert law.chi2 == pytest.approx(-0.0216, abs=5e-5)


@pytest.mark.slow
def test_without_verifier_errors_pmd_part_seldom_gains_less_and_with_them_it_does():
    p = np.array([0.002, 0.05, 0.5, 0.9])
    for n in (4, 10):
        mean, part = (finite_samples.sampled_step(p[:, None], [0.02, 0.3], n, method) for method in METHODS)
        assert (part.gain - mean.gain).min() > -1e-13
        assert max(mean.drop.max(), part.drop.max()) == 0
    mean, part = (finite_samples.sampled_step(0.726, 5.14, 4, method) for method in METHODS)  # easy, and tau large
    assert mean.gain / part.gain - 1 == pytest.approx(0.0024, abs=1e-4)
    assert finite_samples.best_k(0.9, 5.0, 3).k == 0
    mean, part = (finite_samples.sampled_step([0.05, 0.9], 0.05, 16, m, false_negative=0.05) for m in METHODS)
    assert part.gain[0] - mean.gain[0] == pytest.approx(0.078, abs=6e-4)
    assert mean.gain[1] - part.gain[1] == pytest.approx(0.072, abs=1e-3)
    assert mean.drop[1] < 1e-9
    assert part.drop[1] == pytest.approx(0.104, abs=1e-3)
