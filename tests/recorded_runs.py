"""Small recorded runs of a transformer and of a language model."""

from pathlib import Path

import pytest
import torch

from pmdkit import train
from pmdkit.llm.task import MathTask

LLM = str(Path(__file__).parent / "llm" / "tiny.toml")


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
