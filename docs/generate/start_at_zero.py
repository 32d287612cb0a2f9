"""The page "Why does my loss start at 0?": its table of numbers and its two pictures.

`python docs/generate/start_at_zero.py` computes all of them again, a second in all, and writes them to docs/use/.
"""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from pmdkit.objectives import DAPO, GRPO, RLOO, Batch, Groups, Objective, PMDMean, PMDPart, credit, total

PAGE = Path(__file__).parents[1] / "use" / "autopsy.md"
BEGIN, END = "<!-- numbers: python docs/generate/start_at_zero.py -->\n", "<!-- end of numbers -->\n"
REWARD = torch.zeros(1, 16, dtype=torch.float64)
REWARD[0, [0, 9]] = 1.0
LENGTH = torch.tensor([3, 8, 4, 6, 8, 5, 7, 8, 4, 2, 6, 8, 5, 7, 3, 8])
LOSSES: dict[str, Objective] = {
    "GRPO": GRPO(),
    "GRPO, std none": GRPO(std="none"),
    "the same, a mean over tokens (DAPO)": DAPO(std="none"),
    "RLOO": RLOO(),
    "PMD-mean, tau 0.1": PMDMean(0.1, baseline="mean"),
    "PMD-mean, tau 0.01": PMDMean(0.01, baseline="mean"),
    "PMD-part, tau 0.1": PMDPart(0.1, baseline="mean"),
}


def at_start(objective: Objective) -> tuple[Batch, Tensor]:
    """One group of 16 draws of 2 to 8 tokens, two of them right, at pi = pi_old; and the loss' gradient by logp."""
    mask = torch.arange(8) < LENGTH[:, None]
    logp = -0.2 - 1.6 * torch.rand(mask.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    batch = credit(objective, Groups(REWARD, torch.full_like(REWARD, 1 / 16)), logp, mask, width=8)
    moved = replace(batch, logp=logp.clone().requires_grad_())
    (slope,) = torch.autograd.grad(total(objective, moved), moved.logp)
    return batch, slope


def table() -> str:
    """Loss and gradient of every row at pi = pi_old."""
    lines = ["| loss | value at the start | norm of its gradient | direction, against GRPO |", "|---|---|---|---|"]
    _, wanted = at_start(LOSSES["GRPO"])
    for name, objective in LOSSES.items():
        batch, slope = at_start(objective)
        value = float(total(objective, batch)) + 0.0
        cosine = float((slope * wanted).sum() / slope.norm() / wanted.norm())
        value = 0.0 if abs(value) < 1e-12 else value
        lines.append(f"| {name} | {value:.4f} | {float(slope.norm()):.4f} | {cosine:.3f} |")
    return "\n".join(lines) + "\n"


def steps(objective: Objective, rollouts: int, ministeps: int, rate: float) -> tuple[list[float], list[float]]:
    """Loss and pass rate before every update of a table of 16 arms, two right; pi_old is renewed at each rollout."""
    logits = torch.zeros(1, 16, dtype=torch.float64, requires_grad=True)
    losses, passed = [], []
    for _ in range(rollouts):
        old = logits.detach().log_softmax(1)
        mask = torch.ones(16, 1, dtype=torch.bool)
        batch = credit(objective, Groups(REWARD, old.exp(), sampled=False), old.reshape(-1, 1), mask)
        for _ in range(ministeps):
            loss = total(objective, replace(batch, logp=logits.log_softmax(1).reshape(-1, 1)))
            losses.append(float(loss.detach()))
            passed.append(float(logits.detach().softmax(1)[REWARD == 1].sum()))
            (slope,) = torch.autograd.grad(loss, logits)
            with torch.no_grad():
                logits -= rate * slope
    return losses, passed


def along(objective: Objective, shifts: Tensor) -> list[float]:
    """The loss where the logits of the two right arms are raised by `shifts`, pi_old uniform."""
    old = torch.full((1, 16), 1 / 16, dtype=torch.float64).log()
    batch = credit(objective, Groups(REWARD, old.exp(), sampled=False), old.T, torch.ones(16, 1, dtype=torch.bool))
    return [float(total(objective, replace(batch, logp=(old + shift * REWARD).log_softmax(1).T))) for shift in shifts]


def draw() -> None:
    """The two pictures."""
    from matplotlib.figure import Figure

    from pmdkit_lab import figures

    pair: dict[str, Objective] = {
        "GRPO, std none": GRPO(std="none", norm="none"),
        "PMD-mean, τ = 0.1": PMDMean(0.1, "none"),
    }
    with figures.style():
        figure = Figure(figsize=(4.6, 3.4), layout="constrained")
        ax = figure.add_subplot()
        shifts = torch.linspace(-1, 4, 101)
        for colour, (name, objective) in zip(("C1", "C0"), pair.items(), strict=True):
            values = along(objective, shifts)
            ax.plot(shifts, values, "-", color=colour, label=name)
            ax.plot(0, along(objective, torch.zeros(1))[0], "o", color=colour)
            start = along(objective, torch.zeros(1))[0]
            slope = (along(objective, torch.tensor([1e-4]))[0] - along(objective, torch.tensor([-1e-4]))[0]) / 2e-4
            ax.plot([-0.8, 0.8], [start - 0.8 * slope, start + 0.8 * slope], ":", color="0.2", linewidth=2.5)
        ax.set_xlabel("logits of the right arms raised by (nats)")
        ax.set_ylabel("loss (reward units)")
        ax.legend()
        figure.savefig(PAGE.with_name("start-at-zero-slopes.png"), dpi=110, metadata={"Software": None})

        figure = Figure(figsize=(4.6, 4.6), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        for colour, (name, objective) in zip(("C1", "C0"), pair.items(), strict=True):
            losses, passed = steps(objective, rollouts=5, ministeps=8, rate=1.5)
            upper.plot(losses, "-", color=colour, marker=".", label=name)
            lower.plot(passed, "-", color=colour, marker=".")
        for ax in (upper, lower):
            for place in range(0, 40, 8):
                ax.axvline(place, color="0.85", zorder=0)
        upper.set_ylabel("loss")
        lower.set_ylabel("pass rate")
        lower.set_xlabel("update; a grey line is a new rollout, where π = π_old")
        upper.legend()
        figure.savefig(PAGE.with_name("start-at-zero-steps.png"), dpi=110, metadata={"Software": None})


def written(page: str) -> str:
    """The page with today's numbers."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    draw()
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
