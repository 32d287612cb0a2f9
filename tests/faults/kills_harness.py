"""Carries out plans of kills: runs, kills, looks, resumes, and compares what comes out with an undisturbed run."""

import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from .fork_server import Attempt, Shot, attempt
from .invariants import Book, Broken, Undisturbed
from .invariants_files import tree
from .kills import PHASES, Plan, resolve
from .phases import Aim
from .runs import CASES, STEPS, Case, go


@dataclass
class Report:
    """What became of a plan.

    Attributes:
        plan, case: number and name.
        kills: of each that fell in time, the phases that were open, the signals, and whether it fell into a resume,
            before the first step.
        broken: name and detail of an invariant that does not hold.
        lingered: seconds that a process outlived its run, at most.
        told: what was sent when, to repeat it by hand.
    """

    plan: int
    case: str
    kills: list[tuple[tuple[str, ...], list[str], bool]] = field(default_factory=list)
    broken: tuple[str, str] | None = None
    lingered: float = 0.0
    told: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reference:
    """An undisturbed run; `measured`, its seconds, and how often and for how many calls it is in each phase."""

    undisturbed: Undisturbed
    measured: tuple[float, dict[str, int], dict[str, float]]


class Harness:
    """A folder in which runs are killed, with undisturbed runs to compare with.

    Args:
        root: the folder.
        inputs: what the runs read, see `runs.prepare`.
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
                raise Broken("undisturbed", f"two runs of {case.name} differ that nobody killed")
            often = Counter(event.phase for event in counted[1].events if event.mark == "+")
            ends = [event for event in counted[1].events if event.mark == "-" and not event.thread]
            long = {phase: mean(int(end.value) for end in ends if end.phase == phase) for phase in often}
            self.references[case.name] = Reference(plain[0], (plain[1].seconds, often, long))
        return self.references[case.name]

    def undisturbed(self, case: Case, counted: bool) -> tuple[Undisturbed, Attempt]:
        """A run that nobody kills."""
        place = self.place("undisturbed")
        found = self.start(case, place, resume=False, counted=counted)
        if found.code != 0:
            raise Broken("undisturbed", f"{case.name} failed without a kill: {found.said}")
        updates = [event.value for event in found.events if (event.mark, event.phase) == ("+", "update")]
        return Undisturbed(updates, tree(place / "run", STEPS)), found

    def carry_out(self, plan: Plan) -> Report:
        """Run, kill, look, resume, as often as the plan says, and compare what comes out."""
        case, report = CASES[plan.case], Report(plan.number, plan.case)
        try:
            self.follow(plan, case, report)
        except Broken as broken:
            report.broken = broken.name, broken.detail
        return report

    def follow(self, plan: Plan, case: Case, report: Report) -> None:
        """The same; raises Broken."""
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
            report.told.append(f"{kill} -> {found.code}, in {found.hit}")
            if kill is not None and found.hit is not None:
                restoring = turn > 0 and not any(event.phase == "reward" for event in found.events)
                report.kills.append((found.hit, [signal.Signals(number).name for number in kill.numbers], restoring))
            book.enter(found)
            if found.code == 0:
                break
        book.end(reference.undisturbed)
        strangers = sorted(path.name for path in place.iterdir())
        if strangers != ["cwd", "decoys", "home", "log", "run", "tmp"]:
            raise Broken("outside", f"new beside the run folder: {strangers}")


def phases_of(kill: tuple[tuple[str, ...], list[str], bool]) -> set[str]:
    """Which of PHASES a kill of a report fell into; "resume" is anything before the first step of a later start."""
    hit, _, restoring = kill
    return ({"resume"} if restoring else set()) | ({*PHASES, "phase 0"} & set(hit))
