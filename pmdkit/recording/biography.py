"""The story of one response under an objective, from its reward to the gradient on its tokens. Numbers; no printing.

What kind of loss it is, is found out in regression.py.
"""

import re
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import UsageError
from pmdkit.objectives import Objective
from pmdkit.objectives.vocabulary import Batch
from pmdkit.recording.format import Recording
from pmdkit.recording.gradient import Order, gradient
from pmdkit.recording.points import POINTS, NotRecorded, Point, batch_of, point
from pmdkit.recording.question import Question
from pmdkit.recording.regression import pulled_to
from pmdkit.recording.words import Words

FORMULA = re.compile(r"\$\$(.*?)\$\$", re.DOTALL)


def biography(recording: Recording, question: Question, row: int, words: Words) -> dict[str, Any]:
    """Everything that `pmdkit replay --row` tells, as plain values.

    Args:
        recording, question: as for `replay`.
        row: from 0, prompt-major: row 17 of groups of 16 is the second response to the second prompt.
        words: how rows read.

    Raises:
        UsageError: there is no such row.
    """
    (prompts, size), rows = recording["mass"].shape, len(recording.mask)
    if not 0 <= row < rows:
        raise UsageError(f"row is {row}; expected 0 to {rows - 1}: the step has {prompts} prompts of {size} responses")
    prompt, k = divmod(row, size)
    batch = batch_of(question.objective, recording)
    mass, reward = recording["mass"][prompt], recording["reward"][prompt]
    scored, passed = bool(mass[k] > 0), recording.about.get("passed")
    parts = question.order.parts()
    update = next(n for n, part in enumerate(parts) if prompt in part.tolist())
    standardised = getattr(question.objective, "std", "none") != "none"
    path = {name: stage(question, recording, batch, name, row) for name in POINTS}
    at = "seen" if "missing" not in path["seen"] and in_order(question.order, recording) else "old"
    story = path[at]
    return {
        "row": row,
        "prompt": prompt,
        "response": k,
        "prompt_text": words.prompt(prompt),
        "response_text": words.response(row),
        "text_note": words.note,
        "formula": formula(question.objective),
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
        "norm": str(question.objective.norm),
        "weight": float(batch.weight[row]) * prompts / len(parts[update]),
        "update": update + 1,
        "updates": len(parts),
        "at": at,
        "path": {name: {k: v for k, v in stage.items() if k != "pull"} for name, stage in path.items()},
        "tokens": [] if "missing" in story else tokens(recording, at, story["pull"], row, words),
    }


def in_order(order: Order, recording: Recording) -> bool:
    """Whether the updates are those of the run."""
    same = torch.equal(order.prompts, torch.arange(len(order.prompts)))
    return same and order.ministeps == recording.about["ministeps"]


def stage(question: Question, recording: Recording, batch: Batch, name: str, row: int) -> dict[str, Any]:
    """Log-ratio, residual, loss and gradient of the row at a point; `missing` says why there is none."""
    try:
        where = point(recording, name)
        if not bool(where.known[row]):
            raise NotRecorded("not recorded: this row was not scored here")
        size = recording["mass"].shape[1]
        here = gradient(question.objective, batch, where, question.order, size)
        pull = here.values[row]
        own = pull[recording.mask[row]]
        return {
            "log_ratio": log_ratio(batch, where, row),
            **pulled_to(question.objective, batch, where, row, size),
            "gradient": float(own[0]) if bool((own == own[0]).all()) else None,  # the same on each token, or one each
            "gradient_sum": float(own.sum()),
            "share": float(here.values[row].abs().sum() / here.values.abs().sum().clamp_min(1e-300)),
            "pull": pull,
        }
    except NotRecorded as reason:
        return {"missing": str(reason)}


def log_ratio(batch: Batch, where: Point, row: int) -> float:
    """log pi/pi_old of the row, nats."""
    mask = batch.mask[row]
    old = torch.where(mask, batch.logp_old[row], 0.0).double()
    logp = where.logp[row].double()
    return float(logp.sum() - old.sum()) if where.sums else float(torch.where(mask, logp - old, 0.0).sum())


def tokens(recording: Recording, at: str, pull: Tensor, row: int, words: Words) -> list[dict[str, Any]]:
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
    """The equation in the docstring of an objective, as TeX in one line."""
    match = FORMULA.search(type(objective).__doc__ or "")
    return " ".join(match[1].split()) if match else None
