"""The gauge of a bandit against the theory at the exact pass rates, and its noise against the binomial."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import binom

from pmdkit import theory
from pmdkit.bandit.learner import BanditLearner
from pmdkit.bandit.metrics import ExactStepMetrics
from pmdkit.envs.bandit import Bandit, BanditTask
from pmdkit.loop import Schedule, run
from pmdkit.objectives import OBJECTIVES
from pmdkit.observe.gauge import EDGES
from pmdkit.observe.metrics import KEYS

RATES = np.array([0.01, 0.05, 0.08, 0.2, 0.5, 0.6, 0.9, 0.99])


def bandit(low=0.0, high=1.0, flip=0.0, values=True):
    """One right arm of each pass rate and two wrong ones; the verifier errs with probability `flip`."""
    log_policy = np.log(np.stack([RATES, 0.6 * (1 - RATES), 0.4 * (1 - RATES)], -1))
    success = np.tile([1.0, 0.0, 0.0], (len(RATES), 1))
    reward = low + (high - low) * (success + flip * (1 - 2 * success))
    if values:
        return Bandit("test", reward, log_policy, success, values=(low, high))
    return Bandit("test", reward + 0.1 * np.arange(3), log_policy, values=None, sd=0.2)


def measured(objective, problem, group, steps=1, lr=0.05):
    """The rows of a run, and the policies before and after its last step."""
    policy = torch.tensor(problem.log_policy)
    learner = BanditLearner(policy, update="exact" if group is None else "gradient", lr=lr)
    meter, rows, policies = ExactStepMetrics(problem, objective, learner), [], [learner.log_policy()]

    def keep(*step):
        rows.append(meter.measure(*step).row)
        policies.append(learner.log_policy())

    run(objective, learner, BanditTask(problem), Schedule(steps, group), [keep])
    return rows, policies[-2], policies[-1]


def members(bucket):
    return np.minimum(np.searchsorted(EDGES, RATES, side="right") - 1, len(EDGES) - 2) == bucket


@pytest.mark.parametrize("group", [None, 16])
@pytest.mark.parametrize("name", ["pmd-mean", "pmd-part"])
def test_every_bucket_holds_the_theory_of_its_pass_rates(name, group):
    """Exact pass rates, not those of the draws: the prediction is the same with any group."""
    ((row,), _, _) = measured(OBJECTIVES[name](tau=0.2), bandit(), group)
    assert set(row) == set(KEYS)
    exact = theory.binary(RATES, 0.2, name)
    assert len(row["gauge"]) == 6
    for entry in row["gauge"]:
        inside = members(entry["bucket"])
        assert entry["prompts"] == inside.sum()
        assert entry["pass_rate"] == pytest.approx(RATES[inside].mean(), abs=1e-12)
        assert entry["theory_log_ratio_pos"] == pytest.approx(exact.log_ratio_pos[inside].mean(), abs=1e-9)
        assert entry["theory_log_ratio_neg"] == pytest.approx(exact.log_ratio_neg[inside].mean(), abs=1e-9)
        if name == "pmd-mean":
            assert entry["theory_lambda_over_tau"] == pytest.approx(exact.lam[inside].mean() / 0.2, rel=1e-9)
        else:
            assert entry["theory_lambda_over_tau"] is None


@pytest.mark.parametrize("group", [None, 16])
def test_the_row_by_hand(group):
    """Every key of the third step: two right arms, a verifier that errs in one of ten, two ministeps."""
    tau, steps = 0.05, 3
    policy = np.stack([0.7 * RATES, 0.3 * RATES, 0.6 * (1 - RATES), 0.4 * (1 - RATES)], -1)
    right = np.array([True, True, False, False])
    problem = Bandit("test", np.tile(0.1 + 0.8 * right, (8, 1)), np.log(policy), np.tile(1.0 * right, (8, 1)))
    objective, seen = OBJECTIVES["pmd-mean"](tau=tau), {}
    learner = BanditLearner(torch.tensor(problem.log_policy), update="gradient", lr=0.05)
    meter = ExactStepMetrics(problem, objective, learner)
    policies = [learner.log_policy()]

    def keep(step, learner, rollouts, groups, batch, updates):
        seen.update(rollouts=rollouts, groups=groups, updates=updates)
        seen["row"] = meter.measure(step, learner, rollouts, groups, batch, updates).row
        policies.append(learner.log_policy())

    run(objective, learner, BanditTask(problem), Schedule(steps, group, 2), [keep])
    rollouts, updates = seen["rollouts"], seen["updates"]
    old, new = (each[rollouts.prompts].numpy() for each in policies[-2:])
    arms = rollouts.responses.view(rollouts.mass.shape).numpy()
    reward, mass = seen["groups"].reward.numpy(), seen["groups"].mass.numpy()
    change = np.take_along_axis(new - old, arms, 1)
    pi, rewards = np.exp(old), problem.reward[rollouts.prompts]
    exact, rate = theory.pmd_mean(pi, rewards, tau), (pi * rewards).sum(1)

    def of_class(values, arms):
        return ((pi * values)[:, arms].sum(1) / pi[:, arms].sum(1)).mean()

    if group:
        shares = []
        for row in arms:
            twins = [a == b for a, b in itertools.permutations(row[right[row]], 2)]
            shares += [1 - np.mean(twins)] if twins else []
        anchor = theory.group_anchor(reward, tau) / tau
    else:
        q = pi[:, right] / pi[:, right].sum(1, keepdims=True)
        shares, anchor = 1 - (q**2).sum(1), theory.baseline_value(pi, rewards, tau, 1.0) / tau - rate / tau
    wanted = {
        "step": steps, "policy_version": steps - 1, "staleness": 1,  # one update before the last of two
        "reward_mean": (mass * reward).sum(1).mean(), "pass_rate": (mass * right[arms]).sum(1).mean(),
        "loss": np.mean([u["loss"] for u in updates]), "grad_norm": np.mean([u["grad_norm"] for u in updates]),
        "log_ratio_min": change.min(), "log_ratio_max": change.max(),
        "abs_log_ratio_median": np.median(np.abs(change)),
        "kl": (np.exp(new) * (new - old)).sum(1).mean(), "entropy": -(np.exp(new) * new).sum(1).mean(),
        "ess": (1 / (1 + theory.chi2(np.exp(new), pi))).mean(),
        "tokens": 8 * 16 if group else 0, "response_length": 1,
        "zero_variance_groups": sum(len(set(row)) == 1 for row in reward.tolist()),
        "theory_log_ratio_neg": of_class(exact.log_ratio, ~right), "log_ratio_neg": of_class(new - old, ~right),
        "theory_log_ratio_pos": of_class(exact.log_ratio, right), "log_ratio_pos": of_class(new - old, right),
        "tau": tau, "theory_lambda": exact.lam.mean(), "theory_lambda_over_tau": exact.lam.mean() / tau,
        "noise_share": (reward.sum(1) <= 1).mean() if group else None,
        "theory_noise_share": binom.cdf(1, 16, rate).mean() if group else None,
        "anchor": np.maximum(anchor, 0).mean(), "distinct_right": np.mean(shares),
        "theory_distinct_lost": np.mean([1 / k for k in right[arms].sum(1) if k]) if group else None,
        "seconds_rollout": rollouts.seconds, "seconds_update": sum(u["seconds"] for u in updates),
    }  # fmt: skip
    buckets = seen["row"].pop("gauge")  # tested above
    assert sum(entry["prompts"] for entry in buckets) == 8
    assert wanted.keys() == set(KEYS) - {"gauge"}
    for key, value in wanted.items():
        assert seen["row"][key] == (None if value is None else pytest.approx(value, rel=1e-8, abs=1e-10)), key


def test_the_reward_scale_moves_units_only():
    """Rewards of +-1 at 2 tau: the same update, twice the lambda/tau, the same noise."""
    ((ours,), _, _) = measured(OBJECTIVES["pmd-mean"](tau=0.05), bandit(), 16)
    ((other,), _, _) = measured(OBJECTIVES["pmd-mean"](tau=0.1), bandit(-1.0, 1.0), 16)
    assert other["theory_lambda_over_tau"] == pytest.approx(2 * ours["theory_lambda_over_tau"], rel=1e-9)
    for key in ("theory_log_ratio_pos", "theory_log_ratio_neg", "noise_share", "theory_noise_share", "anchor"):
        assert other[key] == pytest.approx(ours[key], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "flip"), [("pmd-mean", 0.1), ("grpo", 0.0)])
def test_noise_is_the_binomial_chance_of_one_right_draw_at_most(name, flip):
    """Under any objective. A verifier that errs shows the group other pass rates than the true ones."""
    objective = OBJECTIVES[name]() if name == "grpo" else OBJECTIVES[name](tau=0.05)
    rows, _, _ = measured(objective, bandit(flip=flip), 16, steps=100, lr=0.0)
    wanted = binom.cdf(1, 16, RATES + flip * (1 - 2 * RATES))
    assert rows[0]["theory_noise_share"] == pytest.approx(wanted.mean(), abs=1e-12)
    for place, entry in enumerate(rows[0]["gauge"]):
        share = wanted[members(entry["bucket"])]
        assert entry["theory_noise_share"] == pytest.approx(share.mean(), abs=1e-12)
        seen = np.mean([row["gauge"][place]["noise_share"] for row in rows])
        error = np.sqrt((share * (1 - share)).sum() / len(share) ** 2 / len(rows))
        assert abs(seen - share.mean()) <= 4 * error + 1e-12


def test_real_rewards_have_a_multiplier_and_neither_sides_nor_noise():
    problem = bandit(values=False)
    ((row,), before, _) = measured(OBJECTIVES["pmd-mean"](tau=0.2), problem, 8)
    assert set(row) == set(KEYS)
    for key in ("gauge", "log_ratio_pos", "theory_log_ratio_neg", "noise_share", "theory_noise_share", "pass_rate"):
        assert row[key] is None
    lam = theory.pmd_mean(before.exp().numpy(), problem.reward, 0.2).lam
    assert row["theory_lambda_over_tau"] == pytest.approx(lam.mean() / 0.2, rel=1e-9)
    assert 0 < row["ess"] <= 1
