"""Finds specs: on the shelf of a checkout, in the wheel, or in a file of the user's own."""

import tomllib
from pathlib import Path
from typing import Any

from pmdkit.errors import UsageError
from pmdkit.nearest import unknown

SHELVES = {"bandit": "envs/bandit", "toy": "envs/toy", "llm": "llm/recipes"}
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
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"spec file {path} does not exist; give a name ({', '.join(names(tier))}) or a .toml file")
        return path
    if name not in names(tier):
        raise UsageError(unknown(WORDS[tier], name, names(tier)) + ". Or give the path of a .toml file")
    return root() / SHELVES[tier] / f"{name}.toml"


def read(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"spec {path} is not valid TOML: {problem}; mend that line") from problem
