"""Outages of a verifier: what breaks around it, and what mends it again. What breaks inside is outages_grader.py."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EAGAIN, ENOSPC
from pathlib import Path
from typing import Any

import pytest

from pmdkit.envs.verifier import pool
from pmdkit.envs.verifier.pool import Grader, VerdictJournal

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
        ensure = Grader.ensure

        def killed(self: Grader, *given: Any) -> None:
            while self.processes:
                self.processes.pop().kill()
            patch.setattr(Grader, "ensure", ensure)
            ensure(self, *given)

        patch.setattr(Grader, "ensure", killed)

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
        patch.setattr(pool, "STARTUP", 0.5)

    return begin


def no_fork(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """The system lets nobody start a process."""

    def refused(*_: Any, **__: Any) -> None:
        raise BlockingIOError(EAGAIN, os.strerror(EAGAIN))

    patch.setattr(subprocess, "Popen", refused)


def killed_as_born(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Every worker is killed when it is ready, as by a system that is short of memory."""
    ready = pool.VerifierProcess.await_ready

    def killed(self: pool.VerifierProcess) -> None:
        ready(self)
        os.kill(self.popen.pid, 9)

    patch.setattr(pool.VerifierProcess, "await_ready", killed)


def stopped_as_born(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Every worker is stopped when it is ready."""
    ready = pool.VerifierProcess.await_ready

    def stopped(self: pool.VerifierProcess) -> None:
        ready(self)
        os.kill(self.popen.pid, 19)

    patch.setattr(pool.VerifierProcess, "await_ready", stopped)


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
def at_the_second_reward(begin: Outage, folder: Path) -> Iterator[dict[str, int]]:
    """While it holds, the outage begins when the rewards of step 2 are asked for. Counts updates before and after."""
    from pmdkit.llm.learner import CausalLearner
    from pmdkit.llm.task import MathTask

    counts = {"rewards": 0, "updates": 0, "updates after": 0}
    with pytest.MonkeyPatch.context() as patch:
        reward, step = MathTask.reward, CausalLearner.optimizer_step

        def watched(self: MathTask, *given: Any) -> Any:
            counts["rewards"] += 1
            if counts["rewards"] == 2:
                begin(patch, folder)
            return reward(self, *given)

        def counted(self: CausalLearner, *given: Any) -> Any:
            counts["updates" if counts["rewards"] < 2 else "updates after"] += 1
            return step(self, *given)

        patch.setattr(MathTask, "reward", watched)
        patch.setattr(CausalLearner, "optimizer_step", counted)
        yield counts
    (folder / "mode").write_text("honest")
