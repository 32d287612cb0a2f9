"""A recorded step under any objective: losses and gradient statistics, as plain numbers.

Results at the recorded policies are exact; nothing is claimed about others.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

import torch

from pmdkit.errors import UsageError
from pmdkit.objectives import Objective, load_objective, traits
from pmdkit.plugins import Trust, Trusted
from pmdkit.recording import Recording
from pmdkit_lab.replay.gradient import (
    POINTS,
    Gradient,
    NotRecorded,
    batch_of,
    gradient,
    point,
)

DRIVERS = 5  # prompts listed
NOTHING = 1e-12  # a smaller gradient is rounding error


@dataclass(frozen=True)
class ReplayRequest:
    """The objective to replay, recorded or another, with any options; its name; and files whose code may run."""

    objective: Objective
    name: str
    trusted: Trusted

    @property
    def table(self) -> dict[str, Any]:
        """The objective with all its options, as values that JSON can hold."""
        options = {field.name: getattr(self.objective, field.name) for field in fields(self.objective)}  # type: ignore[arg-type]
        plain = (str, int, float, bool, type(None))
        return {"name": self.name, **{k: v if isinstance(v, plain) else repr(v) for k, v in options.items()}}


def make_request(
    recording: Recording,
    objective: str | None = None,
    options: Mapping[str, Any] | None = None,
    trust: Trust = (),
) -> ReplayRequest:
    """The request for a replay; whatever is not given is as recorded.

    Args:
        recording: the recording of the step.
        objective, options: a name in OBJECTIVES or "my.py:MyLoss"; another objective keeps the recorded tau if it has
            that option.
        trust: files such as my.py that the recording names and whose code may run.

    Raises:
        UsageError: the recorded objective cannot be loaded again, or an option is unknown.
    """
    trusted = Trusted.of(trust, objective, options)
    table = dict(recording.about["objective"])
    recorded = table.pop("name")
    name = objective or recorded
    if name == recorded:
        chosen = table | dict(options or {})
    else:
        known = {field.name for field in fields(load_objective(name))}  # type: ignore[arg-type]
        chosen = {key: table[key] for key in ("tau",) if key in table and key in known} | dict(options or {})
    trusted.require([name, chosen])
    try:
        loaded = load_objective(name, **chosen)
    except ValueError as problem:
        if objective is None and not options:
            raise UsageError(
                f"the recorded objective cannot be loaded again ({problem}); name one with --objective"
            ) from problem
        raise
    return ReplayRequest(loaded, name, trusted)


def replay(recording: Recording, request: ReplayRequest) -> dict[str, Any]:
    """Everything that `pmdkit replay --json` prints, as plain values. Raises what `batch_of` and `gradient` raise."""
    about, (prompts, size) = recording.about, recording["mass"].shape
    own: ReplayRequest | None = None
    with suppress(ValueError):  # the recorded objective cannot be loaded again
        own = make_request(recording, trust=request.trusted)
    batch = batch_of(request.objective, recording)
    points: dict[str, Any] = {}
    gradients: dict[str, Gradient] = {}
    for name in POINTS:
        try:
            where = point(recording, name)
            gradients[name] = gradient(request.objective, batch, where, about["ministeps"], size, about["sampled"])
            points[name] = gradient_statistics(gradients[name]) | compare_with_recorded(
                gradients[name], own, name, recording
            )
        except NotRecorded as reason:
            points[name] = {"missing": str(reason)}
    driving = gradients.get("seen", gradients.get("old"))
    rate = pass_rate(recording)
    return {
        "step": about["step"],
        "tier": about["tier"],
        "env": about["env"],
        "prompts": prompts,
        "group": size,
        "sampled": about["sampled"],
        "policy_version": about["version"],
        "pass_rate": None if rate is None else float(rate.mean()),
        "recorded": {
            "objective": about["objective"],
            "ministeps": about["ministeps"],
            **check_recorded(recording, own),
        },
        "objective": request.table,
        "anchor": anchor(request, recording),
        "points": points,
        "drivers": drivers(driving, recording) if driving is not None else [],
    }


def anchor(request: ReplayRequest, recording: Recording) -> str:
    """The policy that log-ratios are measured from."""
    if not traits(request.objective).uses_reference:
        return "pi_old"
    return "the reference policy" if recording.get("logp_ref") is not None else "pi_old, no reference was recorded"


def check_recorded(recording: Recording, own: ReplayRequest | None) -> dict[str, Any]:
    """The losses that the run reported, and those recomputed from the recording for the same request."""
    reported = [update["loss"] for update in recording.about["updates"]]
    found: dict[str, Any] = {"losses": reported, "replayed": None, "why": None}
    if own is None:
        return found | {"why": "the recorded objective cannot be loaded again here"}
    size, batch = recording["mass"].shape[1], batch_of(own.objective, recording)
    nothing = not bool((batch.weight != 0).any())  # all groups have equal rewards, and the run dropped them
    try:
        where = point(recording, "old" if nothing else "seen")
        again = gradient(own.objective, batch, where, recording.about["ministeps"], size)
    except NotRecorded as reason:
        return found | {"why": str(reason)}
    return found | {"replayed": again.losses}


def gradient_statistics(here: Gradient) -> dict[str, Any]:
    """Statistics of a gradient with respect to log-probabilities, for the mean over updates, like the loss in
    metrics.jsonl. Descent raises log-probabilities with a negative gradient."""
    size = here.moving.abs().sum()
    up = float((-here.moving).clamp_min(0).sum() / size) if size > NOTHING else None
    counted = int(here.counted.sum())
    silent = int(((here.values == 0) & here.counted).sum())
    return {
        "loss": sum(here.losses) / len(here.losses),
        "losses": here.losses,
        "norm": float(here.moving.norm()) / len(here.losses),
        "up": up,
        "silent": silent / counted if counted else None,
        "rows": here.rows[0],
        "rows_missing": here.rows[1] - here.rows[0],
    }


def compare_with_recorded(here: Gradient, own: ReplayRequest | None, name: str, recording: Recording) -> dict[str, Any]:
    """How the gradient compares with that of the recorded objective at the same policy."""
    nothing: dict[str, Any] = {"cosine": None, "scale": None}
    if own is None:
        return nothing
    try:
        batch = batch_of(own.objective, recording)
        size, about = recording["mass"].shape[1], recording.about
        where = point(recording, name)
        other = gradient(own.objective, batch, where, about["ministeps"], size, about["sampled"])
    except NotRecorded:
        return nothing
    norms = [float(one.moving.norm()) / len(one.losses) for one in (here, other)]
    return {
        "cosine": cosine(here.moving, other.moving),
        "scale": norms[0] / norms[1] if norms[1] > NOTHING else None,
    }


def cosine(one: torch.Tensor, other: torch.Tensor) -> float | None:
    """Cosine of two gradients as vectors over tokens; None if one is 0."""
    norms = one.norm() * other.norm()
    return float((one * other).sum() / norms) if norms > 1e-24 else None


def drivers(here: Gradient, recording: Recording) -> list[dict[str, Any]]:
    """The prompts with the largest gradients: their share of the sum of absolute values."""
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


def pass_rate(recording: Recording) -> torch.Tensor | None:
    """[P] share of right responses under pi_old; None if rewards do not pass or fail."""
    passed = recording.about.get("passed")
    return None if passed is None else (recording["mass"] * (recording["reward"] > passed)).sum(1)
