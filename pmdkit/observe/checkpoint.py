"""Checkpoints: a step's whole state, acknowledged by one rename and verified by checksums before use.

A save writes and flushes every file in `checkpoints/.step-N.part`, then a manifest with the size and SHA-256 of each,
renames the folder to `step-N`, from where on the checkpoint counts, and deletes the oldest beyond `run.keep`. A kill or
a loss of power before the rename leaves the checkpoint before it as the newest. A file that the manifest does not name
is never read. Weights and optimizer are safetensors, the rest is JSON.

Checksums detect accidents. They are not a signature: write access to the folder is enough to forge a manifest.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EIO, EISDIR, ELOOP, ENOENT, ENOTDIR
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save

from pmdkit.errors import EnvironmentLacks, ResumeRefused
from pmdkit.observe import files
from pmdkit.observe.run_folder import flatten
from pmdkit.untrusted import check_numbers, parse_json
from pmdkit.version import __version__

STEP = re.compile(r"step-(0|[1-9][0-9]{0,17})")  # no other spelling: step-007 is not a step
WEIGHTS = ("model", "reference", "adapter", "pending")
PARTS = (*WEIGHTS, "optimizer")
MANIFEST = "manifest.json"
MANIFEST_FORMAT = 3
MANIFEST_LIMIT = 2**20  # bytes; a manifest has some kilobytes, so anything larger is not one and is not read
DAMAGE = (ENOENT, ENOTDIR, EISDIR, ELOOP, EIO)  # other read errors are the machine's, and temporary


class Damaged(ValueError):
    """The damage of a checkpoint, in a few words."""


class Checkpoints:
    """The checkpoints/ of a run of one process: each is written while the step waits.

    Several processes use `pmdkit.llm.gathered_checkpoints`, and call the same methods in the same order.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load_newest(self) -> tuple[int, dict[str, Any], list[str]]:
        """Step and state of the newest checkpoint that is whole, a warning for each newer one; 0 and {} without any.

        A damaged one is renamed to step-N.corrupt, never deleted. ResumeRefused if there are checkpoints, all damaged.
        """
        remove_leftovers(self.folder)
        step, state, damaged = find_newest(self.folder)
        return step, state, [set_aside(self.folder, *one) for one in damaged]

    def save(self, step: int, state: dict[str, Any], keep: int, extra_files: Mapping[str, bytes] | None = None) -> None:
        """Write checkpoints/step-N and delete the oldest beyond `keep`; an OSError leaves the ones before it unchanged.

        `state` is that of a learner: `model` (tensors), `optimizer` (a torch state dict), perhaps `reference`,
        `adapter` and `pending` (tensors), and plain values. `extra_files` are those that transformers needs to load the
        folder. With several processes an error may be raised only by the next `wait`.
        """
        tensors, plain = split_state(state)
        contents = {f"{part}.safetensors": encode_tensors(held) for part, held in tensors.items()}
        self.write(step, contents | {"state.json": files.encode(plain), **(extra_files or {})}, keep)

    def write(self, step: int, contents: Mapping[str, bytes], keep: int) -> None:
        """Write these files as checkpoints/step-N, and delete the oldest checkpoints beyond `keep`."""
        folder = self.folder
        aside = folder / f".step-{step}.part"
        try:
            remove_leftovers(folder)
            aside.mkdir(mode=0o700)
            sums = write_files(aside, contents)
            acknowledge(folder, step, sums)
        except OSError as problem:  # a full disk: remove the unfinished one, keep the checkpoints before it
            with suppress(OSError):  # the first error is the one to report
                files.remove(aside)
            raise files.explain_error(problem, folder / f"step-{step}", sum(map(len, contents.values()))) from problem
        prune(folder, step, keep)

    def wait(self) -> None:
        """Wait until everything saved is acknowledged; nothing is being written afterwards."""


# Saving.


def write_files(folder: Path, contents: Mapping[str, bytes]) -> dict[str, tuple[str, int]]:
    """Write new files and flush them; returns the SHA-256 and the size of each."""
    for name, data in contents.items():
        files.write(folder / name, data, flush=False)
    for name in contents:  # flushed after all are written: the first flush often takes the others along
        files.sync(folder / name)
    return {name: (hashlib.sha256(data).hexdigest(), len(data)) for name, data in contents.items()}


def acknowledge(folder: Path, step: int, sums: Mapping[str, tuple[str, int]]) -> None:
    """Write the manifest of `.step-N.part`, whose files are on disk with these (SHA-256, bytes); rename to `step-N`."""
    aside, inputs = folder / f".step-{step}.part", folder.parent / "inputs.json"
    body = {
        "format": MANIFEST_FORMAT,
        "pmdkit": __version__,
        "step": step,
        "run": run_identity(folder),
        "inputs": json.loads(inputs.read_bytes())["digests"] if inputs.is_file() else {},
        "sha256": {name: digest for name, (digest, _) in sums.items()},
        "bytes": {name: size for name, (_, size) in sums.items()},
    }
    files.write(aside / MANIFEST, files.encode({**body, "digest": digest_of(body)}))
    # The order is the whole protocol: files, manifest and names are on disk before the rename makes them count. A file
    # system may write a rename before the data that it renames, so each of these flushes is needed.
    files.sync(aside)
    os.rename(aside, folder / f"step-{step}")
    files.sync(folder)


def prune(folder: Path, step: int, keep: int) -> None:
    """Delete the checkpoints up to an acknowledged step, except the last `keep`."""
    for old in [number for number in steps(folder) if number <= step][:-keep]:
        gone = folder / f".step-{old}.part"  # renamed first: a step that is listed is never half deleted
        os.rename(folder / f"step-{old}", gone)
        files.remove(gone)


def remove_leftovers(folder: Path) -> None:
    """Delete files that a killed process was writing or deleting."""
    for leftover in folder.glob(".step-*.part"):
        files.remove(leftover)


def encode_tensors(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """The bytes of a safetensors file; RuntimeError if two tensors share memory."""
    # transformers asks for this key; with a second one, the bytes would be in random order
    return save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"format": "pt"})


def split_state(state: Mapping[str, Any]) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """The tensors of a state by part and name, and its plain values, so that no pickle is ever written or loaded."""
    slots: dict[str, torch.Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, held in state["optimizer"]["state"].items():
        for name, value in held.items():
            (slots if isinstance(value, torch.Tensor) else numbers)[f"{index}.{name}"] = value
    tensors = {part: state[part] for part in WEIGHTS if part in state} | {"optimizer": slots}
    plain = {"optimizer": {"slots": numbers, "param_groups": state["optimizer"]["param_groups"]}}
    return tensors, plain | {name: value for name, value in state.items() if name not in PARTS}


def join_state(tensors: Mapping[str, Mapping[str, Any]], plain: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `split_state`."""
    slots: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors["optimizer"], **plain["optimizer"]["slots"]}.items():
        index, _, name = key.partition(".")
        slots.setdefault(int(index), {})[name] = value
    optimizer = {"state": slots, "param_groups": plain["optimizer"]["param_groups"]}
    return {**plain, **tensors, "optimizer": optimizer}


# Loading.


def find_newest(folder: Path) -> tuple[int, dict[str, Any], list[tuple[int, str]]]:
    """Like `Checkpoints.load_newest`, with (step, problem) of each damaged one; nothing is changed."""
    damaged: list[tuple[int, str]] = []
    for step in reversed(steps(folder)):
        try:
            return step, load_step(folder / f"step-{step}", step), damaged
        except Damaged as problem:
            damaged.append((step, str(problem)))
    # a run that had a checkpoint never restarts from its first step unasked
    if held := [name for name in list_names(folder) if name.startswith("step-")]:
        found = "; ".join(f"step-{step}: {problem}" for step, problem in damaged) or f"it holds {', '.join(held)}"
        remedy = f"nothing was changed: start again with another --out, or delete {folder}"
        raise ResumeRefused(f"no loadable checkpoint in {folder}: every one is damaged ({found}); {remedy}")
    return 0, {}, []


def set_aside(folder: Path, step: int, problem: str) -> str:
    """Rename a damaged checkpoint; returns a warning. An earlier one of the same name is kept too."""
    path = target = folder / f"step-{step}"
    number = 1
    while os.path.lexists(target):
        target = path.with_name(f"{path.name}.corrupt" + (f"-{number}" if number > 1 else ""))
        number += 1
    os.rename(path, target)
    return f"checkpoint {path} is damaged ({problem}); it was renamed to {target.name}, and an older one is used"


def load_step(path: Path, step: int | None = None) -> dict[str, Any]:
    """The state in a checkpoint folder, of the given step or whichever step it records.

    Damaged if anything differs from what was written, ResumeRefused for another run or format, UsageError for NaN.
    """
    manifest = read_manifest(path)
    check_origin(manifest, manifest.step if step is None else step, run_identity(path.parent))
    tensors: dict[str, dict[str, torch.Tensor]] = {}
    for name in manifest.sha256:
        manifest.check(name)
    for part in manifest.parts():  # each file is decoded before the next is read: memory holds one twice
        with decoding():
            tensors[part] = load((path / f"{part}.safetensors").read_bytes())
        if part in WEIGHTS:
            check_numbers(tensors[part], f"{path}/{part}")
    plain = read_plain(manifest)
    with decoding():
        return join_state(tensors, plain)


def open_step(path: Path) -> dict[str, Any]:
    """The state in a checkpoint folder that another process has verified; tensors are read where they are used."""
    manifest = read_manifest(path)
    tensors = {part: load_file(path / f"{part}.safetensors") for part in manifest.parts()}
    return join_state(tensors, read_plain(manifest))


def steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint, in order."""
    found = (STEP.fullmatch(name) for name in list_names(folder))
    return sorted(int(match[1]) for match in found if match)


def list_names(folder: Path) -> list[str]:
    """The names in a folder, in order; a missing folder holds nothing."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as problem:  # it may not be empty
        raise unreadable(folder, problem) from problem


# The manifest, and reading files only as it has them.


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's description of itself; its own digest covers all of it.

    Attributes:
        step: completed steps.
        run: what identifies the run; empty if the checkpoint is not in a run folder.
        inputs: digests of data, code and weights that the run was made from; empty if none were kept.
        sha256, sizes: checksum and bytes of each file by name.
    """

    path: Path
    step: int
    run: Mapping[str, Any]
    inputs: Mapping[str, str]
    sha256: Mapping[str, str]
    sizes: Mapping[str, int]

    def parts(self) -> list[str]:
        """The parts of the state in this checkpoint, each in a file."""
        return [part for part in PARTS if f"{part}.safetensors" in self.sha256]

    def check(self, name: str) -> None:
        """Raise Damaged if a file is missing, or not what was written. Its contents are not in memory as a whole."""
        with open_regular(self.path / name, self.sizes[name]) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256[name]:  # type: ignore[arg-type]
                raise Damaged(f"{name} does not match its checksum")


def digest_of(body: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest without its digest."""
    return hashlib.sha256(files.encode(body)).hexdigest()


def read_manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint folder: Damaged if it was changed, ResumeRefused if it has another format."""
    if path.is_symlink() or not path.is_dir():
        raise Damaged("it is not a folder")
    with open_regular(path / MANIFEST) as file:
        data = file.read(MANIFEST_LIMIT)
    with decoding():
        stored = json.loads(data)
        body = {key: value for key, value in stored.items() if key != "digest"}
        if stored["digest"] != digest_of(body) or data != files.encode(stored):
            raise Damaged(f"{MANIFEST} does not match its own checksum")
        if stored["format"] != MANIFEST_FORMAT:
            what = f"checkpoint {path} has format {stored['format']}, written by pmdkit {stored.get('pmdkit')}"
            raise ResumeRefused(f"{what}; this one reads format {MANIFEST_FORMAT}: go on with the other version")
        run, inputs, sha256, sizes = (dict(stored[key]) for key in ("run", "inputs", "sha256", "bytes"))
        manifest = Manifest(path, stored["step"], run, inputs, sha256, sizes)
    held = manifest.parts()
    if missing := [part for part in ("model", "optimizer") if part not in held]:
        raise Damaged(f"{MANIFEST} does not name {missing[0]}.safetensors")
    if "state.json" not in sha256 or sha256.keys() != sizes.keys():
        raise Damaged(f"{MANIFEST} does not name state.json, or not the size of every file")
    if strange := [name for name in sha256 if Path(name).name != name]:
        raise Damaged(f"{MANIFEST} names {strange[0]!r}, which is not a file of the folder")
    for name in (*(f"{part}.safetensors" for part in WEIGHTS), "model.safetensors.index.json"):
        if name not in sha256 and os.path.lexists(path / name):  # transformers would read these, whatever wrote them
            raise Damaged(f"it holds {name}, which its manifest does not name")
    return manifest


def read_plain(manifest: Manifest) -> dict[str, Any]:
    """The contents of state.json. Values that pmdkit never writes are refused here, not met in a later step."""
    with decoding():
        plain = parse_json((manifest.path / "state.json").read_bytes(), "state.json", numbers=False)
        version, first = plain.get("version", 0), plain.get("first", {})
        if type(version) is not int or version < 0:
            raise Damaged("state.json holds a version that is not a count")
        if not all(first.get(key) is None or type(first[key]) in (int, float) for key in ("pass_rate", "reward")):
            raise Damaged("state.json holds a first evaluation that is not a number")
        if not isinstance(plain["optimizer"]["param_groups"], list):
            raise Damaged("state.json holds no parameter groups")
    return dict(plain)


def check_origin(manifest: Manifest, step: int, run: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another step (Damaged), or of another run (ResumeRefused).

    Options that only one of the two has come from another version of pmdkit and are ignored here.
    """
    if manifest.step != step:
        raise Damaged(f"it is of step {manifest.step}")
    there, here = dict(flatten(manifest.run)), dict(flatten(run))
    for key in sorted(there.keys() & here.keys()):
        if there[key] != here[key]:
            what = f"{key} is {there[key]} there and {here[key]} here"
            raise ResumeRefused(f"checkpoint {manifest.path} is of another run: {what}; move it to its own folder")


def check_shapes(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse tensors whose names or shapes differ from the model of the run."""
    for name in sorted(found.keys() | wanted.keys()):
        a, b = (list(x[name].shape) if name in x else "absent" for x in (found, wanted))
        if a != b:
            remedy = "put its own checkpoints back, or start again with another --out"
            raise ResumeRefused(f"the checkpoint is of another model: {name} is {a}; expected {b}: {remedy}")


def run_identity(checkpoints: Path) -> dict[str, Any]:
    """The identity of the run that a folder of checkpoints belongs to; empty if there is none.

    More steps and another number of processes continue the same run; how often it saves and reports is irrelevant.
    """
    file = checkpoints.parent / "config.json"
    if not file.is_file():
        return {}
    try:
        config = json.loads(file.read_bytes())
    except ValueError as problem:
        raise ResumeRefused(f"{file} cannot be read as JSON ({problem}); restore it, nothing was changed") from problem
    if not isinstance(config, dict) or "tier" not in config:  # a model's, say
        return {}
    schedule = {key: value for key, value in dict(config.get("schedule") or {}).items() if key != "steps"}
    seed = {"seed": dict(config.get("run") or {}).get("seed")}
    kept = {key: value for key, value in config.items() if key not in ("parallel", "remote")}  # a server may move
    return kept | {"schedule": schedule, "run": seed}


@contextmanager
def decoding() -> Iterator[None]:
    """Context for decoding files into a state: anything inconsistent is damage."""
    try:
        yield
    except Damaged:
        raise
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as problem:
        raise Damaged(f"{type(problem).__name__}: {problem}") from problem


@contextmanager
def open_regular(path: Path, size: int | None = None) -> Iterator[IO[bytes]]:
    """Open a regular file for reading; not a link, nor a pipe, on which a read could wait forever."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise Damaged(f"{path.name} is not a regular file")
        if size is not None and status.st_size != size:
            raise Damaged(f"{path.name} has {status.st_size} bytes, {size} were written")
        with path.open("rb") as file:
            yield file
    except OSError as problem:
        if problem.errno in DAMAGE:
            raise Damaged(f"{path.name}: {problem.strerror}") from problem
        raise unreadable(path, problem) from problem


def unreadable(path: Path, problem: OSError) -> EnvironmentLacks:
    """The error for a file that the machine does not let us read."""
    return EnvironmentLacks(f"{path} cannot be read ({problem.strerror}); make it readable, then use --resume")
