"""Columns that this tier adds to metrics.jsonl and to a recorded step."""

from collections.abc import Callable
from dataclasses import replace
from math import isnan

import torch

from pmdkit.fit import StepResult
from pmdkit.llm.in_flight import age_columns
from pmdkit.llm.learner import EngineLearner
from pmdkit.llm.mismatch import off_policy_parts, target_bias
from pmdkit.llm.rollouts import EngineRollouts
from pmdkit.llm.task import MathTask
from pmdkit.loop import Learner, Rollouts
from pmdkit.objectives import Batch, Groups
from pmdkit.observe.metrics import Measured, StepMetrics
from pmdkit.recording import StepExtras


def make_metrics(metrics: StepMetrics, task: MathTask, in_target: bool) -> Callable[..., Measured]:
    """An observer of the loop that measures a step: its row has the columns of all tiers and those of this one.

    `in_target`: pi_old is the engine's, so that its mismatch is in the target of the regression.
    """

    def measure(
        step: int, learner: Learner, rollouts: Rollouts, groups: Groups, batch: Batch, updates: list[dict[str, float]]
    ) -> Measured:
        assert isinstance(rollouts, EngineRollouts)
        tokens = int(rollouts.mask.sum())
        logp_old = rollouts.logp_old[rollouts.mask].double().sum().item()
        answers = task.graded(rollouts)
        verdicts = answers.verdicts
        measured = metrics.measure(step, learner, rollouts, groups, batch, updates)
        row, found = measured.row, rollouts.measured
        completed = groups.present.view(-1) & torch.tensor([not item.truncated for item in answers.items])
        # draws of the newest weights are as far from pi as the mismatch; with a lag the first update measures both
        newest, total = rollouts.version == step - 1 and rollouts.versions is None, updates[0].get("off_policy")
        apart = -found["mismatch_kl"] if "mismatch_kl" in found and (newest or total is not None) else None
        total, staleness = (apart, 0.0) if newest else (total, None)
        row = {
            **row,
            "grad_norm": None if isnan(row["grad_norm"]) else row["grad_norm"],  # a server may report none
            "token_entropy": -logp_old / tokens,
            "unscored": sum(not verdict.scored for verdict in verdicts),
            "unanswered": sum(verdict.path == "none" for verdict in verdicts),
            "cut_off": sum(item.truncated for item in answers.items),
            "pass_rate_completed": (groups.reward.view(-1) > metrics.passed)[completed].double().mean().item()
            if bool(completed.any())
            else None,
            "skipped_groups": int((~groups.scored).sum()),
            **({} if task.rewards is None else task.rewards.columns(verdicts, answers.parts)),
            **episode_columns(rollouts),
            **found,
            **off_policy_parts(total, apart, staleness, 0.0),  # training draws from the whole softmax
            **({} if rollouts.versions is None else age_columns(rollouts, step, len(updates))),
            **(target_bias(found, batch.tau, task.high - task.low) if in_target else {}),
            "engine_restarts": 0,  # a lost engine ends the run; columns of metrics.jsonl stay comparable
        }
        return replace(measured, row=row)

    return measure


def episode_columns(rollouts: Rollouts) -> dict[str, float]:
    """Columns of a step whose responses are episodes with an environment."""
    if rollouts.episodes is None:
        return {}
    turns = [sum(message["role"] == "assistant" for message in episode.messages) for episode in rollouts.episodes]
    return {
        "turns": sum(turns) / len(turns),
        "environment_tokens": int(rollouts.extent.sum()) - int(rollouts.mask.sum()),
        "environment_failures": sum(bool(episode.failure) for episode in rollouts.episodes),
    }


def step_extras(learner: EngineLearner, task: MathTask, passed: float, result: StepResult) -> StepExtras:
    """Additions of this tier to a recorded step: prompts as tokens and by id, and where pi_old comes from."""
    rollouts = result.rollouts
    assert isinstance(rollouts, EngineRollouts)
    prompts = learner.prompt_tokens(rollouts.prompts)
    tensors = {
        "prompt_tokens": torch.tensor([token for prompt in prompts for token in prompt]),
        "prompt_length": torch.tensor([len(prompt) for prompt in prompts]),
        "logp_engine": rollouts.logp_engine,
        "versions": rollouts.versions,
        "episode": None if rollouts.episodes is None else rollouts.responses,  # others: masked tokens only
    }
    facts = {
        "passed": passed,
        "problems": [task.problems.problem(number).id for number in rollouts.prompts.tolist()],
        "old": learner.options.old,
    }
    return StepExtras(facts, tensors)
