"""The manifest of a checkpoint: what it says of itself, and reading its files only as the manifest has them.

It holds the step, the options that decide the run, digests of the run's inputs, and the size and SHA-256 of every file;
its own digest covers all of that.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EIO, EISDIR, ELOOP, ENOENT, ENOTDIR
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from pmdkit.errors import EnvironmentLacks, ResumeRefused
from pmdkit.observe import files, shards
from pmdkit.version import __version__

WEIGHTS = ("model", "reference", "adapter", "pending")
PARTS = (*WEIGHTS, "optimizer")
MANIFEST = "manifest.json"
MANIFEST_FORMAT = 3
MANIFEST_LIMIT = 2**20  # bytes; a manifest has some kilobytes, so anything larger is not one and is not read
DAMAGE = (ENOENT, ENOTDIR, EISDIR, ELOOP, EIO)  # other read errors are the machine's, and temporary


class Damaged(ValueError):
    """What is wrong with a checkpoint, in a few words."""


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's description of itself.

    Attributes:
        path: of the checkpoint.
        step: completed steps.
        run: what identifies the run; empty if the checkpoint is not in a run folder.
        inputs: digests of data, code and weights that the run was made from; empty if none were kept.
        sha256: checksum of each file by name.
        sizes: bytes of each file by name.
        checked: files that have been compared with their checksums.
    """

    path: Path
    step: int
    run: Mapping[str, Any]
    inputs: Mapping[str, str]
    sha256: Mapping[str, str]
    sizes: Mapping[str, int]
    checked: set[str] = field(default_factory=set, compare=False)

    def parts(self) -> list[str]:
        """The parts it has, each in one file or in shards."""
        return [part for part in PARTS if self.in_shards(part) or f"{part}.safetensors" in self.sha256]

    def in_shards(self, part: str) -> bool:
        """Whether a part is in shards with an index."""
        return shards.index_name(part) in self.sha256

    def files_of(self, part: str) -> list[str]:
        """The files of a part, by name."""
        shard = re.compile(rf"{part}-[0-9]+-of-[0-9]+\.safetensors")
        named = (f"{part}.safetensors", shards.index_name(part))
        return sorted(name for name in self.sha256 if name in named or shard.fullmatch(name))

    def open_part(self, part: str) -> dict[str, shards.StoredTensor]:
        """The tensors of a part, left on disk; its files are verified first unless they have been."""
        for name in self.files_of(part):
            if name not in self.checked:
                self.check(name)
        with decoding():
            used, found = shards.open_folder(self.path, part)
        if strange := sorted(used - self.sha256.keys()):
            raise Damaged(f"its index names {strange[0]}, which its manifest does not name")
        return found

    def read(self, name: str) -> bytes:
        """Read a whole file of the checkpoint and verify it.

        Raises:
            Damaged: it is missing, or not what was written.
            EnvironmentLacks: the machine does not allow reading it.
        """
        with open_regular(self.path / name, self.sizes[name]) as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != self.sha256[name]:
            raise Damaged(f"{name} does not match its checksum")
        self.checked.add(name)
        return data

    def check(self, name: str) -> None:
        """Like `read`, for a file whose contents are not needed, or should not be in memory as a whole."""
        with open_regular(self.path / name, self.sizes[name]) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256[name]:  # type: ignore[arg-type]
                raise Damaged(f"{name} does not match its checksum")
        self.checked.add(name)


def encode_manifest(
    step: int, run: Mapping[str, Any], sums: Mapping[str, tuple[str, int]], inputs: Mapping[str, str]
) -> bytes:
    """The bytes of a manifest, from SHA-256 and size of each file. Its digest covers everything else in it."""
    body = {
        "format": MANIFEST_FORMAT,
        "pmdkit": __version__,
        "step": step,
        "run": run,
        "inputs": inputs,
        "sha256": {name: digest for name, (digest, _) in sums.items()},
        "bytes": {name: size for name, (_, size) in sums.items()},
    }
    return files.encode({**body, "digest": digest_of(body)})


def digest_of(body: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest without its digest."""
    return hashlib.sha256(files.encode(body)).hexdigest()


def read_manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint folder.

    Raises:
        Damaged: there is none, or it was changed.
        ResumeRefused: it has another format.
        EnvironmentLacks: the machine does not allow reading it.
    """
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
            raise ResumeRefused(
                f"checkpoint {path} has format {stored['format']}, written by pmdkit {stored.get('pmdkit')}; pmdkit "
                f"{__version__} reads format {MANIFEST_FORMAT}, and nothing was changed: go on with the other version"
            )
        manifest = Manifest(
            path, stored["step"], dict(stored["run"]), dict(stored["inputs"]), dict(stored["sha256"]),
            dict(stored["bytes"]),
        )  # fmt: skip
    held = manifest.parts()
    if missing := [part for part in ("model", "optimizer") if part not in held]:
        raise Damaged(f"{MANIFEST} does not name {missing[0]}.safetensors")
    if "state.json" not in manifest.sha256 or manifest.sha256.keys() != manifest.sizes.keys():
        raise Damaged(f"{MANIFEST} does not name state.json, or not the size of every file")
    if strange := [name for name in manifest.sha256 if Path(name).name != name]:
        raise Damaged(f"{MANIFEST} names {strange[0]!r}, which is not a file of the folder")
    for part in WEIGHTS:  # transformers would read these, whoever put them there
        for name in (f"{part}.safetensors", shards.index_name(part)):
            if name not in manifest.sha256 and os.path.lexists(path / name):
                raise Damaged(f"it holds {name}, which its manifest does not name")
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


def flatten(value: Any, key: str = "") -> list[tuple[str, Any]]:
    """Values with dotted keys."""
    if not isinstance(value, Mapping):
        return [(key, value)]
    return [entry for name, inner in value.items() for entry in flatten(inner, f"{key}.{name}" if key else str(name))]


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
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise Damaged(f"{path.name} is not a regular file")
        if size is not None and found.st_size != size:
            raise Damaged(f"{path.name} has {found.st_size} bytes, {size} were written")
        with path.open("rb") as file:
            yield file
    except OSError as problem:
        if problem.errno in DAMAGE:
            raise Damaged(f"{path.name}: {problem.strerror}") from problem
        raise unreadable(path, problem) from problem


def unreadable(path: Path, problem: OSError) -> EnvironmentLacks:
    """The error for what the machine does not let us read."""
    why = f"{path} cannot be read ({problem.strerror}); nothing was changed"
    return EnvironmentLacks(f"{why}: make it readable, then go on with --resume")
