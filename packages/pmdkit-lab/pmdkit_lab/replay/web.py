"""A recorded run as one JSON file, `biography.json`, for the page *Biography of a prompt* in the browser.

The file holds prompts with the responses of every recorded step that asked them: text, reward, length, log-ratios. It
has no gradients: the page computes them for any objective, as `pmdkit_lab.replay.gradient` does here. Texts come from
the run and are escaped as for a terminal; a page that shows them must not interpret them as HTML.
"""

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import UsageError, printable
from pmdkit.objectives import Groups, parts
from pmdkit.observe import files
from pmdkit.observe.run_folder import RunFolder
from pmdkit.recording import Recording
from pmdkit_lab import json_values
from pmdkit_lab.dumps.recorded import RecordingText, open_step, recorded_steps
from pmdkit_lab.replay.gradient import NotRecorded, log_ratio, point, rollouts_of

WEB_FORMAT = 1
NAME = "biography.json"
MOST_BYTES = 2_000_000  # size of the file, so that the page loads quickly
PROMPTS = 12  # more would be too many to scroll through
MAX_TEXT_CHARS = 4_000  # longer texts are cut


@dataclass
class PromptHistory:
    """One prompt: its name in the run, its text, and its group in each recorded step that used it."""

    name: str
    text: str
    groups: list[dict[str, Any]] = field(default_factory=list)

    @property
    def interest(self) -> tuple[int, float]:
        """Sort key of the prompts to keep first: prompts of many steps, then prompts whose rewards differ most."""
        rewards = [[value for value in group["reward"] if value is not None] for group in self.groups]
        spread = [max(known) - min(known) for known in rewards if known]
        return len(self.groups), sum(spread)


def write_web(run: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Write FOLDER/biography.json from all recorded steps of a run; returns its path and what it holds.

    Raises:
        UsageError: nothing was recorded, a recording cannot be read, or one prompt alone is larger than MOST_BYTES.
    """
    data = run_as_json(run)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    files.write(path, (encode(data) + "\n").encode(), files.PUBLIC)
    return path, data


def run_as_json(run: Path, most: int = MOST_BYTES) -> dict[str, Any]:
    """The contents of the file, as JSON values: the most interesting prompts, as many as fit."""
    open_step(run)  # raises if something is wrong with the folder
    steps = recorded_steps(RunFolder(run))
    about: dict[str, Any] = {}
    histories: dict[str, PromptHistory] = {}
    for step in steps:
        recording = open_step(run, step)
        about = recording.about
        words = RecordingText(recording, run)
        problems = about.get("problems")
        for number, group in enumerate(groups_of(recording, words)):
            text = words.prompt(number)
            name = text if problems is None else problems[number]
            text = text.removeprefix(f"{name}: ")
            histories.setdefault(f"{name}: {text}", PromptHistory(readable(name), readable(text))).groups.append(group)
    ranked = sorted(histories.values(), key=lambda history: history.interest, reverse=True)
    simple = (str, int, float, bool, type(None))
    head: dict[str, Any] = {
        "format": WEB_FORMAT,
        "run": readable(run.resolve().name),
        "tier": about["tier"],
        "env": readable(str(about["env"])),
        # a rule for tau, which the page cannot use, as text
        "objective": {k: v if isinstance(v, simple) else readable(repr(v)) for k, v in about["objective"].items()},
        "sampled": about["sampled"],
        "drop_equal_groups": bool(about["drop_equal_groups"]),
        "width": about["width"],
        "passed": about.get("passed"),
        "prompts_in_run": len(ranked),
    }
    kept: list[dict[str, Any]] = []
    size = len(encode(head))
    often = len(ranked[0].groups) / 2  # beside prompts with a history, prompts of one step say little
    for history in [each for each in ranked if len(each.groups) >= often][:PROMPTS]:
        prompt = {"name": history.name, "text": history.text, "groups": history.groups}
        size += len(encode(prompt)) + 1
        if size > most:
            break
        kept.append(prompt)
    if not kept:
        raise UsageError(
            f"one prompt of {run} takes {size:,} bytes; expected at most {most:,}: record fewer steps (run.record=10), "
            "or smaller groups"
        )
    return head | {"prompts": kept}


def groups_of(recording: Recording, words: RecordingText) -> list[dict[str, Any]]:
    """The groups of a step, one for each prompt, in the order of the step."""
    rollouts, reward = rollouts_of(recording), recording["reward"]
    prompts, size = recording["mass"].shape
    groups = Groups(reward, recording["mass"], rollouts.sampled)
    share = recording["mass"] / recording["mass"].sum(1, keepdim=True).clamp_min(1e-300)
    length = recording.mask.sum(1).view(prompts, size)
    tokens = float((torch.where(groups.scored[:, None], share, 0.0) * length).sum())
    update_of = {
        number: (n + 1, part.stop - part.start)
        for n, part in enumerate(parts(prompts, recording.about["ministeps"]))
        for number in range(prompts)[part]
    }
    mass = groups.mass.flatten().tolist()
    columns: dict[str, list[Any]] = {
        "text": [readable(words.response(row)) for row in range(prompts * size)],
        "reward": [value if own > 0 else None for value, own in zip(reward.flatten().tolist(), mass, strict=True)],
        "mass": mass,
        "length": length.flatten().tolist(),
        **log_ratios(recording, "seen"),
        **log_ratios(recording, "after"),
    }
    if rollouts.logp_ref is not None:
        moved = torch.where(recording.mask, recording["logp_old"] - rollouts.logp_ref, 0.0)
        columns["anchor"] = moved.double().sum(1).tolist()
    if rollouts.correction is not None:
        by_token = rollouts.correction.ndim == 2
        columns["correction_tokens" if by_token else "correction"] = (
            packed(rollouts.correction, recording.mask) if by_token else rollouts.correction.flatten().tolist()
        )
    tables = []
    for number in range(prompts):
        rows = slice(number * size, (number + 1) * size)
        update, of = update_of[number]
        group: dict[str, Any] = {
            "step": recording.about["step"], "update": update, "of": of, "prompts": prompts, "tokens": tokens,
        }  # fmt: skip
        group |= {name: values[rows] for name, values in columns.items()}
        tables.append({name: value for name, value in group.items() if value != [None] * size or name == "reward"})
    return tables


def log_ratios(recording: Recording, name: str) -> dict[str, list[Any]]:
    """Columns of one recorded policy: `seen` is log pi/pi_old of the responses, `seen_tokens` that of their tokens.

    None where a row, or the whole policy, was not recorded; tokens are None if only sums were recorded.
    """
    nothing: list[Any] = [None] * len(recording.mask)
    try:
        where = point(recording, name)
    except NotRecorded:
        return {name: nothing, f"{name}_tokens": nothing}
    texts = nothing if where.sums else packed(where.logp - recording["logp_old"], recording.mask)
    known = where.known.tolist()
    return {
        name: [x if there else None for x, there in zip(log_ratio(recording, where).tolist(), known, strict=True)],
        f"{name}_tokens": [x if there else None for x, there in zip(texts, known, strict=True)],
    }


def packed(values: Tensor, mask: Tensor) -> list[str]:
    """The numbers of each response's tokens as little-endian float32 in base64: exact and compact."""
    return [
        base64.b64encode(row[there].float().numpy().astype("<f4").tobytes()).decode()
        for row, there in zip(values, mask, strict=True)
    ]


def readable(text: str) -> str:
    """A text of the run without control characters, cut to a maximum length."""
    shown = printable(text)
    return shown if len(shown) <= MAX_TEXT_CHARS else shown[:MAX_TEXT_CHARS] + " ..."


def encode(value: dict[str, Any]) -> str:
    """JSON without whitespace; numbers that are not finite become null, since JSON has none for them."""
    return json.dumps(json_values.plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
