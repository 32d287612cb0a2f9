"""Plans of kills, and the harness that carries them out: run, kill, look, resume, compare with an undisturbed run.

Plan n is the same for ever: a failure is run again by its number. The process that forks and kills is this file, in
tests/; it writes one line of JSON per plan, and `run_all` starts several of them beside each other.

    python -m faults.kills FOLDER share 0 2 50 0     plans 0, 2, 4, ... until 50 kills fell, and enough in each phase
    python -m faults.kills FOLDER plan 37            one plan again, with what was done when
    python -m faults.kills FOLDER bug NAME ...       for each planted bug, plans until it is caught; plan 37: NAME=37
"""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

from .harness import CASES, STEPS, Aim, Attempt, Case, Shot, attempt, become_server, go, prepare
from .invariants import Book, BrokenInvariant, Undisturbed, tree

PHASES = ("rollout", "reward", "update", "publish", "checkpoint", "evaluation", "resume")
DECK = (*PHASES, "checkpoint", "any", "any")  # in random order, again and again; "any" is a random time
STARTING = {"build": 1, "load": 2, "rewind": 2}  # what comes before the first step, and its entries in a resumed run
LONGEST = 4000  # calls
SIGNALS = (
    ((signal.SIGKILL,), 0.8),
    ((signal.SIGTERM,), 0.1),
    ((signal.SIGINT,), 0.05),
    ((signal.SIGTERM, signal.SIGKILL), 0.05),
)


@dataclass(frozen=True)
class Intent:
    """One kill, before it is known how far the run has come.

    Attributes:
        phase: of PHASES or STARTING, "phase 0", "write", "prune", or "any".
        place: how far into what is left of the run, from 0 to 1.
        inside: how far into the phase.
        numbers, gap: signals, and from 0 to 1 the time between two.
    """

    phase: str
    place: float
    inside: float
    numbers: tuple[int, ...]
    gap: float


@dataclass(frozen=True)
class Plan:
    """Attributes: number; case, its name; intents, one for each time that the run is started before the last."""

    number: int
    case: str
    intents: tuple[Intent, ...]


def plans(cases: tuple[str, ...] = tuple(CASES)) -> Iterator[Plan]:
    """Plan 0, 1, 2, ... without end."""
    chance = random.Random(1)
    deck: list[str] = []
    number = 0
    while True:
        count = chance.randint(1, 5)
        while len(deck) < count:
            deck += chance.sample(DECK, len(DECK))
        phases, deck = deck[:count], deck[count:]
        if phases[0] == "resume":  # there has to be something to resume
            phases.append(phases.pop(0))
            if count == 1:
                phases.insert(0, "any")
        fit = [name for name in cases if CASES[name].tier == "llm" or "publish" not in phases] or list(cases)
        case = chance.choice(fit)
        yield Plan(number, case, tuple(intent(phase, CASES[case], n == 0, chance) for n, phase in enumerate(phases)))
        number += 1


def intent(phase: str, case: Case, first: bool, chance: random.Random) -> Intent:
    """A kill in a phase, at a random place of it, by random signals."""
    if phase == "resume":
        phase = chance.choice([*STARTING, "publish"] if case.tier == "llm" else [*STARTING])
    if phase == "publish" and case.tier != "llm":
        phase = "update"  # nothing is published to anybody
    if phase == "checkpoint":  # most of its calls put the state together; those on the disk are few
        phase = chance.choice(["checkpoint", "write", "write", "prune"])
    if phase == "any" and first and case.phase_0:
        phase = "phase 0"
    (numbers,) = chance.choices([n for n, _ in SIGNALS], [weight for _, weight in SIGNALS])
    return Intent(phase, chance.random(), chance.random(), numbers, chance.random())


def resolve(
    intent: Intent, newest: int | None, left: int, seconds: float, often: Mapping[str, int], long: Mapping[str, float]
) -> Aim | Shot:
    """The kill itself. The kills of a plan share what is left of its run: one that is over cannot be killed again.

    Args:
        intent: what is meant.
        newest: the checkpoint that the run goes on from.
        left: kills that are to come, with this one.
        seconds, often, long: of an undisturbed run, how long it takes, and how often and for how many calls it is in
            each phase.
    """
    steps = STEPS - (newest or 0)
    if intent.phase == "any":
        rest = seconds * (0.3 + 0.7 * steps / STEPS)
        return Shot(intent.place * rest / left, intent.numbers, 0.2 * intent.gap)
    if intent.phase in STARTING:  # how long that takes when there is something to restore was not measured
        entries, calls = (1 if newest is None else STARTING[intent.phase]), LONGEST**intent.inside - 1
    else:
        entries = math.ceil(max(1, often[intent.phase] * steps // STEPS) / left)
        calls = intent.inside * long[intent.phase]
    return Aim(intent.phase, 1 + int(intent.place * entries), int(calls), intent.numbers, int(LONGEST * intent.gap))


def plan(number: int, cases: tuple[str, ...] = tuple(CASES)) -> Plan:
    """One of `plans`."""
    return next(islice(plans(cases), number, None))


# What carries plans out.


@dataclass
class Report:
    """What became of a plan.

    Attributes:
        plan, case: number and name.
        kills: of each that fell in time, the phases that were open, the signals, and whether it fell into a resume,
            before the first step.
        broken: name and detail of an invariant that does not hold.
        lingered: seconds that a process outlived its run, at most.
        sent: what was sent when, to repeat it by hand.
    """

    plan: int
    case: str
    kills: list[tuple[tuple[str, ...], list[str], bool]] = field(default_factory=list)
    broken: tuple[str, str] | None = None
    lingered: float = 0.0
    sent: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reference:
    """An undisturbed run; `measured`, its seconds, and how often and for how many calls it is in each phase."""

    undisturbed: Undisturbed
    measured: tuple[float, dict[str, int], dict[str, float]]


class Harness:
    """A folder in which runs are killed, with undisturbed runs to compare with.

    Args:
        root: the folder.
        inputs: what the runs read, see `harness.prepare`.
        bug: called in every child before its run, to plant a bug; undisturbed runs have it too.
    """

    def __init__(self, root: Path, inputs: Path, bug: Callable[[], None] | None = None) -> None:
        self.root, self.inputs, self.bug = root, inputs, bug
        self.references: dict[str, Reference] = {}

    def place(self, name: str) -> Path:
        """A new folder for one run, with others that it must not touch."""
        place = self.root / name
        shutil.rmtree(place, ignore_errors=True)
        for part in ("cwd", "home", "tmp", "decoys"):
            (place / part).mkdir(parents=True)
            (place / part / "thesis.tex").write_text("dear reader")
        (place / "decoys" / "step-1").mkdir()
        (place / "log").touch()
        return place

    def start(
        self, case: Case, place: Path, resume: bool, kill: Aim | Shot | None = None, counted: bool = False
    ) -> Attempt:
        """Run a case in a child."""

        def work() -> None:
            if self.bug is not None:
                self.bug()
            go(case, self.inputs, place / "run", resume)

        return attempt(work, place, kill, counted)

    def reference(self, case: Case) -> Reference:
        """The undisturbed run of a case; two of them, that are the same."""
        if case.name not in self.references:
            counted, plain = self.undisturbed(case, True), self.undisturbed(case, False)
            if counted[0].tree != plain[0].tree:
                raise BrokenInvariant("undisturbed", f"two runs of {case.name} differ that nobody killed")
            often = Counter(event.phase for event in counted[1].events if event.mark == "+")
            unseen = (
                {*PHASES, "write", "prune"} - {"resume"} - ({"publish"} if case.tier != "llm" else set()) - set(often)
            )
            if unseen:
                raise BrokenInvariant("undisturbed", f"{case.name} is never in {unseen}; look at harness.PLACES")
            ends = [event for event in counted[1].events if event.mark == "-" and not event.thread]
            long = {phase: mean(int(end.value) for end in ends if end.phase == phase) for phase in often}
            self.references[case.name] = Reference(plain[0], (plain[1].seconds, often, long))
        return self.references[case.name]

    def undisturbed(self, case: Case, counted: bool) -> tuple[Undisturbed, Attempt]:
        """A run that nobody kills."""
        place = self.place("undisturbed")
        found = self.start(case, place, resume=False, counted=counted)
        if found.code != 0:
            raise BrokenInvariant("undisturbed", f"{case.name} failed without a kill: {found.said}")
        updates = [event.value for event in found.events if (event.mark, event.phase) == ("+", "update")]
        return Undisturbed(updates, tree(place / "run", STEPS)), found

    def carry_out(self, plan: Plan) -> Report:
        """Run, kill, look, resume, as often as the plan says, and compare what comes out."""
        case, report = CASES[plan.case], Report(plan.number, plan.case)
        try:
            self.follow(plan, case, report)
        except BrokenInvariant as broken:
            report.broken = broken.name, broken.detail
        return report

    def follow(self, plan: Plan, case: Case, report: Report) -> None:
        """The same; raises BrokenInvariant."""
        reference = self.reference(case)
        place = self.place("killed")
        outside = [place / part for part in ("cwd", "home", "tmp", "decoys")]
        book = Book(place / "run", [*outside, self.inputs], case.keep, STEPS)
        for turn in range(len(plan.intents) + 1):
            kill = None
            if turn < len(plan.intents):
                left = len(plan.intents) - turn
                kill = resolve(plan.intents[turn], book.newest, left, *reference.measured)
            found = self.start(case, place, turn > 0, kill)
            report.lingered = max(report.lingered, found.lingered)
            report.sent.append(f"{kill} -> {found.code}, in {found.hit}")
            if kill is not None and found.hit is not None:
                restoring = turn > 0 and not any(event.phase == "reward" for event in found.events)
                report.kills.append((found.hit, [signal.Signals(number).name for number in kill.numbers], restoring))
            book.enter(found)
            if found.code == 0:
                break
        book.end(reference.undisturbed)
        strangers = sorted(path.name for path in place.iterdir())
        if strangers != ["cwd", "decoys", "home", "log", "run", "tmp"]:
            raise BrokenInvariant("outside", f"new beside the run folder: {strangers}")


def phases_of(kill: tuple[tuple[str, ...], list[str], bool]) -> set[str]:
    """Which of PHASES a kill of a report fell into; "resume" is anything before the first step of a later start."""
    hit, _, restoring = kill
    return ({"resume"} if restoring else set()) | ({*PHASES, "phase 0"} & set(hit))


# Worker processes beside each other, and what they report.

TESTS = Path(__file__).parents[1]
WORKERS = min(2, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else 1


def run_all(folder: Path, arguments: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """The reports of one worker for each list of arguments, all at the same time."""
    processes = []
    for number, given in enumerate(arguments):
        command = [sys.executable, "-m", "faults.kills", str(folder / str(number)), *given]
        with open(folder / f"{number}.err", "w") as said, open(folder / f"{number}.out", "w") as reports:
            processes.append(subprocess.Popen(command, cwd=TESTS, stdout=reports, stderr=said))
    codes = [process.wait() for process in processes]
    for number, code in enumerate(codes):
        assert code == 0, f"worker {number} ended with {code}: {(folder / f'{number}.err').read_text()[-3000:]}"
    return [json.loads(line) for n in range(len(codes)) for line in (folder / f"{n}.out").read_text().splitlines()]


def table(reports: Sequence[dict[str, Any]]) -> Counter[str]:
    """How many kills fell in all, in each of PHASES, and by which signals."""
    fell = Counter(dict.fromkeys(("all", *PHASES), 0))
    for report in reports:
        for kill in report["kills"]:
            fell.update(["all", *phases_of(kill), " then ".join(kill[1])])
    return fell


def explain_broken(report: dict[str, Any], bug: str = "") -> str:
    """A broken invariant, what was done before it, and how to do that again."""
    again = f"bug '{bug}={report['plan']}'" if bug else f"plan {report['plan']}"
    name, detail = report["broken"]
    steps = "\n  ".join(report["sent"])
    return (
        f"{report['case']}: {name}: {detail}\n  {steps}\n"
        f"again: cd tests && {Path(sys.executable).name} -m faults.kills NEW_FOLDER {again}"
    )


# The process that forks and kills.


def main(root: Path, mode: str, *given: str) -> None:
    """Import everything once, then do as the arguments say."""
    # before anything imports torch or the hub; a process with threads cannot be forked
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    inputs = root / "inputs"
    inputs.mkdir(parents=True)
    prepare(inputs)
    warm_up(root, inputs)
    become_server()
    if mode == "bug":
        for name in given:
            print_report(hunt(root, inputs, name))
        return
    harness = Harness(root, inputs)
    if mode == "plan":
        print_report(harness.carry_out(plan(int(given[0]))))
        return
    share, shares, kills, first = map(int, given)
    for report in until_enough(harness, first + share, shares, kills):
        print_report(report)


def warm_up(root: Path, inputs: Path) -> None:
    """A run of each tier in this process: what is imported late, or made at first use, is there for all children."""
    import pmdkit.llm.evaluate
    import pmdkit.llm.starter.warm_start

    pmdkit.llm.starter.warm_start.SAVE = 5  # steps; phase 0 of a run this small would be over before its first save
    pmdkit.llm.evaluate.ROWS = 4  # responses; an evaluation this small would be written all at once
    for name in ("bandit", "toy-taught", "llm", "llm-lag", "llm-starter"):
        go(CASES[name], inputs, root / "warm" / name, resume=False)


def until_enough(harness: Harness, first: int, shares: int, kills: int) -> Iterator[Report]:
    """Every `shares`-th plan until so many kills fell, a tenth of them in each phase; or until something breaks."""
    fell: Counter[str] = Counter()
    for one in islice(plans(), first, None, shares):
        report = harness.carry_out(one)
        yield report
        for hit in report.kills:
            fell.update(["all", *phases_of(hit)])
        enough = fell["all"] >= kills and all(fell[phase] >= kills / 10 for phase in PHASES)
        if enough or report.broken is not None or one.number > first + 10 * kills:
            return


def hunt(root: Path, inputs: Path, name: str) -> Report:
    """Plans with a planted bug until one of them shows it; all kills together, in the last plan's report."""
    from .sabotage import BUGS  # imports the whole package, which the tests of this process need not

    name, _, only = name.partition("=")
    bug, kills = BUGS[name], []
    harness = Harness(root, inputs, bug.plant)
    for one in [plan(int(only), bug.cases)] if only else plans(bug.cases):
        report = harness.carry_out(one)
        if report.broken and report.broken[0] == "undisturbed":
            raise AssertionError(f"{name} breaks a run that nobody kills: {explain_broken(vars(report), name)}")
        kills += report.kills
        if report.broken is not None or only or len(kills) >= bug.most:
            report.kills = kills
            return report
    raise AssertionError("plans have no end")


def print_report(report: Report) -> None:
    """One line, at once."""
    print(json.dumps(vars(report)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
