"""A verifier that fails makes no update: exit 7, the last checkpoint whole, and a resumed run on the reference bits.

What one worker may do is tested in `packages/strict-answers/tests/test_pool.py`.
"""

import gc
import hashlib
import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pmdkit.llm import backend
from pmdkit.llm.backend import build_model
from pmdkit.llm.task import MathTask
from pmdkit.observe import checkpoint
from pmdkit.specs.llm import LanguageModelTable
from strict_answers import process
from strict_answers.journal import VerdictJournal
from strict_answers.pool import Pool

Outage = Callable[[pytest.MonkeyPatch, Path], None]
TINY = Path(__file__).parents[1] / "llm" / "tiny.toml"
OPTIONS = {
    "schedule.steps": 2, "schedule.prompts": 1, "schedule.ministeps": 1, "schedule.group": 2, "rollout.width": 8,
    "rollout.record_every": 0, "rollout.canary": 2, "evaluation.problems": 1, "evaluation.every": 0,
    "model.build": None, "reward.seconds": 0.3, "reward.memory_mb": 256, "run.keep": 9,
}  # fmt: skip
# Run in the verifier's workers; the file `mode` beside it says what it does. Honest, it gives thirds by the length.
GRADER = '''
import os, time
from pathlib import Path

def to_the_pool(data):
    """Something else than an answer on the pipe to the pool, which is among the descriptors, and then an answer."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if fd > 2 and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                os.write(fd, data)
        except OSError:  # closed by now, or of the other direction
            pass
    return 1.0

mode = Path(__file__).with_name("mode").read_text()
if mode == "import":
    raise ImportError("the grader's library is broken")
WAYS = {
    "raise": lambda: {}["no such thing"],
    "hang": lambda: time.sleep(600),
    "die": lambda: os._exit(3),
    "rubbish": lambda: to_the_pool(bytes([255]) * 64),
    "forged": lambda: to_the_pool(b'{"value": NaN}\\n'),
}

def grade(response, gold):
    mode = Path(__file__).with_name("mode").read_text()
    return WAYS.get(mode, lambda: len(response) % 4 / 3)()
'''


def inside(mode: str) -> Outage:
    """The grader itself does something else."""
    return lambda patch, folder: (folder / "mode").write_text(mode) and None


def no_workers_left(begin: Outage) -> Outage:
    """All workers are killed, and what starts them is broken."""

    def both(patch: pytest.MonkeyPatch, folder: Path) -> None:
        begin(patch, folder)
        ensure = Pool.ensure

        def killed(self: Pool, *given: Any) -> None:
            while self.processes:
                self.processes.pop().kill()
            patch.setattr(Pool, "ensure", ensure)
            ensure(self, *given)

        patch.setattr(Pool, "ensure", killed)

    return both


def no_binary(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Python is not where it was."""
    patch.setattr(sys, "executable", str(folder / "no-python"))


def a_binary_that_hangs(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Something else stands where Python was."""
    path = folder / "other-python"
    path.write_text("#!/bin/sh\nsleep 60\n")
    path.chmod(0o755)
    patch.setattr(sys, "executable", str(path))
    patch.setattr(process, "STARTUP", 0.5)


def killed_as_born(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Every worker is killed when it is ready, as by a system that is short of memory."""
    ready = process.WorkerProcess.await_ready

    def killed(self: process.WorkerProcess) -> None:
        ready(self)
        os.kill(self.popen.pid, 9)

    patch.setattr(process.WorkerProcess, "await_ready", killed)


def unequal(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """A version of math-verify that fails in silence: everything is unequal."""
    here = folder / "other"
    (here / "math_verify").mkdir(parents=True)
    (here / "math_verify" / "__init__.py").write_text(
        f"import sys\nsys.path.remove({str(here)!r})\ndel sys.modules['math_verify']\nimport math_verify\n"
        "math_verify.verify = lambda *given, **how: False\n"
    )
    patch.syspath_prepend(str(here))


def full_disk(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """No verdict can be written down."""

    def refused(self: VerdictJournal, verdicts: Any) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC), str(self.path))

    patch.setattr(VerdictJournal, "append", refused)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose answers end soon: every second token is an end."""
    environment = {"kind": "arithmetic", "numbers": 2, "problems": 300}
    model, tokenizer = build_model(LanguageModelTable(build="starter"), environment, seed=0)
    model.generation_config.eos_token_id = list(range(2, model.config.vocab_size, 2))
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def run(folder, call, capsys, tmp_path):
    """`run(name, *more, **options)`: a run in a folder of that name; its exit code, error, checkpoints and bits."""
    (tmp_path / "grader").mkdir()
    (tmp_path / "grader" / "grader.py").write_text(GRADER)
    (tmp_path / "grader" / "mode").write_text("honest")

    def start(name, *more, **changed):
        options = OPTIONS | {"model.path": str(folder), "reward.grade": f"{tmp_path}/grader/grader.py:grade"} | changed
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


@pytest.fixture(scope="module")
def undisturbed():
    """Bits of the run that nothing disturbed; filled by whoever needs them first."""
    return {}


def outlives(run, begin, code, said, undisturbed, tmp_path, **options):
    """While the rewards of step 2 fail, the run ends with this code and no update; afterwards it ends as ever."""
    if not undisturbed:
        whole = run("whole", **options)
        assert whole.code == 0, whole.error
        assert len({row["reward_mean"] for row in whole.rows}) > 1
        undisturbed |= whole.bits
    prompts = MathTask.prompts
    with pytest.MonkeyPatch.context() as patch:

        def asked(self, number):
            if number == 2:
                begin(patch, tmp_path / "grader")
            return prompts(self, number)

        patch.setattr(MathTask, "prompts", asked)
        ended = run("run", **options)
    assert ended.code == code, ended.error
    (sentence,) = [line for line in ended.error.splitlines() if line.startswith("pmdkit: error: ")]
    assert re.search(said, sentence), sentence
    assert ended.steps == [1]
    assert len(ended.rows) == 1
    (tmp_path / "grader" / "mode").write_text("honest")
    again = run("run", "--resume", **options)
    assert again.code == 0, again.error
    assert again.bits == undisturbed


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (inside("raise"), "KeyError: 'no such thing'"),
        pytest.param(inside("hang"), "no answer within", marks=pytest.mark.nightly),
        (inside("die"), "the worker died"),
        (inside("rubbish"), "the worker sent nonsense"),
        pytest.param(inside("forged"), "the worker sent nonsense", marks=pytest.mark.nightly),
        (no_workers_left(inside("import")), "cannot start: .*ImportError"),
        (no_workers_left(no_binary), "cannot start: .*No such file"),
        pytest.param(no_workers_left(a_binary_that_hangs), "cannot start: .*not ready", marks=pytest.mark.nightly),
        (no_workers_left(killed_as_born), "the worker died"),
    ],
)
def test_no_update_is_made_from_a_failed_verifier(begin, said, run, undisturbed, tmp_path):
    outlives(run, begin, 7, f"no verdict on 2 of 2 responses .*{said}", undisturbed, tmp_path)


def test_a_journal_that_cannot_be_written_ends_the_run(run, undisturbed, tmp_path):
    """Exit 1, a full disk: a verdict that is not on the disk is not used."""
    outlives(run, full_disk, 1, "No space left on device .*verdicts", undisturbed, tmp_path)


@pytest.mark.nightly
def test_no_update_is_made_from_a_broken_math_verify(run, tmp_path, monkeypatch):
    """Answers that only a worker can judge, right or wrong by their tokens."""
    monkeypatch.setattr(
        backend, "decode_response", lambda tokenizer, tokens: f"Answer: {sum(tokens) % 7}+{len(tokens)}"
    )
    options = {"reward.grade": "math", "reward.seconds": 10, "reward.memory_mb": 1024}
    outlives(run, no_workers_left(unequal), 7, "math-verify is broken", {}, tmp_path, **options)
