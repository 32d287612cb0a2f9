"""A verifier that fails makes no update: exit 7, the last checkpoint whole, and a resumed run on the reference bits.

What one worker may do is tested in `packages/strict-answers/tests/test_pool.py`.
"""

import gc
import hashlib
import json
import os
import re
import warnings
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pmdkit.llm.backend import build_model
from pmdkit.llm.task import MathTask
from pmdkit.observe import checkpoint
from pmdkit.specs import LLMSpec
from strict_answers.journal import VerdictJournal

TINY = Path(__file__).parents[1] / "llm" / "tiny.toml"
OPTIONS = {
    "schedule.steps": 2, "schedule.prompts": 1, "schedule.ministeps": 1, "schedule.group": 2, "rollout.width": 8,
    "rollout.record_every": 0, "rollout.canary": 2, "evaluation.problems": 1, "evaluation.every": 0,
    "model.build": None, "reward.seconds": 0.3, "reward.memory_mb": 256, "run.keep": 9,
}  # fmt: skip
# Run in the verifier's workers; the file `mode` beside it says what it does. Honest, it gives thirds by the length.
GRADER = """
from pathlib import Path

def grade(response, gold):
    if Path(__file__).with_name("mode").read_text() == "raise":
        raise KeyError("no such thing")
    return len(response) % 4 / 3
"""


def raising(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """The grader fails in its workers."""
    (folder / "mode").write_text("raise")


def full_disk(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """No verdict can be written down."""

    def refused(self: VerdictJournal, verdicts: Any) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC), str(self.path))

    patch.setattr(VerdictJournal, "append", refused)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose answers end soon: every second token is an end."""
    spec = LLMSpec.read("starter").override({"env.numbers": 2, "env.problems": 300, "run.seed": 0})
    model, tokenizer = build_model(spec)
    model.generation_config.eos_token_id = list(range(2, model.config.vocab_size, 2))
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def run(folder, call, capsys, tmp_path):
    """`run(name, *more)`: a run in a folder of that name; its exit code, error, checkpoints and bits."""
    (tmp_path / "grader").mkdir()
    (tmp_path / "grader" / "grader.py").write_text(GRADER)
    (tmp_path / "grader" / "mode").write_text("honest")

    def start(name, *more):
        options = OPTIONS | {"model.path": str(folder), "reward.grade": f"{tmp_path}/grader/grader.py:grade"}
        settings = [f"{key}={json.dumps(value)}" for key, value in options.items()]
        capsys.readouterr()
        code = call("llm", TINY, "--out", tmp_path / name, *more, "--set", *settings)
        with warnings.catch_warnings():  # a run that is refused leaves its grader's process to the end of this one
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        steps = checkpoint.steps(tmp_path / name / "checkpoints")
        rows = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        bits = {
            f"{step} {path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
            for step in steps
            for path in sorted((tmp_path / name / "checkpoints" / f"step-{step}").glob("*.safetensors"))
        }
        bits["rows"] = [{key: row[key] for key in row if not key.startswith("seconds")} for row in rows]
        return SimpleNamespace(code=code, error=capsys.readouterr().err, steps=steps, rows=rows, bits=bits)

    return start


@pytest.mark.parametrize(
    ("begin", "code", "said"),
    [
        (raising, 7, "no verdict on 2 of 2 responses .*KeyError: 'no such thing'"),
        (full_disk, 1, "No space left on device .*verdicts"),  # a verdict that is not on the disk is not used
    ],
)
def test_no_update_is_made_without_verdicts(begin, code, said, run, tmp_path):
    """While the rewards of step 2 fail, the run ends with this code and no update; afterwards it ends as ever."""
    whole = run("whole")
    assert whole.code == 0, whole.error
    assert len({row["reward_mean"] for row in whole.rows}) > 1
    prompts = MathTask.prompts
    with pytest.MonkeyPatch.context() as patch:

        def asked(self, number):
            if number == 2:
                begin(patch, tmp_path / "grader")
            return prompts(self, number)

        patch.setattr(MathTask, "prompts", asked)
        ended = run("run")
    assert ended.code == code, ended.error
    (sentence,) = [line for line in ended.error.splitlines() if line.startswith("pmdkit: error: ")]
    assert re.search(said, sentence), sentence
    assert ended.steps == [1]
    assert len(ended.rows) == 1
    (tmp_path / "grader" / "mode").write_text("honest")
    again = run("run", "--resume")
    assert again.code == 0, again.error
    assert again.bits == whole.bits
