"""Whatever you bring is `my.py:X`, in every tier that it applies to, from a folder outside the package."""

import pytest

from pmdkit import train
from pmdkit.sweeps.compare import collect, compare

MINE = '''
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from pmdkit.envs import Bandit, TokenProblem
from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.fit import TrainerCallback
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.objectives import PMDMean, expect


def note(word):
    with open(Path(__file__).with_name("used"), "a") as file:
        file.write(word + "\\\\n")


@dataclass(frozen=True)
class Loss(PMDMean):
    unbiased: ClassVar[bool] = False

    def group_weight(self, groups):
        return 1 - expect(groups.reward, groups.mass)[:, 0] / 2

    def columns(self, batch):
        return {"heaviest": batch.weight.max(), "none": torch.tensor(torch.nan)}


class Optimizer(torch.optim.SGD):
    """Vectors at a tenth of the rate."""

    def __init__(self, named, lr):
        matrices = [weight for name, weight in named if weight.ndim > 1]
        rest = [weight for name, weight in named if weight.ndim <= 1]
        groups = [{"params": matrices}, {"params": rest, "lr": lr / 10}]
        super().__init__([group for group in groups if group["params"]], lr=lr)
        note("optimizer")


@dataclass(frozen=True)
class Arms:
    def build(self):
        return Bandit("two", np.array([[0.0, 1.0]]), np.log(np.array([[0.5, 0.5]])), np.array([[0.0, 1.0]]))


@dataclass(frozen=True)
class Tokens(TokenProblem):
    vocabulary = property(lambda self: ("0", "1", "<eos>"))
    prompt_length = property(lambda self: 1)
    width = property(lambda self: 2)

    def sample(self, rng, count):
        return rng.integers(2, size=(count, 1))

    def all_prompts(self):
        return np.arange(2)[:, None]

    def check(self, prompt, response):
        return list(response) == list(prompt)

    def answer(self, prompt, rng):
        return [int(prompt[0]), self.eos]


@dataclass(frozen=True)
class Sums:
    held_out: int = 8

    def build(self):
        problems = [Problem(str(n), f"{n} + 1?", str(n + 1)) for n in range(40)]
        return MathProblems("sums", problems.__getitem__, np.arange(8, 40), np.arange(8))


def grade(response, gold):
    note("reward")
    return 0.5


def tool(messages, row):
    note("tool")
    return None


@dataclass(frozen=True)
class Options:
    """Of the engine."""

    word: str = "engine"


class Engine(TransformersEngine):
    Options = Options

    @classmethod
    def from_config(cls, config):
        note(config.options.word)
        return super().from_config(config)


class Callback(TrainerCallback):
    def on_step_end(self, run, result):
        note("callback")
'''
SCHEDULE = """
[objective]
name = "{mine}:Loss"
[schedule]
steps = 2
prompts = {prompts}
group = 4
optimizer = "{mine}:Optimizer"
lr = 1e-3
[run]
callbacks = ["{mine}:Callback"]
"""
SPECS = {
    "bandit": '[env]\nkind = "{mine}:Arms"\n',
    "toy": '[env]\nkind = "{mine}:Tokens"\n[model]\ndimension = 16\nlayers = 1\nheads = 1\n',
    "llm": """
[env]
kind = "{mine}:Sums"
[model]
build = "starter"
[rollout]
engine = "{mine}:Engine"
environment = "{mine}:tool"
width = 8
[engine.options]
word = "my engine"
[reward]
grade = "{mine}:grade"
[update]
lr_scheduler_type = "linear"
[evaluation]
problems = 4
""",
}
USED = {
    "bandit": {"optimizer", "callback"},
    "toy": {"optimizer", "callback"},
    "llm": {"optimizer", "callback", "my engine", "reward", "tool"},
}


@pytest.mark.parametrize("tier", SPECS)
def test_one_of_each_from_a_folder_of_yours(tier, tmp_path):
    mine, spec, out = tmp_path / "mine.py", tmp_path / "mine.toml", tmp_path / "run"
    mine.write_text(MINE.replace("\\\\n", "\\n"))
    spec.write_text((SPECS[tier] + SCHEDULE).format(mine=mine, prompts=1 if tier == "bandit" else 4))
    run = train(f"{mine}:Loss", tier, spec, out=out, trust=str(mine))
    assert set((tmp_path / "used").read_text().split("\n")) - {""} == USED[tier]
    assert len(run.metrics) == 2
    for row in run.metrics:
        assert row["objective/heaviest"] > 0
        assert row["objective/none"] is None
    (arm,) = compare(collect([out])[0], "objective/heaviest_mean")
    assert arm.interval.mean > 0
    assert len(run.figure("own").axes) == 1
