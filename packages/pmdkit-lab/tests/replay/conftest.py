"""One recorded run per tier, made once."""

from pathlib import Path

import pytest
import torch

from pmdkit import train
from pmdkit.llm.task import MathTask

LLM = str(Path(__file__).parents[4] / "tests" / "llm" / "tiny.toml")


def toy_run(out, objective="pmd-mean", **more):
    options = {"model.dimension": 16, "model.layers": 1, "env.length": 2}
    given = {"steps": 3, "group": 8, "prompts": 16, "ministeps": 2, "lr": 0.02, "options": options}
    return train(objective, "toy", "copy", out=out, **given | more)


OPTIONS = {"evaluation.every": 0, "evaluation.problems": 2}


def llm_run(out, objective="pmd-mean", options=None, **more):
    """An untaught model never ends an answer: here every third response of a step is right all the same."""
    graded = MathTask.reward

    def every_third(task, rollouts):
        reward = graded(task, rollouts)
        return (torch.arange(reward.numel()) % 3 == 0).double().view(reward.shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MathTask, "reward", every_third)
        return train(objective, "llm", LLM, out=out, options=OPTIONS | (options or {}), **{"steps": 1} | more)


@pytest.fixture(scope="session")
def bandit(tmp_path_factory):
    """Exact updates on the full support."""
    out = tmp_path_factory.mktemp("bandit") / "run"
    return train("pmd-mean", "bandit", "needle", out=out, steps=3, record=1)


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    """Drawn arms of many prompts, four updates a step, every second step recorded, a loss per token."""
    out = tmp_path_factory.mktemp("drawn") / "run"
    more = {"group": 8, "prompts": 12, "ministeps": 4, "lr": 0.3, "options": {"objective.norm": "tokens"}}
    return train("grpo", "bandit", "pass-rates", out=out, steps=4, record=2, **more)


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """Responses of different lengths from a transformer, two updates a step."""
    return toy_run(tmp_path_factory.mktemp("toy") / "run", record=1)


@pytest.fixture(scope="session")
def llm(tmp_path_factory):
    """A loss per response: the fused head, which sees sums only."""
    return llm_run(tmp_path_factory.mktemp("llm") / "run", record=1)


@pytest.fixture(scope="session")
def llm_tokens(tmp_path_factory):
    """A loss per token in several forward passes, and the trainer's pi_old in place of the engine's."""
    options = {"rollout.old": "recompute", "update.token_budget": 96}
    return llm_run(tmp_path_factory.mktemp("llm-tokens") / "run", "grpo", options, record=1)
