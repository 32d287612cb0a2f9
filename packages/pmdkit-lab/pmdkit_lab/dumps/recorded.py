"""Read a recorded step, which `pmdkit.recording` writes, and show its rows as text."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from pmdkit import untrusted
from pmdkit.errors import UsageError, first_line, short
from pmdkit.observe.run_folder import RunFolder
from pmdkit.recording import KEY, MACHINES, RECORDING_FORMAT, TOKENS, Recording, checksum

AGAIN = "record the step again"
ROUNDING = 1e-3  # nats by which rounding may lift a log-probability above 0; sums over responses included
MAX_TOKENIZER = 128 * untrusted.MIB  # bytes; the largest on the hub have 35 MB
MAX_NUMBERS = 2**28  # in all tensors of a step, 2 GB: 4,096 responses of 8,192 tokens have 2**25 for each policy


ABOUT = untrusted.table(
    **dict.fromkeys(("tier", "env"), str),
    **dict.fromkeys(("step", "version", "width", "ministeps"), untrusted.Count),
    **dict.fromkeys(("sampled", "drop_equal_groups"), bool),
    seed=int,
    objective=untrusted.table(name=str),
    updates=list[untrusted.table(loss=untrusted.Number)],  # type: ignore[misc]
    passed=untrusted.Number | None,
)


def recorded_steps(folder: RunFolder) -> list[int]:
    """Steps that were recorded, in order."""
    names = (path.stem.removeprefix("step-") for path in folder.rollouts.glob("step-*.safetensors"))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def holds_run(path: Path) -> bool:
    """Whether a path is a run folder of pmdkit, or a folder in which recorded steps of pmdkit are."""
    folder = RunFolder(path)
    return folder.started or (os.path.isdir(folder.rollouts) and bool(recorded_steps(folder)))


def open_step(run: Path, step: int | None = None) -> Recording:
    """The recording of a step, by default the newest one.

    Raises:
        UsageError: there is no run, no recording, or none of this step, or the file is damaged or of another version.
    """
    folder = RunFolder(run)
    if not holds_run(run):
        raise UsageError(f"{run} is not a run folder of pmdkit (it has no config.json); give the folder of a run")
    steps = recorded_steps(folder)
    if not steps:
        raise UsageError(f"{run} has no recorded step; run it with --record, or --set run.record=10 for every tenth")
    if step is None:
        step = steps[-1]
    if step not in steps:
        raise UsageError(f"step {step} of {run} was not recorded; recorded are {short(steps)}: choose one with --step")
    path = folder.rollouts / f"step-{step}.safetensors"
    return decode(untrusted.read_bytes(path, untrusted.LARGE, "record the step again"), str(path))


def decode(data: bytes, where: str) -> Recording:
    """A recording from the bytes of a file; a UsageError if it is damaged, of another version, or not of a step."""
    recording = unpack(data, where)
    with untrusted.shaped(where, "a recording of a step", AGAIN):
        # the checksum finds damage, not a forged file; "passed" is absent if nothing passes or fails
        untrusted.check_fields({"passed": None, **recording.about}, ABOUT, where, AGAIN)
        check_tensors(recording)
        check_texts(recording)
    return recording


def unpack(data: bytes, where: str) -> Recording:
    """The contents of a recording, unchecked; a UsageError if it is truncated, damaged, or of another version."""
    try:
        outer = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        header = json.loads(outer["__metadata__"][KEY])
        about, stored = header["about"], load(data)
        bits = {name: tensor.reshape(-1).view(torch.uint8).numpy() for name, tensor in stored.items()}
        whole = checksum(MACHINES.encode(about), bits) == header["sha256"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as problem:
        raise UsageError(f"{where} is not a recording of a step ({first_line(problem)}); record it again") from problem
    with untrusted.shaped(where, "a recording of a step", AGAIN):
        if about["format"] != RECORDING_FORMAT:
            raise UsageError(f"{where} has format {short(about['format'])}; this pmdkit reads {RECORDING_FORMAT}")
        if not whole:
            raise UsageError(f"{where} does not match its checksum; it was changed or damaged: {AGAIN}")
        how = about.pop("tensors")
        # a few bytes can stand for a tensor of any shape, and for any number of tokens outside the mask
        numbers = {name: abs(math.prod(how[name].get("shape", tensor.shape))) for name, tensor in stored.items()}
        by_token = 1 + sum("rows" in how[name] for name in stored)
        total = sum(numbers.values()) + by_token * numbers["length"] * abs(about["columns"])
        if total > MAX_NUMBERS:
            raise ValueError(f"it stands for {short(total)} numbers; expected at most {MAX_NUMBERS:,}")
        flat = {}  # the inverse of `pmdkit.recording.narrow`, exact to the bit except for the sign of zero
        for name, tensor in stored.items():
            typed = tensor.to(getattr(torch, how[name]["dtype"]))
            flat[name] = typed.expand(how[name]["shape"]).clone() if "shape" in how[name] else typed
        length, columns = flat.pop("length"), about.pop("columns")
        mask = flat.pop("mask", torch.arange(columns) < length[:, None])
        tensors = {name: spread(x, mask, how[name].get("rows")) for name, x in flat.items()}
    return Recording(about, mask, tensors)


def check_tensors(recording: Recording) -> None:
    """Raise ValueError unless the tensors fit together and log-probabilities are at most 0."""
    mask, mass = recording.mask, recording["mass"]
    prompts, size = mass.shape
    if not (mass.isfinite().all() and (mass >= 0).all() and (mass > 0).any()):
        raise ValueError("mass does not hold weights of responses")
    if mask.dtype != torch.bool or len(mask) != prompts * size or not mask.any(1).all():
        raise ValueError(f"it has {len(mask)} rows for {prompts} prompts of {size} responses")
    if len(recording["prompts"]) != prompts or not 1 <= recording.about["ministeps"] <= prompts:
        raise ValueError(f"it names {len(recording['prompts'])} prompts; expected {prompts}, and no more updates")
    whole, sums = [mask.shape], mask.shape[:1]
    for name, shapes in {"reward": [mass.shape], "responses": whole, "logp_old": whole}.items():
        check_shape(name, recording[name], shapes)
    for name, tensor in recording.tensors.items():
        if name == "cut":
            check_shape(name, tensor, [sums])
        elif name in ("logp_ref", "correction"):
            check_shape(name, tensor, whole if name == "logp_ref" else [mask.shape, sums])
        elif name in TOKENS:
            check_shape(name, tensor, [(len(tensor), mask.shape[1]), sums] if len(tensor) <= len(mask) else whole)
        if name.startswith("logp_") and bool((tensor > ROUNDING).any()):
            raise ValueError(f"{name} holds {tensor.nan_to_num().max():.6g}; a log-probability is at most 0")


def check_shape(name: str, tensor: Tensor, shapes: Sequence[Sequence[int]]) -> None:
    """Raise ValueError unless a tensor has one of these shapes."""
    if list(tensor.shape) not in [list(shape) for shape in shapes]:
        raise ValueError(f"{name} has the shape {list(tensor.shape)}; expected {list(shapes[0])}")


def check_texts(recording: Recording) -> None:
    """Raise ValueError unless every prompt and response can be shown as text."""
    about, prompts = recording.about, len(recording["mass"])
    for name in ("vocabulary", "problems", "texts"):
        texts = about.get(name)
        if texts is not None and not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
            raise ValueError(f"{name} is {short(texts)}; expected a list of texts")
    golds = about.get("golds", [None] * prompts)
    if not isinstance(golds, list) or len(golds) != prompts or not all(isinstance(x, str | None) for x in golds):
        raise ValueError(f"golds is {short(golds)}; expected a text or null for each prompt")
    if len(about.get("texts") or recording.mask) != len(recording.mask):
        raise ValueError(f"it does not have {len(recording.mask)} texts")
    end = len(about["vocabulary"]) if about.get("vocabulary") is not None else 2**31
    for name in ("prompts", "responses", "prompt_tokens", "episode"):
        tokens = recording.get(name)
        if tokens is not None and not bool(((tokens >= 0) & (tokens < end)).all()):
            raise ValueError(f"{name} has tokens outside the vocabulary")
    if about.get("problems") is not None:
        lengths, tokens = recording["prompt_length"], recording["prompt_tokens"]
        check_shape("prompt_length", lengths, [(prompts,)])
        if len(about["problems"]) != prompts or bool((lengths < 0).any()) or int(lengths.sum()) != len(tokens):
            raise ValueError(f"it does not have {prompts} problems")
    if (episode := recording.get("episode")) is not None:
        check_shape("episode", episode, [(len(recording.mask), *episode.shape[1:])])


def spread(x: Tensor, mask: Tensor, rows: int | None) -> Tensor:
    """[n, T] from the tokens of the first n rows; tensors that are not per token are returned unchanged."""
    if rows is None:
        return x
    if not 0 <= rows <= len(mask) or x.numel() != int(mask[:rows].sum()):
        raise ValueError(f"{x.numel()} numbers stand for the tokens of {rows} rows")
    return x.new_zeros(mask[:rows].shape).masked_scatter(mask[:rows], x)


class RecordingText:
    """The rows of a step as text.

    Args:
        recording: the recording of the step.
        run: its run folder, for the tokenizer of a language model; tokens are shown as numbers if it has none.
    """

    def __init__(self, recording: Recording, run: Path | None = None) -> None:
        self.recording = recording
        self.vocabulary: list[str] | None = recording.about.get("vocabulary")
        self.tokenizer: Any = None
        if recording.about["tier"] == "llm":
            paths = run.glob("checkpoints/step-*/tokenizer.json") if run is not None else ()
            steps = {path.parent.name.removeprefix("step-"): path for path in paths}
            newest = max((step for step in steps if step.isascii() and step.isdigit()), key=int, default=None)
            if newest is not None:
                from tokenizers import Tokenizer

                file = steps[newest]
                data = untrusted.read_text(file, MAX_TOKENIZER, "restore the file")
                try:
                    self.tokenizer = Tokenizer.from_str(data)
                except Exception as problem:  # tokenizers raises no other kind
                    what = f"{file} is not a tokenizer ({first_line(problem)})"
                    raise UsageError(f"{what}; restore the file") from problem

    def prompt(self, number: int) -> str:
        """The prompt of a group."""
        asked = self.recording["prompts"][number]
        if self.vocabulary is not None:
            return " ".join(self.vocabulary[token] for token in asked.tolist())
        problems = self.recording.about.get("problems")
        if problems is None:
            return f"context {int(asked)}"
        lengths = self.recording["prompt_length"]
        start = int(lengths[:number].sum())
        tokens = self.recording["prompt_tokens"][start : start + int(lengths[number])].tolist()
        return f"{problems[number]}: {self.text(tokens)}" if self.tokenizer is not None else problems[number]

    def response(self, row: int) -> str:
        """The response of a row."""
        if (texts := self.recording.about.get("texts")) is not None:  # of another trainer's dump
            return str(texts[row])
        tokens = self.recording["responses"][row][self.recording.mask[row]].tolist()
        episode = self.recording.get("episode")
        if episode is not None:  # includes what an environment said in between
            tokens = episode[row][: int(self.recording.mask[row].nonzero().max()) + 1].tolist()
        if self.vocabulary is not None:
            return " ".join(self.vocabulary[token] for token in tokens)
        if self.recording.about["tier"] == "bandit":
            return f"arm {tokens[0]}"
        return self.text(tokens)

    def text(self, tokens: list[int]) -> str:
        """Tokens of a language model, control tokens included."""
        if self.tokenizer is None:
            return " ".join(map(str, tokens))
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False))
