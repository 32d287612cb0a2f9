"""What the fault tests share: how many cases they run, the runs that are killed, and the process that forks them.

`CASES` are the runs: bandit, toy and language model, each about half a second. A `Trace` writes down every entry and
exit of a phase; a signal that is aimed falls after a counted number of calls inside of a phase, so it falls at the
same place on any machine. `attempt` forks a child for a run from a process that has imported everything, sends it
signals, at random times too, and sees how it ends. `scaled` multiplies what the fast suite does by PMDKIT_FAULTS_SCALE.
"""

import ctypes
import hashlib
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

FACTOR = int(os.environ.get("PMDKIT_FAULTS_SCALE", "1"))


def scaled(number: int) -> int:
    """So many cases at the scale that is asked for."""
    return number * FACTOR


# The runs that are killed, and what they are made from.

STEPS = 6
MINISTEPS = 4
PROMPTS = 4
GROUP = 4
DRAWS = 2  # responses to each problem of an evaluation
PROBLEMS = STEPS * PROMPTS  # one epoch: every problem is asked exactly once

MODEL, GRADER, TRAIN, TEST = "model", "grader.py", "train.jsonl", "test.jsonl"
RECIPES = {"file": "problems.toml", "starter": "starter.toml"}

GRADE = '''"""Grades by length, so that responses of a random model earn different rewards."""


def grade(response, gold):
    return len(response) % 5 / 4
'''


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        name: of the case.
        tier: backend.
        env: a spec on the shelf, or a key of RECIPES.
        objective: by name.
        keep, every: checkpoints kept, and steps between them.
        options: the other dotted keys.
    """

    name: str
    tier: str
    env: str
    objective: str
    keep: int = 2
    every: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def phase_0(self) -> bool:
        """Whether it begins with a warm start."""
        return self.options.get("warm_start.pass_rate", 0.0) > 0


SMALL = {"model.dimension": 16, "model.layers": 1}
TAUGHT = SMALL | {"warm_start.pass_rate": 0.13, "warm_start.batch": 32, "warm_start.look": 5}
STARTER = {"warm_start.pass_rate": 0.2, "warm_start.max_steps": 400, "warm_start.look": 5, "warm_start.batch": 4}

CASES = {
    case.name: case
    for case in (
        Case("bandit", "bandit", "two-hills", "pmd-mean"),
        Case("bandit-part", "bandit", "graded", "pmd-part", keep=1, every=2),
        Case("toy", "toy", "modular-sum", "pmd-mean", keep=1, options=SMALL),
        Case("toy-taught", "toy", "modular-sum", "pmd-part", every=2, options=TAUGHT),
        Case("toy-grpo", "toy", "modular-sum", "grpo", keep=3, options=SMALL),
        Case("toy-rloo", "toy", "modular-sum", "rloo", keep=1, every=2, options=SMALL),
        Case("llm", "llm", "file", "pmd-mean"),
        Case("llm-part", "llm", "file", "pmd-part", keep=1, every=2),
        Case("llm-grpo", "llm", "file", "grpo", keep=1, options={"rollout.old": "recompute"}),
        Case("llm-rloo", "llm", "file", "rloo", every=2),
        Case("llm-lag", "llm", "file", "pmd-mean", options={"rollout.lag": 1}),
        Case("llm-lag-2", "llm", "file", "pmd-part", every=2, options={"rollout.lag": 2}),
        Case("llm-reference", "llm", "file", "tb", keep=1),
        Case("llm-starter", "llm", "starter", "pmd-mean", every=2, options=STARTER),
    )
}


def prepare(inputs: Path) -> None:
    """Write what the runs of language models read: a model of random weights, problems, a grader, two recipes."""
    import torch
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    from pmdkit.envs.math import make_math
    from pmdkit.llm.starter.model import train_tokenizer
    from pmdkit.observe.console import quietly

    tokenizer = train_tokenizer(make_math({"kind": "arithmetic", "numbers": 2, "problems": 200}))
    config = Qwen2Config(
        vocab_size=-len(tokenizer) // 64 * -64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    # with one end token in 400 nearly every response of random weights would be cut off, and wrong
    ends = [tokenizer.eos_token_id, *range(3, len(tokenizer), 5)]
    model.generation_config = GenerationConfig(eos_token_id=ends)
    with quietly():
        model.save_pretrained(inputs / MODEL)
    tokenizer.save_pretrained(inputs / MODEL)
    (inputs / GRADER).write_text(GRADE)
    for name, first, count in ((TRAIN, 0, PROBLEMS), (TEST, 100, 6)):
        lines = [
            json.dumps({"problem": f"What is {n} + 1?", "answer": str(n + 1)}) for n in range(first, first + count)
        ]
        (inputs / name).write_text("\n".join(lines) + "\n")
    rest = (
        f'[reward]\ngrade = "{inputs / GRADER}:grade"\nseconds = 60.0\n'  # a busy machine gives the same verdicts
        '[objective]\nname = "pmd-mean"\ntau = 0.05\n[schedule]\nlr = 1e-2\noptimizer = "adamw"\n'
        "[rollout]\nwidth = 10\nmax_prompt = 100\nrecord_every = 1\n[evaluation]\nevery = 2\nproblems = 6\n"
        f"k = {DRAWS}\n"
    )
    (inputs / RECIPES["file"]).write_text(
        f'[env]\nkind = "file"\npath = "{inputs / TRAIN}"\n[model]\npath = "{inputs / MODEL}"\ndevice = "cpu"\n'
        f'{rest}data = "{inputs / TEST}"\n'
    )
    (inputs / RECIPES["starter"]).write_text(
        f'[env]\nkind = "arithmetic"\nnumbers = 2\nproblems = 200\n[model]\nbuild = "starter"\ndevice = "cpu"\n{rest}'
    )


def go(case: Case, inputs: Path, out: Path, resume: bool) -> None:
    """The one command of a case; `resume` is all that differs when it is given again."""
    from pmdkit import train

    train(
        case.objective,
        case.tier,
        str(inputs / RECIPES[case.env]) if case.env in RECIPES else case.env,
        out=out,
        resume=resume,
        steps=STEPS,
        prompts=PROMPTS,
        group=GROUP,
        ministeps=MINISTEPS,
        seed=3,
        keep=case.keep,
        checkpoint_every=case.every,
        record=1,
        options=case.options,
        trust=[str(path) for path in inputs.glob("*.py")],
    )


# The phases of a run as its own process sees them.

PLACES = {
    "rollout": (
        "pmdkit.bandit.learner:BanditLearner.rollout",
        "pmdkit.toy.learner:ToyLearner.rollout",
        "pmdkit.llm.learner:CausalLearner.rollout",
        "pmdkit.llm.async_rollouts:RolloutQueue.submit",
        "pmdkit.llm.async_rollouts:RolloutQueue.collect",
        "pmdkit.llm.async_rollouts:RolloutQueue.write",  # in a thread of its own
    ),
    "reward": (
        "pmdkit.envs:BanditTask.reward",
        "pmdkit.envs.tokens:TokenTask.reward",
        "pmdkit.llm.task:MathTask.reward",
    ),
    "update": (
        "pmdkit.bandit.learner:BanditLearner.update",
        "pmdkit.toy.learner:ToyLearner.update",
        "pmdkit.llm.learner:CausalLearner.update",
    ),
    "publish": (
        "pmdkit.llm.learner:CausalLearner.sync_weights",
        "pmdkit.llm.engines.distributed:DistributedEngine.publish",
    ),
    "checkpoint": ("pmdkit.observe.checkpoint:save_step",),
    "write": ("pmdkit.observe.files:write",),  # one file of a checkpoint, or another one
    "prune": ("pmdkit.observe.checkpoint:prune",),  # inside of a checkpoint, and once in a resume
    "evaluation": (
        "pmdkit.bandit:evaluate",  # by the name that the backend calls
        "pmdkit.toy.learner:HeldOutEvaluation.__call__",
        "pmdkit.llm.callbacks.evaluation:EvaluationCallback.evaluate",
    ),
    "build": ("pmdkit.training:build",),
    "load": (
        "pmdkit.observe.checkpoint:load_newest",
        "pmdkit.bandit.learner:BanditLearner.load_state_dict",
        "pmdkit.toy.learner:ToyLearner.load_state_dict",
        "pmdkit.llm.learner:CausalLearner.load_state_dict",
    ),
    "rewind": ("pmdkit.observe.run_folder:RunFolder.begin", "pmdkit.observe.run_folder:RunFolder.rewind"),
    "phase 0": ("pmdkit.toy:warm_start", "pmdkit.llm.starter.warm_start:warm_start"),
    "draw": (
        "pmdkit.llm.callbacks.evaluation:EvaluationCallback.draw",
    ),  # inside of an evaluation: responses are written, not read
    "metrics": ("pmdkit.observe.metrics:append",),
    "record": ("pmdkit.recording:Recorder.record", "pmdkit.llm.callbacks.responses:ResponsesCallback.record"),
}


@dataclass(frozen=True)
class Aim:
    """Where a signal falls: `calls` calls after the `entry`-th entry of a phase, at its end at the latest.

    Attributes:
        phase, entry, calls: as said; entries count from 1.
        numbers: signals, one or two.
        gap: calls between the two.
    """

    phase: str
    entry: int
    calls: int
    numbers: tuple[int, ...] = (signal.SIGKILL,)
    gap: int = 0


@dataclass(frozen=True)
class Event:
    """One line of the trace: "+" entry, "-" return, "!" exception, "*" a signal falls.

    Attributes:
        mark, phase, thread: what happened where; thread "" is the main one.
        seconds: since the system started.
        value: step, name or digest of what the phase is about; after "-" of a counted trace the calls it took.
    """

    mark: str
    phase: str
    thread: str
    seconds: float
    value: str

    @classmethod
    def read(cls, line: str) -> "Event":
        """From a line of the pipe."""
        mark, phase, thread, seconds, value = line.split("\t")
        return cls(mark, phase, thread, float(seconds), value)


class Trace:
    """Tells what a process does, line by line, into a pipe.

    Args:
        pipe: descriptor to write to.
        aim: where a signal falls, or None.
        counted: also count the calls of each phase, which takes twice as long.
    """

    def __init__(self, pipe: int, aim: Aim | None = None, counted: bool = False) -> None:
        self.pipe = pipe
        self.aim = aim
        self.counted = counted
        self.entries: Counter[str] = Counter()
        self.calls = 0

    def install(self) -> None:
        """Wrap every phase, in this process for good."""
        for place in (place for places in PLACES.values() for place in places):
            import_module(place.partition(":")[0])  # all of them first: phase 0 keeps its own, unwatched checkpoints
        for phase, places in PLACES.items():
            for place in places:
                self.wrap(place, phase)
        if self.counted:
            threading.setprofile(self.count)
            sys.setprofile(self.count)

    def wrap(self, place: str, phase: str) -> None:
        """Tell the entries and exits of one function."""
        module, _, path = place.partition(":")
        home: Any = import_module(module)
        *owners, name = path.split(".")
        for owner in owners:
            home = getattr(home, owner)
        work, about = getattr(home, name), ABOUT.get(phase, lambda *given: "")

        def watched(*given: Any, **named: Any) -> Any:
            value = about(*given)
            self.entries[phase] += 1
            aim = self.aim if self.aim and (phase, self.entries[phase]) == (self.aim.phase, self.aim.entry) else None
            self.write_event("+", phase, value)
            before, mark = self.calls, "!"
            if aim is not None:
                self.fire_after(aim.calls, aim)
            try:
                done = work(*given, **named)
                mark = "-"
                return done
            finally:
                if aim is not None and aim is self.aim:
                    self.fire(aim)
                self.write_event(mark, phase, f"{self.calls - before}" if self.counted else value)

        setattr(home, name, watched)

    def write_event(self, mark: str, phase: str, value: str = "") -> None:
        """One line; short ones are written whole."""
        here = threading.current_thread()
        thread = "" if here is threading.main_thread() else here.name
        os.write(self.pipe, f"{mark}\t{phase}\t{thread}\t{time.monotonic():.6f}\t{value}\n".encode())

    def count(self, frame: Any, event: str, arg: Any) -> None:
        """One more call or return, of Python or C."""
        self.calls += 1

    def fire_after(self, calls: int, aim: Aim) -> None:
        """Send the next signal of an aim after so many calls in this thread."""
        left = calls

        def countdown(frame: Any, event: str, arg: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                self.fire(aim)

        sys.setprofile(countdown)

    def fire(self, aim: Aim) -> None:
        """Send it, to this process."""
        sys.setprofile(None)
        number, *rest = aim.numbers
        self.aim = Aim("", 0, 0, tuple(rest), aim.gap) if rest else None
        self.write_event("*", signal.Signals(number).name)
        if self.aim is not None:
            self.fire_after(self.aim.gap, self.aim)
        os.kill(os.getpid(), number)


def digest_of(learner: Any, objective: Any, rollouts: Any, batch: Any) -> str:
    """The step, and a digest of everything an update is given."""
    digest = hashlib.blake2b(digest_size=8)
    for tensor in (
        rollouts.prompts,
        rollouts.responses,
        rollouts.logp_old,
        rollouts.mask,
        batch.advantage,
        batch.weight,
    ):
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return f"{learner.version + 1} {rollouts.version} {digest.hexdigest()}"


ABOUT: dict[str, Callable[..., str]] = {
    "update": digest_of,
    "checkpoint": lambda folder, step, *rest: str(step),
    "metrics": lambda path, row: str(row["step"]),
    "draw": lambda stages, record: "" if record is None else record.stem,
}


# The process that forks a child for each run.

DIE_WITH_PARENT, ADOPT_ORPHANS = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER
HANGS = 120.0  # seconds after which a child that should have ended counts as hung
ORPHANS = 60.0  # seconds that what a dead child left may live; it takes far less than 5 on a machine that is idle
STOPPED = 75
ASKING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Shot:
    """Signals at a time: the first `seconds` after the fork, the second `gap` seconds later."""

    seconds: float
    numbers: tuple[int, ...] = (signal.SIGKILL,)
    gap: float = 0.0


@dataclass
class Attempt:
    """How a child ended.

    Attributes:
        code: exit status, negative for the signal that ended it, as subprocess has it; None for one that hung.
        events: its trace.
        hit: the phases that were open when the first signal fell; None where none fell in time.
        seconds: that it lived.
        orphans: command lines of processes that outlived it for too long; they are ended.
        lingered: seconds until nothing was left that it had started.
        said: what it wrote.
    """

    code: int | None = None
    events: list[Event] = field(default_factory=list)
    hit: tuple[str, ...] | None = None
    seconds: float = 0.0
    orphans: list[str] = field(default_factory=list)
    lingered: float = 0.0
    said: str = ""


def become_server() -> None:
    """Make this process one that can fork: the only thread, and the parent of whatever its children leave behind."""
    import torch

    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    libc.prctl(ADOPT_ORPHANS, 1, 0, 0, 0)


def attempt(work: Callable[[], None], place: Path, kill: Aim | Shot | None = None, counted: bool = False) -> Attempt:
    """Run `work` in a child, kill it as told, and wait for all that it started.

    Args:
        work: what the child does, in place/cwd with place/tmp for temporary files; its output goes to place/log.
        place: a folder of the test's own.
        kill: when; nothing is sent where it is None.
        counted: count the calls of each phase.
    """
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"the fork server has {threads} threads; a child would inherit their locks and not them"
    reading, writing = os.pipe()
    began = time.monotonic()
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)  # until the child can answer them
    child = os.fork()
    if child == 0:
        os.close(reading)
        become_child(work, place, Trace(writing, kill if isinstance(kill, Aim) else None, counted))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
    os.close(writing)
    found = Attempt()
    watch(child, reading, found, kill if isinstance(kill, Shot) else None, began)
    os.close(reading)
    ended = time.monotonic()
    found.orphans = orphans()
    found.lingered = time.monotonic() - ended
    found.said = (place / "log").read_text(errors="replace")[-2000:]
    return found


def become_child(work: Callable[[], None], place: Path, trace: Trace) -> None:
    """Everything that a process of its own would have: signals, folders, output. Ends the process."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(place / "cwd")
        os.environ |= {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}
        tempfile.tempdir = None
        trace.install()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
        work()
        code = 0
    except KeyboardInterrupt:
        code = STOPPED  # as the command line has it
    except BaseException as problem:
        traceback.print_exc()
        code = getattr(problem, "exit_code", 1)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)
        sys.stderr.flush()
        os._exit(code)


def watch(child: int, pipe: int, found: Attempt, shot: Shot | None, began: float) -> None:
    """Read the trace until the child is gone, and send what is to be sent."""
    waiting = [] if shot is None else list(zip(shot.numbers, (shot.seconds, shot.seconds + shot.gap), strict=False))
    torn, deadline = b"", began + HANGS
    while True:
        until = began + waiting[0][1] if waiting else deadline
        if select.select([pipe], [], [], max(until - time.monotonic(), 0))[0]:
            part = os.read(pipe, 1 << 16)
            *lines, torn = (torn + part).split(b"\n")
            found.events += [Event.read(line.decode()) for line in lines]
            if not part:
                break
        elif waiting:
            os.kill(child, waiting.pop(0)[0])
            if found.hit is None and shot is not None and shot.numbers[0] != signal.SIGKILL:
                found.hit = open_phases(found.events)
            deadline = time.monotonic() + HANGS
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
    found.code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found.seconds = time.monotonic() - began
    sent = [n for n, event in enumerate(found.events) if event.mark == "*"]
    if sent:
        found.hit = open_phases(found.events[: sent[0]])
    elif found.code == -signal.SIGKILL and shot is not None and shot.numbers[0] == signal.SIGKILL:
        found.hit = open_phases(found.events)
    if found.code == 0:
        found.hit = None  # it came to its end before, or in the very step that it was asked to finish


def open_phases(events: list[Event]) -> tuple[str, ...]:
    """The phases that were entered and not left, in all threads."""
    inside: list[tuple[str, str]] = []
    for event in events:
        if event.mark == "+":
            inside.append((event.phase, event.thread))
        elif event.mark in "-!":
            last = max(n for n, one in enumerate(inside) if one == (event.phase, event.thread))
            del inside[last]
    return tuple(dict.fromkeys(phase for phase, _ in inside))


def orphans() -> list[str]:
    """Wait until no process is left that a child started; name and end those that stay."""
    until = time.monotonic() + ORPHANS
    pause = 0.001
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(pause)
                pause = min(2 * pause, 0.1)
        except ChildProcessError:
            return []
    left = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end while it is looked at
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                left.append((folder / "cmdline").read_text().replace("\0", " ")[:200])
                os.kill(int(folder.name), signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return left
