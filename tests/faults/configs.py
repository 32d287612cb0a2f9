"""Configurations that nobody wants: specs of the shelf with values, keys and tables replaced, as files and as options.

A configuration is a function of its number alone, so a failing one is found again by it.
"""

import io
import json
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random

from pmdkit import spec_files
from pmdkit.cli import main
from pmdkit.config import TABLES
from pmdkit.envs.kinds import KINDS as BANDITS
from pmdkit.envs.math.datasets import MATH_KINDS
from pmdkit.envs.tokens.tasks import KINDS as TOKENS
from pmdkit.objectives import OBJECTIVES

BASES = {
    "bandit": ("needle", "pass-rates", "two-hills", "shared-features", "graded", "noisy-verifier"),
    "toy": ("copy", "modular-sum", "addition", "countdown", "maze"),
    "llm": ("qwen2.5-7b", "one-gpu", "qwen3-30b-a3b"),
}
KINDS = {"bandit": BANDITS, "toy": TOKENS, "llm": MATH_KINDS}
VALUES = (Path(__file__).parent / "hostile_values.txt").read_text(encoding="utf-8").splitlines()
VALUES += ['"' + "x" * 20_000 + '"', "9" * 5_000, "0x" + "f" * 5_000, "[" * 3_000, "", "#"]
KEYS = ["self", "cls", "__class__", "__init__", '""', '"a b"', "a.b", '"é"', "kind", "name", "rule", "tier", "env", "1"]
LINES = (
    "[env]",
    "[[env]]",
    "[env.kind]",
    "[schedul]",
    "[Run]",
    "[]",
    "[.]",
    "[run",
    "env = 3",
    "objective = []",
    "x = 1",
)


@dataclass(frozen=True)
class Outcome:
    """What a command came to: exit code, what it printed, how long it took."""

    code: int
    out: str
    err: str
    seconds: float


def run(*arguments: str) -> Outcome:
    """Call the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    begun = time.monotonic()
    code = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as leave:
            code = int(leave.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue(), time.monotonic() - begun)


def known_keys(tier: str, kind: str, objective: str) -> list[str]:
    """Every dotted key that a spec of that tier may have."""
    options = {"env": ["kind", *(f.name for f in fields(KINDS[tier][kind]))]}
    options["objective"] = ["name", *(f.name for f in fields(OBJECTIVES[objective]))]
    return [
        f"{section}.{key}"
        for section, table in TABLES[tier].items()
        for key in (options[section] if table is None else table.model_fields)
    ]


def command(number: int, folder: Path, tier: str) -> list[str]:
    """The arguments of a hostile dry run; its spec is written to the folder."""
    rng = Random(f"{tier} {number}")
    tables = spec_files.read(spec_files.find(rng.choice(BASES[tier]), tier))
    objective = rng.choice(list(OBJECTIVES)) if rng.random() < 0.3 else tables["objective"]["name"]
    keys = known_keys(tier, tables["env"]["kind"], objective)
    if objective != tables["objective"]["name"]:
        tables["objective"] = {"name": objective}
    raw = {section: {key: literal(value) for key, value in table.items()} for section, table in tables.items()}
    pairs = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        section, _, key = rng.choice(keys).partition(".")
        if rng.random() < 0.08:
            key = rng.choice(KEYS)
        value = rng.choice(VALUES)
        if rng.random() < 0.6:
            raw.setdefault(section, {})[key] = value
        else:
            pairs.append(f"{section}.{key}={value}")
    if rng.random() < 0.05:
        section = rng.choice(list(raw))
        raw[section].pop(rng.choice(list(raw[section])))
    if rng.random() < 0.03:
        del raw[rng.choice(list(raw))]
    tables_of = [[f"[{section}]", *(f"{k} = {v}" for k, v in table.items())] for section, table in raw.items()]
    lines = [line for table in tables_of for line in table]
    if rng.random() < 0.05:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice([*LINES, rng.choice(lines)]))
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    if rng.random() < 0.03:
        place = rng.randrange(len(data))
        data = data[:place] + bytes([rng.randrange(256)]) + data[place + rng.randrange(2) :]
    (folder / "hostile.toml").write_bytes(data)
    options = ["--json"] * (tier == "llm") + ["--set", *pairs] * bool(pairs)
    return [tier, "hostile.toml", "--dry-run", *options]


def literal(value: object) -> str:
    """A value of a spec as TOML writes it; what specs hold are the values of JSON, and tables within them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {literal(part)}" for key, part in value.items()) + "}"
    return json.dumps(value)
