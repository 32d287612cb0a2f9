"""Split rows over ranks: forward passes for each process, with about equal numbers of tokens."""

from collections.abc import Sequence, Sized

from pmdkit.llm.micro_batches import token_budget_batches, units
from pmdkit.process_group import ProcessGroup


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
