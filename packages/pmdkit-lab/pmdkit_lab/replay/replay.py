"""A recorded step under any objective: losses, gradient statistics and the push on every response, as plain numbers.

Results at the recorded policies are exact; nothing is claimed about others. Where a step comes from, a run of pmdkit or
another trainer's dump (dumps.py), makes no difference here; the latter has no recorded objective.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

import torch

from pmdkit.errors import UsageError
from pmdkit.objectives import OBJECTIVES, Groups, Objective, load_objective, temperature, traits
from pmdkit.plugins import Trust, Trusted, is_path
from pmdkit.population_solution import has_solution, solve
from pmdkit.recording import Recording
from pmdkit_lab.explain.entropy import entropy_of_batch
from pmdkit_lab.replay.gradient import POINTS, Gradient, NotRecorded, batch_of, gradient, log_ratio, point

DRIVERS = 5  # prompts listed
ZERO_GRAD_TOL = 1e-12  # a smaller gradient is rounding error
WIDEST = 1e12  # spread of the rewards of a group over tau; beyond it float64 has no digits left for the solver
BESIDE = ("pmd-mean", "pmd-part", "grpo")  # objectives to replay if none is recorded or named


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
    """The request for a replay; options that are left out are as recorded.

    Args:
        recording: the recording of the step.
        objective, options: a name in OBJECTIVES or "my.py:MyLoss"; another objective keeps the recorded tau if it has
            that option.
        trust: files such as my.py that the recording names and whose code may run.

    Raises:
        UsageError: the recorded objective cannot be loaded again, or an option is unknown.
    """
    trusted = Trusted.of(trust, objective, options)
    table = dict(recording.about["objective"] or {"name": BESIDE[0]})
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


def make_requests(
    recording: Recording,
    objective: str | None = None,
    options: Mapping[str, Any] | None = None,
    trust: Trust = (),
) -> list[ReplayRequest]:
    """The requests for a replay: one, or those of BESIDE, each with the options that it has. As for `make_request`."""
    chosen_options = options or {}
    if objective is not None or own_objective(recording):
        return [make_request(recording, objective, chosen_options, trust)]
    has = {name: {field.name for field in fields(load_objective(name))} for name in BESIDE}  # type: ignore[arg-type]
    some = set[str]().union(*has.values())  # an option that none has is refused by the first
    own = {
        name: {key: value for key, value in chosen_options.items() if key in has[name] or key not in some}
        for name in BESIDE
    }
    return [make_request(recording, name, own[name], trust) for name in BESIDE]


def own_objective(recording: Recording) -> bool:
    """Whether an objective of pmdkit, or a file with one, is recorded; other trainers have losses of their own."""
    name = (recording.about["objective"] or {}).get("name")
    return name is not None and (is_path(name) or name in OBJECTIVES)


def replay(recording: Recording, request: ReplayRequest, *beside: ReplayRequest) -> dict[str, Any]:
    """Everything that `pmdkit replay --json` prints, as plain values.

    Gradients are compared with those of the recorded objective, or of the first request where none is recorded.

    Raises:
        UsageError: two requests have one name, which tells pushes apart; and what `batch_of` and `gradient` raise.
    """
    names = [each.name for each in (request, *beside)]
    if len(set(names)) < len(names):
        raise UsageError(f"got {', '.join(names)}; expected each name once: replay the same objective in two calls")
    about, (prompts, size) = recording.about, recording["mass"].shape
    own: ReplayRequest | None = None
    if own_objective(recording):
        with suppress(ValueError):  # the recorded objective cannot be loaded again
            own = make_request(recording, trust=request.trusted)
    asked = {each.name: (each, gradients(each.objective, recording)) for each in (request, *beside)}
    points = asked[request.name][1]
    recorded = {} if own is None else gradients(own.objective, recording)
    # the losses that the run reported are compared with those recomputed from the recording for the same objective
    again: Gradient | str = "the recorded objective cannot be loaded again here"
    if recorded:
        again = recorded["old"]
        if isinstance(again, str) or again.rows[1]:  # else all groups have equal rewards, and the run dropped them
            again = recorded["seen"]
    driving = points["old"] if isinstance(points["seen"], str) else points["seen"]
    compared = recorded or points
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
        "recorded": None
        if about["objective"] is None
        else {
            "objective": about["objective"],
            "ministeps": about["ministeps"],
            "losses": [update["loss"] for update in about["updates"]],
            "replayed": None if isinstance(again, str) else again.losses,
            "why": again if isinstance(again, str) else None,
        },
        "objective": request.table,
        "anchor": anchor,
        "compared_with": request.name if own is None else f"the recorded {own.name}",
        "points": {name: at_point(here, compared[name]) for name, here in points.items()},
        "entropy": entropy(points["old"], recording),
        "beside": [
            {
                "objective": each.table,
                "points": {name: at_point(x, compared[name]) for name, x in there.items()},
                "entropy": entropy(there["old"], recording),
            }
            for each, there in list(asked.values())[1:]
        ],
        "drivers": [] if isinstance(driving, str) else drivers(driving, recording),
        "responses": responses(recording, asked),
    }


def gradients(objective: Objective, recording: Recording) -> dict[str, Gradient | str]:
    """The gradient at each recorded policy, or what is missing there."""
    batch, about, size = batch_of(objective, recording), recording.about, recording["mass"].shape[1]
    points: dict[str, Gradient | str] = {}
    for name in POINTS:
        try:
            where = point(recording, name)
            points[name] = gradient(objective, batch, where, about["ministeps"], size, about["sampled"])
        except NotRecorded as missing:
            points[name] = str(missing)
    return points


def at_point(here: Gradient | str, recorded: Gradient | str | None) -> dict[str, Any]:
    """Statistics of the gradient at one policy, and its comparison with the recorded objective's gradient there.

    They are for the mean over updates, like the loss in metrics.jsonl.
    """
    if isinstance(here, str):
        return {"missing": here}
    size, norm = here.moving.abs().sum(), float(here.moving.norm()) / len(here.losses)
    # descent raises log-probabilities with a negative gradient
    up = float((-here.moving).clamp_min(0).sum() / size) if size > ZERO_GRAD_TOL else None
    counted = int(here.counted.sum())
    silent = int(((here.values == 0) & here.counted).sum())
    alike, scale = None, None
    if isinstance(recorded, Gradient):
        other = float(recorded.moving.norm()) / len(recorded.losses)
        scale = norm / other if other > ZERO_GRAD_TOL else None
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


def entropy(here: Gradient | str, recording: Recording) -> dict[str, float] | None:
    """Change of the entropy by the first step of these draws, and its standard error, nats per unit of step.

    None for the full support, and for one prompt, which has no such error.
    """
    mass, mask = recording["mass"], recording.mask
    if isinstance(here, str) or not recording.about["sampled"] or len(mass) < 2:
        return None
    logp = torch.where(mask, recording["logp_old"], 0.0).double().sum(1).view(mass.shape)
    slope = (here.coefficient / mask.sum(1).clamp_min(1)).view(mass.shape)
    change, error = entropy_of_batch(slope, logp.where(mass > 0, torch.nan))
    return {"change": change, "error": error}


def responses(
    recording: Recording, asked: Mapping[str, tuple[ReplayRequest, Mapping[str, Gradient | str]]]
) -> list[dict[str, Any]]:
    """Every response: its reward, how far it moved, and the push of each objective on it.

    `push` is minus the mean slope of its tokens, -d total / d log pi(y|x) for a loss per response, by objective and
    policy. `exact` is its log-ratio under the exact update of its group, nats; see `exact_update`.
    """
    mass, length = recording["mass"].flatten(), recording.mask.sum(1)
    unknown = torch.full(mass.shape, torch.nan, dtype=torch.float64)
    known, moved = {}, {}
    for name in POINTS:
        with suppress(NotRecorded):
            where = point(recording, name)
            known[name], moved[name] = where.known, log_ratio(recording, where)
    push = {
        name: {
            at: unknown if isinstance(here, str) else torch.where(known[at], -here.coefficient / length, torch.nan)
            for at, here in there.items()
        }
        for name, (_, there) in asked.items()
    }
    exact = {name: exact_update(each.objective, recording).flatten() for name, (each, _) in asked.items()}

    def at(n: int, values: Mapping[str, torch.Tensor]) -> dict[str, float | None]:
        return {name: None if x[n].isnan() else float(x[n]) for name, x in values.items()}

    return [
        {
            "prompt": n // recording["mass"].shape[1],
            "row": n,
            "reward": float(recording["reward"].flatten()[n]) if mass[n] > 0 else None,
            "tokens": int(length[n]),
            "log_ratio": at(n, {name: x for name, x in moved.items() if name != "old"}),
            "push": {name: at(n, values) for name, values in push.items()},
            "exact": at(n, exact),
        }
        for n in torch.nonzero(length).flatten().tolist()
    ]


def exact_update(objective: Objective, recording: Recording) -> torch.Tensor:
    """[P, G] log-ratios of the exact update of each group, nats, as if its responses were all there are.

    On the full support, that is the update of the step. NaN where no response has a verdict, where rewards are too far
    apart for its digits (`WIDEST`), and for an objective without a known solution, or with a reference policy as its
    anchor.
    """
    reward, mass = recording["reward"].double(), recording["mass"].double()
    log_ratios = torch.full_like(mass, torch.nan)
    if has_solution(objective) and not traits(objective).uses_reference:
        tau = temperature(objective, Groups(reward, mass, recording.about["sampled"]))
        drawn = mass > 0
        wide = reward.masked_fill(~drawn, -torch.inf).amax(1) - reward.masked_fill(~drawn, torch.inf).amin(1)
        there = drawn.any(1) & (wide <= WIDEST * tau)
        log_pi = (mass[there] / mass[there].sum(1, keepdim=True)).log()
        length = recording.mask.sum(1).clamp_min(1).view(mass.shape)[there]
        solution = solve(objective, log_pi, log_pi, reward[there], tau[there], length)
        log_ratios[there] = torch.from_numpy(solution.log_ratio)
    return torch.where(mass > 0, log_ratios, torch.nan)


def drivers(here: Gradient, recording: Recording) -> list[dict[str, Any]]:
    """The prompts with the largest gradients, each with its share of the step's sum of absolute gradients."""
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
