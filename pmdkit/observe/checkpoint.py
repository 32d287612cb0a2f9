"""Checkpoints: a step's whole state, acknowledged by one rename and verified by checksums before use.

The manifest records the run and step of a checkpoint, a checksum for every file and one for itself. It is written
last. A file that it does not name is not part of the checkpoint and is never read.

A small checkpoint is acknowledged by its journal, one file with the bytes of all others: that file and its name are
flushed, and the folder is rewritten from it if a loss of power damaged it. A large checkpoint would be on disk twice,
so its own files are flushed instead.
"""

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from errno import EIO, EISDIR, ELOOP, ENOENT, ENOTDIR
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import numpy as arrays
from safetensors.torch import load, save

from pmdkit.errors import EnvironmentLacks, ResumeRefused
from pmdkit.foreign import parse_json
from pmdkit.observe import files, shards
from pmdkit.version import __version__

WEIGHTS = ("model", "reference", "adapter", "pending")
STEP = re.compile(r"step-(0|[1-9][0-9]{0,17})")
JOURNAL = re.compile(r"journal-(0|[1-9][0-9]{0,17})\.safetensors")
JOURNALED = 2**22  # bytes of a checkpoint that has a journal; beyond, writing twice costs more than it saves
MANIFEST = "manifest.json"
MANIFEST_FORMAT = 2
SHARDED_FORMAT = 3  # written by several processes; versions that know only single files refuse it, and rename nothing
MANIFEST_LIMIT = 2**20  # bytes; a manifest has some kilobytes, so anything larger is not one and is not read
NEEDED = ("model", "optimizer")
DAMAGE = (ENOENT, ENOTDIR, EISDIR, ELOOP, EIO)  # other read errors are the machine's, and temporary


class Damaged(ValueError):
    """What is wrong with a checkpoint, in a few words."""


class Checkpoints:
    """The checkpoints of a run of one process: each is written while the step waits.

    Several processes use `pmdkit.llm.sharded_checkpoint`. All of them call the same methods in the same order.

    Args:
        folder: checkpoints/ of the run.

    Attributes:
        saved: how many have been acknowledged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.saved = 0

    def load_newest(self) -> tuple[int, dict[str, Any], list[str]]:
        """See the function of that name."""
        return load_newest(self.folder)

    def save(self, step: int, state: dict[str, Any], keep: int, extra_files: Mapping[str, bytes] | None = None) -> None:
        """See `save_step`; an error may be raised only by the next `wait`."""
        save_step(self.folder, step, state, keep, extra_files)
        self.saved += 1

    def wait(self) -> None:
        """Wait until everything saved is acknowledged; nothing is being written afterwards."""


def save_step(
    folder: Path, step: int, state: dict[str, Any], keep: int, extra_files: Mapping[str, bytes] | None = None
) -> None:
    """Write checkpoints/step-N and delete the oldest beyond `keep`. Until the rename, the previous one is the newest.

    That rename is the journal's, or the folder's if there is no journal, and is flushed before this returns.

    Args:
        folder, step: checkpoints/ of a run, and its completed steps.
        state: of the learner: `model` (tensors), `optimizer` (a torch state dict), perhaps `reference` and `adapter`
            (tensors), and plain values.
        keep: checkpoints to keep.
        extra_files: by name, such as those that transformers needs to load the folder.

    Raises:
        OSError: the disk is full, or fails. The checkpoints before this one are unchanged.
    """
    remove_leftovers(folder)
    aside, target = folder / f".step-{step}.part", folder / f"step-{step}"
    contents = {**(extra_files or {}), **encode_state(state)}
    contents[MANIFEST] = encode_manifest(step, run_identity(folder), contents, recorded_inputs(folder))
    size = sum(map(len, contents.values()))
    journal = encode_journal(contents) if size <= JOURNALED else b""
    try:
        aside.mkdir(mode=0o700)
        for name, data in contents.items():
            files.write(aside / name, data, flush=not journal)
        if journal:
            files.replace(journal_path(folder, step), journal)
        else:
            files.sync(aside)
        os.rename(aside, target)
    except OSError as problem:  # a full disk: remove the unfinished one, keep the checkpoints before it
        with suppress(OSError):  # the first error is the one to report
            files.remove(aside)
        raise files.explain_error(problem, target, size + len(journal)) from problem
    if not journal:
        files.sync(folder)
    prune(folder, step, keep)


def acknowledge(aside: Path, target: Path, manifest: bytes) -> None:
    """Write the manifest and rename the checkpoint, which counts from then on; its files must be on disk."""
    files.write(aside / MANIFEST, manifest)
    files.sync(aside)
    os.rename(aside, target)


def prune(folder: Path, step: int, keep: int) -> None:
    """Delete the checkpoints up to an acknowledged step, except the last `keep`."""
    for old in [number for number in steps(folder) if number <= step][:-keep]:
        files.remove(journal_path(folder, old))  # before its folder, which would be rebuilt from it
        gone = folder / f".step-{old}.part"  # renamed first: a step that is listed is never half deleted
        os.rename(folder / f"step-{old}", gone)
        files.remove(gone)


def encode_journal(contents: Mapping[str, bytes]) -> bytes:
    """Encode the files of a checkpoint as arrays in one file. The manifest, one of them, has their checksums."""
    return arrays.save({name: np.frombuffer(data, np.uint8) for name, data in contents.items()})


def journal_path(folder: Path, step: int) -> Path:
    """Where the journal of a step is."""
    return folder / f"journal-{step}.safetensors"


def read_journal(folder: Path, step: int) -> "Manifest":
    """Read the manifest in the journal of a step, with all files, after verifying each.

    Raises:
        Damaged: there is none, or it is incomplete.
        ResumeRefused: it is of another run, or of a newer version.
        EnvironmentLacks: the machine does not allow reading it.
    """
    path = journal_path(folder, step)
    with open_regular(path, most=2 * JOURNALED) as file:
        data = file.read()
    with decoding():
        contents = {name: stored.tobytes() for name, stored in arrays.load(data).items()}
        manifest = parse_manifest(path, contents[MANIFEST], contents)
        if contents.keys() != {*manifest.sha256, MANIFEST}:
            raise Damaged("it does not hold what its manifest names")
        for name in manifest.sha256:
            manifest.check(name)
    check_origin(manifest, step, run_identity(folder))
    return manifest


def journal_for(folder: Path, step: int) -> "Manifest | None":
    """The journal from which to read a step whose folder is damaged; None if there is none for that folder."""
    try:
        journal = read_journal(folder, step)
    except Damaged:  # of a save that was never acknowledged
        return None
    try:
        there = read_manifest(folder / f"step-{step}")
    except Damaged:
        return journal
    except ResumeRefused:  # a newer version wrote it, and not from this journal
        return None
    return journal if there.sha256 == journal.sha256 else None


def recover(folder: Path) -> list[str]:
    """Clean up a folder after a kill or a loss of power; returns a warning for each checkpoint that was restored."""
    remove_leftovers(folder)
    warnings = []
    for step in journals(folder):
        journal, path = journal_for(folder, step), folder / f"step-{step}"
        if journal is None:
            continue
        there = os.path.lexists(path)  # if not, the process ended right after the journal: nothing was lost
        if (restored := restore(path, journal.journaled)) and there:
            names = ", ".join(restored)
            warnings.append(f"checkpoint {path} was incomplete ({names}); it was restored from its journal")
    return warnings


def restore(path: Path, contents: Mapping[str, bytes]) -> list[str]:
    """Make a checkpoint folder hold these files; returns the names of those that it did not hold."""
    if path.is_symlink() or (path.exists() and not path.is_dir()) or any((path / name).is_dir() for name in contents):
        mark_corrupt(path)
    files.make_folder(path)
    restored = []
    for name in sorted(contents, key=lambda name: name == MANIFEST):  # the manifest last, as in every save
        try:
            with open_regular(path / name, len(contents[name])) as file:
                same = file.read() == contents[name]
        except Damaged:
            same = False
        if not same:
            files.replace(path / name, contents[name])
            restored.append(name)
    return restored


def flush_checkpoints(folder: Path) -> None:
    """Flush the checkpoint folders once, when a run ends, so that they need no journal."""
    for step in set(steps(folder)) & set(journals(folder)):
        path = folder / f"step-{step}"
        for file in path.iterdir():
            files.sync(file)
        files.sync(path)
    if gone := journals(folder):
        files.sync(folder)  # the names of the folders, before the journals are removed
    for step in gone:
        files.remove(journal_path(folder, step))
    files.sync(folder)  # pruned ones stay deleted too: a finished run is not checked again


def make_room(folder: Path, most: float) -> None:
    """Delete the oldest checkpoints until another one of the newest one's size fits into `most` bytes.

    Raises:
        EnvironmentLacks: the newest one, which must stay until the next is acknowledged, leaves no room for that.
    """
    sizes = {step: stored_size(folder, step) for step in steps(folder)}
    if not sizes:
        return
    newest = max(sizes)
    if 2 * sizes[newest] > most:
        one = sizes[newest] / 2**30
        raise EnvironmentLacks(
            f"run.max_disk is {most / 2**30:.3g} GiB and a checkpoint of {folder} has {one:.3g}, which stays until the "
            f"next one is written; expected {2 * one:.3g} or more: go on with --resume --set run.max_disk=..."
        )
    while sum(sizes.values()) + sizes[newest] > most:
        del sizes[min(sizes)]
    prune(folder, newest, len(sizes))


def stored_size(folder: Path, step: int) -> int:
    """Bytes of the files of a checkpoint, and of its journal where it has one."""
    stored = [*(folder / f"step-{step}").iterdir(), *folder.glob(journal_path(folder, step).name)]
    return sum(path.stat().st_size for path in stored)


def load_newest(folder: Path) -> tuple[int, dict[str, Any], list[str]]:
    """Load the newest checkpoint that is whole, with a warning for each that was not.

    A damaged one is renamed to step-N.corrupt, never deleted, and the one before it is used.

    Returns:
        Step, state and warnings; step 0 and an empty state if no checkpoint was ever acknowledged.

    Raises:
        ResumeRefused: there are checkpoints, and none of them can be loaded.
    """
    warnings = recover(folder)
    step, state, damaged = find_newest(folder)
    for number, problem in damaged:
        warnings.append(put_aside(folder, number, problem))
    return step, state, warnings


def put_aside(folder: Path, step: int, problem: str) -> str:
    """Rename a damaged checkpoint that no journal restored; returns a warning."""
    files.remove(journal_path(folder, step))  # or the next process would resume from it, without its rows of metrics
    path = folder / f"step-{step}"
    target = mark_corrupt(path)
    return f"checkpoint {path} is damaged ({problem}); it was renamed to {target.name}, and an older one is used"


def find_newest(folder: Path) -> tuple[int, dict[str, Any], list[tuple[int, str]]]:
    """Find the newest checkpoint that is whole, and what is wrong with each newer one. Nothing is changed.

    Returns step, state and (step, problem) of each damaged one; raises what `load_newest` does.
    """
    damaged: list[tuple[int, str]] = []
    there = steps(folder)
    for step in sorted({*there, *journals(folder)}, reverse=True):
        try:
            return step, load_step(folder / f"step-{step}", step), damaged
        except Damaged as problem:
            if journal := journal_for(folder, step):
                return step, load_state(journal, step), damaged
            if step in there:
                damaged.append((step, str(problem)))
    if held := step_names(folder):
        raise none_loadable(folder, damaged, held)
    return 0, {}, []


def none_loadable(folder: Path, damaged: Sequence[tuple[int, str]], held: Sequence[str]) -> ResumeRefused:
    """The error if nothing can be loaded: a run that had a checkpoint never restarts from its first step unasked."""
    found = "; ".join(f"step-{step}: {problem}" for step, problem in damaged) or f"it holds {', '.join(held)}"
    return ResumeRefused(
        f"no loadable checkpoint in {folder}: every one is damaged ({found}); nothing was changed: start again "
        f"with another --out, or delete {folder}"
    )


def damage_warnings(folder: Path, damaged: list[tuple[int, str]]) -> list[str]:
    """A warning for each damaged checkpoint of a folder that is only read."""
    return [f"checkpoint {folder / f'step-{n}'} is damaged ({why}); an older one is used" for n, why in damaged]


def damage(path: Path, step: int) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        load_step(path, step)
    except Damaged as problem:
        return str(problem)
    return None


def load_step(path: Path, step: int | None = None) -> dict[str, Any]:
    """The state in a checkpoint folder, of the given step or whichever step it records.

    Each file is checked and decoded before the next one is read, so that memory holds little more than the state.

    Raises:
        Damaged: something in it differs from what was written.
        ResumeRefused: it is of another run, or of a newer format.
        EnvironmentLacks: the machine does not allow reading it.
    """
    return load_state(read_manifest(path), step)


def load_state(manifest: "Manifest", step: int | None = None) -> dict[str, Any]:
    """Like `load_step`, but from a manifest."""
    check_origin(manifest, manifest.step if step is None else step, run_identity(manifest.path.parent))
    check_named(manifest)
    with decoding():
        weights = {name: read_part(manifest, name) for name in WEIGHTS if manifest.has(name)}
        tensors = read_part(manifest, "optimizer")
        rest = read_plain(manifest)
        state = {**weights, "optimizer": join_optimizer(tensors, rest.pop("optimizer")), **rest}
    for name in manifest.sha256.keys() - manifest.read_names:
        manifest.check(name)
    return state


def check_named(manifest: "Manifest") -> None:
    """Refuse weights beside a checkpoint that its manifest does not name."""
    for part in WEIGHTS:
        for name in (f"{part}.safetensors", shards.index_name(part)):
            if name not in manifest.sha256 and os.path.lexists(manifest.path / name):
                raise Damaged(f"it holds {name}, which its manifest does not name")


@contextmanager
def decoding() -> Iterator[None]:
    """Context for decoding files into a state: anything inconsistent is damage."""
    try:
        yield
    except Damaged:
        raise
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as problem:
        raise Damaged(f"{type(problem).__name__}: {problem}") from problem


def read_part(manifest: "Manifest", part: str) -> dict[str, torch.Tensor]:
    """The tensors of a part, in one file or in shards, after verifying their checksums."""
    if not manifest.in_shards(part):
        return load(manifest.read(f"{part}.safetensors"))
    for name in manifest.files_of(part):
        manifest.check(name)
    return {name: stored.read() for name, stored in stored_part(manifest, part).items()}


def stored_part(manifest: "Manifest", part: str) -> dict[str, shards.StoredTensor]:
    """Where the tensors of a part are. The caller must verify the checksums of its files."""
    found = shards.read_folder(manifest.path, part)
    used = {piece.path.name for stored in found.values() for piece in stored.pieces}
    if strange := sorted(used - manifest.sha256.keys()):
        raise Damaged(f"its index names {strange[0]}, which its manifest does not name")
    return found


def read_plain(manifest: "Manifest") -> dict[str, Any]:
    """The contents of state.json."""
    rest = parse_json(manifest.read("state.json"), "state.json", numbers=False)
    check_plain_state(rest)
    return dict(rest)


def check_plain_state(state: Any) -> None:
    """Refuse plain values that pmdkit never writes, even if checksums match: they detect damage, not intent."""
    version = state.get("version", 0)
    numbers = [state["first"][key] for key in ("pass_rate", "reward")] if "first" in state else []
    if not all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in numbers):
        raise Damaged("state.json holds a first evaluation that is not a number")
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise Damaged("state.json holds a version that is not a count")
    if not isinstance(state["optimizer"]["param_groups"], list):
        raise Damaged("state.json holds no parameter groups")


def steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint, in order. No other spelling of a number counts: step-007 is not a step."""
    return numbers(folder, STEP)


def journals(folder: Path) -> list[int]:
    """Steps that have a journal, in order."""
    return numbers(folder, JOURNAL)


def numbers(folder: Path, pattern: re.Pattern[str]) -> list[int]:
    """The numbers in names that match a pattern, in order."""
    found = (pattern.fullmatch(name) for name in list_names(folder))
    return sorted(int(match[1]) for match in found if match)


def step_names(folder: Path) -> list[str]:
    """Names in a folder that begin with `step-`, in order."""
    return [name for name in list_names(folder) if name.startswith("step-")]


def list_names(folder: Path) -> list[str]:
    """The names in a folder, in order; a missing folder holds nothing."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as problem:  # it may not be empty
        raise EnvironmentLacks(
            f"{folder} cannot be read ({problem.strerror}); nothing was changed: make it readable, then go on with "
            "--resume"
        ) from problem


def shortage(checkpoints: Path, keep: int, left: int) -> str | None:
    """A warning if the disk has too little room for the checkpoints to come, or None.

    Args:
        checkpoints: folder that holds at least one.
        keep: checkpoints that are kept; there is one more while it is written.
        left: checkpoints that the run will still write.
    """
    there = steps(checkpoints)
    size = stored_size(checkpoints, there[-1])
    more = min(left, keep + 1 - len(there))
    free = shutil.disk_usage(checkpoints).free
    if free >= more * size:
        return None
    need = files.megabytes(more * size)
    return (
        f"the disk of {checkpoints} has {files.megabytes(free)} free, and the remaining checkpoints need {need}: make "
        "room, or the run ends when the disk is full; what is saved stays intact"
    )


def encode_state(state: dict[str, Any]) -> dict[str, bytes]:
    """The files of a state by name."""
    tensors, plain = split_optimizer(state["optimizer"])
    rest = {k: v for k, v in state.items() if k not in (*WEIGHTS, "optimizer")}
    about = {"format": "pt"}  # transformers asks for it; a second key would be written in random order
    weights = {
        f"{name}.safetensors": save({k: v.contiguous() for k, v in state[name].items()}, about)
        for name in WEIGHTS
        if name in state
    }
    return {
        **weights,
        "optimizer.safetensors": save(tensors, about),
        "state.json": files.encode({"optimizer": plain, **rest}),
    }


def split_optimizer(optimizer: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A torch optimizer's state as named tensors and plain values, so that no pickle is ever loaded."""
    tensors, plain = {}, {}
    for index, slots in optimizer["state"].items():
        for name, value in slots.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{index}.{name}"] = value.contiguous()
            else:
                plain[f"{index}.{name}"] = value
    return tensors, {"slots": plain, "param_groups": optimizer["param_groups"]}


def join_optimizer(tensors: Mapping[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `split_optimizer`."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **plain["slots"]}.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    return {"state": state, "param_groups": plain["param_groups"]}


def remove_leftovers(folder: Path) -> None:
    """Delete what a killed process was writing or deleting."""
    for pattern in (".step-*.part", ".journal-*.part"):
        for leftover in folder.glob(pattern):
            files.remove(leftover)


def mark_corrupt(path: Path) -> Path:
    """Rename a damaged checkpoint; an earlier one of the same name is kept too."""
    endings = ["corrupt", *(f"corrupt-{number}" for number in range(2, 1000))]
    targets = (path.with_name(f"{path.name}.{ending}") for ending in endings)
    target = next(target for target in targets if not os.path.lexists(target))
    os.rename(path, target)
    return target


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's description of itself.

    Attributes:
        path: of the checkpoint, or of its journal.
        step: completed steps.
        run: what identifies the run; empty if the checkpoint is not in a run folder, or is of format 1.
        sha256: checksum of each file by name.
        sizes: bytes of each file by name; empty in format 1.
        inputs: digests of data, code and weights that the run was made from; empty if none were kept.
        journaled: all files by name, if this is the manifest in a journal.
        read_names: files that have been compared with their checksums.
    """

    path: Path
    step: int
    run: Mapping[str, Any]
    sha256: Mapping[str, str]
    sizes: Mapping[str, int]
    inputs: Mapping[str, str] = field(default_factory=dict)
    journaled: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    read_names: set[str] = field(default_factory=set, compare=False)

    def in_shards(self, part: str) -> bool:
        """Whether a part is in shards with an index."""
        return shards.index_name(part) in self.sha256

    def has(self, part: str) -> bool:
        """Whether it has a part, in one file or in shards."""
        return self.in_shards(part) or f"{part}.safetensors" in self.sha256

    def files_of(self, part: str) -> list[str]:
        """The files of a part, by name."""
        shard = re.compile(rf"{part}-[0-9]+-of-[0-9]+\.safetensors")
        named = (f"{part}.safetensors", shards.index_name(part))
        return sorted(name for name in self.sha256 if name in named or shard.fullmatch(name))

    def read(self, name: str) -> bytes:
        """Read a whole file of the checkpoint and verify it.

        Raises:
            Damaged: it is missing, or not what was written.
            EnvironmentLacks: the machine does not allow reading it.
        """
        with self.open(name) as file:
            data = file.read()
        if sha256_of(data) != self.sha256[name]:
            raise Damaged(f"{name} does not match its checksum")
        self.read_names.add(name)
        return data

    def check(self, name: str) -> None:
        """Like `read`, for a file whose contents are not needed, or should not be in memory as a whole."""
        with self.open(name) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256[name]:  # type: ignore[arg-type]
                raise Damaged(f"{name} does not match its checksum")
        self.read_names.add(name)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file of the checkpoint for reading."""
        if self.journaled:
            yield BytesIO(self.journaled[name])
        else:
            with open_regular(self.path / name, self.sizes.get(name)) as file:
                yield file


def encode_manifest(
    step: int, run: Mapping[str, Any], contents: Mapping[str, bytes], inputs: Mapping[str, str] | None = None
) -> bytes:
    """The bytes of the manifest for these file contents."""
    sums = {name: (sha256_of(data), len(data)) for name, data in contents.items()}
    return encode_sums(MANIFEST_FORMAT, step, run, sums, inputs)


def encode_sums(
    number: int,
    step: int,
    run: Mapping[str, Any],
    sums: Mapping[str, tuple[str, int]],
    inputs: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes of a manifest of format `number`, from SHA-256 and size of each file."""
    body = {
        "format": number,
        "pmdkit": __version__,
        "step": step,
        "run": run,
        **({"inputs": inputs} if inputs else {}),
        "sha256": {name: digest for name, (digest, _) in sums.items()},
        "bytes": {name: size for name, (_, size) in sums.items()},
    }
    return files.encode({**body, "digest": sha256_of(files.encode(body))})


def read_manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint folder.

    Every format from 2 on has the digest, so that a newer manifest is not taken for a damaged one. Format 1 had only
    the keys format, step and sha256.

    Raises:
        Damaged: there is none, or it was changed.
        ResumeRefused: a newer pmdkit wrote it.
        EnvironmentLacks: the machine does not allow reading it.
    """
    if path.is_symlink() or not path.is_dir():
        raise Damaged("it is not a folder")
    with open_regular(path / MANIFEST, most=MANIFEST_LIMIT) as file:
        return parse_manifest(path, file.read())


def parse_manifest(path: Path, data: bytes, journaled: Mapping[str, bytes] | None = None) -> Manifest:
    """Like `read_manifest`, but from the manifest's bytes.

    Args:
        path: of the checkpoint, or of its journal.
        data: bytes of the manifest.
        journaled: all files, if they are in memory.
    """
    try:
        stored = json.loads(data)
        body = {key: value for key, value in stored.items() if key != "digest"}
        whole = stored.get("digest") == sha256_of(files.encode(body)) and data == files.encode(stored)
        number = stored.get("format")
        if whole and isinstance(number, int) and number > SHARDED_FORMAT:
            raise ResumeRefused(
                f"checkpoint {path} has format {number}, written by pmdkit {stored.get('pmdkit')}; pmdkit "
                f"{__version__} reads formats up to {SHARDED_FORMAT}, and nothing was changed: go on with the newer "
                "version"
            )
        if number == 1 and stored.keys() == {"format", "step", "sha256"}:
            stored |= {"run": {}, "bytes": {}}
        elif not whole or number not in (MANIFEST_FORMAT, SHARDED_FORMAT):
            raise Damaged(f"{MANIFEST} does not match its own checksum")
        inputs = dict(stored.get("inputs", {}))
        sums, sizes = dict(stored["sha256"]), dict(stored["bytes"])
        manifest = Manifest(path, stored["step"], stored["run"], sums, sizes, inputs, journaled or {})
    except Damaged:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise Damaged(f"{MANIFEST} is not a manifest: {problem}") from problem
    missing = [f"{part}.safetensors" for part in NEEDED if not manifest.has(part)]
    if "state.json" not in manifest.sha256:
        missing.append("state.json")
    if missing:
        raise Damaged(f"{MANIFEST} does not name {missing[0]}")
    if strange := [name for name in manifest.sha256 if Path(name).name != name]:
        raise Damaged(f"{MANIFEST} names {strange[0]!r}, which is not a file of the folder")
    return manifest


def check_origin(manifest: Manifest, step: int, run: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another step, or of another run.

    Options that only one of the two has come from another version of pmdkit and are ignored here.
    """
    if manifest.step != step:
        raise Damaged(f"it is of step {manifest.step}")
    there, here = dict(flatten(manifest.run)), dict(flatten(run))
    for key in sorted(there.keys() & here.keys()):
        if there[key] != here[key]:
            raise ResumeRefused(
                f"checkpoint {manifest.path} is of another run: {key} is {there[key]} there and {here[key]} here; "
                "nothing was changed: move it away, or use the run folder it belongs to"
            )


def run_identity(checkpoints: Path) -> dict[str, Any]:
    """What identifies the run that a folder of checkpoints belongs to; empty if there is none.

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
    return {key: value for key, value in config.items() if key != "parallel"} | {"schedule": schedule, "run": seed}


def recorded_inputs(checkpoints: Path) -> dict[str, str]:
    """The digests in inputs.json of the run that a folder of checkpoints belongs to; empty if there are none."""
    file = checkpoints.parent / "inputs.json"
    return dict(json.loads(file.read_bytes())["digests"]) if file.is_file() else {}


def newest_inputs(checkpoints: Path) -> dict[str, str]:
    """The digests that the newest whole manifest holds."""
    for step in reversed(steps(checkpoints)):
        with suppress(Damaged):
            return dict(read_manifest(checkpoints / f"step-{step}").inputs)
    return {}


def flatten(value: Any, key: str = "") -> list[tuple[str, Any]]:
    """Values with dotted keys."""
    if isinstance(value, Mapping):
        return [
            entry for name, inner in value.items() for entry in flatten(inner, f"{key}.{name}" if key else str(name))
        ]
    return [(key, value)]


@contextmanager
def open_regular(path: Path, size: int | None = None, most: int | None = None) -> Iterator[IO[bytes]]:
    """Open a regular file for reading; not a link, nor a pipe, on which a read could wait forever."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise Damaged(f"{path.name} is not a regular file")
        if size is not None and found.st_size != size:
            raise Damaged(f"{path.name} has {found.st_size} bytes, {size} were written")
        if most is not None and found.st_size > most:
            raise Damaged(f"{path.name} has {found.st_size} bytes, more than {most}")
        with path.open("rb") as file:
            yield file
    except OSError as problem:
        if problem.errno in DAMAGE:
            raise Damaged(f"{path.name}: {problem.strerror}") from problem
        raise EnvironmentLacks(
            f"{path} cannot be read ({problem.strerror}); nothing was changed: make it readable, then go on with "
            "--resume"
        ) from problem


def sha256_of(data: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(data).hexdigest()
