"""Say the nearest name: one sentence for every misspelt option, key, environment and objective."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """`unknown objective 'pmd-meen'; did you mean 'pmd-mean'? Known: ...`, for use in an error."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"unknown {kind} '{name}'; {hint}Known: {', '.join(names)}"
