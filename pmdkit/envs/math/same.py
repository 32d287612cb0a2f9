"""When two problems are the same one, and what happens to copies. Leaks into an evaluation are counted in leaks.py."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from pmdkit.envs.math.problem import Problem

LAYOUT = re.compile(r"\\(?:left|right|displaystyle|quad)(?![a-zA-Z])|\\[,;!()\[\]]")
# What changes a value stays: x^2 - 3 and x^2 + 3 are two problems, as are 2(x + 1) and 2x + 1, or 1.5 and 15.
SIGNS = re.compile(r"[^\w+\-/=<>^|≤≥≠!().]|_|(?<!\d)\.|\.(?!\d)")


def normal(text: str) -> str:
    """Text with every run of white space as one space."""
    return " ".join(text.split())


def sketch(text: str) -> str:
    """Letters, digits and the signs of arithmetic alone: the same for two ways to write one problem in LaTeX."""
    text = unicodedata.normalize("NFKC", LAYOUT.sub("", text))
    return SIGNS.sub("", re.sub(r"\\[dt]frac", r"\\frac", text)).casefold()


def merge(problems: Iterable[Problem]) -> tuple[list[Problem], Counter[str]]:
    """One of each text, the first. Texts whose answers conflict are dropped, all copies: which is right is unknown."""
    problems = list(problems)
    conflicting = conflicts(problems, normal)
    first = {normal(problem.problem): problem for problem in reversed(problems)}
    kept = [p for p in problems if p.id not in conflicting and first[normal(p.problem)] is p]
    counts = Counter({"dropped: conflicting answers": len(conflicting)})
    counts["merged: same problem"] = len(problems) - len(conflicting) - len(kept)
    return kept, +counts


def conflicts(problems: Iterable[Problem], key: Callable[[str], str]) -> set[str]:
    """Ids of the problems whose text has, by its key, more than one answer."""
    groups: defaultdict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        groups[key(problem.problem)].append(problem)
    return {p.id for group in groups.values() if len({p.answer for p in group}) > 1 for p in group}


def near_duplicates(problems: Iterable[Problem]) -> int:
    """How many problems differ from an earlier one in layout alone."""
    sketches = [sketch(problem.problem) for problem in problems]
    return len(sketches) - len(set(sketches))
