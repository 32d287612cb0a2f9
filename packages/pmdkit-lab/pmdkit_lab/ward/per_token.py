"""A loss without a baseline, averaged over the tokens of a response, ascends right answers per token."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pmdkit.objectives import RLOO, Groups, credit, total
from pmdkit.objectives.batch import Norm
from pmdkit_lab.ward.replica import Replica

STEPS, BUDGET = 400, 32  # BUDGET in tokens; a response that has not ended there has no answer
ENDS = torch.arange(1, BUDGET + 1)
MASK = torch.cat([torch.arange(BUDGET) < ENDS[:, None], torch.ones(1, BUDGET, dtype=torch.bool)])
LENGTH = MASK.sum(1).double()
# the chance that an answer after so many tokens is right: one in five by guessing, at most .6; 0 without an answer
RIGHT = torch.cat([0.2 + 0.4 * (1 - torch.exp(-(ENDS.double() - 1) / 8)), torch.zeros(1, dtype=torch.float64)])
ARMS: dict[str, tuple[bool, Norm]] = {
    "no baseline, mean over tokens": (False, "length"),
    "no baseline, fixed length": (False, "max"),
    "mean of the group, mean over tokens": (True, "length"),
    "mean of the group, fixed length": (True, "max"),
}


@dataclass(frozen=True)
class Reinforce(RLOO):
    """The policy gradient with the bare reward."""

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] the reward."""
        return groups.reward


def token_logp(stop: Tensor) -> Tensor:
    """[33, 32] log-probabilities of every response: at each token it goes on, or ends with the answer."""
    go, end = torch.nn.functional.logsigmoid(-stop), torch.nn.functional.logsigmoid(stop)
    logp = torch.where(torch.arange(BUDGET) == ENDS[:, None] - 1, end, go)
    return torch.where(MASK, torch.cat([logp, go[None]]), 0.0)


def loss(stop: Tensor, baseline: bool, norm: Norm) -> Tensor:
    """The loss over all responses, each with its probability, so that its gradient is exact."""
    logp = token_logp(stop)
    groups = Groups(RIGHT[None], logp.detach().sum(1).exp()[None], sampled=False)
    objective = RLOO(norm) if baseline else Reinforce(norm)
    return total(objective, credit(objective, groups, logp, MASK, width=BUDGET))


def trained(baseline: bool, norm: Norm, steps: int = STEPS) -> Iterator[tuple[float, float, float]]:
    """Accuracy, mean length, and right answers per 100 tokens of the mean response, at every step of Adam."""
    stop = torch.full((BUDGET,), -3.5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([stop], lr=0.02)
    for _ in range(steps + 1):
        chance = token_logp(stop.detach()).sum(1).exp()
        accuracy, length = float(chance @ RIGHT), float(chance @ LENGTH)
        yield accuracy, length, 100 * accuracy / length
        optimizer.zero_grad()
        loss(stop, baseline, norm).backward()
        optimizer.step()


def run() -> Replica:
    """Four losses, one task, exact gradients; no draw, hence no variance."""
    curves = {name: list(zip(*trained(*arm), strict=True)) for name, arm in ARMS.items()}
    rows = {name: [right[0], max(right), right[-1], *(c[-1] for c in more)] for name, (right, *more) in curves.items()}
    labels = ("accuracy", "length (tokens)", "right answers per 100 tokens")
    return Replica(
        ["loss", "accuracy at the start", "best", "at the end", "length", "right per 100 tokens"],
        rows,
        {label: {name: curve[i] for name, curve in curves.items()} for i, label in enumerate(labels)},
    )
