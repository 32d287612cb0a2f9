"""Micro-batches: rows that share a forward pass, by a budget of tokens, and how rows are split over ranks."""

from collections.abc import Iterator, Sequence, Sized

from pmdkit.process_group import ProcessGroup


def token_budget_batches(
    prompts: Sequence[Sized],
    responses: Sequence[Sized],
    size: int,
    budget: int,
    whole_groups: bool,
    counted: Sequence[bool] | None = None,
) -> Iterator[list[int]]:
    """Lists of row numbers, each of at most `budget` tokens unless a single row or group already exceeds it.

    Args:
        prompts, responses: N each, prompt-major, `size` rows per prompt.
        whole_groups: never split a group, for losses that compare its rows.
        counted: rows that matter; the others are left out. With `whole_groups`, a group with any such row stays whole.
    """
    # Greedy, in order: rows of a prompt stay neighbours, so that the prompt is fed once per forward pass. Sorting by
    # length would pack as well here, where nothing is padded, and would tear groups apart.
    part: list[int] = []
    used = 0
    for unit in units(len(prompts), size, whole_groups, counted):
        fresh = sum(len(responses[row]) for row in unit) + len(prompts[unit[0]])
        # a prompt that is already in the batch is not fed again
        shares = bool(part) and part[-1] // size == unit[0] // size
        cost = fresh - len(prompts[unit[0]]) * shares
        if part and used + cost > budget:
            yield part
            part, used, cost = [], 0, fresh
        part = part + unit
        used += cost
    if part:
        yield part


def shard_by_tokens(
    process_group: ProcessGroup,
    prompts: Sequence[Sized],
    responses: Sequence[Sized],
    size: int,
    budget: int,
    whole_groups: bool,
    counted: Sequence[bool] | None = None,
) -> list[list[list[int]]]:
    """The forward passes of each process, each a list of rows; all have equally many, of which the last may be empty.

    Rows are dealt in consecutive runs of about equally many tokens. Arguments as for `token_budget_batches`.
    """
    whole = list(units(len(prompts), size, whole_groups, counted))
    costs = [sum(len(responses[row]) for row in unit) + len(prompts[unit[0]]) for unit in whole]
    plans = []
    for run in process_group.split_by_cost(costs):
        mine = {row for unit in run for row in whole[unit]}
        chosen = [row in mine for row in range(len(prompts))]
        plans.append(list(token_budget_batches(prompts, responses, size, budget, whole_groups, chosen)))
    # A rank that runs out of rows makes empty passes: a collective that one rank leaves out hangs the others.
    passes = max(len(plan) for plan in plans)
    return [plan + [[]] * (passes - len(plan)) for plan in plans]


def units(rows: int, size: int, whole_groups: bool, counted: Sequence[bool] | None) -> Iterator[list[int]]:
    """The rows of each unit that is never split: one row, or a whole group of `size`; as for `token_budget_batches`."""
    if not whole_groups:
        yield from ([row] for row in range(rows) if counted is None or counted[row])
        return
    for start in range(0, rows, size):
        group = list(range(start, start + size))
        if counted is None or any(counted[row] for row in group):
            yield group
