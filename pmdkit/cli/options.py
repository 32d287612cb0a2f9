"""The options that every tier shares, and what they change in a spec."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Options of a run; each is a short name for a dotted key of the spec."""

    objective: str | None = None
    "Name (see pmdkit objectives) or my.py:MyLoss."
    tau: float | str | None = None
    "Temperature in reward units (0.05 on rewards {0,1} is 0.1 on +-1), or a rule: pass-rate, contraction, kl-budget."
    steps: int | None = None
    "Rollout batches in all; a resumed run may raise it."
    prompts: int | None = None
    "Prompts per step."
    group: int | None = None
    "Responses drawn per prompt; without it the full support is enumerated."
    ministeps: int | None = None
    "Updates per rollout batch."
    lr: float | None = None
    "Learning rate of gradient updates."
    seed: int | None = None
    "Seed of every draw."
    record: Annotated[bool, Parameter(negative="")] = False
    "Keep every step in rollouts/ for pmdkit replay; --set run.record=10 keeps every tenth."
    set: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None
    "Any other key of the spec: --set objective.norm=none env.arms=20."
    out: Path | None = None
    "Folder of the run, new or empty; by default the next number under runs/."
    resume: Annotated[bool, Parameter(negative="")] = False
    "Go on with the run in --out where it stopped."
    json: Annotated[bool, Parameter(negative="")] = False
    "Print the summary as one JSON value."
    dry_run: Annotated[bool, Parameter(negative="")] = False
    "Print the resolved configuration; start nothing."

    def changes(self) -> dict[str, Any]:
        """Dotted keys and their values."""
        short = {
            "objective.name": self.objective,
            "objective.tau": self.tau,
            "schedule.steps": self.steps,
            "schedule.prompts": self.prompts,
            "schedule.group": self.group,
            "schedule.ministeps": self.ministeps,
            "schedule.lr": self.lr,
            "run.seed": self.seed,
            "run.record": 1 if self.record else None,
        }
        return {key: value for key, value in short.items() if value is not None} | assignments(self.set or [])


def assignments(pairs: list[str]) -> dict[str, Any]:
    """`key=value` texts; a value is read as TOML, and as plain text where it is not."""
    import tomllib

    from pmdkit.errors import UsageError

    changes: dict[str, Any] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key:
            raise UsageError(f"--set got '{pair}'; expected key=value, such as objective.norm=none")
        if text.strip() == "null":  # what TOML has no word for: --set group=null asks for the full support
            changes[key.strip()] = None
            continue
        try:
            changes[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            changes[key.strip()] = text
    return changes
