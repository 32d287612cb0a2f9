"""A problem with a checkable answer, and numbered collections of them: deduplication and held-out splits."""

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pmdkit.errors import UsageError
from pmdkit.options import Range

LAYOUT = re.compile(r"\\(?:left|right|displaystyle|quad)(?![a-zA-Z])|\\[,;!()\[\]]")
# Signs that change a value are kept: x^2 - 3 and x^2 + 3 are two problems, as are 2(x + 1) and 2x + 1, or 1.5 and 15.
SIGNS = re.compile(r"[^\w+\-/=<>^|≤≥≠!().]|_|(?<!\d)\.|\.(?!\d)")


@dataclass(frozen=True)
class Problem:
    """One question.

    Attributes:
        id: unique in its collection, such as "dapo-00050".
        problem: the text of the question alone; template and chat format are added later, never part of it.
        answer: the gold answer that the verifier compares with; empty where a reward needs none.
        columns: the data row, for reward functions that ask for it.
        history: (role, content) of the messages before the question: a system message, earlier turns.
    """

    id: str
    problem: str
    answer: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    history: tuple[tuple[str, str], ...] = ()

    @property
    def conversation(self) -> str:
        """The question below the messages before it: problems with the same text are copies."""
        return "\n\n".join([*(f"{role}: {content}" for role, content in self.history), self.problem])


@dataclass(frozen=True)
class MathProblems:
    """Problems numbered from 0, some of them held out from training.

    Attributes:
        name: for reports.
        problem: a pure function from number to problem: read from a table, or generated from the number.
        train: [n] numbers of the training problems.
        held_out: [m] numbers of the problems never trained on; may be empty.
        counts: numbers of rows that reading dropped, repaired or merged, by reason; for the reports.
        sources: of a mixture, each source's name, share of a step and training numbers; empty if there is only one.
    """

    name: str
    problem: Callable[[int], Problem]
    train: NDArray[np.int64]
    held_out: NDArray[np.int64]
    counts: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[tuple[str, float, NDArray[np.int64]], ...] = ()


def collect(
    name: str,
    problems: list[Problem],
    held_out: int | str = 0,
    limit: int | None = None,
    counts: Mapping[str, int] | None = None,
) -> MathProblems:
    """The first `limit` problems in the order given, `held_out` of them never trained on.

    The held-out ones are chosen by a hash of their text: the same for every seed and any order of the file.
    """
    table = problems[:limit]
    size = len(table)
    if not table:
        raise UsageError(f"{name} has no problem left; counts: {dict(counts or {})}")
    if isinstance(held_out, int) and held_out >= size:
        raise UsageError(f"env.held_out is {held_out} of {size} problems; expected fewer, or 'all' for evaluation only")
    number_held_out = size if held_out == "all" else int(held_out)
    digests = [hashlib.blake2b(normalise_spaces(p.conversation).encode(), digest_size=8).digest() for p in table]
    by_hash = sorted(range(size), key=lambda i: digests[i])
    apart = np.zeros(size, dtype=bool)
    apart[by_hash[:number_held_out]] = True
    totals = Counter(counts or {})
    if size < len(problems):
        totals["left out: over the limit"] = len(problems) - size
    return MathProblems(name, table.__getitem__, np.flatnonzero(~apart), np.flatnonzero(apart), dict(totals))


def merge_duplicates(problems: Iterable[Problem]) -> tuple[list[Problem], Counter[str]]:
    """Keep the first copy of each text; drop all copies if their answers conflict, since the right one is unknown."""
    problems = list(problems)
    conflicting = conflicts(problems, normalise_spaces)
    first = {normalise_spaces(problem.conversation): problem for problem in reversed(problems)}
    kept = [p for p in problems if p.id not in conflicting and first[normalise_spaces(p.conversation)] is p]
    counts = Counter({"dropped: conflicting answers": len(conflicting)})
    counts["merged: same problem"] = len(problems) - len(conflicting) - len(kept)
    return kept, +counts


def conflicts(problems: Iterable[Problem], key: Callable[[str], str]) -> set[str]:
    """Ids of problems whose texts share a key but have different answers."""
    groups: defaultdict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        groups[key(problem.conversation)].append(problem)
    return {p.id for group in groups.values() if len({p.answer for p in group}) > 1 for p in group}


def leaks(problems: MathProblems, evaluated: Iterable[Problem]) -> int:
    """How many evaluated problems are trained on too, but for layout and case. Rewordings are missed."""
    known = {fingerprint(problems.problem(int(number)).problem) for number in problems.train}
    return sum(fingerprint(problem.problem) in known for problem in evaluated)


def normalise_spaces(text: str) -> str:
    """The text with every run of white space replaced by one space."""
    return " ".join(text.split())


def fingerprint(text: str) -> str:
    """The letters, digits and arithmetic signs of a text: the same for two LaTeX spellings of one problem."""
    text = unicodedata.normalize("NFKC", LAYOUT.sub("", text))
    return SIGNS.sub("", re.sub(r"\\[dt]frac", r"\\frac", text)).casefold()


def check_held_out(count: int | str) -> None:
    """Reject a value of env.held_out that is not a number of problems."""
    if count != "all":
        Range(0).check("env.held_out", count, whole=True)
