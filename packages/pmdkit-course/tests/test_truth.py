"""The solutions of lessons 101 to 302 against something that they were not made from: theory, losses, counting."""

import math
from functools import partial

import mpmath
import numpy as np
import pytest
import torch

from pmdkit import theory
from pmdkit.objectives import DAPO, Batch, Groups, PMDMean, credit, response_loss, row_weight, total
from pmdkit_course.exercises import exercise

rng = np.random.default_rng(0)


def solution(which):
    """The solution of an exercise."""
    return exercise(which).solution


def cases(which):
    """Its random inputs."""
    return exercise(which).inputs(np.random.default_rng(1))


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
        assert float(exact) == pytest.approx(theory.pmd_part(mass[present], reward[present], tau).log_z, rel=1e-9)


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


def test_first_order_is_what_a_step_of_a_transformer_does():
    from pmdkit.toy.model import ModelConfig, Transformer

    model = Transformer(ModelConfig(vocabulary=5, context=4, dimension=16, heads=2, inner=32), seed=1).double()
    weights, lr = list(model.parameters()), 1e-4

    def logp(first, second):
        """Of answer 3 to a prompt of two tokens."""
        return model(torch.tensor([[first, second]]))[0, -1].log_softmax(0)[3]

    of_loss = torch.autograd.grad(-logp(1, 2), weights)
    of_logp = torch.autograd.grad(logp(2, 1), weights)
    said = solution("201.1")(of_loss, of_logp, lr)
    old = logp(2, 1).item()
    with torch.no_grad():
        for weight, gradient in zip(weights, of_loss, strict=True):
            weight -= lr * gradient
    assert said == pytest.approx(logp(2, 1).item() - old, rel=0.01)


def test_a_sequence_is_that_of_a_batch():
    for logp, logp_old, mask in cases("201.2"):
        ratio, weight = solution("201.2")(logp, logp_old, mask)
        rows = len(mask)
        one, length = torch.ones(rows), mask.sum(1)
        batch = Batch(
            logp=logp,
            logp_old=logp_old,
            mask=mask,
            **dict.fromkeys(("length", "advantage", "weight", "tau", "mass", "group"), one),
        )
        np.testing.assert_allclose(ratio, batch.seq_log_ratio, rtol=1e-12)
        mass = torch.full((1, rows), 1 / rows, dtype=torch.float64)
        np.testing.assert_allclose(weight, row_weight(mass, length, "length"), rtol=1e-12)


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


def test_staleness_is_that_of_a_queue():
    """A trainer counts its updates; a batch carries the count of the moment when it was drawn."""
    for ministeps, passes, lag in cases("203.2"):
        version, queue, ages = 0, [], []
        for _ in range(lag + 3):
            queue.append(version)
            if len(queue) <= lag:
                version += ministeps * passes  # on a batch of before the start
                continue
            drawn = queue.pop(0)
            ages = []
            for _ in range(passes):
                for _ in range(ministeps):
                    ages.append(version - drawn)
                    version += 1
        assert list(solution("203.2")(ministeps, passes, lag)) == ages


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


def test_trls_words_are_those_of_the_export():
    from dataclasses import replace

    from pmdkit.training import plan
    from pmdkit_lab.planner.export import export
    from pmdkit_lab.planner.hardware import cluster
    from pmdkit_lab.planner.predict import Prediction
    from pmdkit_lab.planner.workload import lengths, sizes_of, work_of

    spec, _ = plan("llm", "qwen2.5-7b", {})
    work = work_of(spec)
    prediction = Prediction(sizes_of(spec), work, lengths("direct", spec.rollout.width), cluster("32xH100"))
    keys = {key.split(".")[-1]: value for key, value in export("trl", spec, prediction).values.items()}
    names = "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation", "num_generations"
    said = solution("302.1")(*(int(keys[name]) for name in names), 32)
    assert said == (work.prompts, prediction.staleness)
    # the state of training in shares, as the planner books it
    update = replace(prediction, work=replace(work, fsdp2=True)).memory.phases["update"]
    state = 32 * (update["weights"] + update["optimizer"] + update["gradients"])
    assert state == pytest.approx(16 * prediction.sizes.weights / 2**30, rel=1e-9)


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


@pytest.mark.parametrize("which", ["102.2", "101.2"])
def test_solutions_stay_finite_where_the_plain_formula_does_not(which):
    plain = partial(exercise(which).slips[0].wrong)
    with np.errstate(all="ignore"):
        lost = [not np.all(np.isfinite(plain(*case))) for case in cases(which)]
    assert any(lost)
    assert all(np.all(np.isfinite(solution(which)(*case))) for case in cases(which))
