"""A recorded case as tensors: what every path of pmdkit starts from."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pmdkit.objectives import OBJECTIVES, Groups, Objective, credit, cut, parts, total
from pmdkit.objectives.vocabulary import Batch

Case = dict[str, Any]
Result = tuple[float | list[float], list[list[float]]]


def objective_of(case: Case) -> Objective:
    """The objective with the case's options; a tau per prompt is a rule that knows it."""
    options = dict(case["options"])
    if case["tau"]:
        tau = torch.tensor(case["tau"], dtype=torch.float64)
        options["tau"] = case["tau"][0] if len(set(case["tau"])) == 1 else lambda groups: tau.to(groups.reward)
    objective: Objective = OBJECTIVES[case["objective"]](norm=case["norm"], **options)
    return objective


def groups_of(case: Case) -> Groups:
    """Rewards and masses [P, G], float64; a response without a verdict has mass 0."""
    reward = torch.tensor([[0.0 if r is None else r for r in row] for row in case["reward"]], dtype=torch.float64)
    present = torch.tensor([[r is not None for r in row] for row in case["reward"]])
    return Groups(reward, present / present.sum(1, keepdim=True).clamp_min(1).double())


def rows_of(case: Case, name: str) -> Tensor:
    """[N, T] float64 of `logp` or `logp_old`, padded with 0."""
    width = max(len(row) for row in case[name])
    return torch.tensor([row + [0.0] * (width - len(row)) for row in case[name]], dtype=torch.float64)


def mask_of(case: Case) -> Tensor:
    """[N, T] boolean."""
    width = max(len(row) for row in case["mask"])
    return torch.tensor([[bool(on) for on in row] + [False] * (width - len(row)) for row in case["mask"]])


def batch_of(case: Case) -> Batch:
    """The whole batch at pi = pi_old."""
    return credit(objective_of(case), groups_of(case), rows_of(case, "logp_old"), mask_of(case), width=case["width"])


def ministeps_of(case: Case) -> list[Batch]:
    """The batch cut as the loop cuts it."""
    prompts, size = groups_of(case).reward.shape
    return [cut(batch_of(case), part, prompts, size) for part in parts(prompts, case["ministeps"])]


def losses_of(case: Case, logp: Tensor) -> list[Tensor]:
    """The loss of each ministep at these log-probabilities, [N, T]."""
    batches = ministeps_of(case)
    rows = logp.split([len(batch.logp) for batch in batches])
    objective = objective_of(case)
    return [total(objective, replace(b, logp=r)) for b, r in zip(batches, rows, strict=True)]


def result(losses: list[Tensor], gradient: Tensor, case: Case) -> Result:
    """Numbers, the gradient [N][T_n] without its padding."""
    rows = zip(gradient, case["logp"], strict=True)
    return [loss.item() for loss in losses], [row[: len(tokens)].tolist() for row, tokens in rows]


def has_holes(case: Case) -> bool:
    """Whether a token in the middle does not count, as what a tool wrote."""
    return any(0 in row for row in case["mask"])
