"""Read a recorded step, which `pmdkit.recording` writes, and show its rows as text."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from pmdkit import foreign
from pmdkit.errors import UsageError, first_line, short
from pmdkit.observe.run_folder import RunFolder
from pmdkit.recording import KEY, MACHINES, RECORDING_FORMAT, Recording, checksum


def recorded_steps(folder: RunFolder) -> list[int]:
    """Steps that were recorded, in order."""
    names = (path.stem.removeprefix("step-") for path in folder.rollouts.glob("step-*.safetensors"))
    return sorted(int(name) for name in names if name.isdigit())


def open_step(run: Path, step: int | None = None) -> Recording:
    """The recording of a step, by default the newest one.

    Raises:
        UsageError: there is no run, no recording, or none of this step, or the file is damaged or of another version.
    """
    folder = RunFolder(run)
    if not folder.started:
        raise UsageError(f"{run} is not a run folder of pmdkit (it has no config.json); give the folder of a run")
    steps = recorded_steps(folder)
    if not steps:
        raise UsageError(f"{run} has no recorded step; run it with --record, or --set run.record=10 for every tenth")
    if step is None:
        step = steps[-1]
    if step not in steps:
        raise UsageError(f"step {step} of {run} was not recorded; recorded are {short(steps)}: choose one with --step")
    path = folder.rollouts / f"step-{step}.safetensors"
    return decode(foreign.read_bytes(path, foreign.LARGE, "record the step again"), str(path))


def decode(data: bytes, where: str) -> Recording:
    """A recording from the bytes of a file; a UsageError if it is truncated, damaged, or of another version."""
    try:
        outer = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        header = json.loads(outer["__metadata__"][KEY])
        about, stored = header["about"], load(data)
        bits = {name: tensor.reshape(-1).view(torch.uint8).numpy() for name, tensor in stored.items()}
        whole = checksum(MACHINES.encode(about), bits) == header["sha256"]
    except (ValueError, KeyError, TypeError, SafetensorError) as problem:
        raise UsageError(f"{where} is not a recording of a step ({first_line(problem)}); record it again") from problem
    if about["format"] != RECORDING_FORMAT:
        raise UsageError(f"{where} has format {short(about['format'])}; this pmdkit reads {RECORDING_FORMAT}")
    if not whole:
        raise UsageError(f"{where} does not match its checksum; it was changed or damaged: record the step again")
    how = about.pop("tensors")
    flat = {name: widen(tensor, how[name]) for name, tensor in stored.items()}
    length, columns = flat.pop("length"), about.pop("columns")
    mask = flat.pop("mask", torch.arange(columns) < length[:, None])
    tensors = {name: spread(x, mask, how[name].get("rows")) for name, x in flat.items()}
    return Recording(about, mask, tensors)


def widen(stored: Tensor, how: dict[str, Any]) -> Tensor:
    """The inverse of `pmdkit.recording.narrow`, exact to the bit except for the sign of zero."""
    x = stored.to(getattr(torch, how["dtype"]))
    return x.expand(how["shape"]).clone() if "shape" in how else x


def spread(x: Tensor, mask: Tensor, rows: int | None) -> Tensor:
    """[n, T] from the tokens of the first n rows; tensors that are not per token are returned unchanged."""
    return x if rows is None else x.new_zeros(mask[:rows].shape).masked_scatter(mask[:rows], x)


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
            self.find_tokenizer(run)

    def find_tokenizer(self, run: Path | None) -> None:
        """Load the tokenizer of the newest checkpoint that has one."""
        places = run.glob("checkpoints/step-*/tokenizer.json") if run is not None else ()
        found = sorted(places, key=lambda path: int(path.parent.name.removeprefix("step-")))
        if found:
            from tokenizers import Tokenizer

            self.tokenizer = Tokenizer.from_file(str(found[-1]))

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
