"""A tiny run of the language-model tier from the command line: how it ended, what was said, and its bits."""

import gc
import hashlib
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pmdkit.observe import checkpoint

from .harness import GRADE

TINY = Path(__file__).parents[1] / "llm" / "tiny.toml"
STEPS = 2
SMALL = {
    "schedule.steps": STEPS,
    "schedule.prompts": 2,
    "rollout.width": 8,
    "rollout.record_every": 0,
    "rollout.canary": 2,
    "evaluation.problems": 2,
    "evaluation.every": 0,
}
ENV = {"kind": "arithmetic", "numbers": 2, "problems": 300}


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        code: exit code.
        said: standard error.
        folder: of the run.
    """

    code: int
    said: str
    folder: Path

    @property
    def sentence(self) -> str:
        """The one line of the error."""
        lines = [line for line in self.said.splitlines() if line.startswith("pmdkit: error: ")]
        assert len(lines) == 1, self.said
        return lines[0]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """metrics.jsonl."""
        path = self.folder / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def steps(self) -> list[int]:
        """Of the checkpoints, all of them whole."""
        folder = self.folder / "checkpoints"
        found = checkpoint.steps(folder) if folder.exists() else []
        for step in found:
            checkpoint.load_step(folder / f"step-{step}", step)  # raises if it is damaged
        return found

    @property
    def bits(self) -> Any:
        """Weights, optimizer, and metrics without clocks: what a recovered run must have in common."""
        last = self.folder / "checkpoints" / f"step-{self.steps[-1]}"
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in last.glob("*.safetensors")}
        other = ("seconds_rollout", "seconds_update")
        return files, [{key: value for key, value in row.items() if key not in other} for row in self.rows]


class Runner:
    """Starts such runs.

    Args:
        call: runs a command in this process, and returns its exit code.
        capsys: of pytest.
        folder: where runs go.
    """

    def __init__(self, call, capsys, folder: Path) -> None:
        self.call, self.capsys, self.folder, self.count = call, capsys, folder, 0

    def __call__(self, options: dict[str, Any], *more: str, out: Path | None = None) -> Ended:
        """One run, to its end."""
        self.count += 1
        out = out or self.folder / f"run-{self.count}"
        settings = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in options.items()]
        if "reward.grade" not in options:  # where rewards are equal no update is taken, and no engine has wrong weights
            grader = self.folder / "grader.py"
            grader.write_text(GRADE)
            settings += [f"reward.grade={grader}:grade", "rollout.cut_off=score"]
        self.capsys.readouterr()
        code = self.call("llm", str(TINY), "--out", str(out), *more, "--set", *settings)
        with warnings.catch_warnings():  # a run that is refused leaves its grader's process to the end of this one
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        return Ended(code, self.capsys.readouterr().err, out)
