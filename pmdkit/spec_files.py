"""Finds specs: on the shelf of a checkout, in the wheel, or in a file of the user's own."""

import os
import tomllib
from pathlib import Path
from typing import Any

from pmdkit.errors import UsageError, unknown

SHELVES = {"bandit": "envs/bandit", "toy": "envs/toy", "llm": "llm/recipes"}
LARGEST = 1_000_000  # bytes of a spec
WORDS = {"bandit": "bandit environment", "toy": "toy environment", "llm": "recipe"}


def root() -> Path:
    """The folder that holds the shelves: the checkout pmdkit is imported from, else the data of the wheel."""
    package = Path(__file__).parent
    checkout = package.parent
    return checkout if (checkout / "envs" / "bandit").is_dir() else package / "shelves"


def names(tier: str) -> list[str]:
    """Names of the specs of a tier, sorted."""
    return sorted(path.stem for path in (root() / SHELVES[tier]).glob("*.toml"))


def find(name: str, tier: str) -> Path:
    """The spec of that name or path; a misspelt one is answered with the nearest."""
    if name.endswith(".toml"):
        if not os.path.isfile(name):  # a Path would raise for some names that no file can have
            what = "is no file" if os.path.lexists(name) else "does not exist"
            raise UsageError(f"spec file {name[:200]} {what}; give a name ({', '.join(names(tier))}) or a .toml file")
        return Path(name)
    if name not in names(tier):
        raise UsageError(unknown(WORDS[tier], name, names(tier)) + ". Or give the path of a .toml file")
    return root() / SHELVES[tier] / f"{name}.toml"


def read(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. A byte order mark in front, as Windows writes it, is no part of them."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as problem:
        raise UsageError(f"spec {path} cannot be read ({problem.strerror}); give another .toml file") from problem
    if len(data) > LARGEST:
        raise UsageError(f"spec {path} has more than {LARGEST:,} bytes; expected a few tables: is it the right file?")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise UsageError(f"spec {path} nests values without end; expected tables of keys and values") from None
    except ValueError as problem:  # also of bytes that are not UTF-8, and of integers of thousands of digits
        raise UsageError(f"spec {path} is not valid TOML: {problem}; mend that line") from problem
