"""Damaged checkpoints and run folders: never loaded silently, never a traceback, never a start from the first step.

WAYS damage a checkpoint, by chance: bits, lengths, names, files of other steps and other runs, links, pipes.
"""

import hashlib
import json
import os
import random
import shutil
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pmdkit import train
from pmdkit.cli import main
from pmdkit.errors import EnvironmentLacks, PmdkitError, ResumeRefused, UsageError
from pmdkit.observe import checkpoint, files
from pmdkit.observe.run_folder import RunFolder
from pmdkit.training import Run

from .crash_points import same, state
from .file_calls import Calls, forked, quick_place
from .harness import scaled

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
    return state(step) | {"reference": state(0)["model"], "first": {"pass_rate": 0.25, "reward": 0.25}}


def make_run(out: Path, config: dict = CONFIG, shift: int = 0, settled: bool = True) -> Path:
    """A run folder with two checkpoints, of a run that ended or of one that was killed; returns the folder of these."""
    place = out / "checkpoints"
    place.mkdir(parents=True)
    (out / "config.json").write_bytes(files.encode(config))
    with Calls(out):  # nothing is flushed
        for step in (OLD, NEW):
            checkpoint.save_step(place, step, whole(step + shift), keep=2, extra_files={"config.json": b"{}\n"})
        if settled:
            checkpoint.flush_checkpoints(place)
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


OPTIONS = {"env": "needle", "group": 2, "prompts": 2, "ministeps": 1, "seed": 5, "options": {"env.arms": 4}}


def outcome(place):
    """What the loader makes of a folder: which step, or which refusal; anything silent or wrong is an error."""
    try:
        step, loaded, warnings = checkpoint.load_newest(place)
    except (ResumeRefused, EnvironmentLacks) as problem:
        return "refused" if str(place) in str(problem) else f"refused without a path: {problem}"
    assert step in (OLD, NEW, 8), f"step {step} was taken"
    assert same(loaded, whole(min(step, NEW))), f"step {step} was loaded with other bits"
    if step == OLD:
        assert (place / f"step-{NEW}").exists() or warnings or misnamed(place), "the older one was taken in silence"
    assert all(f"step-{NEW}" in text or "step-8" in text for text in warnings), warnings
    return f"step {step}, {len(warnings)} warnings"


def misnamed(place):
    """Whoever renamed the newest checkpoint to what is no name of a step has none of that name."""
    return any(checkpoint.STEP.fullmatch(path.name) is None for path in place.glob("step-*"))


def test_no_mutation_is_loaded_silently():
    """The true bits of the step, or the step before with a warning that names it, or a refusal."""
    found, wrong = Counter(), []
    with quick_place() as place:
        make_run(place / "whole")
        for seed in range(scaled(1000)):
            chance, out = random.Random(seed), place / "hurt"
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(place / "whole", out)
            way = chance.choice(WAYS)
            way(out / "checkpoints", chance)
            try:
                with Calls(out):
                    found[outcome(out / "checkpoints")] += 1
            except Exception as problem:
                wrong.append(f"seed {seed}, {way.__name__}: {type(problem).__name__}: {problem}")
    assert wrong == []
    harmless = {f"step {NEW}, 0 warnings", f"step {OLD}, 0 warnings", f"step {NEW}, 1 warnings"}  # see `outcome`
    assert found.keys() <= {f"step {OLD}, 1 warnings", "refused", *harmless}, found
    assert found[f"step {OLD}, 1 warnings"] > scaled(400)
    assert found["refused"] > scaled(10)


def test_no_mutation_takes_a_step_that_has_a_journal():
    """Whatever became of the folder of the newest step, its bits are loaded; a journal in pieces is none.

    Another manifest that is whole, as `swap` and `header` leave one, is of another checkpoint than the journal.
    """
    found, wrong = Counter(), []
    with quick_place() as place:
        make_run(place / "whole", settled=False)
        for seed in range(scaled(150)):
            chance, out = random.Random(seed), place / "hurt"
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(place / "whole", out)
            way = chance.choice(WAYS)
            way(out / "checkpoints", chance)
            torn = chance.random() < 0.2
            if torn:
                journal = checkpoint.journal_path(out / "checkpoints", NEW)
                data = journal.read_bytes()
                journal.write_bytes(chance.choice((data[: chance.randrange(len(data))], bytes(len(data)))))
            try:
                with Calls(out):
                    told = outcome(out / "checkpoints")
                    if told != "refused":
                        again = checkpoint.find_newest(out / "checkpoints")[0]
                        assert told.startswith(f"step {again},"), f"{told}, and the next process takes step {again}"
                if torn or told not in (f"step {NEW}, 0 warnings", f"step {NEW}, 1 warnings"):
                    assert torn or way in (swap, header), told
                    found[told] += 1
            except Exception as problem:
                wrong.append(f"seed {seed}, {way.__name__}: {type(problem).__name__}: {problem}")
    assert wrong == []
    assert found[f"step {OLD}, 1 warnings"] > scaled(20), found


def test_mixed_steps_are_seen(tmp_path):
    """Weights of step 7 with the optimizer of step 6, with the manifest of either."""
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        for with_manifest in (False, True):
            place = make_run(tmp_path / f"{name}-{with_manifest}")
            for file in (name, *([checkpoint.MANIFEST] if with_manifest else [])):
                shutil.copy(place / f"step-{OLD}" / file, place / f"step-{NEW}" / file)
            step, loaded, warnings = checkpoint.load_newest(place)
            assert (step, len(warnings)) == (OLD, 1)
            assert same(loaded, whole(OLD))


def test_a_reference_that_the_manifest_does_not_name_is_not_read(tmp_path):
    """Nor is the rest of such a checkpoint: weights are there that nobody has summed."""
    with Calls(tmp_path):
        for step in (1, 2):
            checkpoint.save_step(tmp_path, step, state(step), keep=2)
        checkpoint.flush_checkpoints(tmp_path)
    shutil.copy(tmp_path / "step-1" / "model.safetensors", tmp_path / "step-2" / "reference.safetensors")
    step, loaded, warnings = checkpoint.load_newest(tmp_path)
    assert step == 1
    assert "reference" not in loaded
    assert "it holds reference.safetensors, which its manifest does not name" in warnings[0]


def test_a_checkpoint_of_another_run_is_refused_and_left_alone(tmp_path):
    """It is whole, so it is not put aside; which option differs is said. More steps are the same run."""
    place = make_run(tmp_path / "run", CONFIG | {"schedule": {"steps": 90}})
    other = make_run(tmp_path / "other", CONFIG | {"objective": {"name": "pmd-mean", "tau": 0.1}})
    shutil.copytree(other / f"step-{NEW}", place / "step-8")
    shutil.rmtree(place / f"step-{NEW}")
    (place / "step-8").rename(place / f"step-{NEW}")
    with pytest.raises(ResumeRefused, match=r"of another run: objective\.tau is 0\.1 there and 0\.05 here"):
        checkpoint.load_newest(place)
    assert checkpoint.steps(place) == [OLD, NEW]
    (place.parent / "config.json").write_bytes(files.encode(CONFIG))
    shutil.rmtree(place / f"step-{NEW}")
    assert checkpoint.load_newest(place)[0] == OLD


def test_loading_takes_at_most_twice_the_memory(tmp_path):
    """Files are read one by one, and what is too large for a manifest is not read at all."""
    big = {"weight": torch.arange(2_000_000, dtype=torch.float32)}
    moments = {0: {"exp_avg": big["weight"] + 1, "exp_avg_sq": big["weight"] + 2}}
    checkpoint.save_step(
        tmp_path, 1, {"model": big, "optimizer": {"state": moments, "param_groups": []}, "version": 1}, keep=2
    )
    size = sum(file.stat().st_size for file in (tmp_path / "step-1").iterdir())
    tracemalloc.start()
    try:
        checkpoint.load_newest(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2 * size
        tracemalloc.reset_peak()
        with open(tmp_path / "step-1" / checkpoint.MANIFEST, "wb") as file:
            file.truncate(2**33)  # sparse
        assert checkpoint.damage(tmp_path / "step-1", 1) == f"manifest.json has {2**33} bytes, more than {2**20}"
        assert tracemalloc.get_traced_memory()[1] < 2 * size
    finally:
        tracemalloc.stop()


def test_what_may_not_be_read_is_not_damaged():
    """Exit 3, and nothing is put aside: whoever mends the permissions has the checkpoint."""
    with tempfile.TemporaryDirectory() as place:  # that of pytest is closed to other users
        os.chmod(place, 0o755)
        checkpoints = make_run(Path(place) / "run")
        for folder in (checkpoints / f"step-{NEW}", checkpoints):
            folder.chmod(0)
            assert forked(lambda: unreadable(checkpoints)) == 3
            folder.chmod(0o755)
        assert checkpoint.step_names(checkpoints) == [f"step-{OLD}", f"step-{NEW}"]


def unreadable(checkpoints):
    """As a user who is not root, in a process of its own."""
    for path in (checkpoints.parent, *checkpoints.parent.rglob("*")):
        if os.geteuid() == 0:
            os.lchown(path, 65534, 65534)
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        checkpoint.load_newest(checkpoints)
    except PmdkitError as problem:
        return problem.exit_code if "cannot be read (Permission denied)" in str(problem) else 1
    return 0


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of four steps."""
    return train(out=tmp_path_factory.mktemp("damage") / "run", steps=4, **OPTIONS).path


def line_of(command, capsys):
    """Exit code and the one line of an error of the command line."""
    with pytest.raises(SystemExit) as left:
        main([str(part) for part in command])
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("pmdkit: error: "), lines
    assert "bug" not in lines[-1], lines
    return left.value.code, lines[-1]


@pytest.mark.parametrize("file", ["config.json", "metrics.jsonl", "summary.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "list", "binary", "null"])
def test_damaged_files_of_a_run_are_named(file, damage, finished, tmp_path, capsys):
    """Resume and `eval` end with exit 2 or 5 and one line that names the file."""
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    data = (out / file).read_bytes()
    hurt = {
        "flip": data.replace(b":", b";", 3),
        "cut": data[: len(data) // 2],
        "empty": b"",
        "list": b"[1, 2]\n" * 4,
        "binary": bytes(range(128, 256)) * 9 + b"\n",
        "null": b"null\n" * 4,
    }[damage]
    (out / file).write_bytes(hurt)
    command = ["bandit", "needle", "--resume", "--out", out, "--steps", 6, "--json", "--group", 2, "--prompts", 2]
    command += ["--ministeps", 1, "--seed", 5, "--set", "env.arms=4"]
    code, line = line_of(command, capsys)
    assert code in (2, 5), line
    assert file in line
    if file == "config.json":
        code, line = line_of(["eval", out], capsys)
        assert code in (2, 5), line
        assert file in line


def test_a_damaged_line_beyond_the_checkpoint_is_computed_again(finished, tmp_path):
    """Killed by a loss of power in the fifth step: its row is dropped, whatever is in it."""
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "summary.json").unlink()
    with open(out / "metrics.jsonl", "ab") as metrics:
        metrics.write(b"\0\0\0\0\n{")
    assert [row["step"] for row in train(out=out, steps=5, resume=True, **OPTIONS).metrics] == [1, 2, 3, 4, 5]


def test_metrics_with_a_hole_are_not_continued(finished, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    lines = (out / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (out / "metrics.jsonl").write_bytes(b"".join([lines[0], *lines[2:]]))
    with pytest.raises(ResumeRefused, match="does not have a row of each of the 4 steps"):
        train(out=out, steps=5, resume=True, **OPTIONS)


def test_the_policy_of_a_damaged_run_is_that_of_the_step_before_and_says_so(finished, tmp_path):
    """Looking at a run changes nothing in it."""
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "checkpoints" / "step-4" / "state.json").unlink()
    with pytest.warns(UserWarning, match="step-4 is damaged"):
        Run(out).policy  # noqa: B018
    assert checkpoint.steps(out / "checkpoints") == [3, 4]
    shutil.rmtree(out / "checkpoints" / "step-3")
    with pytest.raises(ResumeRefused, match="every one is damaged"):
        Run(out).policy  # noqa: B018
    shutil.rmtree(out / "checkpoints")
    with pytest.raises(ResumeRefused, match="no checkpoint yet"):
        Run(out).policy  # noqa: B018


def test_what_a_run_writes_is_for_its_owner_alone(tmp_path):
    """Whatever the umask; a folder that was there keeps its mode."""
    (tmp_path / "mine").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        for out in (tmp_path / "mine", tmp_path / "new"):
            train(out=out, steps=3, record=1, **OPTIONS)
    finally:
        os.umask(before)
    for out in (tmp_path / "mine", tmp_path / "new"):
        modes = {path: path.stat().st_mode & 0o777 for path in out.rglob("*")}
        assert {path.name: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_nothing_is_written_through_a_link(finished, tmp_path):
    """A folder is refused; a file is replaced, or refused where it would be added to."""
    out, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    shutil.copytree(finished, out)
    (out / "checkpoints").rename(outside / "checkpoints")
    (out / "checkpoints").symlink_to(outside / "checkpoints")
    with pytest.raises(UsageError, match="link"):
        train(out=out, steps=6, resume=True, **OPTIONS)
    (outside / "precious").write_bytes(b"mine")
    (out / "summary.json").unlink()
    (out / "summary.json").symlink_to(outside / "precious")
    (out / ".summary.json.part").symlink_to(outside / "precious")
    files.replace(out / "summary.json", b"{}")
    assert not (out / "summary.json").is_symlink()
    (out / "log").symlink_to(outside / "precious")
    with pytest.raises(OSError, match="a symbolic link, and files are not written through links"):
        files.append(out / "log", b"more")
    (outside / "checkpoints" / ".step-9.part").symlink_to(outside)
    with Calls(outside):
        checkpoint.save_step(outside / "checkpoints", 9, state(9), keep=1)
    assert (outside / "precious").read_bytes() == b"mine"
    assert not RunFolder(out).summary.is_symlink()


def test_readers_name_the_line(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": "two"}\n{"step": 3}\n')
    with pytest.raises(UsageError, match=r"metrics\.jsonl, line 2 is not a row of metrics \(step is 'two'\)"):
        RunFolder(tmp_path).read_metrics()
    row = dict.fromkeys(("pass_rate", "log_ratio_min", "response_length")) | {"step": 1, "tokens": 0, "gauge": []}
    row |= {"seconds_rollout": 0.5, "seconds_update": 0.5}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + '\n{"step": 2')
    assert RunFolder(tmp_path).read_metrics() == [row]
