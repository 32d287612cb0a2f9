"""Whatever a checkpoint holds: stopped after any of its first steps and resumed, a run ends on the same bits.

The matrix is every option that adds state to a checkpoint, alone and with a lag, times a stop after each of the first
steps up to two beyond the lag.
"""

import json
import shutil
from itertools import product
from pathlib import Path

import pytest
import torch

from pmdkit import train
from pmdkit.llm.task import MathTask
from pmdkit.observe.checkpoint import Checkpoints
from tests.nightly import mostly_nightly

TINY = str(Path(__file__).parent / "llm" / "tiny.toml")
VARIES = ("seconds", "memory", "tokens_per")  # parts of the names of columns that no two runs share
QUICK = {"rollout.width": 6, "env.problems": 100, "evaluation.problems": 2, "evaluation.every": 0, "run.keep": 9}
CHANGES = str(Path(__file__).parent / "llm" / "weight_changes.jsonl")  # at other tokens in each step
IN_FLIGHT = {"rollout.lag": 1, "rollout.in_flight": True, "rollout.repeat_changes": CHANGES}
EXPERTS = ["q_proj", "experts.gate_up_proj", "experts.down_proj"]

SMALL = {  # tiers 1 and 2
    "bandit exact": ("pmd-mean", "bandit", "needle", {"env.arms": 8, "tau": "pass-rate"}),
    "bandit regression": ("pmd-mean", "bandit", "shared-features", {}),
    "bandit adam": ("pmd-mean", "bandit", "two-hills", {"group": 8, "prompts": 16, "ministeps": 4, "record": 1}),
    "bandit sgd": ("grpo", "bandit", "two-hills", {"group": 8, "optimizer": "sgd", "passes": 2}),
    "toy": ("grpo", "toy", "copy", {"group": 4, "prompts": 8, "env.length": 2, "model.layers": 1, "record": 1}),
    "toy reference": ("tb", "toy", "copy", {"prompts": 4, "env.length": 2, "model.layers": 1, "passes": 2}),
    "toy phase 0": ("pmd-mean", "toy", "modular-sum", {"group": 4, "prompts": 8, "warm_start.pass_rate": 0.1}),
}
LARGE = {  # tier 3
    "plain": ("pmd-mean", {}),
    "sgd": ("grpo", {"optimizer": "sgd"}),
    "learning rates": ("pmd-part", {"update.lr_scheduler_type": "cosine", "update.warmup_steps": 1, "passes": 2}),
    "rule for tau": ("pmd-mean", {"tau": "pass-rate"}),
    "reference": ("tb", {}),
    "penalty": ("grpo", {"objective.kl_coef": 0.01}),
    "step by effective size": ("grpo", {"objective.ess_step": 0.5}),
    "adapters": ("pmd-mean", {"lora.rank": 2}),
    "adapters on experts": ("tb", {"model.build": "starter-moe", "lora.rank": 2, "lora.targets": EXPERTS}),
    "recordings": ("pmd-mean", {"record": 1, "rollout.record_every": 1}),
    "evaluations": ("pmd-mean", {"evaluation.every": 1}),
    "bfloat16": ("pmd-mean", {"model.dtype": "bfloat16"}),
    "equal groups left out": ("pmd-mean", {"update.drop_equal_groups": True}),
    "phase 0": (
        "pmd-mean",
        {"warm_start.pass_rate": 0.01, "warm_start.max_steps": 200, "warm_start.look": 20, "warm_start.batch": 16}
        | {"rollout.width": 24, "evaluation.problems": 16},
    ),
    "all": (
        "tb",
        {"lora.rank": 2, "tau": "pass-rate", "record": 1, "rollout.record_every": 1, "evaluation.every": 1}
        | {"update.lr_scheduler_type": "linear", "update.warmup_steps": 2},
    ),
}
NEVER_BEHIND = {  # refused with a lag
    "dynamic sampling": ("pmd-mean", {"rollout.max_num_gen_batches": 3}),
    "pi_old of the trainer": ("grpo", {"rollout.old": "recompute", "rollout.correction": "token-mask"}),
    "turns": ("pmd-mean", {"rollout.environment": "calculator", "rollout.max_turns": 2}),
}
CELLS = {
    **{name: (objective, tier, env, 0, options) for name, (objective, tier, env, options) in SMALL.items()},
    **{
        f"llm {name}, lag {lag}": (objective, "llm", TINY, lag, QUICK | options | {"rollout.lag": lag})
        for lag, (name, (objective, options)) in product(range(3), LARGE.items())
        if lag < 2 or name in ("plain", "all")
    },
    **{
        f"llm {name}": (objective, "llm", TINY, 0, QUICK | options)
        for name, (objective, options) in NEVER_BEHIND.items()
    },
}
CELLS["llm in flight"] = "pmd-mean", "llm", TINY, 1, QUICK | {"record": 1} | IN_FLIGHT
OFTEN = [name for name in CELLS if name.startswith("bandit")]
OFTEN += ["llm in flight", "toy reference", "llm all, lag 0", "llm plain, lag 1", "llm all, lag 2"]
OFTEN += ["llm dynamic sampling"]


def by_parity(task, rollouts):
    """An untaught model is never right, so that nothing would be learnt: a response's tokens decide instead."""
    right = torch.where(rollouts.mask, rollouts.responses, 0).sum(1) % 3 == 0
    return right.double().view(rollouts.mass.shape)


def left(folder):
    """What a run leaves: the bytes of last checkpoint, evaluations and recordings, and its metrics without times."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = f"checkpoints/step-{rows[-1]['step']}/"
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    found = {name: path.read_bytes() for name, path in files.items() if name.startswith((last, "eval", "rollouts"))}
    varies = {key for row in rows for key in row if any(part in key for part in VARIES)}
    return found, [{key: value for key, value in row.items() if key not in varies} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_nightly(CELLS, *OFTEN))
def test_stopped_after_any_of_its_first_steps_a_run_ends_on_the_same_bits(name, tmp_path, monkeypatch):
    objective, tier, env, lag, options = CELLS[name]
    if tier == "llm":
        monkeypatch.setattr(MathTask, "reward", by_parity)
    save = Checkpoints.save

    def keep_folder(self, step, *more):
        """Keep the folder as a run that stops behind this checkpoint leaves it."""
        save(self, step, *more)
        shutil.copytree(self.folder.parent, tmp_path / f"stopped-{step}")

    def go(out, **more):
        return train(objective, tier, env, out=out, steps=lag + 3, options=options, **more).path

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", keep_folder)
        whole = go(tmp_path / "whole")
    first = 0 if "phase 0" in name else 1
    for stop in range(first, lag + 3):
        resumed = go(tmp_path / f"stopped-{stop}", resume=True)
        assert left(resumed) == left(whole), f"after step {stop}"
    assert len({row["loss"] for row in left(whole)[1]}) > 1
