"""The options that all tiers share, and the keys of the spec that they set."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token
from cyclopts.completion import CompletionContext

from pmdkit.errors import UsageError, short

NAME_BYTES = 255  # the limit of common file systems
INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,18})")
DECIMAL = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
NUMERIC = re.compile(r"[+\-\u2212]?[.,]?\d|[+-]?(nan|inf)$|$", re.IGNORECASE)  # meant as a number, or empty


def whole(_: Any, tokens: Sequence[Token]) -> int:
    """An integer in TOML's syntax; the parser itself would read 3.7 as 4, 010 as 10, and digits of any script."""
    text = tokens[0].value
    if not INTEGER.fullmatch(text):
        raise ValueError(f"'{text[:40]}'; expected an integer, such as 16")
    return int(text)


def number(_: Any, tokens: Sequence[Token]) -> float:
    """A number written with the digits 0 to 9 and a decimal point."""
    text = tokens[0].value
    if not DECIMAL.fullmatch(text) and text.lower().lstrip("+-") not in ("nan", "inf"):
        raise ValueError(f"'{text[:40]}'; expected a number, such as 0.05 or 1e-6")
    return float(text)


def number_or_text(_: Any, tokens: Sequence[Token]) -> float | str:
    """Like `number`, but text that does not begin like a number stays text."""
    text = tokens[0].value
    return number(_, tokens) if NUMERIC.match(text) else text


def number_list(option: str, text: str) -> list[float]:
    """The numbers in a comma-separated list."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} is {short(text)}; expected numbers with commas, such as 0.05,0.2") from None


def folder(_: Any, tokens: Sequence[Token]) -> Path:
    """A path that is not empty: an empty string, as from an unset shell variable, would mean the current folder."""
    if not tokens[0].value:
        raise ValueError("''; expected a folder, such as runs/first")
    path = Path(tokens[0].value)
    if any(len(os.fsencode(part)) > NAME_BYTES for part in path.parts) or not path.as_posix().isprintable():
        raise ValueError(
            f"{short(str(path))}; expected names of at most {NAME_BYTES} bytes, without control characters"
        )
    return path


Whole = Annotated[int, Parameter(converter=whole)]
Number = Annotated[float, Parameter(converter=number)]
Flag = Annotated[bool, Parameter(negative="")]  # has no --no- form
Texts = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]


# Shell completion: completers for cyclopts, called through `pmdkit __complete`. None of them imports torch.

OBJECTIVE_NAMES = (
    "pmd-mean", "pmd-part", "pmd-between", "rloo", "grpo", "dr-grpo", "dapo", "gspo", "cispo", "chi2-po", "rebel", "tb",
    "dro", "pmd-token", "qrpo", "sppo", "opmd", "rec", "asymre", "topr", "grpo-kl", "sapo", "gmpo",
    "reinforce-pp",
)  # fmt: skip
"The keys of OBJECTIVES, whose module needs torch."


def complete_objectives(_: CompletionContext) -> tuple[str, ...]:
    """The objectives of the package."""
    return OBJECTIVE_NAMES


def complete_specs(tier: str) -> Callable[[CompletionContext], list[str]]:
    """A completer for the names on a tier's shelf, and for .toml files and folders."""

    def complete(context: CompletionContext) -> list[str]:
        from pmdkit.specs import find

        return find.names(tier) + paths(context.incomplete, ".toml")

    return complete


def complete_runs(context: CompletionContext) -> list[str]:
    """The runs under runs/, then the folders whose path starts with the word."""
    begun = [path.parent.as_posix() for path in Path("runs").glob("*/config.json")]
    return sorted(begun) + [path for path in paths(context.incomplete) if path.rstrip("/") not in begun]


def paths(word: str, suffix: str = "") -> list[str]:
    """Folders whose path starts with the word, and files with the suffix."""
    parent, _, begin = word.rpartition("/")
    base = Path(parent or ("/" if word.startswith("/") else "."))
    found = [p for p in base.glob(f"{escape(begin)}*") if p.is_dir() or (suffix and p.suffix == suffix)]
    lead = f"{parent}/" if "/" in word else ""
    return sorted(f"{lead}{p.name}" + ("/" if p.is_dir() else "") for p in found if begin or not p.name.startswith("."))


ObjectiveName = Annotated[str, Parameter(completer=complete_objectives)]
BanditName = Annotated[str, Parameter(completer=complete_specs("bandit"))]
ToyName = Annotated[str, Parameter(completer=complete_specs("toy"))]
RecipeName = Annotated[str, Parameter(completer=complete_specs("llm"))]
RunPath = Annotated[Path, Parameter(completer=complete_runs)]


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Options of a run; each is a short name for a dotted key of the spec."""

    objective: ObjectiveName | None = None
    "Name (see pmdkit objectives) or my.py:MyLoss."
    tau: Annotated[float | str | None, Parameter(converter=number_or_text)] = None
    "In reward units (0.05 on rewards {0,1} is 0.1 on +-1), or a rule: pass-rate, contraction, kl-budget, chi2-budget."
    steps: Whole | None = None
    "Rollout batches in all; a resumed run may raise it."
    prompts: Whole | None = None
    "Prompts per step."
    group: Whole | None = None
    "Responses drawn per prompt; without it the full support is enumerated."
    ministeps: Whole | None = None
    "Updates per rollout batch."
    lr: Number | None = None
    "Learning rate of gradient updates."
    seed: Whole | None = None
    "Seed of every draw."
    record: Flag = False
    "Keep every step in rollouts/ for pmdkit replay; --set run.record=10 keeps every tenth."
    set: Texts = None
    "Any other key of the spec: --set objective.norm=none env.arms=20."
    out: Annotated[Path | None, Parameter(converter=folder, completer=complete_runs)] = None
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
        if self.set == []:
            raise UsageError("--set got nothing; expected key=value, such as objective.norm=none")
        given = {key: value for key, value in short.items() if value is not None}
        return merged([*given.items(), *assignments(self.set or []).items()])


def assignments(pairs: list[str]) -> dict[str, Any]:
    """Parse `key=value` strings; a value is read as TOML, or as plain text if it is not TOML."""
    read = []
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"--set got '{pair[:80]}'; expected key=value, such as objective.norm=none")
        read.append((key.strip(), value_of(text)))
    return merged(read)


def value_of(text: str) -> Any:
    """A TOML value; `null`, which TOML lacks, is None: --set group=null asks for the full support."""
    import tomllib

    if text.strip() == "null":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # tomllib raises the first for invalid TOML, the second for [[[[...
        return float(text) if "." in text and DECIMAL.fullmatch(text) else text  # .5 and 5. are not valid TOML


def merged(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Merge keys and values; a key may be given again only with the same value."""
    changes: dict[str, Any] = {}
    for key, value in pairs:
        first = changes.setdefault(key, value)
        if first is not value and first != value:  # nan does not equal itself
            told = f"{short(first)} and {short(value)}"
            raise UsageError(f"{key[:80]} is given twice, as {told}; leave one out")
    return changes
