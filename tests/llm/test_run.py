"""Runs of tier 3 through the front door: what they leave, and that an interrupted one ends on the same bits."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from pmdkit import train
from pmdkit.errors import Diverged
from pmdkit.fit import Display
from pmdkit.llm import checkpointing
from pmdkit.llm.callbacks.evaluation import EvaluationCallback
from pmdkit.llm.callbacks.responses import ResponsesCallback
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.task import MathTask
from pmdkit.observe import checkpoint
from pmdkit.observe.metrics import KEYS
from tests.nightly import mostly_nightly

TINY = str(Path(__file__).with_name("tiny.toml"))
TAUGHT = {"warm_start.pass_rate": 0.01, "warm_start.max_steps": 200, "warm_start.look": 20, "warm_start.batch": 16}
TAUGHT["evaluation.problems"] = 16


def go(out, **more):
    options = {**more.pop("options", {})}
    return train("pmd-mean", "llm", TINY, out=out, options=options, **more)


def digest(folder):
    """Weights, optimizer, evaluations and metrics without wall-clock keys."""
    last = folder / "checkpoints" / f"step-{checkpoint.steps(folder / 'checkpoints')[-1]}"
    paths = [*last.iterdir(), *(folder / "evaluations").iterdir(), *(folder / "rollouts").iterdir()]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return found, [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed, phase 0 included."""
    return go(tmp_path_factory.mktemp("whole") / "run", options=TAUGHT)


@pytest.fixture(scope="module")
def taught(whole, tmp_path_factory):
    """Options that start from that run's model: answers end, and some are right, without a phase 0."""
    folder = tmp_path_factory.mktemp("taught") / "model"
    shutil.copytree(whole.path / "checkpoints" / "step-3", folder)
    return {"model.path": str(folder), "model.build": None}


@pytest.fixture(scope="module")
def short(taught, tmp_path_factory):
    """An undisturbed run from that model."""
    return go(tmp_path_factory.mktemp("short") / "run", options=taught)


def records(path):
    """Lines of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_what_a_run_leaves(whole):
    assert len(whole.metrics) == 3
    assert all(set(KEYS) <= set(row) for row in whole.metrics)
    documented = set(
        re.findall(r"^\| `(\w+)`", (Path(__file__).parents[2] / "docs/learn/metrics.md").read_text(), re.MULTILINE)
    )
    assert all(set(row) <= documented for row in whole.metrics)
    assert {path.name for path in (whole.path / "evaluations").glob("*.json")} == {
        f"held-out-step-{step}.json" for step in (0, 2, 3)
    }
    for row in whole.metrics:
        lines = records(whole.path / "rollouts" / f"step-{row['step']}.jsonl")
        assert len(lines) == 16
        assert sum(line["reward"] for line in lines) / 16 == pytest.approx(row["reward_mean"])
        assert sum(line["tokens"] for line in lines) == row["tokens"]
    assert not (whole.path / "phase-0").exists()


@pytest.mark.slow
def test_a_checkpoint_is_a_folder_of_transformers(whole):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = whole.path / "checkpoints" / "step-3"
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([tokenizer.encode("Ana has 3 apples")])
    mine = whole.policy
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, mine.state_dict()[name], atol=0, rtol=0)
    assert model(ids).logits.isfinite().all()
    card = (folder / "README.md").read_text()
    assert "step 3" in card
    assert "pmd-mean" in card
    assert "| 2 |" in card


class Killed(BaseException):
    """Stands for a kill: nothing of pmdkit catches it."""


PLACES = {
    "phase 0": (EvaluationCallback, "draw"), "rollout": (TransformersEngine, "generate"),
    "reward": (MathTask, "reward"), "update": (CausalLearner, "loss_of_rows"), "measurement": (CausalLearner, "logp"),
    "record": (ResponsesCallback, "record"), "evaluation": (EvaluationCallback, "evaluate"),
    "checkpoint": (checkpoint.os, "rename"),
}  # fmt: skip


@pytest.mark.slow  # two runs for each place
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("place", mostly_nightly(PLACES, "update", "checkpoint"))
@pytest.mark.slow
def test_interrupted_at_any_place_it_ends_on_the_same_bits(place, after, whole, taught, short, tmp_path, monkeypatch):
    """The second call of a phase dies, before or after its work; the resumed run ends as the undisturbed one."""
    undisturbed, options = (whole, TAUGHT) if place == "phase 0" else (short, taught)
    home, name = PLACES[place]
    work = getattr(home, name)
    calls = 0

    def dies(*given, **named):
        nonlocal calls
        calls += 1
        if calls == 2 and not after:
            raise Killed
        done = work(*given, **named)
        if calls == 2:
            raise Killed
        return done

    with monkeypatch.context() as patch:
        patch.setattr(home, name, dies)
        with pytest.raises(Killed):
            go(tmp_path / "run", options=options)
    acknowledged = (checkpoint.steps(tmp_path / "run" / "checkpoints") or [0])[-1]
    kept = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[:acknowledged] if acknowledged else []
    resumed = go(tmp_path / "run", options=options, resume=True)
    assert digest(resumed.path) == digest(undisturbed.path)
    assert (resumed.path / "metrics.jsonl").read_text().splitlines()[:acknowledged] == kept


@pytest.mark.slow
def test_a_number_that_is_not_finite_never_becomes_a_checkpoint(taught, tmp_path, monkeypatch):
    """The step is not taken, and the newest checkpoint is the one before."""
    real = CausalLearner.loss_of_rows
    calls = 0

    def poisoned(self, *given):
        nonlocal calls
        calls += 1
        return real(self, *given) * (torch.nan if calls == 3 else 1.0)

    monkeypatch.setattr(CausalLearner, "loss_of_rows", poisoned)
    with pytest.raises(Diverged, match="the loss is nan"):
        go(tmp_path / "run", options=taught)
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated:FutureWarning")
def test_checkpointing_is_decided_once_and_changes_no_bit(tmp_path, monkeypatch):
    """A run that began on a small accelerator goes on recomputing on a large one."""
    notes, display = [], Display()
    display.note = notes.append
    monkeypatch.setattr(checkpointing.companions, "option", lambda name: lambda spec, gib: (gib < 50, f"{gib} GiB"))
    auto, kept = {"model.checkpointing": "auto"}, {"model.checkpointing": False}
    for gib, more in ((24, {"steps": 1}), (80, {"steps": 2, "resume": True})):
        monkeypatch.setattr(checkpointing, "accelerator_gib", lambda name, gib=gib: float(gib))
        run = go(tmp_path / "auto", options=auto, display=display, **more)
        assert run.spec.model.checkpointing is True
    assert notes[0] == "24.0 GiB"
    assert "80.0 GiB" not in notes
    assert digest(tmp_path / "auto")[1] == digest(go(tmp_path / "kept", options=kept, steps=2).path)[1]
