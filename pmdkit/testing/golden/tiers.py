"""The learners of the first two tiers, made to hold the recorded log-probabilities."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from pmdkit.learner import Rollouts
from pmdkit.testing.golden.case import Case, Result, has_holes, losses_of, mask_of, result, rows_of


def table(case: Case) -> Result | None:
    """The bandit's table: a response of one token is an arm, and one more arm holds what is left of each policy."""
    from pmdkit.bandit.learner import BanditLearner

    if any(len(row) > 1 for row in case["logp"]):
        return None
    prompts, size = len(case["reward"]), len(case["reward"][0])
    learner = BanditLearner(with_rest(rows_of(case, "logp").view(prompts, size)))
    return through(case, learner, torch.arange(prompts))


def toy(case: Case) -> Result | None:
    """The toy transformer's scoring of the tree of responses, over logits in the transformer's place.

    The first tokens of a group are different arms, as in the table; from then on a vocabulary of two is enough.
    """
    from pmdkit.toy.learner import ToyLearner

    if has_holes(case):
        return None
    model: Any = Recorded(case)
    learner = ToyLearner(model, vocabulary=(), eos=0, width=mask_of(case).shape[1])
    return through(case, learner, torch.zeros(len(case["reward"]), 1, dtype=torch.int64))


def through(case: Case, learner: Any, prompts: Tensor) -> Result:
    """Loss and gradient by what the learner says the log-probabilities are."""
    size, mask = len(case["reward"][0]), mask_of(case)
    responses = torch.zeros(mask.shape, dtype=torch.int64)
    responses[:, 0] = torch.arange(size).repeat(len(case["reward"]))
    rollouts = Rollouts(
        prompts=prompts,
        responses=responses,
        logp_old=rows_of(case, "logp_old"),
        mask=mask,
        mass=torch.full((len(prompts), size), 1 / size, dtype=torch.float64),
        sampled=True,
        seed=0,
        version=0,
        width=mask.shape[1],
    )
    now = learner.logp(rollouts)
    losses = losses_of(case, now)
    (gradient,) = torch.autograd.grad(sum(losses, torch.zeros(())), now)
    return result(losses, gradient, case)


class Recorded(torch.nn.Module):
    """What `pmdkit.toy.sampling.score` asks of a transformer; the hidden states are log-probabilities."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        prompts, size = len(case["reward"]), len(case["reward"][0])
        logp = rows_of(case, "logp")
        self.first = torch.nn.Parameter(with_rest(logp[:, 0].view(prompts, size)))
        # a row reads nothing after its last token; -1 stands where rows_of has padding, whose rest would be log 0
        self.later = torch.where(logp[:, 1:] < 0, logp[:, 1:], -1.0)
        self.size = size
        self.config = SimpleNamespace(context=10**6, vocabulary=size + 1)

    def prefill(self, prompts: Tensor, room: int) -> tuple[Tensor, Any]:
        """Logits of the first tokens, and a cache that knows which row asks."""
        return self.first, SimpleNamespace(rows=lambda owner: owner)

    def hidden(self, responses: Tensor, owner: Tensor) -> Tensor:
        """[leaves, T - 1, V] log-probabilities at each place of a response; token 0 is the recorded one."""
        logp = self.later[owner * self.size + responses[:, 0]]
        return torch.stack([logp, torch.log1p(-logp.exp()), *[torch.full_like(logp, -torch.inf)] * (self.size - 1)], -1)

    def head(self, states: Tensor) -> Tensor:
        """Logits of hidden states."""
        return states


def with_rest(logp: Tensor) -> Tensor:
    """[P, G + 1] the arms, and one that holds what is left of each policy."""
    return torch.cat([logp, torch.log1p(-logp.exp().sum(1, keepdim=True))], 1)
