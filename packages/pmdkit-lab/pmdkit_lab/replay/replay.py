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
from pmdkit_lab.replay.gradient import POINTS, Gradient, NotRecorded, batch_of, gradient, point

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
    found = gradients(request.objective, recording)
    recorded = {} if own is None else gradients(own.objective, recording)
    # the losses that the run reported are compared with those recomputed from the recording for the same objective
    again: Gradient | str = "the recorded objective cannot be loaded again here"
    if recorded:
        again = recorded["old"]
        if isinstance(again, str) or again.rows[1]:  # else all groups have equal rewards, and the run dropped them
            again = recorded["seen"]
    driving = found["old"] if isinstance(found["seen"], str) else found["seen"]
    rate, anchor = pass_rate(recording), "pi_old"  # the policy that log-ratios are measured from
    if traits(request.objective).uses_reference:
        kept = recording.get("logp_ref") is not None
        anchor = "the reference policy" if kept else "pi_old, no reference was recorded"
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
            "losses": [update["loss"] for update in about["updates"]],
            "replayed": None if isinstance(again, str) else again.losses,
            "why": again if isinstance(again, str) else None,
        },
        "objective": request.table,
        "anchor": anchor,
        "points": {name: at_point(here, recorded.get(name)) for name, here in found.items()},
        "drivers": [] if isinstance(driving, str) else drivers(driving, recording),
    }


def gradients(objective: Objective, recording: Recording) -> dict[str, Gradient | str]:
    """The gradient at each recorded policy, or what is missing there."""
    batch, about, size = batch_of(objective, recording), recording.about, recording["mass"].shape[1]
    found: dict[str, Gradient | str] = {}
    for name in POINTS:
        try:
            where = point(recording, name)
            found[name] = gradient(objective, batch, where, about["ministeps"], size, about["sampled"])
        except NotRecorded as missing:
            found[name] = str(missing)
    return found


def at_point(here: Gradient | str, recorded: Gradient | str | None) -> dict[str, Any]:
    """Statistics of the gradient at one policy, and how it compares with that of the recorded objective there.

    They are for the mean over updates, like the loss in metrics.jsonl.
    """
    if isinstance(here, str):
        return {"missing": here}
    size, norm = here.moving.abs().sum(), float(here.moving.norm()) / len(here.losses)
    # descent raises log-probabilities with a negative gradient
    up = float((-here.moving).clamp_min(0).sum() / size) if size > NOTHING else None
    counted = int(here.counted.sum())
    silent = int(((here.values == 0) & here.counted).sum())
    alike, scale = None, None
    if isinstance(recorded, Gradient):
        other = float(recorded.moving.norm()) / len(recorded.losses)
        scale = norm / other if other > NOTHING else None
        if (norms := here.moving.norm() * recorded.moving.norm()) > 1e-24:
            alike = float((here.moving * recorded.moving).sum() / norms)  # as vectors over tokens
    return {
        "loss": sum(here.losses) / len(here.losses),
        "losses": here.losses,
        "norm": norm,
        "up": up,
        "silent": silent / counted if counted else None,
        "rows": here.rows[0],
        "rows_missing": here.rows[1] - here.rows[0],
        "cosine": alike,
        "scale": scale,
    }


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
