"""Long and wide, beyond what a test waits for: 20,000 steps watched for growth, 500 kills, killed vLLM servers.

Each part prints a row of figures and keeps it in FOLDER/figures.json, so that an interrupted soak goes on with the part
that it was in; the kills go on with the hundred that they were in. What has to hold is asserted. `make soak` runs all
of it, and copies the figures to soak.json, which docs/project/faults.md quotes.

    python -m faults.soak FOLDER                        everything, an hour or two on two cores
    python -m faults.soak FOLDER bandit --steps 2000    some parts of PARTS, shorter
    python -m faults.soak FOLDER --page                 the table of the page, from the figures
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from filelock import FileLock

from pmdkit.observe import checkpoint

from .kills import PHASES, WORKERS, explain_broken, run_all, table
from .sockets import command_line, points_to

ROOT = Path(__file__).parents[2]
FIGURES = Path(__file__).with_name("soak.json")
Figures = dict[str, Any]


# Long: a run that is watched from outside.

LONG = {
    "bandit": ("bandit", "needle", "--group", "8", "--prompts", "1"),
    "toy": ("toy", "modular-sum", "--group", "4", "--prompts", "4", "--set", "model.dimension=16", "model.layers=1"),
}
KEEP, EVERY = 2, 10  # checkpoints kept, and steps between them
WINDOWS = ((0.2, 0.4), (0.8, 1.0))  # of the steps; what grows is more in the second, and the start is over in the first
MOST_MEMORY, MOST_TIME, MOST_ROW = 1.05, 1.5, 1.05  # second window over first: memory, processor time, bytes of a row
SLACK = 4.0  # MiB of memory that come and go without a leak
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True)
class Sample:
    """What a process has at a moment.

    Attributes:
        step: rows of metrics.jsonl.
        memory: MiB resident.
        processor: seconds of processor time since its start.
        files, threads: how many it has open, and how many it is.
        checkpoints, disk: how many there are, one being written included, and the bytes of all.
    """

    step: int
    memory: float
    processor: float
    files: int
    threads: int
    checkpoints: int
    disk: int


def take_sample(pid: int, out: Path, step: int) -> Sample:
    """Raises OSError where the process has ended."""
    process = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    times = (process / "stat").read_text().rpartition(")")[2].split()
    places = [path for path in (out / "checkpoints").iterdir() if path.is_dir()]
    return Sample(
        step,
        int(status["VmRSS"].split()[0]) / 1024,
        (int(times[11]) + int(times[12])) / TICKS,
        len(os.listdir(process / "fd")),
        int(status["Threads"]),
        len(places),
        sum(size_of(path) for place in places for path in place.glob("*")),
    )


def size_of(path: Path) -> int:
    """Bytes of a file, 0 where it was removed meanwhile."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def long_run(tier: str, folder: Path, steps: int) -> Figures:
    """A run of so many steps; nothing of it may grow but the rows of its metrics."""
    began = time.monotonic()
    found = growth(watch_run(tier, folder, steps), folder / "run", steps)
    return {**found, "minutes": round((time.monotonic() - began) / 60, 1)}


def watch_run(tier: str, folder: Path, steps: int) -> list[Sample]:
    """Samples of a run, about one a second."""
    out, log = folder / "run", folder / "log"
    command = [sys.executable, "-m", "pmdkit", *LONG[tier], f"run.keep={KEEP}", f"run.checkpoint_every={EVERY}"]
    if "--set" not in command:
        command.insert(-2, "--set")
    samples, rows = list[Sample](), 0
    with open(log, "w") as said:
        process = subprocess.Popen(
            [*command, "--json", "--steps", str(steps), "--out", str(out)], env=environment(), stdout=said, stderr=said
        )
    try:
        with open(wait_for(out / "metrics.jsonl", process, log), "rb") as metrics:
            while process.poll() is None:
                rows += sum(part.count(b"\n") for part in iter(lambda: metrics.read(1 << 20), b""))
                try:
                    samples.append(take_sample(process.pid, out, rows))
                except (OSError, KeyError):  # it has ended; a zombie has no memory
                    continue
                time.sleep(min(1.0, steps / 4000))
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, log.read_text()[-3000:]
    return samples


def growth(samples: Sequence[Sample], out: Path, steps: int) -> Figures:
    """Figures of the first and the second window, and what has to hold for them."""
    lines = (out / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert [json.loads(line)["step"] for line in lines] == list(range(1, steps + 1))
    windows = [[one for one in samples if begin * steps <= one.step < end * steps] for begin, end in WINDOWS]
    assert all(len(window) > 2 for window in windows), f"{len(samples)} samples of {steps} steps are too few"
    memory = [median(one.memory for one in window) for window in windows]
    times = [
        1000 * (window[-1].processor - window[0].processor) / max(window[-1].step - window[0].step, 1)
        for window in windows
    ]
    sizes = [mean(len(line) for line in lines[int(begin * steps) : int(end * steps)]) for begin, end in WINDOWS]
    saved = sorted(checkpoint.steps(out / "checkpoints"))
    figures = {
        "steps": steps,
        "memory_mib": [round(one, 1) for one in memory],
        "files": [max(one.files for one in window) for window in windows],
        "threads": [max(one.threads for one in window) for window in windows],
        "processor_ms": [round(one, 2) for one in times],
        "row_bytes": [round(one) for one in sizes],
        "folder_mib": round(sum(size_of(path) for path in out.rglob("*") if path.is_file()) / 2**20, 1),
        "checkpoints": max(one.checkpoints for one in samples),
        "checkpoints_kib": [round(max(one.disk for one in window) / 1024, 1) for window in windows],
    }
    assert memory[1] <= MOST_MEMORY * memory[0] + SLACK, figures
    assert figures["files"][1] <= figures["files"][0], figures
    assert figures["threads"][1] <= figures["threads"][0], figures
    assert times[1] <= MOST_TIME * times[0] + 1.0, figures
    assert sizes[1] <= MOST_ROW * sizes[0], figures
    assert figures["checkpoints"] <= KEEP + 2, figures  # one is written, one is being removed
    assert saved == [step for step in range(0, steps + 1) if step % EVERY == 0 or step == steps][-KEEP:], saved
    return figures


def wait_for(path: Path, process: subprocess.Popen[bytes], log: Path, patience: float = 600.0) -> Path:
    """The path, once the process has made it."""
    until = time.monotonic() + patience
    while not path.exists():
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < until, f"{path} is not there after {patience:.0f} s"
        time.sleep(0.02)
    return path


# Wide: the plans of kills.py, a hundred kills at a time.

BATCH = 100
APART = 1000  # plans between the first ones of two batches; a batch of a hundred kills takes about forty


def kill_runs(folder: Path, kills: int, keep: Callable[[Figures], None], before: Figures) -> Figures:
    """So many kills of runs of all tiers, all ended on the bits of undisturbed ones.

    Args:
        folder: for the runs.
        kills: in all.
        keep: takes the figures after each batch.
        before: figures that it took before an interruption.
    """
    fell, runs, minutes = Counter(before.get("fell", {})), before.get("runs", 0), before.get("minutes", 0.0)
    lingered = before.get("lingered", 0.0)
    for batch in range(before.get("batches", 0), -(-kills // BATCH)):
        began, place = time.monotonic(), folder / f"batch-{batch}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        share = -(-min(BATCH, kills) // WORKERS)
        first = batch * APART
        reports = run_all(place, [["share", str(n), str(WORKERS), str(share), str(first)] for n in range(WORKERS)])
        broken = [explain_broken(report) for report in reports if report["broken"]]
        assert not broken, "\n\n".join(broken)
        fell, runs = fell + table(reports), runs + len(reports)
        minutes += (time.monotonic() - began) / 60
        lingered = max(lingered, *(report["lingered"] for report in reports))
        before = {"batches": batch + 1, "runs": runs, "fell": dict(fell)}
        before |= {"lingered": round(lingered, 3), "minutes": round(minutes, 1)}
        keep(before)
        shutil.rmtree(place)
    assert all(fell[phase] >= kills // 10 for phase in PHASES), fell
    return before


# vLLM: a server and its trainer, killed at random.

MODEL = (
    *("llm", "starter", "--seed", "0", "--steps", "1000000", "--prompts", "8", "--group", "8", "--resume", "--json"),
    *("--set", "rollout.engine=vllm-server", "vllm.servers=1", "vllm.cache_gib=0.25", "rollout.silence=60"),
    *("evaluation.problems=32", "evaluation.k=1", "warm_start.pass_rate=0.1", f"run.keep={KEEP}"),
)
GUARD = "pmdkit/processes.py"  # its command line holds that of the server that it guards
TARGETS = {"server": r"vllm\.entrypoints", "guard": re.escape(GUARD), "engine core": r"EngineCore", "trainer": r""}
LONGEST_PAUSE = 20.0  # seconds between a new row and the next kill, at most
BLIND = 0.25  # share of the kills that wait for no row: they may fall into a start
GONE_WITHIN = 30.0  # seconds; a server that was killed with its trainer needs a few
PATIENCE = 900.0  # seconds without a step; a start takes half a minute on two idle cores, many times that on busy ones
LIVES = {0: "stopped", 75: "stopped", 7: "engine lost for good", 3: "server lost in its start"}
MOST_CANARY, MOST_MISMATCH = 1e-4, 1e-3  # nats, as in tests/vllm/test_end_to_end.py


@dataclass
class Siege:
    """A run of a language model with a vLLM server of its own, in a folder, and what was done to it.

    Attributes:
        place: working directory of all its processes, by which they are found again.
        python: interpreter that has vLLM.
        kills: by name of the target.
        ends: of trainers that nobody killed, by exit code.
        restarts: of engines, as the last row before each end counts them.
        most_lingered: seconds that a process outlived its trainer.
        kept: lines of metrics.jsonl that a checkpoint acknowledged.
    """

    place: Path
    python: str
    kills: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    most_lingered: float = 0.0
    kept: list[bytes] = field(default_factory=list)

    def start(self) -> None:
        """A trainer; its first life begins the run, the others go on."""
        self.out, self.log = self.place / "run", self.place / "log"
        caches = dict.fromkeys(("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR"), str(self.place / "cache"))
        more = {"TMPDIR": str(self.place / "tmp")} | caches
        for folder in more.values():
            Path(folder).mkdir(exist_ok=True)
        with open(self.log, "a") as said:
            self.trainer = subprocess.Popen(
                [self.python, "-m", "pmdkit", *MODEL, "--out", str(self.out)],
                **{"cwd": self.place, "env": environment() | more, "start_new_session": True},
                **{"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said},
            )

    def lines(self) -> list[bytes]:
        """Whole lines of metrics.jsonl."""
        path = self.out / "metrics.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [line for line in lines if line.endswith(b"\n")]

    def others(self) -> dict[int, str]:
        """Command lines of what works in this place besides the trainer, by process id."""
        found = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cwd") if points_to(path, self.place)]
        named = {}
        for pid in set(found) - {self.trainer.pid}:
            try:
                named[pid] = command_line(pid) + (Path(f"/proc/{pid}/comm")).read_text()
            except OSError:  # it ended meanwhile
                continue
        return named

    def saved(self) -> int:
        """The newest checkpoint. Rows of metrics.jsonl are no measure: those behind it stand there until a resume."""
        folder = self.out / "checkpoints"
        return max(checkpoint.steps(folder), default=0) if folder.exists() else 0

    def progress(self, step: int) -> None:
        """Return when a step after this one is saved, or the trainer has ended by itself."""
        until = time.monotonic() + PATIENCE
        while self.saved() <= step and self.trainer.poll() is None:
            assert time.monotonic() < until, f"no step in {PATIENCE:.0f} s: {self.log.read_text()[-3000:]}"
            time.sleep(0.1)

    def strike(self, target: str) -> None:
        """SIGKILL to a target, if it is there; a trainer that ends is looked after, and started again."""
        others = self.others().items()
        found = [
            pid for pid, line in others if re.search(TARGETS[target], line) and (target == "guard" or GUARD not in line)
        ]
        victims = [self.trainer.pid] if target == "trainer" else sorted(found)[:1]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.kills[target] += 1
        if target == "trainer":
            self.trainer.wait()

    def look_after(self) -> None:
        """What a trainer left: no process, a free folder, whole checkpoints, every acknowledged row as it was."""
        code, ended = self.trainer.wait(), time.monotonic()
        if code != -signal.SIGKILL:
            assert code in LIVES, f"ended with {code}: {self.log.read_text()[-3000:]}"
            self.ends[LIVES[code]] += 1
        while left := self.others():
            assert time.monotonic() < ended + GONE_WITHIN, f"left after {GONE_WITHIN:.0f} s: {left}"
            time.sleep(0.05)
        self.most_lingered = max(self.most_lingered, time.monotonic() - ended)
        FileLock(self.out / "run.lock").acquire(timeout=5).lock.release()
        lines = self.lines()
        if not lines:
            return
        numbers = checkpoint.steps(self.out / "checkpoints")  # one at least: phase 0 ends with one
        for number in numbers:
            assert checkpoint.damage(self.out / "checkpoints" / f"step-{number}", number) is None
        assert len(lines) >= max(numbers)
        assert lines[: len(self.kept)] == self.kept, "rows that a checkpoint acknowledged have changed"
        started = len(self.kept)
        self.kept = lines[: max(numbers)]
        self.restarts += json.loads(lines[-1])["engine_restarts"] if len(lines) > started else 0


def besiege(folder: Path, minutes: float, python: str) -> Figures:
    """A run with a vLLM server for so many minutes after its first step, one of them killed every few seconds."""
    chance, siege = random.Random(1), Siege(folder.resolve(), python)
    shared = set(os.listdir("/dev/shm"))
    siege.start()
    try:
        siege.progress(2)  # some steps before the first kill, to compare with
        first, until = siege.saved(), time.monotonic() + 60 * minutes
        step = first
        while time.monotonic() < until:
            if chance.random() > BLIND:
                siege.progress(step)
            pause = time.monotonic() + chance.random() * LONGEST_PAUSE
            while time.monotonic() < min(pause, until) and siege.trainer.poll() is None:
                time.sleep(0.05)
            step = siege.saved()
            if siege.trainer.poll() is None:
                siege.strike(chance.choice(list(TARGETS)))
            if siege.trainer.poll() is not None:
                siege.look_after()
                siege.start()
        siege.progress(siege.saved())
        siege.trainer.send_signal(signal.SIGTERM)
        siege.look_after()
    finally:
        siege.trainer.kill()
        siege.trainer.wait()
        until = time.monotonic() + GONE_WITHIN  # only where something above failed; who ends by itself tidies up
        while siege.others() and time.monotonic() < until:
            time.sleep(0.1)
        for pid in siege.others():
            os.kill(pid, signal.SIGKILL)
    found, left = [json.loads(line) for line in siege.lines()], list((folder / "tmp").rglob("*"))
    assert [row["step"] for row in found] == list(range(1, len(found) + 1))
    assert [row["policy_version"] for row in found] == list(range(len(found)))
    figures = {
        "minutes": minutes,
        "steps": len(found),
        "kills": dict(siege.kills),
        "restarts": siege.restarts,
        "ends": dict(siege.ends),
        "lingered": round(siege.most_lingered, 1),
        "canary_max": max(row["canary_max"] for row in found),
        "mismatch_max": [max(row["mismatch_max"] for row in part) for part in (found[:first], found)],
        "mismatch_mean": [median(row["mismatch_mean"] for row in part) for part in (found[:first], found)],
        "left_shared_memory": len(set(os.listdir("/dev/shm")) - shared),
        "left_temporary": [sum(1 for path in left if not path.is_dir()), round(sum(map(size_of, left)) / 2**20, 1)],
    }
    assert figures["canary_max"] < MOST_CANARY, figures
    assert figures["mismatch_max"][1] < MOST_MISMATCH, figures
    assert minutes < Asked.minutes or (siege.restarts > 0 and set(siege.kills) == set(TARGETS)), figures
    return figures


# Two machines on one folder.

ELSEWHERE = "node-b"


def two_machines(folder: Path) -> Figures:
    """A run, and a second one on its folder from a machine of another name; then the second one after a kill.

    One kernel under two names: its lock reaches both, as that of a shared file system does that has locks.
    """
    out, log = folder / "run", folder / "log"
    command = [sys.executable, "-m", "pmdkit", *LONG["bandit"], "--json", "--steps", "1000000", "--out", str(out)]
    elsewhere = ["unshare", "--map-root-user", "--uts", "sh", "-c", f'hostname {ELSEWHERE} && exec "$@"', "sh"]
    with open(log, "w") as said:
        run = subprocess.Popen([*elsewhere, *command], env=environment(), stdout=said, stderr=said)
    try:
        wait_for(out / "metrics.jsonl", run, log)
        second = subprocess.run([*command, "--resume"], env=environment(), capture_output=True, text=True, check=False)
        assert second.returncode == 3, second
        assert re.search(rf"in use by another run \(process \d+ on {ELSEWHERE}\)", second.stderr), second.stderr
        assert run.poll() is None, log.read_text()
    finally:
        run.kill()
        run.wait()
    sentence = re.sub(r"process \d+", "process 17", " ".join(second.stderr.split()).replace(str(out), "RUN"))
    return {"exit_code": second.returncode, "sentence": sentence}


# All parts, and what is kept of them.


def environment() -> dict[str, str]:
    """For runs of this checkout, one thread each, that ask nobody."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Asked:
    """How long and how wide; a part that was done for the same is not done again."""

    steps: int = 20_000
    kills: int = 500
    minutes: float = 20.0
    vllm: str = str(ROOT / ".venv-vllm" / "bin" / "python")


PARTS: dict[str, Callable[[Path, Asked, Callable[[Figures], None], Figures], Figures]] = {
    "bandit": lambda folder, asked, keep, before: long_run("bandit", folder, asked.steps),
    "toy": lambda folder, asked, keep, before: long_run("toy", folder, asked.steps),
    "kills": lambda folder, asked, keep, before: kill_runs(folder, asked.kills, keep, before),
    "vllm": lambda folder, asked, keep, before: besiege(folder, asked.minutes, asked.vllm),
    "machines": lambda folder, asked, keep, before: two_machines(folder),
}


class Book:
    """Figures on the disk, by part: what was asked, whether it is done, what was found."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts: dict[str, Figures] = json.loads(path.read_text()) if path.exists() else {}

    def keep(self, part: str, asked: Asked, done: bool, found: Figures) -> None:
        """At once, whole or not at all."""
        self.parts[part] = {"asked": asdict(asked) | {"vllm": ""}, "done": done, **found}
        aside = self.path.with_suffix(".part")
        aside.write_text(json.dumps(self.parts, indent=1) + "\n")
        aside.replace(self.path)

    def found(self, part: str, asked: Asked) -> Figures:
        """What is there of a part; nothing where something else was asked."""
        there = self.parts.get(part, {})
        return there if there.get("asked") == asdict(asked) | {"vllm": ""} else {}


def read_figures() -> dict[str, Figures]:
    """Of the last whole soak."""
    found: dict[str, Figures] = json.loads(FIGURES.read_text())
    return found


def soak(folder: Path, parts: Sequence[str], asked: Asked) -> dict[str, Figures]:
    """Do what is not done yet."""
    folder.mkdir(parents=True, exist_ok=True)
    book = Book(folder / "figures.json")
    for part in parts:
        before = book.found(part, asked)
        if not before.get("done"):
            place = folder / part
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            before = {key: value for key, value in before.items() if key not in ("asked", "done")}

            def keep(found: Figures, part: str = part) -> None:
                book.keep(part, asked, False, found)

            book.keep(part, asked, True, PARTS[part](place, asked, keep, before))
        print(f"{part}: {json.dumps({k: v for k, v in book.parts[part].items() if k != 'asked'})}", flush=True)
    return book.parts


def page_rows(parts: Mapping[str, Figures]) -> list[str]:
    """The table of docs/project/faults.md."""
    rows = [
        "| run | steps | memory, MiB | open files | threads | processor, ms a step | bytes a row | checkpoints "
        "| folder, MiB |"
    ]
    rows += ["|---|---|---|---|---|---|---|---|---|"]
    for tier in LONG:
        found = parts[tier]
        pairs = [" / ".join(f"{one:,}" for one in found[key]) for key in PAIRS]
        rows.append(
            f"| {tier} | {found['steps']:,} | {' | '.join(pairs)} | {found['checkpoints']} | {found['folder_mib']} |"
        )
    kills, fell = parts["kills"], parts["kills"]["fell"]
    phases = ", ".join(f"{phase} {fell[phase]}" for phase in PHASES)
    rows += ["", "| kills | runs | longest that a process outlived its run, s | by phase |", "|---|---|---|---|"]
    rows.append(f"| {fell['all']} | {kills['runs']} | {kills['lingered']} | {phases} |")
    siege = parts["vllm"]
    rows += ["", "| vLLM servers, killed | |", "|---|---|"]
    rows += [f"| {name} | {value} |" for name, value in siege_rows(siege)]
    rows += ["", "```", parts["machines"]["sentence"], "```"]
    return rows


PAIRS = ("memory_mib", "files", "threads", "processor_ms", "row_bytes")


def siege_rows(found: Figures) -> list[tuple[str, str]]:
    """What was done to the vLLM run, and what was seen, in words."""
    pair = " / ".join(f"{one:.1e}" for one in found["mismatch_max"])
    return [
        ("minutes, steps", f"{found['minutes']:g}, {found['steps']:,}"),
        ("kills", ", ".join(f"{name} {count}" for name, count in sorted(found["kills"].items()))),
        ("engines restarted by the trainer", f"{found['restarts']}"),
        ("trainers that ended by themselves", ", ".join(f"{name} {n}" for name, n in sorted(found["ends"].items()))),
        ("longest that a process outlived its trainer, s", f"{found['lingered']}"),
        ("mismatch_max before the first kill / in all, nats", pair),
        ("canary_max, nats", f"{found['canary_max']:.1e}"),
        ("left in shared memory, files", f"{found['left_shared_memory']}"),
        ("left in the temporary folder, files / MiB", " / ".join(map(str, found["left_temporary"]))),
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--steps", type=int, default=Asked.steps)
    parser.add_argument("--kills", type=int, default=Asked.kills)
    parser.add_argument("--minutes", type=float, default=Asked.minutes)
    parser.add_argument("--vllm", default=Asked.vllm, help="interpreter that has vLLM")
    parser.add_argument("--keep", action="store_true", help=f"copy the figures to {FIGURES.name}")
    parser.add_argument("--page", action="store_true", help="print the table of the page and end")
    given = parser.parse_args()
    if given.page:
        print("\n".join(page_rows(Book(given.folder / "figures.json").parts)))
        return
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"parts {sorted(unknown)}; expected some of {list(PARTS)}")
    for number in (signal.SIGINT, signal.SIGTERM):  # an interrupted soak ends what it has started
        signal.signal(number, lambda *_: sys.exit(75))
    found = soak(given.folder, given.parts, Asked(given.steps, given.kills, given.minutes, given.vllm))
    if given.keep:
        FIGURES.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
