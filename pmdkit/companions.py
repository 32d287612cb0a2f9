"""Verbs and options of companions, found through the entry points `pmdkit.verbs`; pmdkit imports none by name."""

from collections.abc import Callable
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any

from pmdkit.errors import EnvironmentLacks
from pmdkit.extras import install

HOMES = {
    **dict.fromkeys(
        ("explain", "certify", "replay", "autopsy", "plan", "ledger", "reproduce", "race", "llm --rehearse"),
        "pmdkit-lab",
    ),
    "learn": "pmdkit-course",
}
"Which package brings a verb, or an option of pmdkit's own, for the sentence about one that is missing."
VALUES = {"llm model.checkpointing=auto": "pmdkit-lab"}
"The same for values of a recipe's keys."


def added() -> dict[str, tuple[str, str]]:
    """An addition of an installed companion: its help line, and `module:function`, imported when it is called."""
    found: dict[str, tuple[str, str]] = {}
    for point in entry_points(group="pmdkit.verbs"):
        found |= point.load()
    return found


def verbs() -> dict[str, tuple[str, str]]:
    """Verbs of installed companions; a name of two words is an option of one of pmdkit's own verbs."""
    return {name: entry for name, entry in added().items() if " " not in name}


def option(name: str) -> Callable[..., Any]:
    """The function behind an option such as `llm --rehearse`.

    Raises:
        EnvironmentLacks: its package is not installed.
    """
    found = added()
    if name not in found:
        raise missing(name)
    called: Callable[..., Any] = resolve_name(found[name][1])
    return called


def missing(name: str) -> EnvironmentLacks:
    """The error about a verb or an option whose package is not installed."""
    home = (HOMES | VALUES)[name]
    return EnvironmentLacks(f"pmdkit {name} is in the package {home}, which is not installed: {install(home)}")
