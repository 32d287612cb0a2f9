"""A recorded step: its file format, the callback that writes it during a run, and its rows as text.

rollouts/step-N.safetensors holds tensors, and everything else as JSON in its header; docs/use/replay.md has the fields.
Nothing in it depends on the clock, the path or the number of resumes: a recomputed step has the same bytes.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save
from safetensors.torch import load
from torch import Tensor

from pmdkit import foreign
from pmdkit.distributed import ProcessGroup
from pmdkit.errors import UsageError, short
from pmdkit.extras import remedy
from pmdkit.fit import RunContext, StepResult, TrainerCallback
from pmdkit.loop import Rollouts
from pmdkit.objectives import Batch
from pmdkit.observe import files
from pmdkit.observe.run_folder import RunFolder

RECORDING_FORMAT = 1
MOST_NUMBERS = 2**28  # limit for one tensor, since a few bytes of a file may expand to arbitrarily many
KEY = "pmdkit"  # the only key of the header: safetensors writes several in random order
TOKENS = ("responses", "logp_old", "logp_engine", "logp_ref", "logp_seen", "logp_after", "correction")
MACHINES = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Recording:
    """One step: the responses, their rewards, and their log-probabilities under each policy.

    Attributes:
        about: JSON values: step, tier, env, objective, schedule, updates, and what a tier adds.
        mask: [N, T] boolean, True on response tokens.
        tensors: tensors by name. Those in TOKENS may be [n, T], one number per token of the first n rows, 0 outside
            the mask.
    """

    about: dict[str, Any]
    mask: Tensor
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def get(self, name: str) -> Tensor | None:
        """A tensor, or None if it was not recorded."""
        return self.tensors.get(name)


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
        raise UsageError(f"step {step} of {run} was not recorded; recorded are {spans(steps)}: choose one with --step")
    path = folder.rollouts / f"step-{step}.safetensors"
    recording = decode(foreign.read_bytes(path, foreign.LARGE, "record the step again"), str(path))
    with foreign.shaped(path, "a recording of a step", AGAIN):
        check(recording, str(path))
    if recording.about["step"] != step:
        raise UsageError(f"{path} is a recording of step {recording.about['step']}; it was renamed: put it back")
    return recording


def spans(steps: list[int]) -> str:
    """Step numbers in short form: `1 to 5, 8, 10 to 50 by 10`."""
    words, start = [], 0
    while start < len(steps):
        stop = start + 1
        stride = steps[stop] - steps[start] if stop < len(steps) else 0
        while stop < len(steps) and steps[stop] - steps[stop - 1] == stride:
            stop += 1
        if stop - start > 2:
            by = "" if stride == 1 else f" by {stride}"
            words.append(f"{steps[start]} to {steps[stop - 1]}{by}")
        else:
            words.append(str(steps[start]))
            stop = start + 1
        start = stop
    return ", ".join(words)


@dataclass(frozen=True)
class StepExtras:
    """What a tier adds to a recorded step.

    Attributes:
        facts: JSON values: `passed`, the reward above which a response is right, or None; `vocabulary`, ...
        tensors: `logp_after`, `prompt_tokens`, ...; None for a tensor that this step lacks.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor | None] = field(default_factory=dict)


class Recorder(TrainerCallback):
    """Records every k-th step of a run. It needs no forward pass: the learner reports what its updates compute.

    Args:
        every: k, at least 1.
        step_extras: returns what the tier adds.
    """

    def __init__(self, every: int, step_extras: Callable[[Rollouts], StepExtras]) -> None:
        self.every = every
        self.step_extras = step_extras
        self.updated = UpdateLogp()

    def on_train_begin(self, run: RunContext) -> None:
        """Subscribe to the learner's updates, if it reports them."""
        if hasattr(run.backend.learner, "on_logp"):
            run.backend.learner.on_logp = self.updated.add

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Record the step if it is due."""
        if result.step % self.every == 0:
            self.record(run, result)
        self.updated.clear()

    def record(self, run: RunContext, result: StepResult) -> None:
        """Write rollouts/step-N.safetensors: every process contributes its own rows, the main one writes."""
        group = run.backend.process_group
        seen = gather_rows(self.updated.of(result.rollouts), result.rollouts, group)
        if group.is_main_process:
            recording = self.recording(run, result, seen)
            run.folder.rollouts.mkdir(mode=0o700, exist_ok=True)
            put(run.folder.rollouts / f"step-{result.step}.safetensors", encode(recording))

    def recording(self, run: RunContext, result: StepResult, seen: Tensor | None) -> Recording:
        """The recording of a step."""
        rollouts, schedule, extras = result.rollouts, run.backend.schedule, self.step_extras(result.rollouts)
        about = {
            "tier": run.spec.tier,
            "env": run.spec.name,
            "objective": run.spec.objective,
            **extras.facts,
            "step": result.step,
            "version": rollouts.version,
            "seed": rollouts.seed,
            "run_seed": schedule.seed,
            "sampled": rollouts.sampled,
            "width": rollouts.width,
            "ministeps": schedule.ministeps,
            "drop_equal_groups": schedule.drop_equal_groups,
            "updates": [{key: value for key, value in update.items() if key != "seconds"} for update in result.updates],
        }
        known = {
            "prompts": rollouts.prompts,
            "responses": rollouts.responses,
            "reward": result.groups.reward,
            "mass": result.groups.mass,
            "logp_old": rollouts.logp_old,
            "logp_ref": rollouts.logp_ref,
            "correction": rollouts.correction,
            "logp_seen": seen,
            **extras.tensors,
        }
        return Recording(about, rollouts.mask.cpu(), {k: x.cpu() for k, x in known.items() if x is not None})


class UpdateLogp:
    """The log-probabilities that the updates of a step computed, each row's before its own update."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, Sequence[int], Tensor]] = []

    def add(self, batch: Batch, rows: Sequence[int], logp: Tensor) -> None:
        """Take a learner's report of a forward pass, see `pmdkit.loop.LogpHook`."""
        self.parts.append((int(batch.group[0]), rows, logp.detach()))

    def clear(self) -> None:
        """Forget everything at the end of a step."""
        self.parts = []

    def of(self, rollouts: Rollouts) -> Tensor | None:
        """[N, T], or [N] sums, for the rows of a step; NaN where no update scored a row, None if none was reported."""
        if not self.parts:
            return None
        count, width = rollouts.mask.shape
        size = rollouts.mass.shape[1]
        sums = width > 1 and all(logp.shape[1] == 1 for _, _, logp in self.parts)
        seen = np.full((count, 1 if sums else width), np.nan, self.parts[0][2].cpu().numpy().dtype)
        for first, rows, logp in self.parts:
            seen[first * size + np.asarray(rows)] = logp.cpu().numpy()
        return torch.from_numpy(seen[:, 0] if sums else seen)


def put(path: Path, data: bytes) -> None:
    """Write a file atomically: complete or not at all, even if the process is killed.

    It is not flushed to disk: that took ten times as long as everything else. A power loss may corrupt the newest
    recordings, which then fail their checksums.
    """
    aside = path.with_name(f".{path.name}.part")
    aside.unlink(missing_ok=True)
    with open(aside, "xb", opener=files.private) as file:
        file.write(data)
    os.replace(aside, path)


def gather_rows(seen: Tensor | None, rollouts: Rollouts, process_group: ProcessGroup) -> Tensor | None:
    """What the processes saw, each its own rows, combined; None if no process saw any."""
    if process_group.size == 1:
        return seen
    axes = max(int(part) for part in process_group.gather(torch.tensor([0 if seen is None else seen.ndim])))
    if axes == 0:
        return None
    if seen is None:
        shape = rollouts.mask.shape if axes == 2 else rollouts.mask.shape[:1]
        seen = torch.full(shape, torch.nan)
    whole, *parts = process_group.gather(seen.double())
    for part in parts:
        whole = torch.where(torch.isnan(whole), part, whole)
    return whole


def encode(recording: Recording) -> bytes:
    """The file's bytes; the same recording gives the same bytes."""
    mask = recording.mask.numpy()
    flat = {"length": mask.sum(1, dtype=np.int64)}
    places = None if mask.all() else np.flatnonzero(mask)
    if places is not None and (mask[:, 1:] > mask[:, :-1]).any():
        flat["mask"] = mask  # the tokens are not a prefix of the row
    rows: dict[str, int] = {}
    for name, tensor in recording.tensors.items():
        flat[name] = tensor.detach().cpu().numpy()
        if name in TOKENS and tensor.ndim == 2:  # per token: only those in the mask, one response after another
            rows[name] = len(tensor)
            flat[name] = flat[name].reshape(-1)
            if places is not None:
                flat[name] = flat[name].take(places[: np.searchsorted(places, tensor.numel())])
    stored, how = {}, {}
    for name in sorted(flat):
        stored[name], how[name] = narrow(flat[name])
        if name in rows:
            how[name]["rows"] = rows[name]
    about = to_json(recording.about | {"format": RECORDING_FORMAT, "columns": mask.shape[1], "tensors": how})
    header = f'{{"about":{about},"sha256":"{checksum(about, stored)}"}}'
    return save(stored, {KEY: header})


def decode(data: bytes, where: str) -> Recording:
    """A recording from the bytes of a file.

    Raises:
        UsageError: the file is truncated, damaged, of another version, or not a recording.
    """
    try:
        outer = foreign.parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")], where)
        header = foreign.parse_json(outer["__metadata__"][KEY].encode("utf-8", "surrogatepass"), where)
        about, wanted = header["about"], header["sha256"]
        version = about.get("format")
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UsageError(
            f"{where} is not a recording of a step ({len(data)} bytes, its header cannot be read); it is truncated, or "
            "was written by another program: record the step again, or take another with --step"
        ) from problem
    if version != RECORDING_FORMAT:
        raise UsageError(
            f"{where} is a recording of format {short(version)}; this pmdkit reads format {RECORDING_FORMAT}: "
            "replay it with the version in the run's env.json, or record the step again"
        )
    try:
        stored = load(data)
    except SafetensorError as problem:
        raise UsageError(
            f"{where} is truncated ({len(data)} bytes, its tensors need more); record the step again, or take another "
            "with --step"
        ) from problem
    numbers = {name: tensor.reshape(-1).view(torch.uint8).numpy() for name, tensor in stored.items()}
    if checksum(to_json(about), numbers) != wanted:
        raise UsageError(f"{where} does not match its checksum; it was changed or damaged: record the step again")
    with foreign.shaped(where, "a recording of a step", AGAIN):
        how = about.pop("tensors")
        flat = {name: widen(tensor, how[name]) for name, tensor in stored.items()}
        length, columns = flat.pop("length"), about.pop("columns")
        if not 1 <= columns * len(length) <= MOST_NUMBERS:
            raise ValueError(f"it has {len(length)} rows of {columns} tokens")
        mask = flat.pop("mask", torch.arange(columns) < length[:, None])
        tensors = {name: spread(x, mask, how[name].get("rows")) for name, x in flat.items()}
        return Recording(about, mask, tensors)


def check(recording: Recording, where: str) -> None:
    """Check what a replay relies on: every field that a run writes, with the right types and shapes.

    Raises:
        ValueError, TypeError, KeyError: a check failed. The checksum detects damage, but not forged files.
    """
    about, mask = recording.about, recording.mask
    foreign.check_fields(about, ABOUT, where, AGAIN)
    foreign.check_fields(about["objective"], {"name": foreign.is_text}, f"{where}, its objective", AGAIN)
    passed = {"passed": about.get("passed")}  # absent or null if rewards are neither right nor wrong
    foreign.check_fields(passed, {"passed": foreign.none_or(foreign.is_number)}, where, AGAIN)
    for update in about["updates"]:
        foreign.check_fields(update, {"loss": foreign.is_number}, f"{where}, one of its updates", AGAIN)
    count, width = mask.shape
    mass = recording["mass"]
    prompts, size = mass.shape
    if not (bool(mass.isfinite().all()) and mass.min() >= 0 and mass.max() > 0):
        raise ValueError("mass does not hold weights of responses")
    if mask.dtype != torch.bool or count != prompts * size or not bool(mask.any(1).all()):
        raise ValueError(f"it has {count} rows for {prompts} prompts of {size} responses")
    for name, wanted in (("reward", [prompts, size]), ("responses", [count, width]), ("logp_old", [count, width])):
        if list(recording[name].shape) != wanted:
            raise ValueError(f"{name} has shape {list(recording[name].shape)}; expected {wanted}")
    for name in TOKENS:
        found = recording.get(name)
        if found is None:
            continue
        if found.ndim not in (1, 2) or len(found) > count or found.shape[1:] not in ((), (width,)):
            raise ValueError(f"{name} has shape {list(found.shape)}; expected at most {[count, width]}")
    if len(recording["prompts"]) != prompts:
        raise ValueError(f"it names {len(recording['prompts'])} prompts; expected {prompts}")
    vocabulary, problems = about.get("vocabulary"), about.get("problems")
    if vocabulary is not None:
        largest = max(int(recording[name].max()) for name in ("prompts", "responses"))
        smallest = min(int(recording[name].min()) for name in ("prompts", "responses"))
        if not is_texts(vocabulary) or not 0 <= smallest <= largest < len(vocabulary):
            raise ValueError(f"its tokens are {smallest} to {largest} of a vocabulary of {len(vocabulary)}")
    if problems is not None and (
        not is_texts(problems)
        or len(problems) != prompts
        or recording["prompt_length"].shape != (prompts,)
        or int(recording["prompt_length"].sum()) != len(recording["prompt_tokens"])
    ):
        raise ValueError(f"it does not have {prompts} problems")


def is_texts(value: Any) -> bool:
    """Whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


AGAIN = "record the step again"
ABOUT: dict[str, foreign.Check] = {
    "tier": foreign.is_text,
    "env": foreign.is_text,
    "objective": foreign.is_table,
    "step": foreign.is_count,
    "version": foreign.is_count,
    "seed": lambda value: isinstance(value, int),
    "width": foreign.is_count,
    "sampled": lambda value: isinstance(value, bool),
    "drop_equal_groups": lambda value: isinstance(value, bool),
    "ministeps": foreign.is_count,
    "updates": lambda value: isinstance(value, list),
}


def spread(x: Tensor, mask: Tensor, rows: int | None) -> Tensor:
    """[n, T] from the tokens of the first n rows; tensors that are not per token are returned unchanged."""
    return x if rows is None else x.new_zeros(mask[:rows].shape).masked_scatter(mask[:rows], x)


def checksum(about: str, stored: dict[str, NDArray[Any]]) -> str:
    """SHA-256 of everything in the file except the checksum itself."""
    digest = hashlib.sha256(about.encode())
    for name in sorted(stored):
        digest.update(stored[name].reshape(-1).data)
    return digest.hexdigest()


def to_json(value: Any) -> str:
    """Canonical JSON: one line, sorted keys, NaN rejected."""
    return MACHINES.encode(value)


class RecordingText:
    """The rows of a step as text.

    Args:
        recording: the recording of the step.
        run: its run folder, for the tokenizer of a language model; None if there is none.

    Attributes:
        note: why there is no text, or None.
    """

    def __init__(self, recording: Recording, run: Path | None = None) -> None:
        self.recording = recording
        self.vocabulary: list[str] | None = recording.about.get("vocabulary")
        self.tokenizer: Any = None
        self.note: str | None = None
        if recording.about["tier"] == "llm":
            self.find_tokenizer(run)

    def find_tokenizer(self, run: Path | None) -> None:
        """Load the tokenizer of the newest checkpoint that has one."""
        found = sorted(run.glob("checkpoints/step-*/tokenizer.json"), key=step_of_file) if run is not None else []
        if not found:
            self.note = "no text: the run has no checkpoint with a tokenizer; tokens are shown as numbers"
            return
        try:
            from tokenizers import Tokenizer
        except ImportError:
            self.note = f"no text: reading the tokenizer needs transformers; {remedy('llm')}"
            return
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

    def token(self, token: int) -> str:
        """One token."""
        if self.vocabulary is not None:
            return self.vocabulary[token]
        if self.recording.about["tier"] == "bandit":
            return f"arm {token}"
        return self.text([token])

    def text(self, tokens: list[int]) -> str:
        """Tokens of a language model, control tokens included."""
        if self.tokenizer is None:
            return " ".join(map(str, tokens))
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False))


def step_of_file(path: Path) -> int:
    """Step of a file in a checkpoint."""
    name = path.parent.name.removeprefix("step-")
    return int(name) if name.isdigit() else -1


# Numbers in as few bytes as hold them exactly: one number for a constant array, small integers, float32. No rounding.
# Narrowing uses numpy: it runs in every recorded step, where a torch call costs more than the arithmetic in it.

SMALLER = {
    "int64": ("uint8", "int16", "int32"),
    "float64": ("uint8", "float32"),
    "float32": ("uint8",),
    "bool": ("uint8",),
}
NAMES = {np.dtype(name): name for name in SMALLER}
BOUNDS = {name: (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in SMALLER["int64"]}


def narrow(x: NDArray[Any]) -> tuple[NDArray[Any], dict[str, Any]]:
    """The stored form of an array, and how to restore it: `dtype`, and `shape` if one number stands for all."""
    x = np.asarray(x, order="C")
    kind = NAMES.get(x.dtype) or x.dtype.name
    how: dict[str, Any] = {"dtype": kind}
    if one_number(x):
        how["shape"] = list(x.shape)
        x = x.reshape(-1)[:1]
    for dtype in SMALLER.get(kind, ()):
        if fits(x, dtype):
            return x.astype(dtype), how
    return x, how


def widen(stored: Tensor, how: dict[str, Any]) -> Tensor:
    """The inverse of `narrow`, exact to the bit except for the sign of zero."""
    if how["dtype"] not in ("bool", "uint8", "int16", "int32", "int64", "float32", "float64"):
        raise ValueError(f"a tensor of {short(how['dtype'])}")
    x = stored.to(getattr(torch, how["dtype"]))
    if "shape" not in how:
        return x
    if math.prod(how["shape"]) > MOST_NUMBERS:
        raise ValueError(f"a tensor of shape {short(how['shape'])}")
    return x.expand(how["shape"]).clone()


def one_number(x: NDArray[Any]) -> bool:
    """Whether an array of at least two numbers is constant."""
    if x.size < 2:
        return False
    first, last = x.item(0), x.item(-1)  # these two decide for most arrays
    alike = first == last or (first != first and last != last)
    return alike and same(x, x.reshape(-1)[0])


def fits(x: NDArray[Any], dtype: str) -> bool:
    """Whether every number survives the round trip."""
    if dtype in BOUNDS and x.size:
        low, high = BOUNDS[dtype]
        # converting NaN or numbers out of range is undefined; for log-probabilities the first number decides
        if not (low <= x.item(0) <= high and low <= x.min() and x.max() <= high):
            return False
    if x.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold becomes infinite, and does not fit
        return same(x.astype(dtype), x)


def same(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Whether two arrays are equal everywhere, NaN counting as equal to NaN."""
    equal = x == y
    return bool(equal.all()) or bool((equal | ((x != x) & (y != y))).all())
