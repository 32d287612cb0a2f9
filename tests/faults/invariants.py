"""What must hold of a run after every kill, and what must be equal when it ends. Knows the folder, not the code.

`Book` is what is known of one run; `tree`, `snapshot` and `difference` compare what stands in folders.
"""

import hashlib
import json
import re
import signal
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors.numpy import load_file

from .harness import DRAWS, GROUP, PROBLEMS, STOPPED, Attempt

ASKED = ("rollout", "reward", "update", "publish", "checkpoint", "evaluation")
"Phases in which a request to stop is answered, with an exit code of its own."


class BrokenInvariant(AssertionError):
    """An invariant does not hold.

    Attributes:
        name: of the invariant.
        detail: what was found.
    """

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name, self.detail = name, detail


def hold(name: str, truth: bool, detail: str) -> None:
    """Raise BrokenInvariant unless it is so."""
    if not truth:
        raise BrokenInvariant(name, detail)


@dataclass(frozen=True)
class Undisturbed:
    """What a run that nobody killed came to: its updates in order, and what its folder holds."""

    updates: list[str]
    tree: dict[str, Any]


class Book:
    """What is known of one run while it is killed again and again; each attempt is entered when it is over.

    Args:
        run: its folder.
        outside: folders that nobody may write to.
        keep: checkpoints that are kept.
        last: step of the run.
    """

    def __init__(self, run: Path, outside: Iterable[Path], keep: int, last: int) -> None:
        self.run, self.keep, self.last = run, keep, last
        self.watched = list(outside)
        self.outside = snapshot(self.watched)
        self.newest: int | None = None
        self.saved: set[int] = set()  # steps whose checkpoint was acknowledged
        self.lines: list[bytes] = []  # of the metrics, up to the newest checkpoint
        self.evaluated: dict[str, bytes] = {}  # whole problems and done-markers of evaluations
        self.history: list[tuple[int, list[str]]] = []  # of each attempt: where it began, the updates it made

    def enter(self, attempt: Attempt) -> None:
        """Everything that must hold whenever a process has ended, however it ended."""
        hold("ends", attempt.code is not None, "it neither ended nor reacted to a signal")
        allowed = attempt.code == 0 or (attempt.hit is not None and (attempt.code < 0 or attempt.code == STOPPED))
        hold("resumes", allowed, f"exit code {attempt.code} with no signal that explains it; it said: {attempt.said}")
        aimed = any(event.mark == "*" for event in attempt.events)
        deaf = attempt.code == -signal.SIGTERM and aimed and set(attempt.hit or ()) & set(ASKED)
        hold("stops", not deaf, f"asked to stop in {attempt.hit}, it died of the signal instead")
        hold("children", not attempt.orphans, f"alive after it ended: {attempt.orphans}")
        now = snapshot(self.watched)
        moved = sorted(name for name in now.keys() | self.outside.keys() if now.get(name) != self.outside.get(name))
        hold("outside", not moved, f"changed outside of the run folder: {moved}")
        self.lock()
        self.progress(attempt)
        self.checkpoints(attempt)
        self.metrics()
        self.evaluations()

    def lock(self) -> None:
        """It can be taken."""
        if self.run.exists():
            lock = FileLock(self.run / "run.lock")
            with suppress(Timeout):
                lock.acquire(timeout=0)
            hold("lock", lock.is_locked, "the folder is still locked")
            lock.release()

    def progress(self, attempt: Attempt) -> None:
        """It went on after the newest checkpoint and did nothing again that was acknowledged."""
        start = self.newest or 0
        updates = [event.value for event in attempt.events if (event.mark, event.phase) == ("+", "update")]
        steps = [int(value.split()[0]) for value in updates]
        if steps:
            hold("progress", steps[0] == start + 1, f"it went on with step {steps[0]} after a checkpoint of {start}")
            expected = sorted(steps) == steps and set(steps) == set(range(steps[0], steps[-1] + 1))
            hold("progress", expected, f"it updated in the order of steps {steps}")
        drawn = [event.value for event in attempt.events if (event.mark, event.phase) == ("+", "draw") and event.value]
        twice = [name for name in drawn if f"{name}.json" in self.evaluated or drawn.count(name) > 1]
        hold("progress", not twice, f"evaluated again: {twice}")
        taught = any((event.mark, event.phase) == ("+", "phase 0") for event in attempt.events)
        hold("progress", self.newest is None or not taught, f"phase 0 again after a checkpoint of step {self.newest}")
        self.history.append((start, updates))

    def checkpoints(self, attempt: Attempt) -> None:
        """Those that are kept are whole, and the newest one is never older than what was acknowledged."""
        found = sorted(self.saved_steps(), reverse=True)
        returned = {int(e.value) for e in attempt.events if (e.mark, e.phase) == ("-", "checkpoint")}
        self.saved |= returned
        for step in found[: self.keep]:
            damage = damage_of(self.run / "checkpoints" / f"step-{step}", step)
            hold("checkpoint", damage is None, f"step-{step} is not whole: {damage}")
        strange = [path.name for path in self.run.glob("checkpoints/*corrupt*")]
        hold("checkpoint", not strange, f"one was found damaged: {strange}")
        wanted = min(self.keep, len(self.saved))
        hold("checkpoint", len(found) >= wanted, f"{found} are there of {sorted(self.saved)}; expected {wanted}")
        newest = found[0] if found else None
        least = max(self.saved, default=None)
        back = least is not None and (newest is None or newest < least)
        hold("acknowledged", not back, f"the newest is {newest}, {least} was saved")
        if attempt.code == STOPPED and (told := re.search(r"stopped on request after step (\d+)", attempt.said)):
            hold("acknowledged", newest == int(told[1]), f"it said '{told[0]}', the newest checkpoint is {newest}")
        self.newest = newest

    def saved_steps(self) -> list[int]:
        """Steps that have a checkpoint folder, or a journal to make it of."""
        form = re.compile(r"step-(\d+)|journal-(\d+)\.safetensors")
        names = (form.fullmatch(path.name) for path in self.run.glob("checkpoints/*"))
        return sorted({int(name[1] or name[2]) for name in names if name})

    def metrics(self) -> None:
        """Each step up to the newest checkpoint has its line, the same one for ever."""
        path = self.run / "metrics.jsonl"
        lines = whole_lines(path)[: self.newest or 0]
        steps = [json.loads(line)["step"] for line in lines]
        hold("acknowledged", steps == list(range(1, (self.newest or 0) + 1)), f"metrics of checkpointed steps: {steps}")
        same = lines[: len(self.lines)] == self.lines
        hold("acknowledged", same, "a line of the metrics changed after its step was checkpointed")
        self.lines = lines

    def evaluations(self) -> None:
        """What is evaluated stays: done-markers, and the responses to problems that are whole."""
        now = {path.name: path.read_bytes() for path in self.run.glob("evaluations/*.json")}
        for path in self.run.glob("evaluations/*.jsonl"):
            rows: dict[str, list[bytes]] = {}
            for line in whole_lines(path):
                rows.setdefault(json.loads(line)["id"], []).append(line)
            most = max(map(len, rows.values()), default=0)
            hold("evaluations", most <= DRAWS, f"{path.name} holds {most} responses to a problem; expected {DRAWS}")
            now |= {f"{path.name} {name}": b"".join(some) for name, some in rows.items() if len(some) == DRAWS}
        lost = [name for name, data in self.evaluated.items() if now.get(name) != data]
        hold("acknowledged", not lost, f"evaluations lost or changed: {lost}")
        self.evaluated = now

    def end(self, undisturbed: Undisturbed) -> None:
        """The run is over: what it came to is what it would have come to."""
        hold("kept", len(self.saved_steps()) <= self.keep, f"{self.saved_steps()} are kept; expected {self.keep}")
        starts = [start for start, _ in self.history[1:]] + [self.last]
        counted = [
            update
            for (start, updates), after in zip(self.history, starts, strict=True)
            for update in updates
            if start < int(update.split()[0]) <= after
        ]
        self.once_each()
        other = difference(tree(self.run, self.last), undisturbed.tree)
        if other is not None:
            raise BrokenInvariant(*other)
        hold("samples", counted == undisturbed.updates, "the updates that count are not those of an undisturbed run")

    def once_each(self) -> None:
        """Where problems have names, each is asked once in the epoch, and each of its responses used once."""
        lines = [line for path in self.run.glob("rollouts/*.jsonl") for line in whole_lines(path)]
        used = Counter((row["id"], row["k"]) for row in map(json.loads, lines))
        if used:
            hold("samples", max(used.values()) == 1, f"used more than once: {used.most_common(3)}")
            hold("samples", len(used) == PROBLEMS * GROUP, f"{len(used)} responses were used; expected all of an epoch")


NEEDED = {"model.safetensors", "optimizer.safetensors", "state.json"}
KINDS = (
    (r"(^|/)\.|\.corrupt|^phase-0", "leftovers"),
    (r"^checkpoints/.*optimizer", "optimizer"),
    (r"^checkpoints/", "weights"),
    (r"^metrics\.jsonl", "metrics"),
    (r"^rollouts/", "samples"),
    (r"^evaluations/", "evaluations"),
    (r"^summary\.json", "summary"),
    (r"", "folder"),
)
"What a difference in a file is called, in the order in which differences are told."


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> tuple[str, str] | None:
    """What the most telling difference of two trees is called, and what it is; None where they are equal."""
    other = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
    if not other:
        return None
    number, name = min((kind(name), name) for name in other)
    told = "missing" if name not in found else "too much" if name not in wanted else "different"
    return KINDS[number][1], f"{name} is {told} at the end{first_row(found.get(name), wanted.get(name))}"


def first_row(one: Any, other: Any) -> str:
    """Where two lists of rows part, in a few words."""
    if not (isinstance(one, list) and isinstance(other, list)):
        return ""
    for number, (a, b) in enumerate(zip(one, other, strict=False), 1):
        if a != b:
            keys = [key for key in a if a[key] != b.get(key)] if isinstance(a, dict) else [a, b]
            return f": row {number}, {keys[:4]}"
    return f": {len(one)} rows, expected {len(other)}"


def kind(name: str) -> int:
    """Which of KINDS a file belongs to."""
    return next(n for n, (pattern, _) in enumerate(KINDS) if re.search(pattern, name))


def tree(run: Path, last: int) -> dict[str, Any]:
    """What a finished run folder holds, without what may differ: the clock, the lock, older checkpoints, the restarts.

    Verdicts are written in the order of a set; each is there once.
    """
    found: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        older = re.match(r"checkpoints/step-(\d+)(/|$)", name)
        if name in ("run.lock", "restarts.json") or (older and int(older[1]) < last):
            continue
        if path.is_dir():
            found[name] = "folder"
        elif name == "metrics.jsonl":
            rows = [json.loads(line) for line in whole_lines(path)]
            found[name] = [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]
        elif name == "summary.json":
            found[name] = {k: v for k, v in json.loads(path.read_text()).items() if k not in ("seconds", "out")}
        elif name == "verdicts.jsonl":
            found[name] = sorted(whole_lines(path))
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def damage_of(path: Path, step: int) -> str | None:
    """What is wrong with a checkpoint that its journal does not have either; an opinion apart from the loader's."""
    wrong = damage_of_files({file.name: file.read_bytes() for file in path.glob("*")}, step)
    journal = path.with_name(f"journal-{step}.safetensors")
    if wrong is None or not journal.exists():
        return wrong
    return damage_of_files({name: data.tobytes() for name, data in load_file(journal).items()}, step)


def damage_of_files(held: dict[str, bytes], step: int) -> str | None:
    """What is wrong with the files of a checkpoint, by its manifest."""
    try:
        manifest = json.loads(held["manifest.json"])
        sums = manifest["sha256"]
        wrong = [n for n, s in sums.items() if hashlib.sha256(held[n]).hexdigest() != s]
        version = json.loads(held["state.json"])["version"]
    except (ValueError, KeyError) as problem:
        return f"{type(problem).__name__}: {problem}"
    if wrong or sums.keys() < NEEDED or version != step or manifest["step"] != step:
        return f"bad sums {wrong}, files {sorted(sums)}, manifest of step {manifest['step']}, state of step {version}"
    return None


def snapshot(folders: Iterable[Path]) -> dict[str, str]:
    """Names and contents."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for folder in folders
        for path in folder.rglob("*")
    }


def whole_lines(path: Path) -> list[bytes]:
    """Lines that end; the last one may be torn."""
    data = path.read_bytes() if path.exists() else b""
    return [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
