"""What this tier adds to metrics.jsonl and to a recorded step."""

from collections.abc import Callable
from math import isnan
from typing import Any

import torch

from pmdkit.llm.contrib.turns import gauges
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.mismatch import target_bias
from pmdkit.llm.rollouts import EngineRollouts
from pmdkit.llm.task import MathTask
from pmdkit.loop import Learner, Rollouts
from pmdkit.objectives import Batch, Groups
from pmdkit.observe.metrics import StepMetrics
from pmdkit.recording import StepExtras


def make_metrics(measured: StepMetrics, task: MathTask, in_target: bool) -> Callable[..., dict[str, Any]]:
    """An observer of the loop that returns a step's line of metrics.jsonl: the columns of all tiers and its own.

    `in_target`: pi_old is the engine's, so that its mismatch is in the target of the regression.
    """

    def row(
        step: int, learner: Learner, rollouts: Rollouts, groups: Groups, batch: Batch, updates: list[dict[str, float]]
    ) -> dict[str, Any]:
        assert isinstance(rollouts, EngineRollouts)
        tokens = int(rollouts.mask.sum())
        logp_old = rollouts.logp_old[rollouts.mask].double().sum().item()
        verdicts = task.last.verdicts
        row = measured.row(step, learner, rollouts, groups, batch, updates)
        return {
            **row,
            "grad_norm": None if isnan(row["grad_norm"]) else row["grad_norm"],  # of a Tinker server that reports none
            "token_entropy": -logp_old / tokens,
            "unscored": sum(not verdict.scored for verdict in verdicts),
            "unanswered": sum(verdict.path == "none" for verdict in verdicts),
            "cut_off": sum(item.truncated for item in task.last.items),
            "skipped_groups": int((~groups.scored).sum()),
            **({} if task.rewards is None else task.rewards.columns(verdicts, task.last.parts)),
            **({} if rollouts.episodes is None else gauges(rollouts.episodes, int(rollouts.extent.sum()) - tokens)),
            **rollouts.measured,
            **(target_bias(rollouts.measured, batch.tau, task.high - task.low) if in_target else {}),
            "engine_restarts": 0,  # a lost engine ends the run; columns of metrics.jsonl stay comparable
        }

    return row


def step_extras(
    learner: CausalLearner, task: MathTask, passed: float, measured: StepMetrics, rollouts: Rollouts
) -> StepExtras:
    """What this tier adds to a recorded step: prompts as tokens and by id, and who computed its pi_old."""
    assert isinstance(rollouts, EngineRollouts)
    prompts = learner.prompt_tokens(rollouts.prompts)
    tensors = {
        "prompt_tokens": torch.tensor([token for prompt in prompts for token in prompt]),
        "prompt_length": torch.tensor([len(prompt) for prompt in prompts]),
        "logp_engine": rollouts.logp_engine,
        "logp_after": measured.logp_after,
        "episode": None if rollouts.episodes is None else rollouts.responses,  # others: masked tokens only
    }
    facts = {
        "passed": passed,
        "problems": [task.problems.problem(number).id for number in rollouts.prompts.tolist()],
        "old": learner.options.old,
    }
    return StepExtras(facts, tensors)
