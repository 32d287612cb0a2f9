"""The solutions against something they were not made from: theory, losses, counting, other libraries, many digits."""

import dataclasses
import math
from itertools import combinations, product

import mpmath
import numpy as np
import pytest
import torch
from scipy.stats import binom, ttest_rel

from pmdkit import theory
from pmdkit.objectives import DAPO, Batch, Groups, PMDMean, PMDPart, credit, response_loss, total
from pmdkit.stats import paired_difference
from pmdkit_course import exercise
from pmdkit_course.exercises import (
    lesson_104,
    lesson_105,
    lesson_106,
    lesson_107,
    lesson_303,
    lesson_305,
    lesson_401,
    lesson_402,
)
from pmdkit_lab.small_tau import binary_small_tau

rng = np.random.default_rng(0)


def solution(which):
    """The solution of an exercise."""
    return exercise(which).solution


def cases(which):
    """Its random inputs."""
    return exercise(which).inputs(np.random.default_rng(1))


def rows_of(logp, logp_old, mask, **more):
    """A batch of rows of which only what is given matters."""
    ones = torch.ones(len(mask), dtype=torch.float64)
    fields = dict.fromkeys(("length", "advantage", "weight", "tau", "mass", "group"), ones)
    return Batch(logp=logp, logp_old=logp_old, mask=mask, **fields | more)


def exact_step(pi, reward, tau, method):
    """An exact step."""
    return getattr(theory, method)(pi, reward, tau).probs


def test_the_end_point_is_the_limit_of_the_exact_step():
    for pi, reward in cases("101.1"):
        np.testing.assert_allclose(solution("101.1")(pi, reward), exact_step(pi, reward, 1e-7, "pmd_mean"), atol=1e-4)


def test_divergences_agree_with_theory_and_with_many_digits():
    new, old = rng.dirichlet(np.ones(5), size=2)
    kl, chi2 = solution("101.2")(np.log(new), np.log(old))
    np.testing.assert_allclose([kl, chi2], [theory.kl(new, old), theory.chi2(new, old)], rtol=1e-12)
    mpmath.mp.dps = 50
    for logp_new, logp_old in cases("101.2"):
        pairs = [(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in zip(logp_new, logp_old, strict=True)]
        kl = sum(mpmath.exp(a) * (a - b) for a, b in pairs if a > -mpmath.inf)
        chi2 = sum(mpmath.exp(2 * a - b) for a, b in pairs) - 1
        np.testing.assert_allclose(solution("101.2")(logp_new, logp_old), [float(kl), float(chi2)], rtol=1e-9)


def test_the_trust_region_is_kept_and_nearly_linear_at_the_smallest_budget():
    for pi, reward, budget in cases("101.3"):
        tau = solution("101.3")(pi, reward, budget)
        weight = pi * np.exp(reward / tau - (reward / tau).max())
        new = weight / weight.sum()
        assert new @ np.log(new / pi) == pytest.approx(budget, rel=1e-8)
    linear = math.sqrt(pi @ (reward - pi @ reward) ** 2 / (2 * budget))
    assert tau == pytest.approx(linear, rel=0.05)


@pytest.mark.slow
def test_steps_are_those_of_an_update_on_the_scale_of_plus_and_minus_1():
    """No trajectory and no rescaling: the exact step itself, again and again."""
    counted = []
    for p, tau, goal in cases("102.1"):
        steps = 0
        while p <= goal:
            p, steps = exact_step([p, 1 - p], [1.0, -1.0], tau, "pmd_mean")[0], steps + 1
        counted.append(steps)
    assert counted == [solution("102.1")(*case) for case in cases("102.1")]


def test_the_log_partition_has_all_digits():
    mpmath.mp.dps = 50
    for reward, mass, tau in cases("102.2"):
        pairs = zip(reward, mass, strict=True)
        exact = mpmath.log(sum(mpmath.mpf(float(m)) * mpmath.exp(mpmath.mpf(float(r)) / tau) for r, m in pairs))
        assert solution("102.2")(reward, mass, tau) == pytest.approx(float(exact), rel=1e-12)
        present = mass > 0
        shares = mass[present] / mass.sum()
        log_z = theory.pmd_part(shares, reward[present], tau).log_z
        assert float(exact) == pytest.approx(log_z + math.log(mass.sum()), rel=1e-9)


def test_the_temperature_gets_there():
    for p, goal in cases("102.3"):
        reached = 1 - (1 - theory.binary(p, solution("102.3")(p, goal), "pmd-part").eta) * (1 - p)
        np.testing.assert_allclose(reached, goal, rtol=1e-9)


def test_hard_prompts_contract_alike():
    for p, eta in cases("103.1"):
        tau = solution("103.1")(p, eta)
        np.testing.assert_allclose(theory.binary(p, tau, "pmd-mean").eta, eta, rtol=0.01)
        np.testing.assert_allclose(tau, theory.tau_for_eta(p, eta), rtol=0.01)


def test_lambda_is_that_of_theorem_1():
    for pi, reward, tau in cases("103.2"):
        exact = theory.pmd_mean(pi, reward, tau)
        assert solution("103.2")(pi, reward, tau) == pytest.approx(exact.lam, rel=1e-8)
        assert solution("103.3")(pi, exact.probs, tau) == pytest.approx(exact.lam, rel=1e-8)


def test_the_strength_comes_back_from_the_mixed_problem_at_any_lambda():
    """The mixed problem is solved on its own, with a lambda that is drawn; 0 is KL alone."""
    rng = np.random.default_rng(0)
    p, tau = rng.uniform(0.05, 0.9, size=5), 0.3
    lam = np.array([0.0, 0.01, 0.05, 0.2, 2.0])
    u = theory.mixed(np.stack([p, 1 - p], -1), [1.0, 0.0], tau, lam).log_ratio
    found = lesson_104.strength_of(u[:, 0], u[:, 1], tau)
    np.testing.assert_allclose(found, lam / tau, rtol=1e-9, atol=1e-12)


def test_lambda_over_tau_tends_to_the_mean_positive_advantage():
    """With two rewards that is the variance."""
    rng = np.random.default_rng(1)
    for pi, reward in lesson_104.graded(rng):
        wanted = lesson_104.limit_strength(pi, reward)
        np.testing.assert_allclose(theory.pmd_mean(pi, reward, 1e-6).lam / 1e-6, wanted, rtol=1e-3)
    assert lesson_104.limit_strength(np.array([0.4, 0.6]), np.array([1.0, 0.0])) == pytest.approx(0.24)


LONE = np.where(np.arange(16) == 3, 1.0, -1.0)


def groups(reward):
    rows = torch.from_numpy(np.atleast_2d(reward))
    return Groups(rows, torch.full_like(rows, 1 / rows.shape[1]))


def test_advantages_are_those_of_the_objective_and_of_the_theory():
    reward = np.random.default_rng(0).uniform(size=(4, 6))
    found = lesson_105.loo_advantage(reward)
    np.testing.assert_allclose(found, PMDMean(tau=0.3).advantage(groups(reward)).numpy(), atol=1e-14)
    np.testing.assert_allclose(found / 0.3, theory.leave_one_out_targets(reward, 0.3), atol=1e-13)


@pytest.mark.parametrize(("reward", "tau"), [(LONE, 0.005), (LONE, 0.001), (np.linspace(-1, 1, 5), 0.7)])
def test_targets_are_those_of_four_hundred_digits(reward, tau):
    """A lone success at tau = 0.001 has e^2000 beside e^-1000; mpmath holds all of it."""
    with mpmath.workdps(1800):
        grown = [mpmath.e ** (mpmath.mpf(float(r)) / mpmath.mpf(tau)) for r in reward]
        exact = [
            float(mpmath.mpf(float(r)) / mpmath.mpf(tau) - mpmath.log((sum(grown) - own) / (len(reward) - 1)))
            for r, own in zip(reward, grown, strict=True)
        ]
    found = lesson_105.part_targets(reward, tau)
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    np.testing.assert_allclose(found, theory.leave_one_out_targets(reward, tau, "pmd-part"), rtol=1e-12)
    np.testing.assert_allclose(found, PMDPart(tau=tau).advantage(groups(reward))[0].numpy() / tau, rtol=1e-12)


def test_closed_steps_are_those_of_the_trajectory():
    """The trajectory divides by Z in every step; the solution never does."""
    rng = np.random.default_rng(0)
    for _ in range(12):
        p0, tau, goal = 10 ** rng.uniform(-6, -0.4), rng.uniform(0.02, 4), rng.uniform(0.5, 0.999)
        path = theory.trajectory(p0, tau, 100, "pmd-part")
        assert lesson_106.part_steps(p0, tau, goal) == np.argmax(path >= goal)


def test_the_formula_is_off_by_the_share_there_and_by_less_below():
    for p, share in ((1e-4, 0.01), (0.03, 0.05), (0.5, 0.01)):
        tau = lesson_106.holds_below(p, share)
        error = (
            1
            - binary_small_tau(p, np.array([0.5, 0.9, 1, 1.1]) * tau).eta
            / theory.binary(p, np.array([0.5, 0.9, 1, 1.1]) * tau).eta
        )
        assert error[0] < error[1] < share < error[3]
        np.testing.assert_allclose(error[2], share, rtol=1e-6)


def test_chances_of_coins_by_counting_every_row_of_heads_and_tails():
    contexts, arms = 4, 6
    counted = np.zeros((contexts, arms))
    for arm in range(arms):
        for row in product((0, 1), repeat=arm + 1):
            if 1 <= sum(row) <= contexts:
                counted[sum(row) - 1, arm] += 0.5 ** (arm + 1)
    np.testing.assert_allclose(lesson_107.coin_success(contexts, arms), counted, atol=1e-14)


def test_first_order_is_what_a_small_step_does():
    """The log-probability of answer 3 to one prompt, after a step on another prompt that shares all weights."""
    model, lr = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5)).double(), 1e-4
    first, second = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).double()
    weights = list(model.parameters())
    step = torch.autograd.grad(-model(first).log_softmax(0)[3], weights)
    old = model(second).log_softmax(0)[3]
    expected = solution("201.1")(step, torch.autograd.grad(old, weights), lr)
    with torch.no_grad():
        for weight, gradient in zip(weights, step, strict=True):
            weight -= lr * gradient
    assert expected == pytest.approx((model(second).log_softmax(0)[3] - old).item(), rel=0.01)


def test_a_sequence_loss_is_that_of_the_package():
    for logp, logp_old, mask, reward, tau in cases("202.0"):
        groups = Groups(reward, torch.full_like(reward, 1 / reward.shape[1]))
        batch = credit(PMDMean(tau=tau), groups, logp_old.flatten(0, 1), mask.flatten(0, 1))
        known = total(PMDMean(tau=tau), dataclasses.replace(batch, logp=logp.flatten(0, 1)))
        torch.testing.assert_close(solution("202.0")(logp, logp_old, mask, reward, tau), known)


def test_silent_groups_are_counted():
    p, group = np.array([0.02, 0.1, 0.3, 0.5, 0.9]), 8
    right = np.random.default_rng(0).random((40_000, len(p), group)) < p[:, None]
    counted = (right.all(2) | ~right.any(2)).mean(1)
    assert solution("202.1")(p, group) == pytest.approx(counted.mean(), abs=4 * 0.5 / math.sqrt(5 * 40_000))


def test_one_draw_fewer_would_not_be_sure():
    mpmath.mp.dps = 60
    for p, sure in cases("202.2"):
        draws = solution("202.2")(p, sure)
        wrong = 1 - mpmath.mpf(float(p))
        slack = 1 + 1e-9  # draws of 1e17 are rounded themselves
        assert 1 - wrong ** (draws * slack) >= sure
        assert 1 - wrong ** ((draws - 1) / slack) < sure


def test_the_speedup_adds_up():
    for fixed, each, update, ministeps in cases("203.1"):
        updates = 20 * ministeps
        fresh = sum(fixed + each + update for _ in range(updates))
        stale = sum(fixed + ministeps * (each + update) for _ in range(20))
        assert solution("203.1")(fixed, each, update, ministeps) == pytest.approx(fresh / stale, rel=1e-12)


def test_advantages_with_silence_are_those_of_the_objective():
    for reward, scored in cases("204.1"):
        mass = scored / max(scored.sum(), 1)
        groups = Groups(torch.from_numpy(np.where(scored, reward, 0.0))[None], torch.from_numpy(mass)[None])
        np.testing.assert_allclose(
            solution("204.1")(reward, scored), PMDMean(tau=0.05).advantage(groups)[0], atol=1e-12
        )


def test_at_the_turning_point_slow_answers_have_no_advantage():
    """All kinds of responses at their probabilities: quick, slow and judged, slow and silent, wrong."""
    for quick, slow in cases("204.2"):
        silent = solution("204.2")(quick, slow)
        mass = torch.tensor([[quick, slow * (1 - silent), slow * silent, 1 - quick - slow]], dtype=torch.float64)
        groups = Groups(torch.tensor([[1.0, 1, 0, 0]]).double(), mass, sampled=False)
        judged, unheard = PMDMean(tau=0.05).advantage(groups)[0, 1:3]
        assert (1 - silent) * judged + silent * unheard == pytest.approx(0, abs=1e-12)


def test_by_token_is_the_derivative_of_the_loss():
    prompts, group = 3, 4
    lengths = torch.tensor([3, 5, 2, 4, 1, 5, 5, 2, 4, 3, 5, 1])
    reward = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 1]]).double()
    mask = torch.arange(5) < lengths[:, None]
    old = torch.full((12, 5), -1.0, dtype=torch.float64)
    logp = old.clone().requires_grad_()
    loss = PMDMean(tau=0.05)
    response_loss(loss, reward, logp, old, mask).backward()
    credits = loss.advantage(Groups(reward, torch.full_like(reward, 1 / group))).flatten().numpy()
    said = solution("301.1")(credits, lengths.numpy(), prompts, group)
    np.testing.assert_allclose(torch.where(mask, logp.grad, 0.0), said[:, None] * mask.numpy(), atol=1e-15)


def test_micro_batches_add_up_to_the_whole_loss_of_dapo():
    objective = DAPO()
    for (lengths,) in cases("301.2"):
        every = np.concatenate(lengths)
        if len(every) < 2:
            continue
        mask = torch.arange(int(every.max())) < torch.from_numpy(every)[:, None]
        reward = torch.from_numpy(rng.uniform(size=(1, len(every))))
        old = torch.from_numpy(-rng.exponential(size=mask.shape))
        groups = Groups(reward, torch.full_like(reward, 1 / len(every)))
        batch = credit(objective, groups, old, mask)
        each = objective.loss(batch)  # [N, T]
        weights = solution("301.2")(lengths)
        ends = np.cumsum([len(part) for part in lengths])
        parts = zip(torch.tensor_split(each, ends[:-1].tolist()), lengths, weights, strict=True)
        summed = sum(weight * part.sum() / part_lengths.sum() for part, part_lengths, weight in parts)
        torch.testing.assert_close(summed, total(objective, batch), atol=1e-12, rtol=1e-9)


def test_trls_words_are_counted_as_its_trainer_does():
    """A generation is cut into the micro-batches of all GPUs; each update takes `accumulate` of them."""
    for micro, accumulate, rounds, group, gpus in cases("302.1"):
        responses = sum(micro for _ in range(gpus) for _ in range(rounds))
        ages = [step // accumulate for step in range(rounds)]  # in updates since the responses were drawn
        assert solution("302.1")(micro, accumulate, rounds, group, gpus) == (responses / group, ages[-1])


def test_one_gpu_fewer_does_not_hold_the_model():
    for weights, gib, one_pass in cases("302.2"):
        gpus = solution("302.2")(weights, gib, one_pass)

        def fits(count, weights=weights, gib=gib, one_pass=one_pass):
            return count > 0 and 16 * weights / count / 2**30 + one_pass <= 0.9 * gib

        assert fits(gpus) or not any(map(fits, (1, 10, 10**9)))
        assert not fits(gpus - 1)


def test_no_other_division_has_a_shorter_step():
    for work, floor, update, gpus in cases("302.3"):

        def seconds(serve, work=work, floor=floor, update=update, gpus=gpus):
            return max(floor + work / serve, update / (gpus - serve))

        best = solution("302.3")(work, floor, update, gpus)
        assert all(seconds(best) <= seconds(serve) for serve in range(1, gpus))


def test_both_squared_errors_are_unbiased():
    """Over all outcomes: of draws on two problems; and of problems, 0.1 or 0.8 with chance 1/2, and then of draws."""
    kinds, draws = np.array([0.1, 0.8]), 2
    over_draws = over_problems = mean = square = 0.0
    for which in product((0, 1), repeat=2):
        p = kinds[list(which)]
        for flips in product((0, 1), repeat=2 * draws):
            right = np.array(flips).reshape(2, draws)
            chance, score = np.where(right, p[:, None], 1 - p[:, None]).prod(), right.mean()
            first, second = lesson_303.two_errors(right.sum(1), draws)
            over_draws += chance * first**2 * (which == (0, 1))
            over_problems, mean, square = (
                total + chance / 4 * part
                for total, part in ((over_problems, second**2), (mean, score), (square, score**2))
            )
    np.testing.assert_allclose(over_draws, (kinds * (1 - kinds) / draws).sum() / 4, rtol=1e-12)
    np.testing.assert_allclose(over_problems, square - mean**2, rtol=1e-12)


def test_pass_at_k_counts_the_sets_that_hold_a_right_answer():
    right, draws, k = np.array([0, 1, 3, 7]), 7, 3
    counted = [np.mean([min(chosen) < c for chosen in combinations(range(draws), k)]) for c in right]
    np.testing.assert_allclose(lesson_303.pass_at(right, draws, k), np.mean(counted), rtol=1e-12)


def test_intervals_are_scipys_and_the_sweeps():
    for first, second in lesson_305.seeds(np.random.default_rng(1)):
        known = ttest_rel(second, first).confidence_interval(0.95)
        found = lesson_305.difference(first, second)
        np.testing.assert_allclose(found, [(second - first).mean(), known.low, known.high], rtol=1e-9)
        np.testing.assert_allclose(lesson_107.paired_interval(first, second), found[1:], rtol=1e-12)
        sweep = paired_difference(first, second).difference
        np.testing.assert_allclose(found[1:], (sweep.low, sweep.high), rtol=1e-12)


def test_the_honest_best_of_equal_checkpoints_is_not_flattered():
    """All are equally good: the reported best is too high by more than 2 points, the honest one right on average."""
    rng = np.random.default_rng(2)
    p = rng.beta(0.5, 1, size=30)
    scores = rng.binomial(8, p, size=(2000, 16, 30)) / 8
    honest = np.array([lesson_305.honest_best(each) for each in scores])
    error = honest.std(ddof=1) / np.sqrt(len(honest))
    assert abs(honest.mean() - p.mean()) < 4 * error
    assert scores.mean(2).max(1).mean() > p.mean() + 0.02


def test_a_wide_bound_leaves_the_loss_of_the_package():
    rng = np.random.default_rng(0)
    log_ratio, advantage, tau = rng.normal(size=6), rng.uniform(-1, 1, size=6), 0.3
    old, mask = torch.full((6, 1), -3.0, dtype=torch.float64), torch.ones(6, 1, dtype=torch.bool)
    tokens = old + torch.from_numpy(log_ratio)[:, None]
    batch = rows_of(tokens, old, mask, advantage=torch.from_numpy(advantage), tau=tau * torch.ones(6).double())
    known = PMDMean(tau=tau).loss(batch).numpy()
    np.testing.assert_allclose(lesson_401.bounded_loss(log_ratio, advantage, tau, 1e6), known, rtol=1e-12)


def test_the_push_is_the_residual_up_to_the_width_and_never_more():
    """The slope by the log ratio, by central differences, is the clipped residual: no jump, no kink, no zero."""
    log_ratio, advantage, tau, width, step = np.linspace(-9, 9, 401), 0.4, 0.25, 0.7, 1e-6
    above, below = (lesson_401.bounded_loss(log_ratio + s, advantage, tau, width) for s in (step, -step))
    push = (below - above) / (2 * step)
    np.testing.assert_allclose(push, np.clip(advantage - tau * log_ratio, -width, width), atol=1e-6)


def test_a_response_rests_where_its_bounded_target_is_its_log_ratio():
    """Forward: the reward above the mean is the slope, and its target is bounded by tanh."""
    for ratio, tau, cap in cases("401.2"):
        reached = cap * np.tanh(lesson_401.implied_slope(ratio, tau, cap) / (cap * tau))
        np.testing.assert_allclose(reached, np.log(ratio), rtol=1e-9, atol=1e-12)


def test_a_verdict_is_wrong_as_rarely_as_it_says():
    """Races between equals: among ten comparisons one or more is called in at most one case of twenty."""
    rng = np.random.default_rng(3)
    races = rng.normal(size=(150, 10, 5))
    called = [any(lesson_402.verdict(np.zeros(5), each, 10) != "undecided" for each in race) for race in races]
    assert np.mean(called) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 150)
    alone = [lesson_402.verdict(np.zeros(5), each, 1) != "undecided" for each in rng.normal(size=(1000, 5))]
    assert abs(np.mean(alone) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 1000)


# Things that are broken, and one that is not.


def test_a_baseline_left_in_is_priced_as_the_equation_says():
    """The log-ratios of the step solve u + lambda / tau^2 e^u = reward / tau, action by action."""
    for pi, new, reward, tau in cases("103.4"):
        u, lam = np.log(new / pi), solution("103.4")(pi, new, reward, tau)
        np.testing.assert_allclose(u + lam / tau**2 * np.exp(u), reward / tau, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_the_net_pull_changes_its_sign_at_the_threshold():
    for reward, tau in cases("105.3"):
        assert solution("105.3")(reward, tau) == pytest.approx(tau - theory.group_anchor(reward, tau), abs=1e-12)
    tau = float(theory.anchor_threshold(0.1, 8))
    pulls = [solution("105.3")(group, tau) for group in np.tri(9, 8, -1)]  # row k has k right ones
    assert binom.pmf(np.arange(9), 8, 0.1) @ pulls == pytest.approx(0, abs=1e-12)


def test_the_last_step_is_that_of_torchs_adam():
    for gradients, beta1, beta2 in cases("202.3"):
        weight = torch.zeros((), dtype=torch.float64, requires_grad=True)
        adam = torch.optim.Adam([weight], lr=1.0, betas=(beta1, beta2), eps=1e-30)
        for gradient in gradients:
            before, weight.grad = weight.item(), torch.tensor(gradient)
            adam.step()
        assert solution("202.3")(gradients, beta1, beta2) == pytest.approx(weight.item() - before, rel=1e-6)


def test_the_loss_of_grpo_starts_at_0_and_its_slope_does_not():
    for reward, tau in cases("301.3"):
        s = torch.zeros(len(reward), dtype=torch.float64, requires_grad=True)
        advantage = torch.from_numpy(reward - reward.mean())
        losses = (-(s.exp() * advantage).mean(), ((advantage - tau * s) ** 2).mean() / (2 * tau))
        slopes = [torch.autograd.grad(loss, s)[0].numpy() for loss in losses]
        *values, slope = solution("301.3")(reward, tau)
        np.testing.assert_allclose(values, [loss.item() for loss in losses], atol=1e-12)
        np.testing.assert_allclose(slopes, [slope, slope], atol=1e-12)
