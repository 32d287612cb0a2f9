"""Whose log-probabilities pi_old are, and importance weights of an engine that computes otherwise than the trainer."""

import math
from dataclasses import replace

import pytest
import torch

from pmdkit.errors import ComponentDied
from pmdkit.llm.importance_weights import importance_weights
from pmdkit.llm.mismatch import MismatchMonitor, mismatch_metrics
from pmdkit.llm.old_logprobs import resolve_old_logprobs
from pmdkit.loop import Schedule, run
from pmdkit.objectives import OBJECTIVES, Groups, credit, total

from .test_learner import learner, step_of

OBJECTIVE = OBJECTIVES["pmd-mean"](tau=0.1)


def shifted(by):
    """Rollouts whose engine says that every token is `by` nats likelier than the trainer does."""
    mine = learner()
    rollouts = mine.rollout(torch.arange(3), 4, seed=1)
    return mine, replace(rollouts, logp_old=torch.where(rollouts.mask, rollouts.logp_old + by, 0.0))


def test_engine_and_trainer_agree_in_one_process():
    mine = learner()
    mine.rollout(torch.arange(3), 4, seed=1)
    assert mine.mismatch["mismatch_max"] < 1e-6


def test_a_shift_of_the_engine_is_measured_per_token_and_per_response():
    mine, rollouts = shifted(0.25)
    kept, told = resolve_old_logprobs(rollouts, mine.logp, "rollout", "none", 2.0)
    assert kept is rollouts
    assert told["mismatch_mean"] == pytest.approx(0.25, abs=1e-6)
    assert told["mismatch_max"] == pytest.approx(0.25, abs=1e-6)
    assert told["mismatch_response"] == pytest.approx(0.25 * rollouts.mask.sum(1).double().mean().item(), abs=1e-5)


def test_recomputing_takes_the_trainers_numbers():
    mine, rollouts = shifted(0.25)
    taken, _ = resolve_old_logprobs(rollouts, mine.logp, "recompute", "none", 2.0)
    with torch.no_grad():
        torch.testing.assert_close(taken.logp_old.double(), mine.logp(rollouts), atol=1e-6, rtol=0)


@pytest.mark.parametrize("old", ["rollout", "recompute"])
def test_weights_are_the_ratio_of_trainer_and_engine(old):
    mine, rollouts = shifted(-0.1)
    length = rollouts.mask.sum(1).double()
    for kind, wanted in (
        ("token-truncate", torch.where(rollouts.mask, math.exp(0.1), 1.0).double()),
        ("sequence-truncate", (0.1 * length).exp().clamp_max(1.35)),
        ("sequence-mask", torch.where(length <= 3, (0.1 * length).exp(), 0.0)),
    ):
        found, _ = resolve_old_logprobs(rollouts, mine.logp, old, kind, 1.35)
        torch.testing.assert_close(found.correction, wanted, atol=1e-5, rtol=0)


def test_corrected_weights_average_to_the_trainers_expectation():
    """Draws from the engine's distribution, weighted, have the expectation of the trainer's: by enumeration."""
    engine, trainer = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.4, 0.2])
    difference = (trainer / engine).log()[:, None]
    weights = importance_weights(difference, torch.ones(3, 1, dtype=torch.bool), "sequence-truncate", 10.0)
    value = torch.tensor([1.0, -2.0, 5.0])
    assert (engine * weights * value).sum().item() == pytest.approx((trainer * value).sum().item(), abs=1e-6)


def test_a_mask_drops_both_tails_and_truncation_only_the_upper():
    difference = torch.tensor([[-2.0], [0.0], [2.0]])
    on = torch.ones(3, 1, dtype=torch.bool)
    assert importance_weights(difference, on, "sequence-mask", 2.0).tolist() == [0.0, 1.0, 0.0]
    kept = importance_weights(difference, on, "sequence-truncate", 2.0).tolist()
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


def test_correction_goes_with_its_rows():
    mine, rollouts = shifted(-0.1)
    found, _ = resolve_old_logprobs(rollouts, mine.logp, "rollout", "sequence-truncate", 2.0)
    assert torch.equal(found.part(slice(1, 2)).correction, found.correction[4:8])


def test_token_weights_fit_token_losses_only():
    mine, rollouts = shifted(-0.1)
    found, _ = resolve_old_logprobs(rollouts, mine.logp, "rollout", "token-truncate", 2.0)
    _, batch = step_of(mine, OBJECTIVE)
    with pytest.raises(ValueError, match="one correction per response"):
        total(OBJECTIVE, replace(batch, correction=found.correction))
    reward = (found.responses[:, 0] % 2).double().view(3, 4)
    grpo = OBJECTIVES["grpo"]()
    fine = credit(grpo, Groups(reward, found.mass), found.logp_old, found.mask)
    assert torch.isfinite(total(grpo, replace(fine, correction=found.correction)))


def test_mismatch_is_of_the_mask_only():
    difference = torch.tensor([[0.5, torch.nan], [-0.5, 0.25]])
    mask = torch.tensor([[True, False], [True, True]])
    told = mismatch_metrics(difference, mask)
    wanted = {"mismatch_mean": 1.25 / 3, "mismatch_max": 0.5, "mismatch_response": 0.375, "mismatch_kl": -0.25 / 3}
    assert told == pytest.approx(wanted)


def heard(monitor, step, response, kl=0.0, tau=0.1):
    """What an monitor says of a step, and what it adds to the metrics."""
    said = []
    told = {"mismatch_response": response, "mismatch_kl": kl}
    return said, monitor.check(step, told, torch.full((4,), tau, dtype=torch.float64), said.append)


def test_the_bias_of_a_target_is_in_units_of_its_range():
    """tau nats / (r_max - r_min): 0.18 nats at tau = 0.1 are 0.9 % of the range of -1 to 1."""
    assert heard(MismatchMonitor(2.0, in_target=True), 0, 0.18) == ([], {"target_bias": pytest.approx(0.009)})
    said, _ = heard(MismatchMonitor(1.0, in_target=True), 0, 0.2)
    assert len(said) == 1
    assert "0.2 nats in a response, which moves its target by 2.0% of the range" in said[0]


def test_an_monitor_is_told_once_and_ends_a_run_after_three_steps_in_a_row():
    monitor = MismatchMonitor(1.0, in_target=True)
    words = [heard(monitor, step, nats)[0] for step, nats in enumerate([1.5, 1.5, 0.5, 1.5, 1.5])]
    assert [len(said) for said in words] == [1, 0, 0, 0, 0]
    assert heard(monitor, 4, 1.5) == ([], {})  # the second ministep of a step
    with pytest.raises(ComponentDied, match=r"by 15\.0% .* above 10% in 3 steps in a row.*'recompute'"):
        heard(monitor, 5, 1.5)


@pytest.mark.parametrize("kl", [0.02, -0.02, math.nan])
def test_another_distribution_is_told_whoevers_numbers_are_in_the_target(kl):
    said, told = heard(MismatchMonitor(1.0, in_target=False), 0, 50.0, kl)
    assert told == {}
    assert len(said) == 1
    assert "another temperature, or a top_p below 1" in said[0]


def test_a_bias_that_is_not_a_number_counts_as_large():
    monitor = MismatchMonitor(1.0, in_target=True)
    assert [len(heard(monitor, step, math.nan)[0]) for step in range(2)] == [1, 0]
    with pytest.raises(ComponentDied):
        heard(monitor, 2, math.nan)


def test_objectives_without_a_temperature_have_no_such_bias():
    assert heard(MismatchMonitor(1.0, in_target=True), 0, 50.0, tau=math.nan) == ([], {})
    assert MismatchMonitor(1.0, in_target=True).check(0, {}, torch.ones(1), pytest.fail) == {}
