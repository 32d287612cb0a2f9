"""A verifier that fails makes no update: exit 7, the last checkpoint whole, and a resumed run on the reference bits.

First what breaks around it, and what mends it again; what breaks inside is outages_grader.py.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EAGAIN, ENOSPC
from pathlib import Path
from typing import Any

import pytest

from pmdkit.llm import backend
from pmdkit.llm.backend import build_model
from pmdkit.specs.llm import LanguageModelTable
from strict_answers import process
from strict_answers.journal import VerdictJournal
from strict_answers.pool import Pool
from tests.nightly import mostly_nightly

from .tiny_run import ENV, SMALL, Runner

Outage = Callable[[pytest.MonkeyPatch, Path], None]
GRADER = Path(__file__).with_name("outages_grader.py")


def set_up(folder: Path) -> Path:
    """The honest grader in a folder of its own."""
    path = folder / "grader.py"
    shutil.copy(GRADER, path)
    path.with_name("mode").write_text("honest")
    return path


def inside(mode: str) -> Outage:
    """The grader itself does something else."""

    def begin(patch: pytest.MonkeyPatch, folder: Path) -> None:
        (folder / "mode").write_text(mode)

    return begin


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


def binary(*lines: str) -> Outage:
    """Something else stands where Python was."""

    def begin(patch: pytest.MonkeyPatch, folder: Path) -> None:
        path = folder / "other-python"
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o755)
        patch.setattr(sys, "executable", str(path))
        patch.setattr(process, "STARTUP", 0.5)

    return begin


def no_fork(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """The system lets nobody start a process."""

    def refused(*_: Any, **__: Any) -> None:
        raise BlockingIOError(EAGAIN, os.strerror(EAGAIN))

    patch.setattr(subprocess, "Popen", refused)


def killed_as_born(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Every worker is killed when it is ready, as by a system that is short of memory."""
    ready = process.WorkerProcess.await_ready

    def killed(self: process.WorkerProcess) -> None:
        ready(self)
        os.kill(self.popen.pid, 9)

    patch.setattr(process.WorkerProcess, "await_ready", killed)


def stopped_as_born(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Every worker is stopped when it is ready."""
    ready = process.WorkerProcess.await_ready

    def stopped(self: process.WorkerProcess) -> None:
        ready(self)
        os.kill(self.popen.pid, 19)

    patch.setattr(process.WorkerProcess, "await_ready", stopped)


BROKEN = """raise ImportError("libsymengine is missing")
"""
# everything is unequal: a version that fails in silence
WRONG = """import sys
sys.path.remove({here!r})
del sys.modules["math_verify"]
import math_verify
math_verify.verify = lambda *given, **how: False
"""


def other_math_verify(source: str) -> Outage:
    """What workers import as math_verify is this."""

    def begin(patch: pytest.MonkeyPatch, folder: Path) -> None:
        here = folder / "other"
        (here / "math_verify").mkdir(parents=True)
        (here / "math_verify" / "__init__.py").write_text(source.format(here=str(here)))
        patch.syspath_prepend(str(here))

    return begin


def full_disk(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """No verdict can be written down."""

    def refused(self: VerdictJournal, verdicts: Any) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC), str(self.path))

    patch.setattr(VerdictJournal, "append", refused)


@contextmanager
def at_the_second_step(begin: Outage, folder: Path) -> Iterator[dict[str, int]]:
    """While it holds, the outage begins before the rollout of step 2, whose responses are judged as they end.

    Counts updates before and after the rewards of step 2 are asked for.
    """
    from pmdkit.llm.learner import CausalLearner
    from pmdkit.llm.task import MathTask

    counts = {"rewards": 0, "updates": 0, "updates after": 0}
    with pytest.MonkeyPatch.context() as patch:
        prompts, reward, step = MathTask.prompts, MathTask.reward, CausalLearner.update

        def asked(self: MathTask, number: int) -> Any:
            if number == 2:
                begin(patch, folder)
            return prompts(self, number)

        def watched(self: MathTask, *given: Any) -> Any:
            counts["rewards"] += 1
            return reward(self, *given)

        def counted(self: CausalLearner, *given: Any) -> Any:
            counts["updates" if counts["rewards"] < 2 else "updates after"] += 1
            return step(self, *given)

        patch.setattr(MathTask, "prompts", asked)
        patch.setattr(MathTask, "reward", watched)
        patch.setattr(CausalLearner, "update", counted)
        yield counts
    (folder / "mode").write_text("honest")


OPTIONS = {
    **SMALL,
    "schedule.prompts": 1,
    "schedule.ministeps": 1,
    "schedule.group": 2,
    "evaluation.problems": 1,
    "model.build": None,
    "reward.seconds": 0.3,
    "reward.memory_mb": 256,
    "run.keep": 9,
}
# name -> how it begins, what is said
OUTAGES = {
    "raises": (inside("raise"), "KeyError: 'no such thing'"),
    "NaN": (inside("nan"), "the grader returned nan; expected a number from 0 to 1"),
    "inf": (inside("inf"), "the grader returned inf"),
    "above the range": (inside("two"), "the grader returned 2.0"),
    "text": (inside("text"), "the grader returned str"),
    "all answers run over their time": (inside("hang"), r"no answer within 0\.3 s"),
    "over the memory limit": (inside("eat"), "over its memory limit"),
    "dies at every request": (inside("die"), "the worker died"),
    "stopped at every request": (inside("stop"), r"no answer within 0\.3 s"),
    "rubbish on the pipe": (inside("rubbish"), "the worker sent nonsense: a message of impossible length"),
    "broken JSON on the pipe": (inside("no JSON"), "the worker sent nonsense"),
    "an object of other keys": (inside("no value"), "the worker sent nonsense"),
    "a forged NaN": (inside("forged NaN"), "the worker sent nonsense"),
    "its import is broken": (
        no_workers_left(inside("import")),
        "cannot start: ValueError: .*: ImportError",
    ),
    "no binary": (no_workers_left(no_binary), "cannot start: .*No such file"),
    "a binary that ends": (no_workers_left(binary("exit 0")), "cannot start: the worker died"),
    "a binary that hangs": (no_workers_left(binary("sleep 60")), "cannot start: a worker was not ready"),
    "no fork": (no_workers_left(no_fork), "cannot start: .*temporarily unavailable"),
    "killed when ready": (no_workers_left(killed_as_born), "the worker died"),
    "stopped when ready": (no_workers_left(stopped_as_born), r"no answer within 0\.3 s"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose answers end soon: every second token is an end."""
    model, tokenizer = build_model(LanguageModelTable(build="starter"), ENV, seed=0)
    model.generation_config.eos_token_id = list(range(2, model.config.vocab_size, 2))
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def runner(call, capsys, tmp_path):
    return Runner(call, capsys, tmp_path)


@pytest.fixture
def options(folder, tmp_path):
    """Of a run with the honest grader."""
    grader = tmp_path / "grader"
    grader.mkdir()
    return OPTIONS | {"model.path": str(folder), "reward.grade": f"{set_up(grader)}:grade"}


@pytest.fixture(scope="module")
def undisturbed():
    """Bits of the run that nothing disturbed, and of its first checkpoint; filled by whoever needs them first."""
    return {}


def weights(ended, step):
    """The weights of a checkpoint."""
    path = ended.folder / "checkpoints" / f"step-{step}" / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def outlived(runner, options, begin, folder, code, said):
    """The run ends with this code and no update; after the outage it goes on, and ends as `whole` did."""
    with at_the_second_step(begin, folder) as counts:
        ended = runner(options)
    assert counts == {"rewards": 2, "updates": 1, "updates after": 0}
    assert ended.code == code, ended.said
    assert re.search(said, ended.sentence), ended.sentence
    assert ended.steps == [1]
    first = weights(ended, 1)
    again = runner(options, "--resume", out=ended.folder)
    assert again.code == 0, again.said
    return first, again.bits


@pytest.mark.parametrize("name", mostly_nightly(OUTAGES, *list(OUTAGES)[::4]))
def test_no_update_is_made_from_a_failed_verifier(name, runner, options, undisturbed, tmp_path):
    if "own" not in undisturbed:
        whole = runner(options)
        assert whole.code == 0, whole.said
        assert len({row["reward_mean"] for row in whole.rows}) > 1
        undisturbed["own"] = weights(whole, 1), whole.bits
    begin, said = OUTAGES[name]
    said = r"reached no verdict on 2 of 2 responses \(.*" + said + ".*no update was made from them"
    assert outlived(runner, options, begin, tmp_path / "grader", 7, said) == undisturbed["own"]


def test_a_journal_that_cannot_be_written_ends_the_run(runner, options, undisturbed, tmp_path):
    """Exit 1, a full disk: a verdict that is not on the disk is not used."""
    found = outlived(runner, options, full_disk, tmp_path / "grader", 1, "No space left on device .*verdicts")
    assert "own" not in undisturbed or found == undisturbed["own"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("source", "said"),
    [(BROKEN, "libsymengine is missing"), (WRONG, "is not 1/2: math-verify is broken")],
    ids=["import", "34 is not 34"],
)
def test_no_update_is_made_from_a_broken_math_verify(source, said, runner, options, undisturbed, tmp_path, monkeypatch):
    """Answers that only a worker can judge, right or wrong by their tokens."""
    monkeypatch.setattr(
        backend, "decode_response", lambda tokenizer, tokens: f"Answer: {sum(tokens) % 7}+{len(tokens)}"
    )
    options = options | {"reward.grade": "math", "reward.seconds": 10, "reward.memory_mb": 1024}
    if "math" not in undisturbed:
        whole = runner(options)
        assert whole.code == 0, whole.said
        undisturbed["math"] = weights(whole, 1), whole.bits
    begin = no_workers_left(other_math_verify(source))
    assert outlived(runner, options, begin, tmp_path / "grader", 7, said) == undisturbed["math"]
