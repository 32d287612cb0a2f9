"""Ways to damage a checkpoint, by chance: bits, lengths, names, files of other steps and other runs, links, pipes."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from pmdkit.observe import checkpoint, files

from .crash_points import state
from .file_calls import Calls

OLD, NEW = 6, 7
NAMES = ("model.safetensors", "reference.safetensors", "optimizer.safetensors", "state.json", "config.json")
CONFIG = {
    "tier": "bandit",
    "objective": {"name": "pmd-mean", "tau": 0.05},
    "schedule": {"steps": 9},
    "run": {"seed": 5},
}


def whole(step: int) -> dict:
    """A state with every kind of file."""
    return state(step) | {"reference": state(0)["model"], "first": {"pass_rate": 0.25}}


def make_run(out: Path, config: dict = CONFIG, shift: int = 0) -> Path:
    """A run folder with two checkpoints; returns the folder of these."""
    place = out / "checkpoints"
    place.mkdir(parents=True)
    (out / "config.json").write_bytes(files.encode(config))
    with Calls(out):  # nothing is flushed
        for step in (OLD, NEW):
            checkpoint.save_step(place, step, whole(step + shift), keep=2, extra_files={"config.json": b"{}\n"})
    return place


def some_file(step: Path, chance: random.Random) -> Path:
    """Any file of a checkpoint, its manifest included."""
    return step / chance.choice((*NAMES, checkpoint.MANIFEST))


def flip(place: Path, chance: random.Random) -> None:
    """One bit, or a few."""
    file = some_file(place / f"step-{NEW}", chance)
    data = bytearray(file.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 8))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def cut(place: Path, chance: random.Random) -> None:
    """The end, or the beginning, is gone; all of it perhaps."""
    file = some_file(place / f"step-{NEW}", chance)
    data = file.read_bytes()
    at = chance.randrange(len(data))
    file.write_bytes(data[:at] if chance.random() < 0.7 else data[at + 1 :])


def grow(place: Path, chance: random.Random) -> None:
    """Bytes too many, of the kind that a parser may overlook."""
    file = some_file(place / f"step-{NEW}", chance)
    file.write_bytes(file.read_bytes() + chance.choice((b" ", b"\n", b"\0" * 512, b"{}", file.read_bytes())))


def splice(place: Path, chance: random.Random) -> None:
    """A stretch of another file, or of zeros, as after a crash of the machine."""
    file, other = some_file(place / f"step-{NEW}", chance), some_file(place / f"step-{OLD}", chance)
    data, more = bytearray(file.read_bytes()), chance.choice((other.read_bytes(), b"\0" * 4096))
    start, length = chance.randrange(len(data)), chance.randrange(1, 200)
    data[start : start + length] = more[start : start + length]
    file.write_bytes(data)


def swap(place: Path, chance: random.Random) -> None:
    """Files of the step before, with its manifest or without, or of another run."""
    other = (
        place if chance.random() < 0.5 else make_run(place.parent / "other", CONFIG | {"run": {"seed": 6}}, shift=20)
    )
    names = chance.sample((*NAMES, checkpoint.MANIFEST), chance.randrange(1, 6))
    for name in names:
        shutil.copy(other / f"step-{OLD if other == place else NEW}" / name, place / f"step-{NEW}" / name)


def lose(place: Path, chance: random.Random) -> None:
    """A file is gone, or is something else now: a folder, a pipe, a link to another, a link to nothing."""
    file = some_file(place / f"step-{NEW}", chance)
    data = file.read_bytes()
    file.unlink()
    kind = chance.randrange(5)
    if kind == 1:
        file.mkdir()
    elif kind == 2:
        os.mkfifo(file)
    elif kind == 3:
        (place.parent / "elsewhere").write_bytes(data)
        file.symlink_to(place.parent / "elsewhere")
    elif kind == 4:
        file.symlink_to("/nowhere")


def edit(place: Path, chance: random.Random) -> None:
    """The manifest says something else; half the time with a digest that goes with it, as by a careful hand."""
    file = place / f"step-{NEW}" / checkpoint.MANIFEST
    told = json.loads(file.read_bytes())
    del told["digest"]
    name = chance.choice(NAMES)
    kind = chance.randrange(8)
    if kind == 0:
        del told["sha256"][name]
    elif kind == 1:
        told["sha256"][name] = hashlib.sha256(b"").hexdigest()
    elif kind == 2:
        told["step"] = chance.choice((OLD, 0, -1, "7", None, 7.5, [7]))
    elif kind == 3:
        told["format"] = chance.choice((1, 3, 99, 0, -1, "2", None, True, 2.5))
    elif kind == 4:
        told["run"] = CONFIG | {"objective": {"name": "pmd-mean", "tau": 0.1}}
    elif kind == 5:
        told["sha256"]["../../config.json"] = checkpoint.sha256_of((place.parent / "config.json").read_bytes())
    elif kind == 6:
        told["bytes"][name] = 2**40
    else:
        told[chance.choice(("sha256", "bytes", "run"))] = chance.choice((None, [], "x", 3, {"model.safetensors": None}))
    if chance.random() < 0.5:
        told["digest"] = checkpoint.sha256_of(files.encode(told))
    file.write_bytes(files.encode(told))


def misname(place: Path, chance: random.Random) -> None:
    """The folder has another name, or a stranger has one like it."""
    strange = ("step-007", "step-٧", "step-99999999999999999999", "step-7 ", "step-", "step--7", "step-7.0", "step-8")
    name = chance.choice(strange)
    if chance.random() < 0.5:
        (place / f"step-{NEW}").rename(place / name)
    elif chance.random() < 0.5:
        shutil.copytree(place / f"step-{NEW}", place / name)
    else:
        (place / name).write_bytes(b"a file")


def replace_folder(place: Path, chance: random.Random) -> None:
    """The step is a file, a link out of the folder, or an empty folder."""
    step = place / f"step-{NEW}"
    step.rename(place.parent / "moved")
    kind = chance.randrange(3)
    if kind == 0:
        step.write_bytes(b"")
    elif kind == 1:
        step.symlink_to(place.parent / "moved")
    else:
        step.mkdir()


def header(place: Path, chance: random.Random) -> None:
    """A header of safetensors that claims to be huge, with sums that fit."""
    step = place / f"step-{NEW}"
    name = chance.choice(NAMES[:3])
    data = (step / name).read_bytes()
    size = chance.choice((2**63, 2**40, 10**8 + 1, len(data) * 2, 0))
    contents = {other: (step / other).read_bytes() for other in NAMES}
    contents[name] = size.to_bytes(8, "little") + data[8:]
    (step / name).write_bytes(contents[name])
    (step / checkpoint.MANIFEST).write_bytes(checkpoint.encode_manifest(NEW, checkpoint.run_identity(place), contents))


def litter(place: Path, chance: random.Random) -> None:
    """Files that nobody named, in the step and beside it; they are not part of it, and weights are no litter."""
    for name in ("reference.safetensors.bak", chance.choice(("adapter.safetensors", "log")), "notes.txt", ".hidden"):
        where = chance.choice((place, place / f"step-{NEW}"))
        (where / name).write_bytes((place / f"step-{OLD}" / "model.safetensors").read_bytes())


WAYS: tuple[Callable[[Path, random.Random], None], ...] = (
    flip, flip, cut, grow, splice, swap, lose, edit, misname, replace_folder, header, litter,
)  # fmt: skip
