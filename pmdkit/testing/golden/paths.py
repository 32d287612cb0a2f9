"""The ways a loss is computed here, each fed with one recorded case: loss and gradient by every token."""

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from pmdkit.learner import Rollouts
from pmdkit.objectives import OBJECTIVES, Groups, Objective, coefficient, credit, response_loss, total
from pmdkit.objectives.vocabulary import Batch

Case = dict[str, Any]
Result = tuple[float, list[list[float]]]


class Skipped(Exception):
    """A path that is not installed, or that has no such case: a table knows responses of one token only."""


def formula(case: Case) -> Result:
    """`response_loss` and autograd."""
    objective, reward, logp, old, mask = tensors(case)
    logp = logp.requires_grad_()
    loss = response_loss(objective, reward, logp, old, mask)
    (gradient,) = torch.autograd.grad(loss, logp)
    return loss.item(), unpadded(gradient, case)


def table(case: Case) -> Result:
    """The bandit's table: a response of one token is an arm, and one more arm holds what is left of each policy."""
    from pmdkit.bandit.learner import BanditLearner

    if any(len(row) > 1 for row in case["logp"]):
        raise Skipped
    objective, reward, logp, old, mask = tensors(case)
    prompts, size = reward.shape
    arms = logp.view(prompts, size)
    rest = torch.log1p(-arms.exp().sum(1, keepdim=True))
    learner = BanditLearner(torch.cat([arms, rest], 1))
    rollouts = Rollouts(
        prompts=torch.arange(prompts),
        responses=torch.arange(size).repeat(prompts)[:, None],
        logp_old=old,
        mask=mask,
        mass=torch.full((prompts, size), 1 / size, dtype=torch.float64),
        sampled=True,
        seed=0,
        version=0,
        width=1,
    )
    now = learner.logp(rollouts)
    loss = total(objective, replace(batch_of(case), logp=now))
    (gradient,) = torch.autograd.grad(loss, now)
    return loss.item(), unpadded(gradient, case)


def llm_chunked(case: Case) -> Result:
    """The head of the language-model tier, logits computed again in the backward pass."""
    return through_head(case, fused=False)


def llm_fused(case: Case) -> Result:
    """The head of the language-model tier in three matrix products; response-level objectives only."""
    return through_head(case, fused=True)


def through_head(case: Case, fused: bool) -> Result:
    """A vocabulary of two: the head's weight is the identity and the states are log-probabilities.

    The gradient by a target's state is (1 - p) times that by its log-probability.
    """
    if find_spec("transformers") is None:
        raise Skipped
    from pmdkit.llm.fused import head_total
    from pmdkit.llm.scoring import head_logp, to_rows

    flat = torch.tensor([value for row in case["logp"] for value in row], dtype=torch.float64)
    states = torch.stack([flat, torch.log1p(-flat.exp())], 1).requires_grad_()
    weight, targets = torch.eye(2, dtype=torch.float64), torch.zeros(len(flat), dtype=torch.int64)
    lengths, batch = [len(row) for row in case["logp"]], batch_of(case)
    objective = objective_of(case)
    if fused:
        if coefficient(objective, batch) is None:
            raise Skipped
        loss = head_total(states, weight, targets, lengths, objective, batch, head_tokens=3).loss
    else:
        logp = to_rows(head_logp(states, weight, targets, head_tokens=3), lengths, batch.mask.shape[1])
        loss = total(objective, replace(batch, logp=logp))
    (by_state,) = torch.autograd.grad(loss, states)
    by_logp = by_state[:, 0] / (1 - flat.exp())
    return loss.item(), [row.tolist() for row in by_logp.split(lengths)]


PATHS: dict[str, Callable[[Case], Result]] = {
    "objectives": formula,
    "table": table,
    "llm-chunked-head": llm_chunked,
    "llm-fused-head": llm_fused,
}


def objective_of(case: Case) -> Objective:
    """The objective with the case's options."""
    objective = OBJECTIVES[case["objective"]](**case["options"])
    assert objective.norm == case["norm"], f"{case['objective']} has norm {objective.norm}, the case {case['norm']}"
    return objective


def tensors(case: Case) -> tuple[Objective, Tensor, Tensor, Tensor, Tensor]:
    """Objective, reward [P, G], and logp, logp_old and mask [N, T] of a case, float64."""
    width = max(len(row) for row in case["logp"])
    logp, old = (
        torch.tensor([row + [0.0] * (width - len(row)) for row in case[name]], dtype=torch.float64)
        for name in ("logp", "logp_old")
    )
    mask = torch.tensor([[t < len(row) for t in range(width)] for row in case["logp"]])
    return objective_of(case), torch.tensor(case["reward"], dtype=torch.float64), logp, old, mask


def batch_of(case: Case) -> Batch:
    """The batch at pi = pi_old."""
    objective, reward, _, old, mask = tensors(case)
    return credit(objective, Groups(reward, torch.ones_like(reward) / reward.shape[1]), old, mask)


def unpadded(gradient: Tensor, case: Case) -> list[list[float]]:
    """[N][T_n]."""
    return [row[: len(tokens)].tolist() for row, tokens in zip(gradient, case["logp"], strict=True)]
