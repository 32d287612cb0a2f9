"""Which rows share a forward pass: as many as fit a token budget, in their order, a shared prompt counted once."""

from collections.abc import Iterator, Sequence

from pmdkit.llm.engines.protocol import Tokens


def microbatches(
    prompts: Sequence[Tokens],
    responses: Sequence[Tokens],
    size: int,
    budget: int,
    whole_groups: bool,
    counted: Sequence[bool] | None = None,
) -> Iterator[list[int]]:
    """Lists of row numbers, each within the budget where a single row, or group, allows it.

    Args:
        prompts, responses: N each, prompt-major, `size` rows per prompt.
        size: G.
        budget: tokens that are fed at once.
        whole_groups: never cut a group, for losses that compare its rows.
        counted: rows that matter; the others are left out. A group that is kept whole stays whole.
    """
    part: list[int] = []
    used = 0
    for unit in units(len(prompts), size, whole_groups, counted):
        fresh = sum(len(responses[row]) for row in unit) + len(prompts[unit[0]])
        shares = bool(part) and part[-1] // size == unit[0] // size
        cost = fresh - len(prompts[unit[0]]) * shares
        if part and used + cost > budget:
            yield part
            part, used, cost = [], 0, fresh
        part = part + unit
        used += cost
    if part:
        yield part


def units(rows: int, size: int, whole_groups: bool, counted: Sequence[bool] | None) -> Iterator[list[int]]:
    """What is never cut: single rows, or whole groups."""
    if not whole_groups:
        yield from ([row] for row in range(rows) if counted is None or counted[row])
        return
    for start in range(0, rows, size):
        group = list(range(start, start + size))
        if counted is None or any(counted[row] for row in group):
            yield group
