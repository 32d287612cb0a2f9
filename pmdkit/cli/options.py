"""The options that all tiers share, and the keys of the spec that they set."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token
from cyclopts.completion import CompletionContext

from pmdkit.errors import UsageError, short


def whole(_: Any, tokens: Sequence[Token]) -> int:
    """An integer; the parser itself would round 3.7 to 4."""
    return int(tokens[0].value)


def folder(_: Any, tokens: Sequence[Token]) -> Path:
    """A path that can be a folder's; an empty one, as from an unset shell variable, would mean the current folder."""
    path = Path(tokens[0].value)
    if not tokens[0].value or any(len(os.fsencode(part)) > 255 for part in path.parts) or not str(path).isprintable():
        name = short(tokens[0].value)
        raise ValueError(f"{name!r}; expected a folder such as runs/first, of printable names of at most 255 bytes")
    return path


def complete_specs(tier: str, _: CompletionContext) -> list[str]:
    """The names on a tier's shelf."""
    from pmdkit.specs import find

    return find.names(tier)


Whole = Annotated[int, Parameter(converter=whole)]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]  # has no --no- form, and is off
Texts = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
BanditName = Annotated[str, Parameter(completer=partial(complete_specs, "bandit"))]
ToyName = Annotated[str, Parameter(completer=partial(complete_specs, "toy"))]
RecipeName = Annotated[str, Parameter(completer=partial(complete_specs, "llm"))]


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Options of a run; each is a short name for a dotted key of the spec."""

    objective: str | None = None
    "Name (see pmdkit objectives) or my.py:MyLoss. [default: the spec's, pmd-mean]"
    tau: float | str | None = None
    "Reward units (0.05 on {0,1} is 0.1 on +-1) or rule: pass-rate, contraction, kl-budget, chi2-budget. [mostly 0.05]"
    steps: Whole | None = None
    "Rollout batches in all; a resumed run may raise it. [default: the spec's]"
    prompts: Whole | None = None
    "Prompts per step. [default: the spec's; all contexts of a bandit]"
    group: Whole | None = None
    "Responses drawn per prompt. [default: the spec's; in a bandit the full support is enumerated]"
    ministeps: Whole | None = None
    "Updates per rollout batch. [default: the spec's; 1 in a bandit]"
    lr: float | None = None
    "Learning rate of gradient updates. [default: the spec's]"
    seed: Whole | None = None
    "Seed of every draw. [default: 0]"
    record: Flag = False
    "Keep every step in rollouts/ for pmdkit replay; --set run.record=10 keeps every tenth."
    set: Texts = None
    "Any other key of the spec: --set objective.norm=none env.arms=20."
    out: Annotated[Path | None, Parameter(converter=folder)] = None
    "Folder of the run, new or empty; by default runs/ENV-OBJECTIVE-001, or the next number of that name."
    resume: Flag = False
    "Continue the run in --out where it stopped."
    trust: Texts = None
    "Files such as my.py that the recipe or the stored run names and whose code may run; --objective names its own."
    accept_changes: Flag = False
    "Resume even if data, code or weights differ from those that the run began with; inputs.json records the change."
    json: Flag = False
    "Print the summary as one JSON value."
    dry_run: Flag = False
    "Print the resolved configuration with every default; start nothing."

    def changes(self) -> dict[str, Any]:
        """Dotted keys and their values."""
        from pmdkit.specs.spec import SHORT

        short = {key: getattr(self, name, None) for name, key in SHORT.items()}
        short["run.record"] = 1 if self.record else None
        if self.set == []:
            raise UsageError("--set got nothing; expected key=value, such as objective.norm=none")
        options_set = {key: value for key, value in short.items() if value is not None}
        return merged([*options_set.items(), *assignments(self.set or []).items()])


def assignments(pairs: list[str]) -> dict[str, Any]:
    """Parse `key=value` strings; a value is read as TOML, or as plain text if it is not TOML."""
    from pmdkit.specs.toml import parse_value

    read = []
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"--set got '{pair[:80]}'; expected key=value, such as objective.norm=none")
        read.append((key.strip(), parse_value(text)))
    return merged(read)


def merged(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Merge keys and values; a key may be repeated only with the same value."""
    changes: dict[str, Any] = {}
    for key, value in pairs:
        first = changes.setdefault(key, value)
        if first is not value and first != value:  # nan does not equal itself
            told = f"{short(first)} and {short(value)}"
            raise UsageError(f"{key[:80]} is given twice, as {told}; leave one out")
    return changes
