"""Plans of kills: which run, how often, in which phase or when, with which signals. They are carried out elsewhere.

Plan n is the same for ever: a failure is run again by its number.
"""

import math
import random
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from .fork_server import Shot
from .phases import Aim
from .runs import CASES, STEPS, Case

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
