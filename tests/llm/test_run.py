"""Runs of tier 3 through the front door: what they leave, and that an interrupted one ends on the same bits."""

import errno
import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pmdkit import train
from pmdkit.errors import ComponentDied, Diverged, EnvironmentLacks, ResumeRefused, UsageError
from pmdkit.llm.callbacks.evaluation import EvaluationCallback
from pmdkit.llm.callbacks.responses import ResponsesCallback
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.task import MathTask
from pmdkit.observe import checkpoint
from pmdkit.observe.console import LogDisplay
from pmdkit.observe.glossary import GLOSSARY
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
    assert all(set(row) <= set(GLOSSARY) for row in whole.metrics)
    assert {path.name for path in (whole.path / "evaluations").glob("*.json")} == {
        f"held-out-step-{step}.json" for step in (0, 2, 3)
    }
    for row in whole.metrics:
        lines = records(whole.path / "rollouts" / f"step-{row['step']}.jsonl")
        assert len(lines) == 16
        assert sum(line["reward"] for line in lines) / 16 == pytest.approx(row["reward_mean"])
        assert sum(line["tokens"] for line in lines) == row["tokens"]
    assert not (whole.path / "phase-0").exists()


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


@pytest.mark.slow
def test_the_best_model_stays_and_trackers_get_completions(tmp_path, monkeypatch):
    """Of two equal evaluations the first; its weights are those of its checkpoint, in a folder of transformers."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rates = {0: 0.25, 1: 0.5, 2: 0.5, 3: 0.375}
    monkeypatch.setattr(
        EvaluationCallback, "scores", lambda self, _: {"pass_rate": rates[self.learner.version], "reward": 0.0}
    )
    wanted = {"evaluation.keep_best": True, "evaluation.every": 1, "run.keep": 9, "run.report_to": ["tensorboard"]}
    run = go(tmp_path / "run", options=wanted)
    assert json.loads((run.path / "best" / "best.json").read_text()) == {"step": 1, "pass_rate": 0.5}
    best, saved = (
        load_file(run.path / place / "model.safetensors") for place in ("best", "checkpoints/step-1")
    )  # fmt: skip
    assert best.keys() == saved.keys()
    assert all(torch.equal(value, saved[name]) for name, value in best.items())
    assert {"config.json", "tokenizer.json", "README.md"} <= {path.name for path in (run.path / "best").iterdir()}
    shown = EventAccumulator(str(run.path / "tensorboard"))
    shown.Reload()
    tables = [event.tensor_proto.string_val[0].decode() for event in shown.Tensors("completions/text_summary")]
    assert [len(table.splitlines()) for table in tables] == [18, 18, 18]  # two of heads, 16 responses


class Killed(BaseException):
    """Stands for a kill: nothing of pmdkit catches it."""


PLACES = {
    "phase 0": (EvaluationCallback, "draw"),
    "rollout": (TransformersEngine, "generate"),
    "reward": (MathTask, "reward"),
    "update": (CausalLearner, "optimizer_step"),
    "measurement": (CausalLearner, "logp"),
    "record": (ResponsesCallback, "record"),
    "evaluation": (EvaluationCallback, "evaluate"),
    "checkpoint": (checkpoint.os, "rename"),
}


@pytest.mark.slow  # two runs for each place
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("place", mostly_nightly(PLACES, "update", "checkpoint"))
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


def test_a_finished_run_is_left_alone(whole):
    before = digest(whole.path)
    train("pmd-mean", "llm", TINY, out=whole.path, options=TAUGHT, resume=True)
    assert digest(whole.path) == before


def test_what_reading_dropped_is_said_and_kept(taught, tmp_path, capsys):
    """Copies, conflicting answers and long prompts of a file, and evaluation problems that are trained on as well."""
    rows = [(f"What is {n} + 1?", n + 1) for n in range(12)] + [("What is 3 + 1?", 4), ("What is 5 + 1?", 7)]
    rows.append(("Add these: " + "1 and " * 200 + "1.", 201))
    lines = [json.dumps({"problem": text, "answer": str(answer)}) for text, answer in rows]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "test.jsonl").write_text(
        "\n".join([*lines[:2], json.dumps({"problem": "Other?", "answer": "1"})]) + "\n"
    )
    (tmp_path / "file.toml").write_text(
        f'[env]\nkind = "file"\npath = "{tmp_path}/train.jsonl"\n[objective]\nname = "pmd-mean"\n'
        "[schedule]\nsteps = 1\nprompts = 2\ngroup = 2\n[rollout]\nwidth = 8\nmax_prompt = 128\n"
        f'[model]\npath = "{taught["model.path"]}"\n[evaluation]\ndata = "{tmp_path}/test.jsonl"\n'
    )
    run = train("pmd-mean", "llm", str(tmp_path / "file.toml"), out=tmp_path / "run", display=LogDisplay())
    told = json.loads((run.path / "data.json").read_text())
    assert told["train"] == 11  # twelve texts without the conflicting one
    read = told["counts"]["read: rows"]
    assert read == len(rows)
    assert sum(told["counts"].values()) - read == 4  # a copy merged, two rows of one conflict, a prompt too long
    said = capsys.readouterr().err
    assert all(reason in said for reason in told["counts"])
    assert "2 of 3 problems of test are also trained on" in said


@pytest.mark.slow
def test_a_full_disk_leaves_the_checkpoint_before(taught, short, tmp_path, monkeypatch):
    """The write of the second checkpoint fails half way: the first stays, alone, and the run goes on."""
    write, calls = checkpoint.files.write, 0

    def full(path, data, *more, **rest):
        nonlocal calls
        if path.parent.name == ".step-2.part":
            calls += 1
            if calls == 2:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, data, *more, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.files, "write", full)
        with pytest.raises(OSError, match="No space left"):
            go(tmp_path / "run", options=taught)
    left = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert left == ["journal-1.safetensors", "step-1"]
    assert checkpoint.damage(tmp_path / "run" / "checkpoints" / "step-1", 1) is None
    resumed = go(tmp_path / "run", options=taught, resume=True)
    assert digest(resumed.path) == digest(short.path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("home", "name", "told"),
    [
        (TransformersEngine, "generate", "out of memory in the rollout.*rollout.cache_tokens"),
        (CausalLearner, "loss_of_rows", "out of memory in the update.*update.token_budget"),
    ],
)
def test_out_of_memory_names_the_phase_and_the_knob(home, name, told, taught, tmp_path, monkeypatch):
    """The evaluation before the first step comes through; what runs out in the step is named."""
    work, calls = getattr(home, name), 0

    def greedy(*given, **named):
        nonlocal calls
        calls += 1
        if name == "loss_of_rows" or calls > 1:
            torch.empty(2**50)  # the allocator's own refusal
        return work(*given, **named)

    monkeypatch.setattr(home, name, greedy)
    with pytest.raises(EnvironmentLacks, match=told):
        go(tmp_path / "run", options=taught)


def test_a_damaged_checkpoint_is_not_loaded(whole, tmp_path):
    shutil.copytree(whole.path, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    weights = tmp_path / "run" / "checkpoints" / "step-3" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    again = go(tmp_path / "run", options=TAUGHT, resume=True)
    assert (tmp_path / "run" / "checkpoints" / "step-3.corrupt").exists()
    assert digest(again.path)[1] == digest(whole.path)[1]


def test_other_options_are_refused(whole, tmp_path):
    with pytest.raises(ResumeRefused, match=r"rollout\.width was 24 and is now 13"):
        train("pmd-mean", "llm", TINY, out=whole.path, options={**TAUGHT, "rollout.width": 13}, resume=True)


@pytest.mark.slow
def test_a_number_that_is_not_finite_never_becomes_a_checkpoint(taught, tmp_path, monkeypatch):
    """The step is not taken, the batch is kept to look at, and the newest checkpoint is the one before."""
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
    saved = load_file(tmp_path / "run" / "diverged.safetensors")
    assert saved["responses"].shape[0] == saved["advantage"].shape[0] == 8


@pytest.mark.slow  # processes that import transformers
def test_a_broken_verifier_stops_the_run(taught, tmp_path):
    """A grader that dies on everything is an outage: exit 7, and no step is made from it."""
    (tmp_path / "mine.py").write_text("import os\n\n\ndef grade(response, gold):\n    os._exit(3)\n")
    with pytest.raises(ComponentDied, match="no verdict"):
        go(tmp_path / "run", options={**taught, "reward.grade": f"{tmp_path}/mine.py:grade"})
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == []


@pytest.mark.slow
def test_an_own_grader_gives_partial_credit(taught, tmp_path):
    """The reward is the grader's number on the named scale; what was cut off is wrong for every grader."""
    (tmp_path / "mine.py").write_text("def grade(response, gold):\n    return min(len(response), 40) / 40\n")
    options = {**taught, "reward.grade": f"{tmp_path}/mine.py:grade", "reward.scale": "plus-minus-one"}
    run = go(tmp_path / "run", options=options, steps=1)
    lines = records(run.path / "rollouts" / "step-1.jsonl")
    assert "own" in {line["path"] for line in lines} <= {"own", "rejected"}
    wanted = [2 * min(len(line["response"]), 40) / 40 - 1 if line["path"] == "own" else -1 for line in lines]
    assert [line["reward"] for line in lines] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"model.build": None}, "expected one of them"),
        ({"model.path": "x"}, "expected one of them"),
        ({"schedule.group": None}, "draws its responses"),
        ({"schedule.group": 1}, "leave-one-out baseline"),
        ({"schedule.ministeps": 5}, "expected at most 4"),
        ({"rollout.widht": 3}, "rollout.width"),
        ({"reward.scale": "percent"}, "reward.scale"),
        ({"evaluation.top_p": 0.0}, "evaluation.top_p"),
        ({"objective.tau": 0.0}, "tau"),
        ({"model.device": "abacus"}, "abacus"),
        ({"evaluation.data": "nowhere.jsonl"}, "nowhere.jsonl"),
    ],
)
def test_bad_options_name_the_key(options, told, tmp_path):
    with pytest.raises((UsageError, ValueError), match=told):
        go(tmp_path / "run", options=options)
    assert not (tmp_path / "run").exists()
