"""What this tier adds to metrics.jsonl and to a recorded step."""

from typing import Any

import torch

from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.task import MathTask
from pmdkit.llm.turns import gauges
from pmdkit.loop import Rollouts
from pmdkit.objectives import Groups
from pmdkit.observe import metrics
from pmdkit.recording import StepExtras


def llm_columns(learner: CausalLearner, task: MathTask, rollouts: Rollouts, groups: Groups) -> dict[str, Any]:
    """Columns of metrics.jsonl that only this tier has."""
    assert task.last is not None
    tokens = int(rollouts.mask.sum())
    logp_old = rollouts.logp_old[rollouts.mask].double().sum().item()
    return {
        "token_entropy": -logp_old / tokens,
        "unscored": sum(not verdict.scored for verdict in task.last.verdicts),
        "unanswered": sum(verdict.path == "none" for verdict in task.last.verdicts),
        "cut_off": sum(item.truncated for item in task.last.items),
        "skipped_groups": int((~groups.scored).sum()),
        **({} if task.rewards is None else task.rewards.columns(task.last.verdicts)),
        **task.sampling,
        **({} if rollouts.episodes is None else gauges(rollouts.episodes, int(rollouts.extent.sum()) - tokens)),
        **learner.mismatch,
        **learner.found,
        "engine_restarts": 0,  # a lost engine ends the run; columns of metrics.jsonl stay comparable
    }


def step_extras(
    learner: CausalLearner, task: MathTask, passed: float, measured: metrics.StepMetrics, rollouts: Rollouts
) -> StepExtras:
    """What this tier adds to a recorded step: prompts as tokens and by id, and who computed its pi_old."""
    prompts = learner.prompt_tokens(rollouts.prompts)
    tensors = {
        "prompt_tokens": torch.tensor([token for prompt in prompts for token in prompt]),
        "prompt_length": torch.tensor([len(prompt) for prompt in prompts]),
        "logp_engine": learner.logp_engine,
        "logp_after": measured.logp_after,
        "episode": None if rollouts.episodes is None else rollouts.responses,  # others: masked tokens only
    }
    facts = {
        "passed": passed,
        "problems": [task.problems.problem(number).id for number in rollouts.prompts.tolist()],
        "old": learner.old,
    }
    return StepExtras(facts, tensors)
