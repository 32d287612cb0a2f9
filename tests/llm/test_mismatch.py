"""Whose log-probabilities pi_old are, and importance weights of an engine that computes otherwise than the trainer."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pmdkit.errors import ComponentDied
from pmdkit.llm.mismatch import MismatchMonitor, mismatch_metrics, off_policy_parts, target_bias
from pmdkit.llm.old_logprobs import importance_weights, resolve_old_logprobs
from pmdkit.loop import Schedule, run
from pmdkit.objectives import OBJECTIVES

from .test_learner import learner

OBJECTIVE = OBJECTIVES["pmd-mean"](tau=0.1)


def shifted(by):
    """Rollouts whose engine says that every token is `by` nats likelier than the trainer does."""
    mine = learner()
    rollouts = mine.rollout(torch.arange(3), 4, seed=1)
    return mine, replace(rollouts, logp_old=torch.where(rollouts.mask, rollouts.logp_old + by, 0.0))


def test_a_shift_of_the_engine_is_measured_per_token_and_per_response():
    mine, rollouts = shifted(0.25)
    kept = resolve_old_logprobs(rollouts, mine.logp, "rollout", "none", 2.0)
    assert torch.equal(kept.logp_old, rollouts.logp_old)
    found = kept.measured
    assert found["mismatch_mean"] == pytest.approx(0.25, abs=1e-6)
    assert found["mismatch_max"] == pytest.approx(0.25, abs=1e-6)
    assert found["mismatch_response"] == pytest.approx(0.25 * rollouts.mask.sum(1).double().mean().item(), abs=1e-5)


def test_recomputing_takes_the_trainers_numbers_and_keeps_the_engines():
    mine, rollouts = shifted(0.25)
    taken = resolve_old_logprobs(rollouts, mine.logp, "recompute", "none", 2.0)
    with torch.no_grad():
        torch.testing.assert_close(taken.logp_old.double(), mine.logp(rollouts), atol=1e-6, rtol=0)
    assert torch.equal(taken.logp_engine, rollouts.logp_old)
    assert torch.equal(taken.part(slice(1, 2)).logp_engine, rollouts.logp_old[4:8])


@pytest.mark.parametrize("old", ["rollout", "recompute"])
def test_weights_are_the_ratio_of_trainer_and_engine(old):
    mine, rollouts = shifted(-0.1)
    length = rollouts.mask.sum(1).double()
    for kind, wanted in (
        ("token-truncate", torch.where(rollouts.mask, math.exp(0.1), 1.0).double()),
        ("sequence-truncate", (0.1 * length).exp().clamp_max(1.35)),
        ("sequence-mask", torch.where(length <= 3, (0.1 * length).exp(), 0.0)),
    ):
        found = resolve_old_logprobs(rollouts, mine.logp, old, kind, 1.35)
        torch.testing.assert_close(found.correction, wanted, atol=1e-5, rtol=0)
        assert torch.equal(found.part(slice(1, 2)).correction, found.correction[4:8])


def test_a_mask_drops_both_tails_and_truncation_only_the_upper():
    difference = torch.tensor([[-2.0], [0.0], [2.0]])
    assert importance_weights(difference, "sequence-mask", 2.0).tolist() == [0.0, 1.0, 0.0]
    kept = importance_weights(difference, "sequence-truncate", 2.0).tolist()
    assert kept == pytest.approx([math.exp(-2), 1.0, 2.0])


def test_the_loop_hands_the_weights_to_the_loss():
    """A correction of one half everywhere halves loss and gradient of every ministep."""
    reports = []
    for factor in (1.0, 0.5):
        mine = learner()
        real = mine.rollout

        def drawn(prompts, group, seed, real=real, factor=factor):
            rollouts = real(prompts, group, seed)
            return replace(rollouts, correction=torch.full((12,), factor, dtype=torch.float64))

        mine.rollout = drawn
        run(OBJECTIVE, mine, Coins(), Schedule(1, 4, 1, 0), [lambda *seen: reports.append(seen[-1][0])])
    assert reports[1]["loss"] == pytest.approx(reports[0]["loss"] / 2, rel=1e-9)
    assert reports[1]["grad_norm"] == pytest.approx(reports[0]["grad_norm"] / 2, rel=1e-6)


class Coins:
    """Rewards by the first token's parity."""

    def prompts(self, step):
        return torch.arange(3)

    def reward(self, rollouts):
        return (rollouts.responses[:, 0] % 2).double().view(3, 4)


def test_the_log_ratio_to_the_draws_is_the_sum_of_its_parts():
    """One token: mu = 0.5 by top_p, e_v = 0.4, pi_v = 0.2 and pi = 0.3. A part that is missing follows, two do not."""
    parts = {"mismatch": math.log(0.2 / 0.4), "staleness": math.log(0.3 / 0.2), "sampler": math.log(0.4 / 0.5)}
    total = math.log(0.3 / 0.5)
    whole = {"off_policy": total} | {f"off_policy_{name}": x for name, x in parts.items()}
    assert off_policy_parts(None, **parts) == pytest.approx(whole)
    for name in parts:
        assert off_policy_parts(total, **parts | {name: None}) == pytest.approx(whole)
    assert off_policy_parts(total, None, None, 0.0)["off_policy_staleness"] is None
    assert off_policy_parts(None, None, 0.0, 0.0)["off_policy"] is None


def test_mismatch_is_of_the_mask_only():
    trainer = torch.tensor([[-0.5, torch.nan], [-1.5, -0.75]])
    mask = torch.tensor([[True, False], [True, True]])
    told = mismatch_metrics(trainer, torch.full((2, 2), -1.0), mask)
    wanted = {"mismatch_mean": 1.25 / 3, "mismatch_max": 0.5, "mismatch_response": 0.375, "mismatch_kl": -0.25 / 3}
    assert told == pytest.approx(wanted)


def test_the_bias_of_a_target_is_in_units_of_its_range():
    """tau nats / (r_max - r_min): 0.18 nats at tau = 0.1 are 0.9 % of the range of -1 to 1."""
    measured, tau = {"mismatch_response": 0.18}, torch.full((4,), 0.1, dtype=torch.float64)
    assert target_bias(measured, tau, 2.0) == {"target_bias": pytest.approx(0.009)}
    assert target_bias(measured, tau * math.nan, 2.0) == {}  # an objective without a temperature
    assert target_bias({}, tau, 2.0) == {}  # not measured, as with a lag


def judged(monitor, kl=0.0, bias=None):
    """What the monitor warns of in a step."""
    said = []
    row = {"mismatch_kl": kl, "mismatch_response": 1.0} | ({} if bias is None else {"target_bias": bias})
    monitor.on_step_end(SimpleNamespace(display=SimpleNamespace(warn=said.append)), SimpleNamespace(row=row))
    return len(said)


@pytest.mark.parametrize("large", [0.15, math.nan])
def test_the_monitor_warns_once_and_ends_a_run_after_three_steps_in_a_row(large):
    monitor = MismatchMonitor()
    assert [judged(monitor, bias=bias) for bias in (0.009, large, large, 0.05, large, large)] == [0, 1, 0, 0, 0, 0]
    with pytest.raises(ComponentDied):
        judged(monitor, bias=large)


@pytest.mark.parametrize("kl", [0.02, -0.02, math.nan])
def test_another_distribution_is_reported_whoevers_numbers_are_in_the_target(kl):
    monitor = MismatchMonitor()
    assert [judged(monitor, kl), judged(monitor, kl)] == [1, 0]
