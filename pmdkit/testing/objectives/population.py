"""The oracle: where theory knows the minimiser of the full-support loss, the gradient is zero there."""

from dataclasses import replace

import torch

from pmdkit.objectives.credit import credit, temperature, total
from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Groups, Objective
from pmdkit.testing.objectives.cases import BUDGET, bandit, same


def check_population(objective: Objective, seed: int = 0) -> str | None:
    """Responses of 1 to A tokens on their full support: the step vanishes at the solution of `pmdkit.theory`.

    Under norm "length" PMD-mean solves a length-weighted problem; the theory is asked for that one.
    """
    name = traits(objective).population
    if name is None:
        return "does not apply: no closed form is known"
    from pmdkit import theory

    logits, reward = bandit(seed)
    prompts, arms = reward.shape
    logp_old = logits.log_softmax(1)
    policy = logp_old.exp()
    groups = Groups(reward, policy, sampled=False)
    tau = temperature(objective, groups)
    length = torch.arange(1, arms + 1).expand(prompts, arms)
    inputs = (policy.numpy(), reward.numpy(), tau.numpy())
    if name == "pmd_mean" and objective.norm == "length":
        solution = theory.pmd_mean(*inputs, length=length.numpy().astype(float))
    else:
        solution = getattr(theory, name)(*inputs)
    optimum = (logp_old + torch.as_tensor(solution.log_ratio)).requires_grad_()

    # the first token carries the whole log-probability; the others are certain
    mask = torch.arange(arms) < length.reshape(-1, 1)
    first = torch.arange(arms) == 0
    batch = credit(objective, groups, torch.where(first, logp_old.reshape(-1, 1), 0.0), mask, width=BUDGET)
    logp = torch.where(first, optimum.log_softmax(1).reshape(-1, 1), 0.0)
    (gradient,) = torch.autograd.grad(total(objective, replace(batch, logp=logp)), optimum)
    same(gradient, torch.zeros_like(gradient), f"the gradient does not vanish at the solution theory.{name}")
    return None
