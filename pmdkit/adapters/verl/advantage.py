"""Advantage estimators for verl's registry: the objective's own `advantage`, on groups found by their uid."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pmdkit.adapters.verl.objective import estimator_objective
from pmdkit.errors import UsageError
from pmdkit.objectives import Groups, Objective, temperature


def groups_by_uid(uid: Any, response_mask: Tensor, group: int) -> Tensor:
    """[P, G] row numbers of each prompt's responses.

    Rows that verl adds to fill a batch have a uid of their own and no token; they belong to no group.

    Args:
        uid: [N], which prompt a row answers.
        response_mask: [N, T].
        group: responses to each prompt, `rollout.n`.

    Raises:
        UsageError: no uid, a group of one, or a group of another size.
    """
    if uid is None:
        raise UsageError("the batch has no uid; a group baseline needs verl's `uid` to know which rows share a prompt")
    rows: dict[Any, list[int]] = {}
    for row, name in enumerate(np.asarray(uid, dtype=object).tolist()):
        rows.setdefault(name, []).append(row)
    has_tokens = response_mask.bool().any(1).tolist()
    found = {name: members for name, members in rows.items() if any(has_tokens[row] for row in members)}
    if group < 2:
        raise UsageError(
            f"rollout.n is {group}; expected at least 2: a group baseline compares a response with its peers"
        )
    wrong = {name: len(members) for name, members in found.items() if len(members) != group}
    if wrong:
        name, size = next(iter(wrong.items()))
        raise UsageError(
            f"{len(wrong)} of {len(found)} groups do not have rollout.n = {group} rows (uid {name} has {size}); "
            "expected one row per response: agent loops with several outputs per session, and sessions that fail, are "
            "not supported"
        )
    return torch.tensor(list(found.values()), dtype=torch.int64).view(-1, group)


def grouped_rewards(token_level_rewards: Tensor, rows: Tensor) -> Groups:
    """Rewards [P, G] in float64: the sum of a row's token-level rewards."""
    reward = token_level_rewards.double().sum(-1)[rows.to(token_level_rewards.device)]
    return Groups(reward, torch.full_like(reward, 1 / reward.shape[1]))


def over_rows(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """[N] from [P, G]; 0 for a row of no group."""
    out = values.new_zeros(count)
    out[rows.flatten().to(values.device)] = values.flatten()
    return out


def advantages(
    objective: Objective, token_level_rewards: Tensor, response_mask: Tensor, uid: Any, group: int
) -> Tensor:
    """[N, T] the advantage of a response on each of its tokens, as verl carries it; 0 off the mask."""
    rows = groups_by_uid(uid, response_mask, group)
    with torch.no_grad():
        advantage = objective.advantage(grouped_rewards(token_level_rewards, rows))
    by_row = over_rows(advantage, rows, len(response_mask)).to(token_level_rewards.dtype)
    return torch.where(response_mask.bool(), by_row[:, None], 0.0)


def row_tau(objective: Objective, token_level_rewards: Tensor, response_mask: Tensor, uid: Any, group: int) -> Tensor:
    """[N] the temperature of each row's prompt, reward units, float64; 1 for a row of no group, whose loss is 0."""
    rows = groups_by_uid(uid, response_mask, group)
    tau = temperature(objective, grouped_rewards(token_level_rewards, rows))
    out = over_rows(tau[:, None].expand(rows.shape), rows, len(response_mask))
    return torch.where(out > 0, out, 1.0)


def estimate(
    token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, config: Any = None, **unused: Any
) -> tuple[Tensor, Tensor]:
    """Advantages and returns as verl asks for them, both [N, T] and the same.

    The baseline is taken over all responses of a prompt, those that verl's rejection masked included: rejection is an
    importance weight of 0, and says nothing about the reward.

    Args:
        token_level_rewards: [N, T].
        response_mask: [N, T].
        index: [N] uid of each row's prompt.
        config: verl's `algorithm` node; `config.pmd` has the objective, tau, options and group size.
        unused: what verl passes to other estimators.
    """
    objective, group = estimator_objective(config)
    found = advantages(objective, token_level_rewards, response_mask, index, group)
    return found, found


# one function under each name: the start-up check holds pmd_mean and pmd_part to their objectives
ESTIMATORS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "pmd_mean": estimate,
    "pmd_part": estimate,
    "pmdkit": estimate,
}
