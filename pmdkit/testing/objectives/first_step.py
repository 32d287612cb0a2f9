"""At pi = pi_old every objective takes the same step: the policy gradient of its own advantage."""

import torch

from pmdkit.objectives.credit import credit, total
from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Groups, Objective, row_weight
from pmdkit.testing.objectives.cases import BUDGET, bandit, case, same, value_and_gradient


def check_first_step(objective: Objective, seed: int = 0) -> str | None:
    """The gradient at pi_old is -E[A grad log pi]: in closed form on a softmax bandit, per token on ragged draws."""
    facts = traits(objective)
    if not facts.first_step_is_policy_gradient:
        return "does not apply: first_step_is_policy_gradient is False"

    logits, reward = bandit(seed)
    logits.requires_grad_()
    logp = logits.log_softmax(1)
    policy = logp.detach().exp()
    mask = torch.ones(policy.numel(), 1, dtype=torch.bool)
    groups = Groups(reward, policy, sampled=False)
    batch = credit(objective, groups, logp.reshape(-1, 1), mask, width=1)
    (gradient,) = torch.autograd.grad(total(objective, batch), logits)
    advantage = objective.advantage(groups)
    mean = (policy * advantage).sum(1, keepdim=True)
    same(gradient, -policy * (advantage - mean) / len(policy), "the first step on a bandit is not the policy gradient")

    it = case(seed)
    batch = it.on_policy(objective)
    _, gradient = value_and_gradient(objective, batch)
    weight = row_weight(it.groups.mass, batch.length, facts.first_step_norm or objective.norm, BUDGET)
    expected = torch.where(it.mask, -(weight * batch.advantage)[:, None], 0.0)
    same(gradient, expected, "the first step on ragged responses is not the policy gradient at this norm")
    return None
