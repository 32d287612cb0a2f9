"""Every column that tier 3 adds to metrics.jsonl, worked by hand on four responses to two prompts."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pmdkit.llm.metrics import make_metrics
from pmdkit.llm.rewards import RewardSum
from pmdkit.llm.rollouts import EngineRollouts
from pmdkit.llm.task import GradedStep
from pmdkit.loop import Episode, graded
from pmdkit.objectives import PMDMean, credit
from pmdkit.observe.metrics import Measured, metrics_row
from pmdkit.specs.llm import RewardTable
from strict_answers import Item, Verdict


def test_the_row_by_hand():
    """Prompt 0: right, cut off and wrong. Prompt 1: no answer, whose reward is left out, and a failed environment.

    The rollouts lag: version 3 drew them for step 5, so the last of its two updates is three updates later.
    """
    mask = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0], [1, 0, 0]], dtype=torch.bool)  # one token of an environment
    logp = torch.where(mask, torch.tensor([[-0.5], [-1.0], [-0.25], [-2.0]]), 0.0)
    turns = [({"role": "user", "content": "?"}, *[{"role": "assistant", "content": ""}] * n) for n in (2, 1, 1, 1)]
    episodes = [Episode(messages, (1,), None, False) for messages in turns[:3]]
    measured = {"mismatch_mean": 1e-3, "mismatch_response": 0.2, "canary_max": 3e-3, "gen_batches": 2}
    measured |= {"mismatch_kl": 0.2}
    rollouts = EngineRollouts(
        torch.arange(2), mask.long(), logp, mask, torch.full((2, 2), 0.5, dtype=torch.float64), True, seed=0, version=3,
        width=3, episodes=[*episodes, Episode(turns[3], (1,), None, False, "gone")], measured=measured,
    )  # fmt: skip
    answers = GradedStep(
        [Item("", "1", cut_off) for cut_off in (False, True, False, False)],
        [
            Verdict(True, "1", "integer", "", 1.0), Verdict(False, "2", "integer", "", 0.0),
            Verdict(False, None, "none", "", 0.0), Verdict(None, None, "timeout", "gone"),
        ],
        torch.tensor([1.0, -1.0, torch.nan, torch.nan], dtype=torch.float64),
        {"math": torch.tensor([1.0, -1.0, -1.0, torch.nan]), "short": torch.tensor([0.5, 0.0, 0.25, 1.0])},
    )  # fmt: skip
    rewards = RewardSum(RewardTable(), [object()], False)
    task = SimpleNamespace(graded=lambda _: answers, rewards=rewards, high=1.0, low=-1.0)
    groups = graded(answers.reward.view(2, 2), rollouts)
    batch = credit(PMDMean(tau=0.1), groups, logp, mask)
    update = {"loss": 1.0, "grad_norm": torch.nan, "skipped": True, "lr": 1e-6, "seconds": 2.0, "off_policy": -0.3}
    exact = {"pass_rate": 0.25, "right": None, "entropy": 0.0, "response_length": 0.0, "movement": {}}
    base = SimpleNamespace(passed=0.5, measure=lambda *step: Measured(metrics_row(*step[:1], *step[2:], **exact)))
    step = 5, None, rollouts, groups, batch, [update, update | {"skipped": False, "lr": 2e-6, "off_policy": -0.4}]
    expected = {
        "policy_version": 3, "staleness": 3, "tokens": 7, "seconds_update": 4.0, "skipped_updates": 1,
        "learning_rate": 2e-6, "grad_norm": None, "token_entropy": (0.5 * 2 + 1.0 * 3 + 0.25 + 2.0) / 7,
        "unscored": 1, "unanswered": 1, "cut_off": 1, "skipped_groups": 1, "pass_rate": 1 / 3,
        "rewards/math/mean": -1 / 3, "rewards/short/mean": 1.75 / 4, "turns": 5 / 4, "environment_tokens": 1,
        "off_policy": -0.3, "off_policy_mismatch": -0.2, "off_policy_staleness": -0.1, "off_policy_sampler": 0.0,
        "pass_rate_completed": 1.0,
        "environment_failures": 1, **measured, "target_bias": 0.1 * 0.2 / 2, "engine_restarts": 0,
    }  # fmt: skip
    row = make_metrics(base, task, in_target=True)(*step).row
    for key, value in expected.items():
        assert row[key] == (None if value is None else pytest.approx(value)), key
    update.pop("off_policy")  # not scored: the mismatch is of a temperature of 1, or of the newest weights
    found = make_metrics(base, task, in_target=False)(*step).row
    assert "target_bias" not in found
    assert [found[f"off_policy{part}"] for part in ("", "_mismatch", "_staleness")] == [None] * 3
    rollouts = replace(rollouts, version=4)
    found = make_metrics(base, task, in_target=False)(5, None, rollouts, *step[3:]).row
    assert [found[f"off_policy{part}"] for part in ("", "_mismatch", "_staleness")] == [-0.2, -0.2, 0.0]
