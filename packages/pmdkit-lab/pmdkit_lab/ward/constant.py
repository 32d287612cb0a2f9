"""A reward component that is always 1 cancels in every group; what is left between two runs is their seeds."""

import torch
from torch import Tensor

from pmdkit.objectives import GRPO, Groups, credit, total
from pmdkit_lab.ward.replica import Replica, Rows

PROMPTS, ARMS, GROUP, STEPS = 8, 12, 6, 50
RUNS = {"right": (0.0, 1.0), "right + 1": (1.0, 1.0), "right + 1, and 0 in 1 of 2,400": (1.0, 1 - 1 / 2400)}


def course(bonus: float, share: float, seed: int) -> tuple[list[float], Tensor]:
    """Pass rate before every step of GRPO on draws, and the logits [P, A] after the last step.

    A response gets the bonus with a chance of `share`, whether it is right or wrong.
    """
    draws, misses = (torch.Generator().manual_seed(seed + k) for k in (0, 1000))
    logits = torch.zeros(PROMPTS, ARMS, dtype=torch.float64, requires_grad=True)
    objective, optimizer, found = GRPO(std="sample"), torch.optim.Adam([logits], lr=0.02), []
    for _ in range(STEPS + 1):
        logp = logits.log_softmax(1)
        found.append(float(logp.detach().exp()[:, :2].sum(1).mean()))
        drawn = torch.multinomial(logp.detach().exp(), GROUP, replacement=True, generator=draws)
        paid = (torch.rand(drawn.shape, generator=misses) < share).double() * bonus
        groups = Groups((drawn < 2).double() + paid, torch.full(drawn.shape, 1 / GROUP, dtype=torch.float64))
        chosen = logp.gather(1, drawn).reshape(-1, 1)
        optimizer.zero_grad()
        total(objective, credit(objective, groups, chosen, torch.ones_like(chosen, dtype=torch.bool))).backward()
        optimizer.step()
    return found, logits.detach()


def run() -> Replica:
    """Three rewards, three seeds each."""
    runs = {name: [course(*arm, seed) for seed in range(3)] for name, arm in RUNS.items()}
    rows: Rows = {}
    for name, found in runs.items():
        last = torch.tensor([passed[-1] for passed, _ in found])
        pairs = zip(found, runs["right"], strict=True)
        apart = max(float((mine[1] - other[1]).abs().max()) for mine, other in pairs)
        rows[name] = [apart, float(last.mean()), float(last.std())]
    return Replica(
        ["reward", "largest difference of a logit", "pass rate after 50 steps", "std over three seeds"],
        rows,
        {"pass rate": {f"right, seed {seed}": passed for seed, (passed, _) in enumerate(runs["right"])}},
    )
