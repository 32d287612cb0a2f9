"""The manifest of a checkpoint: of which run and step it is, a sum for every file, and a sum over itself.

It is written last. Whatever it does not name is not part of the checkpoint and is never read.
"""

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EIO, EISDIR, ELOOP, ENOENT, ENOTDIR
from io import BufferedReader
from pathlib import Path
from typing import Any

from pmdkit.errors import EnvironmentLacks, ResumeRefused
from pmdkit.observe import files
from pmdkit.version import __version__

FORMAT = 2
NAME = "manifest.json"
LIMIT = 2**20  # bytes; a manifest has some kilobytes, so what is larger is none and is not read into memory
NEEDED = {"model.safetensors", "optimizer.safetensors", "state.json"}
DAMAGE = (ENOENT, ENOTDIR, EISDIR, ELOOP, EIO)  # other errors of a read are of the machine, and pass


class Damaged(ValueError):
    """What is wrong with a checkpoint, in a few words."""


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint says of itself.

    Attributes:
        path: of the checkpoint.
        step: completed steps.
        run: what decides the run; empty where the checkpoint stands in no run folder, or is of format 1.
        sha256: sum of each file by name.
        sizes: bytes of each file by name; empty in format 1.
    """

    path: Path
    step: int
    run: Mapping[str, Any]
    sha256: Mapping[str, str]
    sizes: Mapping[str, int]

    def read(self, name: str) -> bytes:
        """A file of the checkpoint, all of it as it was written.

        Raises:
            Damaged: it is missing, or not what was written.
            EnvironmentLacks: the machine does not let it be read.
        """
        with regular(self.path / name, self.sizes.get(name)) as file:
            data = file.read()
        if digest(data) != self.sha256[name]:
            raise Damaged(f"{name} does not match its checksum")
        return data

    def check(self, name: str) -> None:
        """Like `read`, for a file that is not needed, or is not to be in memory as a whole."""
        with regular(self.path / name, self.sizes.get(name)) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256[name]:
                raise Damaged(f"{name} does not match its checksum")


def describe(step: int, run: Mapping[str, Any], contents: Mapping[str, bytes]) -> bytes:
    """The bytes of a manifest."""
    body = {
        "format": FORMAT,
        "pmdkit": __version__,
        "step": step,
        "run": run,
        "sha256": {name: digest(data) for name, data in contents.items()},
        "bytes": {name: len(data) for name, data in contents.items()},
    }
    return files.encode({**body, "digest": digest(files.encode(body))})


def read_manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint folder.

    Every format has the digest, so that a newer one is told from a damaged one. Format 1 had none, and had no other
    keys than these three.

    Raises:
        Damaged: there is none, or it was changed.
        ResumeRefused: a newer pmdkit wrote it.
        EnvironmentLacks: the machine does not let it be read.
    """
    if path.is_symlink() or not path.is_dir():
        raise Damaged("it is no folder")
    with regular(path / NAME, most=LIMIT) as file:
        data = file.read()
    try:
        told = json.loads(data)
        body = {key: value for key, value in told.items() if key != "digest"}
        whole = told.get("digest") == digest(files.encode(body)) and data == files.encode(told)
        number = told.get("format")
        if whole and isinstance(number, int) and number > FORMAT:
            raise ResumeRefused(
                f"checkpoint {path} has format {number}, written by pmdkit {told.get('pmdkit')}; pmdkit {__version__} "
                f"reads formats up to {FORMAT}, and nothing was changed: go on with the newer version"
            )
        if number == 1 and told.keys() == {"format", "step", "sha256"}:
            told |= {"run": {}, "bytes": {}}
        elif not whole or number != FORMAT:
            raise Damaged(f"{NAME} does not match its own checksum")
        manifest = Manifest(path, told["step"], told["run"], dict(told["sha256"]), dict(told["bytes"]))
    except Damaged:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise Damaged(f"{NAME} is no manifest: {problem}") from problem
    if missing := sorted(NEEDED - manifest.sha256.keys()):
        raise Damaged(f"{NAME} does not name {missing[0]}")
    if strange := [name for name in manifest.sha256 if Path(name).name != name]:
        raise Damaged(f"{NAME} names {strange[0]!r}, which is no file of the folder")
    return manifest


def check_place(manifest: Manifest, step: int, run: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another step, or of another run.

    Options that only one of the two has are of another version of pmdkit and decide nothing here.
    """
    if manifest.step != step:
        raise Damaged(f"it is of step {manifest.step}")
    there, here = dict(flat(manifest.run)), dict(flat(run))
    for key in sorted(there.keys() & here.keys()):
        if there[key] != here[key]:
            raise ResumeRefused(
                f"checkpoint {manifest.path} is of another run: {key} is {there[key]} there and {here[key]} here; "
                "nothing was changed: move it away, or give its own run folder"
            )


def run_of(checkpoints: Path) -> dict[str, Any]:
    """What decides the run that a folder of checkpoints stands in; empty where it stands in none.

    More steps and another number of processes continue the same run; how often it saves and reports decides nothing.
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


def flat(value: Any, key: str = "") -> list[tuple[str, Any]]:
    """Values with dotted keys."""
    if isinstance(value, Mapping):
        return [entry for name, inner in value.items() for entry in flat(inner, f"{key}.{name}" if key else str(name))]
    return [(key, value)]


@contextmanager
def regular(path: Path, size: int | None = None, most: int | None = None) -> Iterator[BufferedReader]:
    """A regular file, to read: no link, and no pipe, which would be waited for without end."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise Damaged(f"{path.name} is no regular file")
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
            f"{path} cannot be read ({problem.strerror}); nothing was changed: mend that, then go on with --resume"
        ) from problem


def digest(data: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(data).hexdigest()
