"""One recorded step under an objective: losses, gradient statistics and predictions, offline. The numbers; no printing.

Exact are the statements at the recorded policies. Another order or number of updates would visit others from its
second update on; of those nothing is said.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pmdkit.learner import Rollouts
from pmdkit.objectives.traits import traits
from pmdkit.observe import gauge
from pmdkit.observe.meter import Meter
from pmdkit.recording.format import Recording
from pmdkit.recording.gradient import Gradient, cosine, gradient
from pmdkit.recording.points import POINTS, NotRecorded, batch_of, point, rollouts_of
from pmdkit.recording.question import Question, ask

DRIVERS = 5  # prompts named
NOTHING = 1e-12  # of a gradient by log-probabilities: rounding


def replay(recording: Recording, question: Question) -> dict[str, Any]:
    """Everything that `pmdkit replay --json` prints, as plain values.

    Args:
        recording: of a step.
        question: see `ask`.

    Raises:
        UsageError: see `batch_of` and `gradient`.
    """
    about, (prompts, size) = recording.about, recording["mass"].shape
    own = as_recorded(recording)
    same_order = question.order_name == "recorded" and question.order.ministeps == about["ministeps"]
    batch = batch_of(question.objective, recording)
    points: dict[str, Any] = {}
    gradients: dict[str, Gradient] = {}
    for name in POINTS:
        try:
            if name == "seen" and not same_order:
                raise NotRecorded("not recorded: other updates would have seen other policies")
            where = point(recording, name)
            gradients[name] = gradient(question.objective, batch, where, question.order, size, about["sampled"])
            points[name] = statistics(gradients[name]) | beside(gradients[name], own, name, recording)
        except NotRecorded as reason:
            points[name] = {"missing": str(reason)}
    driving = gradients.get("seen", gradients.get("old"))
    rate, present = pass_rate(recording), (recording["mass"] > 0).flatten()
    return {
        "step": about["step"],
        "tier": about["tier"],
        "env": about["env"],
        "prompts": prompts,
        "group": size,
        "sampled": about["sampled"],
        "policy_version": about["version"],
        "pass_rate": None if rate is None else float(rate.mean()),
        "recorded": {"objective": about["objective"], "ministeps": about["ministeps"], **check(recording, own)},
        "objective": question.table,
        "ministeps": question.order.ministeps,
        "order": question.order_name,
        "anchor": anchor(question, recording),
        "advantage": spread_of(batch.advantage[present]),
        "points": points,
        "updates": each_update(question, gradients["old"], recording) if "old" in gradients else [],
        "drivers": drivers(driving, recording) if driving is not None else [],
        "gauge": buckets(question, recording),
        "gauge_recorded": None if own is None else buckets(own, recording),
    }


def anchor(question: Question, recording: Recording) -> str:
    """What log-ratios are taken to."""
    if not traits(question.objective).uses_reference:
        return "pi_old"
    return "the reference policy" if recording.get("logp_ref") is not None else "pi_old, no reference was recorded"


def as_recorded(recording: Recording) -> Question | None:
    """The step's own question; None where its objective cannot be loaded again."""
    try:
        return ask(recording)
    except ValueError:
        return None


def check(recording: Recording, own: Question | None) -> dict[str, Any]:
    """The losses that the run reported, and those that the recording gives for the same question."""
    reported = [update["loss"] for update in recording.about["updates"]]
    found: dict[str, Any] = {"losses": reported, "replayed": None, "why": None}
    if own is None:
        return found | {"why": "the recorded objective cannot be loaded again here"}
    size, batch = recording["mass"].shape[1], batch_of(own.objective, recording)
    nothing = not bool((batch.weight != 0).any())  # groups of equal rewards that the run left out, all of them
    try:
        where = point(recording, "old" if nothing else "seen")
        again = gradient(own.objective, batch, where, own.order, size)
    except NotRecorded as reason:
        return found | {"why": str(reason)}
    return found | {"replayed": again.losses}


def statistics(here: Gradient) -> dict[str, Any]:
    """Of a gradient by log-probabilities: of the mean over updates, as the loss in metrics.jsonl. Descent raises what
    has a negative number."""
    size = here.moving.abs().sum()
    up = float((-here.moving).clamp_min(0).sum() / size) if size > NOTHING else None
    counted = int(here.counted.sum())
    silent = int(((here.values == 0) & here.counted).sum())
    return {
        "loss": sum(here.losses) / len(here.losses),
        "losses": here.losses,
        "norm": float(here.moving.norm()) / len(here.losses),
        "up": up,
        "down": None if up is None else 1 - up,
        "silent": silent / counted if counted else None,
        "rows": here.rows[0],
        "rows_missing": here.rows[1] - here.rows[0],
    }


def beside(here: Gradient, own: Question | None, name: str, recording: Recording) -> dict[str, Any]:
    """How the gradient compares with that of the recorded objective at the same policy."""
    nothing: dict[str, Any] = {"cosine": None, "scale": None}
    if own is None:
        return nothing
    try:
        batch = batch_of(own.objective, recording)
        size, sampled = recording["mass"].shape[1], recording.about["sampled"]
        other = gradient(own.objective, batch, point(recording, name), own.order, size, sampled)
    except NotRecorded:
        return nothing
    norms = [float(one.moving.norm()) / len(one.losses) for one in (here, other)]
    return {
        "cosine": cosine(here.moving, other.moving),
        "scale": norms[0] / norms[1] if norms[1] > NOTHING else None,
    }


def each_update(question: Question, here: Gradient, recording: Recording) -> list[dict[str, Any]]:
    """What each update of this order holds, at pi_old: exact for the first one, which nothing came before."""
    values = here.moving.view(*recording["mass"].shape, -1)
    found = []
    for prompts, loss in zip(question.order.parts(), here.losses, strict=True):
        rate = pass_rate(recording)
        found.append(
            {
                "prompts": len(prompts),
                "pass_rate": None if rate is None else float(rate[prompts].mean()),
                "loss": loss,
                "norm": float(values[prompts].norm()),
            }
        )
    return found


def drivers(here: Gradient, recording: Recording) -> list[dict[str, Any]]:
    """The prompts that ask for most: their share of the sum of absolute numbers."""
    share = here.moving.abs().view(len(recording["mass"]), -1).sum(1)
    share = share / share.sum().clamp_min(1e-300)
    top = torch.argsort(share, descending=True, stable=True)[:DRIVERS].tolist()
    rate, size = pass_rate(recording), recording["mass"].shape[1]
    return [
        {
            "prompt": p,
            "rows": [p * size, (p + 1) * size - 1],
            "share": float(share[p]),
            "pass_rate": None if rate is None else float(rate[p]),
        }
        for p in top
        if share[p] > 0
    ]


def pass_rate(recording: Recording) -> Tensor | None:
    """[P] share of right responses under pi_old; None where nothing passes or fails."""
    passed = recording.about.get("passed")
    return None if passed is None else (recording["mass"] * (recording["reward"] > passed)).sum(1)


def buckets(question: Question, recording: Recording) -> list[dict[str, Any]] | None:
    """Mean log-ratio of wrong and right responses by pass rate: of the exact update, and measured where it was.

    Each group of draws is taken for the policy, as in the gauge of the run.
    """
    passed = recording.about.get("passed")
    if passed is None:
        return None
    rollouts, (prompts, size) = rollouts_of(recording), recording["mass"].shape
    try:
        after = point(recording, "after")
        change = torch.where(recording.mask, after.logp - rollouts.logp_old, 0.0).double().sum(1)
        change = torch.where(after.known, change, torch.nan).view(prompts, size)
    except NotRecorded:
        change = torch.full((prompts, size), torch.nan, dtype=torch.float64)
    whole = (recording["mass"] > 0).any(1)
    mass, reward = recording["mass"].double(), recording["reward"].double()
    length = recording.mask.sum(1).view(prompts, size)
    tau = batch_of(question.objective, recording).tau.view(prompts, size)[:, 0]
    change = torch.where(mass > 0, change, 0.0)
    if not bool(whole.all()):  # a group without a verdict has no policy to predict for
        kept = whole.nonzero()[:, 0]
        rows = whole.repeat_interleave(size)
        rollouts = kept_rollouts(rollouts, kept, rows)
        mass, reward, change, length, tau = (x[kept] for x in (mass, reward, change, length, tau))
    row = Meter(question.objective, passed).gauge(rollouts, mass, reward, change, length, tau)
    found: list[dict[str, Any]] = row["gauge"]
    return [{**entry, "pass_rates": gauge.label(entry["bucket"])} for entry in found]


def kept_rollouts(rollouts: Rollouts, prompts: Tensor, rows: Tensor) -> Rollouts:
    """The rollouts of some prompts."""
    return replace(
        rollouts,
        prompts=rollouts.prompts[prompts],
        mass=rollouts.mass[prompts],
        responses=rollouts.responses[rows],
        logp_old=rollouts.logp_old[rows],
        mask=rollouts.mask[rows],
        logp_ref=None if rollouts.logp_ref is None else rollouts.logp_ref[rows],
    )


def spread_of(values: Tensor) -> dict[str, float]:
    """Lowest, mean, highest, and the share above 0."""
    return {
        "low": float(values.min()),
        "mean": float(values.double().mean()),
        "high": float(values.max()),
        "positive": float((values > 0).double().mean()),
    }
