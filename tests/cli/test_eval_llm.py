"""`pmdkit eval` on language models: real starters of random weights, every response kept, one line per mistake."""

import json
import os
import shutil
import signal
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest

from pmdkit import train
from pmdkit.envs.math import make_math
from pmdkit.llm import evaluate
from pmdkit.llm.evaluate import Evaluation

from .test_eval import fingerprint

TINY = str(Path(__file__).parents[1] / "llm" / "tiny.toml")
SHORT = {"rollout.width": 12, "evaluation.problems": 8}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two steps of the starter, nothing learnt."""
    return train("pmd-mean", "llm", TINY, steps=2, out=tmp_path_factory.mktemp("run") / "run", options=SHORT).path


@pytest.fixture
def model(run, tmp_path):
    """A folder of transformers that knows of no run."""
    folder = tmp_path / "model"
    shutil.copytree(run / "checkpoints" / "step-2", folder)
    for name in ("manifest.json", "state.json", "optimizer.safetensors"):
        (folder / name).unlink()
    return folder


@pytest.fixture
def file(tmp_path):
    """Three problems; the first is one that the run trains on."""
    problems = make_math({"kind": "arithmetic", "numbers": 2, "problems": 300})
    seen = problems.problem(int(problems.train[0]))
    rows = [(seen.problem, seen.answer), ("What is 3 + 4?", "7"), ("What is 5 + 6?", "11")]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"problem": p, "answer": a}) + "\n" for p, a in rows))
    return path


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_a_run_is_asked_its_own_problems(call, run, tmp_path, capsys):
    """The problems and the sampling of the run's evaluation; the folder stays as it is; every response is kept."""
    before = fingerprint(run)
    assert call("eval", run, "--k", 3, "--json", "--out", tmp_path / "out") == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert captured.err == ""
    assert fingerprint(run) == before
    own = {row["id"] for row in lines(run / "evaluations" / "held-out-step-2.jsonl")}
    rows = lines(tmp_path / "out" / "responses.jsonl")
    assert {row["id"] for row in rows} == own
    assert [row["k"] for row in rows] == [0, 1, 2] * len(own)
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == told
    assert (told["problems"], told["k"], told["draws"], told["data"], told["step"]) == (8, 3, 3, "held-out", 2)
    assert (told["temperature"], told["top_p"], told["width"]) == (1.0, 1.0, 12)
    assert (told["leaked"], told["unscored"], told["tokens"]) == (0, 0, sum(row["tokens"] for row in rows))
    assert told["cut_off"] == sum(not row["ended"] for row in rows)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model"] == str(run / "checkpoints" / "step-2")
    manifest = json.loads((run / "checkpoints" / "step-2" / "manifest.json").read_text())
    assert config["weights_sha256"] == manifest["sha256"]["model.safetensors"]
    assert {"torch", "transformers"} <= config["versions"].keys()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "moment"), [(signal.SIGINT, "before"), (signal.SIGTERM, "after")])
def test_stopped_and_resumed_it_ends_on_the_same_files(number, moment, call, run, tmp_path, capsys, monkeypatch):
    """A signal in the third turn: exit 75, and two turns are kept."""
    monkeypatch.setattr(evaluate, "ROWS", 4)  # two problems of two responses
    options = ("eval", run, "--k", 2, "--json")
    assert call(*options, "--out", tmp_path / "whole") == 0
    ask, asked = Evaluation.ask, []

    def stopped(self, engine, problems, tell):
        answers = ask(self, engine, problems, tell) if moment == "after" else None
        if len(asked) == 2:
            os.kill(os.getpid(), number)
        asked.append([problem.id for problem in problems])
        return answers or ask(self, engine, problems, tell)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Evaluation, "ask", stopped)
        assert call(*options, "--out", out) == 75
    assert f"--resume --out {out}" in capsys.readouterr().err
    assert len(lines(out / "responses.jsonl")) == 8
    assert not (out / "summary.json").exists()
    assert call(*options, "--out", out, "--resume") == 0
    assert (out / "responses.jsonl").read_bytes() == (tmp_path / "whole" / "responses.jsonl").read_bytes()
    end, wanted = (json.loads((folder / "summary.json").read_text()) for folder in (out, tmp_path / "whole"))
    assert end | {"out": ""} == wanted | {"out": ""}


@pytest.mark.slow
def test_another_evaluation_is_refused(call, run, file, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["eval", run, "--data", file, "--json", "--out", out]
    assert call(*options, "--k", 2) == 0
    before = fingerprint(out)
    for more in (["--k", 3], ["--seed", 1], ["--temperature", 0.5], ["--width", 9], ["--problems", 2]):
        assert call(*options, "--resume", *(["--k", 2] if "--k" not in more else []), *more) == 5
    file.write_text(file.read_text().replace("3 + 4", "4 + 3"))
    assert call(*options, "--k", 2, "--resume") == 5
    assert call("eval", run / "checkpoints" / "step-1", *options[2:], "--k", 2, "--resume") == 5
    assert call(*options) == 2  # without --resume nothing is overwritten
    assert fingerprint(out) == before


def test_problems_of_the_training_set_are_counted(call, run, file, model, tmp_path, capsys):
    """Told for a run, whose training problems are known; a model folder has none to compare with."""
    assert call("eval", run, "--data", file, "--k", 1, "--json") == 0
    captured = capsys.readouterr()
    assert "warning: 1 of 3 problems" in captured.err
    assert json.loads(captured.out)["leaked"] == 1
    assert call("eval", model, "--data", file, "--k", 1, "--width", 8, "--json") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert json.loads(captured.out)["leaked"] is None


def test_a_model_folder_is_asked_aime_as_in_the_paper(call, model, capsys):
    assert call("eval", model, "--k", 1, "--width", 4, "--problems", 2, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["data"], told["problems"], told["temperature"], told["top_p"]) == ("aime24", 2, 1.0, 0.7)
    assert told["step"] is None
    assert told["out"] == str(Path("runs") / "eval-model-aime24-001")


@pytest.mark.slow
def test_mistakes_are_one_line_and_write_nothing(call, run, model, file, capsys):
    """One for each kind; what a model folder may not hold is tested in tests/llm/test_model.py."""
    Path("blank.jsonl").write_text("\n\n")
    shutil.copytree(model, "pickle")
    Path("pickle/model.safetensors").unlink()
    Path("pickle/pytorch_model.bin").write_bytes(b"")
    for words in (
        *(["pickle", "--data", file], [file], [model, "--data", "held-out"], [run, "--data", "nowhere.jsonl"]),
        *([run, "--data", "blank.jsonl"], [run, "--width", 5000], [run, "--top-p", 1.1], [run, "--temperature", 0]),
        *([run, "--device", "abacus"], [run, "--resume", "--out", run]),
    ):
        assert call("eval", *words) == (5 if "--resume" in words else 2), words
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("pmdkit: error: ")
        assert told.err.count("\n") == 1
    assert not Path("runs").exists()
