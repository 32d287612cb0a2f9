"""One temperature per prompt, read from the batch."""

from dataclasses import replace

import torch
from torch import Tensor

from pmdkit.objectives.vocabulary import Groups, Objective, expect
from pmdkit.testing.objectives.cases import case, same


def check_temperature(objective: Objective, seed: int = 0) -> str | None:
    """Prompts with different taus give what each gives alone, with that number as its tau: in loss and in advantage."""
    if not hasattr(objective, "tau"):
        return "does not apply: it has no tau"

    it = case(seed)
    prompts, size = it.groups.reward.shape
    taus = torch.linspace(0.2, 1.1, prompts, dtype=torch.float64)
    batch = replace(it.batch(with_tau(objective, 0.7)), tau=taus.repeat_interleave(size))
    loss = with_tau(objective, 0.7).loss(batch)
    for prompt, tau in enumerate(taus.tolist()):
        rows = slice(prompt * size, (prompt + 1) * size)
        alone = with_tau(objective, tau).loss(batch[rows])
        same(loss[rows], alone, "loss does not use the tau of each row; read batch.tau, not self.tau")
    doubled = with_tau(objective, 0.7).loss(replace(batch, tau=2 * batch.tau))
    assert not torch.equal(loss, doubled), "loss does not change with batch.tau; it has a tau and ignores it"

    together = with_tau(objective, rule).advantage(it.groups)
    for prompt, tau in enumerate(rule(it.groups).tolist()):
        one = Groups(it.groups.reward[[prompt]], it.groups.mass[[prompt]])
        alone = with_tau(objective, tau).advantage(one)
        same(together[[prompt]], alone, "advantage does not use the tau of each prompt; take temperature(self, groups)")
    return None


def rule(groups: Groups) -> Tensor:
    """[P] a temperature that differs from prompt to prompt."""
    return 0.1 + expect(groups.reward, groups.mass)[:, 0]


def with_tau(objective: Objective, tau: object) -> Objective:
    """The same objective at another temperature."""
    return replace(objective, tau=tau)  # type: ignore[type-var]
