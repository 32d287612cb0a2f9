"""Which process scores which rows, and in which forward passes. Every process computes the whole answer by itself."""

from collections.abc import Sequence

from pmdkit.llm.engines.protocol import Tokens
from pmdkit.llm.microbatches import microbatches, units
from pmdkit.team import Team


def divide(
    team: Team,
    prompts: Sequence[Tokens],
    responses: Sequence[Tokens],
    size: int,
    budget: int,
    whole_groups: bool,
    counted: Sequence[bool] | None = None,
) -> list[list[list[int]]]:
    """For each process its forward passes, each a list of rows; equally many passes, of which the last may be empty.

    A process without rows still has to take part: sums over processes wait for all of them, and under FSDP2 so does
    every forward pass.

    Args:
        team: rows are dealt to its processes in runs of about as many tokens.
        prompts, responses, size, budget, whole_groups, counted: as for `microbatches`.
    """
    whole = list(units(len(prompts), size, whole_groups, counted))
    costs = [sum(len(responses[row]) for row in unit) + len(prompts[unit[0]]) for unit in whole]
    plans = []
    for run in team.share(costs):
        mine = {row for unit in run for row in whole[unit]}
        chosen = [row in mine for row in range(len(prompts))]
        plans.append(list(microbatches(prompts, responses, size, budget, whole_groups, chosen)))
    passes = max(len(plan) for plan in plans)
    return [plan + [[]] * (passes - len(plan)) for plan in plans]
