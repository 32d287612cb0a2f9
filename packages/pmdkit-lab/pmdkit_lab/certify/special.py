"""What is wrong with a loss that agrees with an objective on the ordinary batches, and not on a special one."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from pmdkit_lab.certify.probes import DIFFERS, NOT_FINITE, Probe, rows_apart, special
from pmdkit_lab.certify.slips import Slip, at_old, with_changed_advantage
from pmdkit_lab.certify.trial import REL_TOL, Slope, Trial


def differs(trial: Trial, i: int, his: Slope, scale: float) -> str:
    """What to say of a loss on a special batch, empty if it agrees with the objective there."""
    probe, mine = special()[i], trial.slope("special", i)
    if not bool(mine.isfinite().all()):  # the slip itself overflows, or reads NaN
        return "" if not bool(his[1].isfinite().all()) else DIFFERS[probe.name]
    if not bool(his[1].isfinite().all() and his[0].isfinite()):
        return NOT_FINITE.get(probe.name, DIFFERS[probe.name])
    tol = max(2 * REL_TOL, trial.silent_tol if probe.name == "silent" else 0.0)
    if float(rows_apart(his[1], scale * mine).max()) <= tol:
        return ""
    for words, change in SPECIAL_SLIPS.get(probe.name, {}).items():
        slope, factor_ = change(trial, probe)
        if float(rows_apart(his[1], scale * factor_ * slope).max()) <= 2 * REL_TOL:
            return words
    return (in_silent(trial, i, his[1] / scale) if probe.name == "silent" else "") or DIFFERS[probe.name]


def in_silent(trial: Trial, i: int, wanted: Tensor) -> str:
    """What the advantage is in groups of equal rewards, where it should be 0; empty if it is none of these."""
    probe = special()[i]
    reward, silent = probe.reward, (probe.reward == probe.reward[:, :1]).all(1, keepdim=True).expand_as(probe.reward)
    if bool(at_old(trial.objective, probe, trial.with_ref).advantage[silent.flatten()].any()):
        return ""

    def slope(advantage: Tensor) -> Tensor:
        given = partial(
            with_changed_advantage, lambda own, _: torch.where(silent, advantage, own.view_as(silent)).flatten()
        )
        return trial.with_change(Slip("", given)).slope("special", i)

    names = {"its raw reward": reward, "the reward minus the mean of the batch": reward - reward.mean(),
             "a constant": torch.ones_like(reward)}  # fmt: skip
    for name, advantage in names.items():
        for sign in (1, -1):  # between 0 and either side a gradient is a straight line in the advantage
            start, unit = slope(0 * advantage), slope(sign * advantage) - slope(0 * advantage)
            times = float(((wanted - start) * unit).sum() / (unit**2).sum().clamp_min(1e-300))
            if times > 0 and float(rows_apart(wanted, start + times * unit).max()) <= 2 * REL_TOL:
                size = "" if abs(times - 1) < 1e-4 else f", divided by {1 / times:.4g}"
                size += ": a std of 0 and its small constant" if times > 10 else ""
                return f"in a group of equal rewards the advantage is {'minus ' * (sign < 0)}{name}{size}, not 0"
    return ""


def on_changed(trial: Trial, changed: Probe) -> Tensor:
    """The gradient of a candidate on another batch."""
    logp = changed.logp.clone().requires_grad_()
    (slope,) = torch.autograd.grad(replace(trial, twin=None).value(changed, logp), logp, allow_unused=True)
    return torch.zeros_like(logp) if slope is None else slope * math.prod(c.sign for c in trial.changes)


def with_rewards(change: Callable[[Tensor], Tensor], trial: Trial, probe: Probe) -> tuple[Tensor, float]:
    """The gradient with other rewards."""
    return on_changed(trial, replace(probe, reward=change(probe.reward))), 1.0


def with_mask(change: Callable[[Tensor], Tensor], own_length: bool, trial: Trial, probe: Probe) -> tuple[Tensor, float]:
    """The gradient under another mask; `own_length`: each row still counts with the length that it had."""
    mask = change(probe.mask)
    slope = on_changed(trial, replace(probe, mask=mask))
    if own_length and trial.by_length:
        slope = slope * (mask.sum(1) / probe.mask.sum(1))[:, None]
    return slope, 1.0


def without_silent(by_tokens: bool, trial: Trial, probe: Probe) -> tuple[Tensor, float]:
    """The gradient if groups of equal rewards count in no mean."""
    mixed = (probe.reward != probe.reward[:, :1]).any(1)
    tokens = probe.mask.sum(1).view(probe.reward.shape).sum(1)
    counts = tokens if by_tokens else torch.ones_like(tokens)
    return on_changed(trial, probe), float(counts.sum() / counts[mixed].sum())


SpecialSlip = Callable[[Trial, Probe], tuple[Tensor, float]]
"Maps a candidate and a special batch to the gradient with a slip there, and a factor of it."

SPECIAL_SLIPS: dict[str, dict[str, SpecialSlip]] = {
    "negative": {
        f"the rewards are {words}": partial(with_rewards, change)
        for words, change in {
            "clamped to [0, 1]": lambda reward: reward.clamp(0, 1),
            "clamped to [-1, 1]": lambda reward: reward.clamp(-1, 1),
            "at least 0: negative ones are set to 0": lambda reward: reward.clamp_min(0),
            "at most 1: larger ones are set to 1": lambda reward: reward.clamp_max(1),
            "under absolute value": torch.abs,
        }.items()
    },
    "silent": {
        "groups of equal rewards are left out of the mean over responses": partial(without_silent, False),
        "groups of equal rewards are left out of the mean over tokens": partial(without_silent, True),
    },
    "holes": {
        words + after: partial(with_mask, change, own)
        for own, after in ((False, ""), (True, " in the sum, not in the length"))
        for words, change in {
            "where the mask has a hole, it is taken as the first |y| columns": lambda mask: (
                torch.arange(mask.shape[1]) < mask.sum(1)[:, None]
            ),
            "tool output inside a response counts": lambda mask: (
                (mask.cumsum(1) > 0) & (mask.flip(1).cumsum(1).flip(1) > 0)
            ),
            "everything up to the last token of a response counts, tool output too": lambda mask: (
                mask.flip(1).cumsum(1).flip(1) > 0
            ),
            "tokens after a hole in the mask are left out": lambda mask: mask & (
                (~mask & (mask.cumsum(1) > 0)).cumsum(1) == 0
            ),
        }.items()
    },
}  # fmt: skip
