"""Find the file of a spec, by its name on the shelf of a tier or by its path, and read its tables."""

import os
import tomllib
from pathlib import Path
from typing import Any

from pmdkit import untrusted
from pmdkit.errors import UsageError, unknown

SHELVES = {"bandit": "envs/bandit", "toy": "envs/toy", "llm": "llm/recipes"}
WORDS = {"bandit": "bandit environment", "toy": "toy environment", "llm": "recipe"}
LARGEST = 1_000_000  # bytes of a spec


def root() -> Path:
    """The folder that holds the shelves: the checkout pmdkit is imported from, else the wheel's data."""
    package = Path(__file__).parents[1]
    checkout = package.parent
    return checkout if (checkout / "envs" / "bandit").is_dir() else package / "shelves"


def names(tier: str) -> list[str]:
    """Names of the specs of a tier, sorted."""
    return sorted(path.stem for path in (root() / SHELVES[tier]).glob("*.toml"))


def spec_file(name: str, tier: str) -> Path:
    """The file of a spec, by name or path; the error for a misspelt name suggests the nearest."""
    if name.endswith(".toml"):
        if not os.path.isfile(name):  # Path.is_file raises for some impossible names
            what = "is not a file" if os.path.lexists(name) else "does not exist"
            raise UsageError(f"spec file {name[:200]} {what}; give a name ({', '.join(names(tier))}) or a .toml file")
        return Path(name)
    if name not in names(tier):
        raise UsageError(unknown(WORDS[tier], name, names(tier)) + ". Or give the path of a .toml file")
    return root() / SHELVES[tier] / f"{name}.toml"


def read(path: Path) -> dict[str, Any]:
    """Read the tables of a TOML file. A leading byte order mark, as written on Windows, is dropped."""
    ours = path.is_relative_to(root())
    data = path.read_bytes() if ours else untrusted.read_bytes(path, LARGEST, "give another .toml file")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise UsageError(f"spec {path} nests values too deeply; expected tables of keys and values") from None
    except ValueError as problem:  # also for bytes that are not UTF-8, and integers of thousands of digits
        raise UsageError(f"spec {path} is not valid TOML: {problem}; fix that line") from problem
