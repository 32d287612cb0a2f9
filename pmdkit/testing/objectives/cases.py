"""Random ragged batches in float64, and the two comparisons every check is made of. No check lives here."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pmdkit.objectives.credit import credit, total
from pmdkit.objectives.vocabulary import Batch, Groups, Objective

BUDGET = 11  # generation budget in tokens for norm "max", larger than every response below


@dataclass(frozen=True)
class Case:
    """Draws for P prompts: rewards in [0, 1], ragged responses, and a policy that has moved away from pi_old."""

    groups: Groups
    logp: Tensor
    logp_old: Tensor
    logp_ref: Tensor
    mask: Tensor

    def batch(self, objective: Objective) -> Batch:
        """Credit at pi_old, then the policy as it is now."""
        return replace(self.on_policy(objective, self.logp_ref), logp=self.logp)

    def on_policy(self, objective: Objective, logp_ref: Tensor | None = None) -> Batch:
        """Credit at pi = pi_old."""
        return credit(objective, self.groups, self.logp_old, self.mask, logp_ref, BUDGET)

    def rows(self, keep: Tensor) -> "Case":
        """The responses that the [P, G] boolean `keep` marks: as many of every prompt."""
        prompts = int(keep.any(1).sum())
        reward, mass = (x[keep].reshape(prompts, -1) for x in (self.groups.reward, self.groups.mass))
        tokens = (x[keep.flatten()] for x in (self.logp, self.logp_old, self.logp_ref, self.mask))
        return Case(Groups(reward, mass, self.groups.sampled), *tokens)


def case(seed: int, prompts: int = 4, size: int = 5, tokens: int = 6) -> Case:
    """A ragged case; the first prompt has rewards {0, 1}, the others real ones."""
    random = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=random, dtype=torch.float64)

    reward = uniform(prompts, size)
    reward[0] = (torch.arange(size) == 1).double()
    length = torch.randint(1, tokens + 1, (prompts * size,), generator=random)
    mask = torch.arange(tokens) < length[:, None]
    logp_old = -0.1 - 2 * uniform(*mask.shape)
    logp = logp_old + 0.6 * (uniform(*mask.shape) - 0.5)
    logp_ref = logp_old + 0.6 * (uniform(*mask.shape) - 0.5)
    return Case(Groups(reward, torch.full_like(reward, 1 / size)), logp, logp_old, logp_ref, mask)


def bandit(seed: int, prompts: int = 3, arms: int = 5) -> tuple[Tensor, Tensor]:
    """Logits and rewards [P, A] of a small bandit."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(prompts, arms, generator=random, dtype=torch.float64)
    return logits, torch.rand(prompts, arms, generator=random, dtype=torch.float64)


def value_and_gradient(objective: Objective, batch: Batch) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and its gradient [N, T] with respect to logp."""
    logp = batch.logp.detach().clone().requires_grad_()
    value = total(objective, replace(batch, logp=logp))
    (gradient,) = torch.autograd.grad(value, logp)
    return value.detach(), gradient


def same(actual: Tensor, expected: Tensor, sentence: str, atol: float = 1e-10) -> None:
    """Equal up to the rounding of some hundred float64 operations, or an AssertionError that opens with a sentence."""
    torch.testing.assert_close(actual, expected, atol=atol, rtol=1e-9, msg=lambda detail: f"{sentence}. {detail}")
