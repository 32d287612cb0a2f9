"""From a list of problems to numbered ones, some held out."""

import hashlib
from collections import Counter
from collections.abc import Mapping

import numpy as np

from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.envs.math.same import normal
from pmdkit.errors import UsageError


def check_share(held_out: int | str, limit: int | None) -> None:
    """Refuse options that are no number of problems."""
    whole = isinstance(held_out, int) and not isinstance(held_out, bool) and held_out >= 0
    if not whole and held_out != "all":
        raise ValueError(f"env.held_out is {held_out!r}; expected a number of problems >= 0, or 'all'")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ValueError(f"env.limit is {limit!r}; expected a number of problems >= 1, or nothing for all")


def collect(
    name: str,
    problems: list[Problem],
    held_out: int | str = 0,
    limit: int | None = None,
    counts: Mapping[str, int] | None = None,
) -> MathProblems:
    """The first `limit` problems in the order given, `held_out` of them never trained on.

    Which are held out is decided by a hash of their text: the same for every seed, whatever the order of the file.
    """
    table = problems[:limit]
    size = len(table)
    if not table:
        raise UsageError(f"{name} has no problem left; it lost {dict(counts or {})}")
    if isinstance(held_out, int) and held_out >= size:
        raise UsageError(f"env.held_out is {held_out} of {size} problems; expected fewer, or 'all' for evaluation only")
    number_held_out = size if held_out == "all" else int(held_out)
    digests = [hashlib.blake2b(normal(p.problem).encode(), digest_size=8).digest() for p in table]
    by_hash = sorted(range(size), key=lambda i: digests[i])
    apart = np.zeros(size, dtype=bool)
    apart[by_hash[:number_held_out]] = True
    totals = Counter(counts or {})
    if size < len(problems):
        totals["left out: over the limit"] = len(problems) - size
    return MathProblems(name, table.__getitem__, np.flatnonzero(~apart), np.flatnonzero(apart), dict(totals))
