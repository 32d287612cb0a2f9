"""The story of one response under an objective, from its reward to the gradient on its tokens, as plain numbers.

The kind of loss, a regression with a target or one that comes to rest at some log-ratio, is found by evaluating the
loss, so that a user's own loss is described in the same way.
"""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch

from pmdkit.errors import UsageError
from pmdkit.objectives import Batch, Objective, parts, traits
from pmdkit.randomness import generator
from pmdkit.recording import Recording
from pmdkit_lab.replay.gradient import POINTS, NotRecorded, PolicyPoint, batch_at, batch_of, gradient, point
from pmdkit_lab.replay.recorded import RecordingText
from pmdkit_lab.replay.replay import ReplayRequest

FORMULA = re.compile(r"\$\$(.*?)\$\$", re.DOTALL)
FAR = 30.0  # nats within which a resting point is searched
FINE = 1001  # points of a grid in that search


def biography(recording: Recording, request: ReplayRequest, row: int, words: RecordingText) -> dict[str, Any]:
    """Everything that `pmdkit replay --row` shows, as plain values.

    Rows count from 0, prompt-major: row 17 of groups of 16 is the second response to the second prompt.
    """
    (prompts, size), rows = recording["mass"].shape, len(recording.mask)
    if not 0 <= row < rows:
        raise UsageError(f"row is {row}; expected 0 to {rows - 1}: the step has {prompts} prompts of {size} responses")
    prompt, k = divmod(row, size)
    batch = batch_of(request.objective, recording)
    mass, reward = recording["mass"][prompt], recording["reward"][prompt]
    scored, passed = bool(mass[k] > 0), recording.about.get("passed")
    cuts = list(parts(prompts, request.ministeps))
    update = next(n for n, part in enumerate(cuts) if prompt < part.stop)
    standardised = getattr(request.objective, "std", "none") != "none"
    path = {name: stage(request, recording, batch, name, row) for name in POINTS}
    same = len(cuts) == recording.about["ministeps"]
    at = "seen" if same and "missing" not in path["seen"] else "old"  # other updates would have seen other policies
    story = path[at]
    return {
        "row": row,
        "prompt": prompt,
        "response": k,
        "prompt_text": words.prompt(prompt),
        "response_text": words.response(row),
        "text_note": words.note,
        "formula": formula(request.objective),
        "reward": float(reward[k]) if scored else None,
        "right": bool(reward[k] > passed) if scored and passed is not None else None,
        "group": {
            "responses": int((mass > 0).sum()),
            "mean_reward": float((mass * reward).sum()),
            "pass_rate": None if passed is None else float((mass * (reward > passed)).sum()),
        },
        "baseline": float(reward[k] - batch.advantage[row]) if scored and not standardised else None,
        "advantage": float(batch.advantage[row]),
        "tau": None if bool(torch.isnan(batch.tau[row])) else float(batch.tau[row]),
        "mass": float(mass[k]),
        "length": int(recording.mask[row].sum()),
        "norm": str(request.objective.norm),
        "weight": float(batch.weight[row]) * prompts / (cuts[update].stop - cuts[update].start),
        "update": update + 1,
        "updates": len(cuts),
        "at": at,
        "path": {name: {k: v for k, v in stage.items() if k != "pull"} for name, stage in path.items()},
        "tokens": [] if "missing" in story else tokens(recording, at, story["pull"], row, words),
    }


def stage(request: ReplayRequest, recording: Recording, batch: Batch, name: str, row: int) -> dict[str, Any]:
    """Log-ratio, residual, loss and gradient of the row at a recorded policy; `missing` says why there are none."""
    try:
        where = point(recording, name)
        if not bool(where.known[row]):
            raise NotRecorded("not recorded: this row was not scored here")
        size = recording["mass"].shape[1]
        here = gradient(request.objective, batch, where, request.ministeps, size)
        pull = here.values[row]
        own = pull[recording.mask[row]]
        return {
            "log_ratio": log_ratio(batch, where, row),
            **regression_target(request.objective, batch, where, row, size),
            "gradient": float(own[0]) if bool((own == own[0]).all()) else None,  # only if it is the same on every token
            "gradient_sum": float(own.sum()),
            "share": float(here.values[row].abs().sum() / here.values.abs().sum().clamp_min(1e-300)),
            "pull": pull,
        }
    except NotRecorded as reason:
        return {"missing": str(reason)}


def log_ratio(batch: Batch, where: PolicyPoint, row: int) -> float:
    """log pi/pi_old of the row, nats."""
    mask = batch.mask[row]
    old = torch.where(mask, batch.logp_old[row], 0.0).double()
    logp = where.logp[row].double()
    return float(logp.sum() - old.sum()) if where.sums else float(torch.where(mask, logp - old, 0.0).sum())


def tokens(recording: Recording, at: str, pull: torch.Tensor, row: int, words: RecordingText) -> list[dict[str, Any]]:
    """Each token with its log-probabilities and its gradient."""
    mask = recording.mask[row]
    ids = recording["responses"][row][mask].tolist()
    old = recording["logp_old"][row][mask].tolist()
    now = recording.get(f"logp_{at}")
    per_token = now is not None and now.ndim == 2
    logp = now[row][mask].tolist() if now is not None and per_token else [None] * len(ids)
    return [
        {"token": token, "text": words.token(token), "logp_old": before, "logp": after, "gradient": value}
        for token, before, after, value in zip(ids, old, logp, pull[mask].tolist(), strict=True)
    ]


def formula(objective: Objective) -> str | None:
    """The equation in an objective's docstring, as TeX on one line."""
    match = FORMULA.search(type(objective).__doc__ or "")
    return " ".join(match[1].split()) if match else None


def regression_target(objective: Objective, batch: Batch, where: PolicyPoint, row: int, size: int) -> dict[str, Any]:
    """The loss of a row and where it pulls to: target and residual of a regression, else the resting log-ratio."""
    group = slice(row // size * size, (row // size + 1) * size)
    whole = batch_at(objective, batch[group], PolicyPoint(where.logp[group], where.known[group], where.sums))
    mine = int(where.known[group.start : row].sum())
    loss = objective.loss(whole).detach().double()
    found: dict[str, Any] = dict.fromkeys(("target", "residual", "anchor", "rest"))
    found |= {"loss": float(loss[mine].sum()), "per_token": loss.ndim == 2}
    if loss.ndim == 2:
        return found
    anchor = None if bool(torch.isnan(whole.tau).any()) else regressed_on(objective, whole)
    if anchor is None:
        return found | {"rest": resting_log_ratio(objective, whole[mine : mine + 1])}
    advantage, tau = whole.advantage.double(), whole.tau.double()
    residual = advantage - tau * ANCHORS[anchor](whole)
    target = float(advantage[mine] / tau[mine])
    return found | {"target": target, "residual": float(residual[mine]), "anchor": anchor}


ANCHORS: dict[str, Callable[[Batch], torch.Tensor]] = {
    "pi_old": lambda b: b.seq_log_ratio,
    "the group's mean": lambda b: b.centred(b.seq_log_ratio),
    "the reference policy": lambda b: b.seq_log_ratio_ref,
    "the group's mean over the reference policy": lambda b: b.centred(b.seq_log_ratio_ref),
}
"What the log-ratios s of responses may be measured from."


def regressed_on(objective: Objective, batch: Batch) -> str | None:
    """The anchor for which the loss of a group is (A - tau s)^2 over tau or 2 tau; None if it is no such square.

    Tested with random numbers: in a group where nothing has moved yet, all anchors agree.
    """
    rng = generator(0, "anchor")
    probe = batch.folded()
    count = len(probe.logp)
    advantage, s = (torch.from_numpy(rng.normal(size=count)) for _ in range(2))
    probe = replace(probe, advantage=advantage, logp=probe.logp_old + s[:, None])
    loss = objective.loss(probe).detach().double()
    for name, of in ANCHORS.items():
        square = (advantage - probe.tau.double() * of(probe)) ** 2 / probe.tau.double()
        if any(torch.allclose(loss, square / half, rtol=1e-6, atol=1e-9) for half in (1, 2)):
            return name
    return None


def resting_log_ratio(objective: Objective, row: Batch) -> float | None:
    """The nearest log-ratio, downhill from 0, where the loss of one response stops pulling; None if there is none."""
    if traits(objective).whole_groups or float(row.advantage) == 0:
        return None
    first = loss_slope(objective, row, torch.zeros(1, dtype=torch.float64))
    way = -1.0 if float(first) > 0 else 1.0
    low, high = 0.0, FAR
    for _ in range(3):  # each pass is a thousand times finer
        s = torch.linspace(low, high, FINE, dtype=torch.float64)
        ended = (way * loss_slope(objective, row, way * s) >= 0).nonzero()
        if not len(ended) or int(ended[0]) == 0:
            return None
        low, high = float(s[int(ended[0]) - 1]), float(s[int(ended[0])])
    return way * (low + high) / 2


def loss_slope(objective: Objective, row: Batch, s: torch.Tensor) -> torch.Tensor:
    """[n] derivative of the loss of one response with respect to its log-probability, at n log-ratios."""
    folded = row.folded()
    values = {field.name: getattr(folded, field.name) for field in fields(folded)}
    many: dict[str, Any] = {k: None if x is None else x.expand(len(s), *x.shape[1:]) for k, x in values.items()}
    logp = (many["logp_old"] + s[:, None]).requires_grad_()
    with torch.enable_grad():
        (found,) = torch.autograd.grad(objective.loss(Batch(**many | {"logp": logp})).sum(), logp)
    return found[:, 0]
