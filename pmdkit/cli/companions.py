"""Verbs of companion packages, found through the entry points `pmdkit.verbs`; pmdkit imports none of them by name."""

from importlib.metadata import entry_points

HOMES = {
    **dict.fromkeys(("explain", "certify", "replay", "plan", "ledger", "reproduce", "race"), "pmdkit-lab"),
    "learn": "pmdkit-course",
}
"Which package brings a verb, for the sentence about one that is missing."


def verbs() -> dict[str, tuple[str, str]]:
    """Each verb that an installed companion adds: its help line, and `module:function`, imported when it is called."""
    found: dict[str, tuple[str, str]] = {}
    for point in entry_points(group="pmdkit.verbs"):
        found |= point.load()
    return found


def install(package: str) -> str:
    """The command that installs a companion: from the checkout if pmdkit runs from one."""
    from pmdkit.extras import CHECKOUT

    folder = CHECKOUT / "packages" / package
    return f"pip install -e {folder}" if folder.is_dir() else f"pip install {package}"
