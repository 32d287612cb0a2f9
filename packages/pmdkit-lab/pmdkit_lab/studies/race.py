"""The race: every method tuned with the same budget, then compared on fresh seeds.

The protocol is the file race.toml. Each run is recorded when it ends, so that a race continues where it was stopped,
but only under the protocol that it was started with.
"""

import hashlib
import json
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock

from pmdkit import errors
from pmdkit.errors import Diverged, UsageError
from pmdkit.launchers import ONE, Launcher
from pmdkit.observe import files, run_folder
from pmdkit.remote_calls import Call
from pmdkit.resolve import resolve
from pmdkit.start import train
from pmdkit.sweeps import record
from pmdkit_lab.studies import adaptive, outcomes
from pmdkit_lab.studies.journal import Outcome, journal, make_runs
from pmdkit_lab.studies.local_run import local_run

PROTOCOL = Path(__file__).with_name("race.toml")
MODELS = "models"  # taught once per seed
BEGUN = "protocol.json"  # the protocol under which a folder was started
KNOBS = 3  # values of a method's own option

Options = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """A method and its own option.

    Attributes:
        name: name of the objective.
        knob: dotted option, or several joined by + that move together; "" if there is none.
        values: KNOBS values of the knob, each a list with a value per option if they are joined; none without a knob.
    """

    name: str
    knob: str = ""
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class RaceTask:
    """A task of the race, and the grid over which each method is tuned.

    Attributes:
        lr: smallest and largest learning rate, the same for all methods.
        points: number of learning rates from one end to the other, evenly spaced in the logarithm.
        updates: numbers of updates per rollout batch that are tried.
        seeds, tuning: number of seeds of the comparison and of the tuning.
        block: steps that are averaged before drops are measured.
        knobs: number of values of each knob that are tried.
    """

    name: str
    tier: str
    env: str
    lr: tuple[float, float]
    points: int
    updates: tuple[int, ...]
    seeds: int
    tuning: int
    block: int
    options: Options
    knobs: int = KNOBS

    def settings(self, method: Method) -> list[Options]:
        """The grid of a method: the same number of settings for every method, between the same learning rates."""
        dense = self.points * (1 if method.knob else self.knobs)
        rates = [record.rounded(float(lr)) for lr in np.geomspace(*self.lr, dense)]
        keys, values = method.knob.split("+"), thinned(method.values, self.knobs)  # joined options get a value each
        knobs = [dict(zip(keys, one if len(keys) > 1 else (one,), strict=True)) for one in values] or [{}]
        grid = product(rates, knobs, self.updates)
        return [{"schedule.lr": lr, **knob, "schedule.ministeps": updates} for lr, knob, updates in grid]


@dataclass(frozen=True)
class Protocol:
    """The stated protocol. Attributes: sha256 of the file; its tables; whether it is the short form."""

    sha256: str
    question: str
    budget: Options
    first_tuning_seed: int
    outcome: Options
    methods: tuple[Method, ...]
    tasks: tuple[RaceTask, ...]
    changes: tuple[Options, ...] = ()
    short: bool = False


@dataclass(frozen=True)
class RaceRun:
    """One run: a task, a method, a setting of it, a seed."""

    task: str
    method: str
    setting: str  # JSON of the options, so that a job can be a key
    seed: int

    @property
    def key(self) -> str:
        """Identifies the run in the journal."""
        return json.dumps([self.task, self.method, json.loads(self.setting), self.seed], sort_keys=True)

    def __str__(self) -> str:
        return f"{self.task}, {self.method}, seed {self.seed}"

    @property
    def short(self) -> str:
        """A short hash that names its folder and its call."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:12]


def read_protocol(path: Path = PROTOCOL, short: bool = False) -> Protocol:
    """Read the protocol from a file; `short` reduces it as its table [short] says."""
    data = path.read_bytes()
    stated = tomllib.loads(data.decode())
    methods = tuple(
        Method(each["name"], each.get("knob", ""), tuple(each.get("values", ()))) for each in stated["method"]
    )
    tasks = tuple(
        RaceTask(**{**each, "lr": (each["lr"][0], each["lr"][1]), "updates": tuple(each["updates"])})
        for each in stated["task"]
    )
    if short:
        cut = dict(stated["short"])
        names = cut.pop("tasks")
        count = cut.pop("updates")
        tasks = tuple(replace(t, **cut, updates=thinned(t.updates, count)) for t in tasks if t.name in names)
    return Protocol(
        hashlib.sha256(data).hexdigest(),
        stated["question"],
        stated["budget"],
        stated["seeds"]["tuning_first"],
        stated["outcome"],
        methods,
        tasks,
        tuple(stated.get("change", ())),
        short,
    )


def thinned(values: Sequence[Any], count: int) -> tuple[Any, ...]:
    """`count` of the values, evenly spaced and including both ends; the middle one if `count` is 1."""
    if count >= len(values):
        return tuple(values)
    places = [len(values) // 2] if count == 1 else np.linspace(0, len(values) - 1, count).round().astype(int).tolist()
    return tuple(values[place] for place in places)


def race(
    out: Path,
    protocol: Protocol,
    *,
    launcher: Launcher = ONE,
    resume: bool = False,
    log: Callable[[str], None] = lambda sentence: None,
) -> Outcome:
    """Run the race in `out` until it is done or the time limit of one call is reached.

    OUT/race.json is written at the end of each task, with the tasks that are finished. `out` is new or empty, or with
    `resume` the folder of a started race, whose journal is kept; `log` gets a sentence about each step of the work.
    """
    until = time.monotonic() + 60 * protocol.budget["part_minutes"]
    with journal(out, resume) as done:
        begin(out / BEGUN, {"sha256": protocol.sha256, "short": protocol.short})
        for part, best in run_tasks(protocol, done, out, launcher, log, until):
            result = summary(part, best, done)
            files.replace(out / "race.json", (json.dumps(result, separators=(",", ":")) + "\n").encode())
    return result


def begin(path: Path, stated: Options, may_change: str = "") -> None:
    """Record the protocol of a new race; refuse to continue a race that was started under another protocol."""
    begun = run_folder.read_json(path) if path.exists() else stated
    changed = [key for key in {**begun, **stated} if key != may_change and begun.get(key) != stated.get(key)]
    if changed:
        words = ", ".join(
            f"{key} {errors.short(begun.get(key))} and not {errors.short(stated.get(key))}" for key in changed
        )
        raise UsageError(
            f"the race in {path.parent} was begun under {words}; nothing was changed: go on with the same race.toml, "
            "objective and --short, or give another --out"
        )
    files.replace(path, json.dumps(stated).encode() + b"\n")


def run_tasks(
    protocol: Protocol,
    done: dict[str, Outcome],
    out: Path,
    launcher: Launcher,
    log: Callable[[str], None],
    until: float,
) -> Iterator[tuple[Protocol, dict[str, dict[str, Options]]]]:
    """Tune and compare task by task; yields the protocol of the tasks that are finished, and their tuned settings."""
    for count in range(1, len(protocol.tasks) + 1):
        part = replace(protocol, tasks=protocol.tasks[:count])
        make_runs(tuning(part), lambda each: job_call(each, protocol, out), done, out, launcher, log, until)
        best = tuned(part, done)
        make_runs(comparison(part, best), lambda each: job_call(each, protocol, out), done, out, launcher, log, until)
        yield part, best


def job(task: RaceTask, method: Method, setting: Options, seed: int) -> RaceRun:
    """The run of a method at a setting of a task, with a seed."""
    return RaceRun(task.name, method.name, json.dumps(setting, sort_keys=True), seed)


def tuning(protocol: Protocol) -> list[RaceRun]:
    """Runs of the first half: every setting of every method on a tuning seed, then all on the next: looks are fair."""
    return [
        job(task, method, setting, seed)
        for task in protocol.tasks
        for seed in tuning_seeds(protocol, task)
        for method in protocol.methods
        for setting in task.settings(method)
    ]


def tuning_seeds(protocol: Protocol, task: RaceTask) -> range:
    """The seeds that a task is tuned on."""
    return range(protocol.first_tuning_seed, protocol.first_tuning_seed + task.tuning)


def tuned(protocol: Protocol, done: dict[str, Outcome]) -> dict[str, dict[str, Options]]:
    """task -> method -> the setting with the largest mean area under the curve; the first one in a tie."""
    return {
        task: {name: rows[int(outcomes.scores(rows).argmax())]["setting"] for name, rows in methods.items()}
        for task, methods in scored(protocol, done).items()
    }


def scored(protocol: Protocol, done: dict[str, Outcome]) -> dict[str, dict[str, outcomes.Grid]]:
    """The grid of every task and method: each setting with the area under the curve on each tuning seed."""
    return {
        task.name: {
            method.name: [
                {
                    "setting": setting,
                    "seeds": [
                        done[job(task, method, setting, seed).key]["auc"] for seed in tuning_seeds(protocol, task)
                    ],
                }
                for setting in task.settings(method)
            ]
            for method in protocol.methods
        }
        for task in protocol.tasks
    }


def comparison(protocol: Protocol, best: dict[str, dict[str, Options]]) -> list[RaceRun]:
    """Runs of the second half: every method at its best setting, on fresh seeds."""
    return [
        job(task, method, best[task.name][method.name], seed)
        for task in protocol.tasks
        for seed in range(task.seeds)
        for method in protocol.methods
    ]


def summary(protocol: Protocol, best: dict[str, dict[str, Options]], done: dict[str, Outcome]) -> Outcome:
    """The record of a race: its runs, and the tables that follow from them."""
    found = own_record(protocol, best, done)
    tried: dict[str, dict[str, list[Outcome]]] = {}
    for each in tuning(protocol):
        tried.setdefault(each.task, {}).setdefault(each.method, []).append(done[each.key])
    both = {method.name for method in protocol.methods} >= set(outcomes.PAIR)
    return {
        **found,
        "short": protocol.short,
        "changes": list(protocol.changes),
        "question": protocol.question,
        "budget": dict(protocol.budget),
        "outcome": dict(protocol.outcome),
        "tables": record.rounded(outcomes.tables(protocol.outcome, found["grid"], found["runs"])),
        "matched": record.rounded(outcomes.matched(found["grid"], *outcomes.PAIR)) if both else [],
        "fallen": record.rounded(outcomes.fallen(tried)),
    }


def own_record(protocol: Protocol, best: dict[str, dict[str, Options]], done: dict[str, Outcome]) -> Outcome:
    """The tuning and the comparison run by run (curves are in the journal), and seconds by task and method."""
    compared = comparison(protocol, best)
    seconds: dict[str, dict[str, float]] = {}
    for each in (*tuning(protocol), *compared):
        methods = seconds.setdefault(each.task, {})
        methods[each.method] = methods.get(each.method, 0.0) + done[each.key]["seconds"]
    runs = [{"task": e.task, "method": e.method, "seed": e.seed, **record.rounded(done[e.key])} for e in compared]
    for run in runs:
        del run["curve"]
    return {
        "format": 2,
        "protocol": protocol.sha256,
        "seconds": record.rounded(seconds),
        "grid": record.rounded(scored(protocol, done)),
        "best": best,
        "runs": runs,
    }


def job_call(each: RaceRun, protocol: Protocol, out: Path) -> Call:
    """The call of `make_job` for a run; its arguments are all that it needs."""
    task = next(task for task in protocol.tasks if task.name == each.task)
    arguments = {"task": asdict(task), "method": each.method, "setting": json.loads(each.setting), "seed": each.seed}
    arguments |= {"folder": str(out / "runs" / each.short), "diverged": float(protocol.outcome["diverged"])}
    return Call(each.short, "pmdkit_lab.studies.race:make_job", arguments)


def make_job(task: Options, folder: str, **more: Any) -> Outcome:
    """`run_job` with arguments from JSON."""
    return run_job(RaceTask(**task), folder=Path(folder), **more)


def run_job(task: RaceTask, method: str, setting: Options, seed: int, folder: Path, diverged: float) -> Outcome:
    """Area under the curve, final pass rate, worst drop and curve of one run, and the seconds it took.

    In the bandit the seed is also that of the problem. A language model's run is written to `folder`, and resumed there
    after an interruption. `diverged` is the pass rate of the steps after one that left a non-finite number.
    """
    torch.set_num_threads(1)
    began = time.monotonic()
    options = {**task.options, **setting, "objective.name": method, "run.seed": seed}
    if task.tier == "bandit":
        options["env.seed"] = seed
    if task.tier == "llm":
        rates, final = language_rates(task, method, options, folder)
        steps = resolve(task.tier, task.env, options)[0].schedule.steps
    else:
        spec, objective = resolve(task.tier, task.env, options)
        run, steps = local_run(spec, objective), spec.schedule.steps
        rates, final = run.rates, run.final
    curve = np.array(rates + [diverged] * (steps - len(rates)))
    found = adaptive.outcome(curve, diverged if final is None else final, 0.0, task.block)
    del found["dead"]
    return {**found, "finished": final is not None, "seconds": round(time.monotonic() - began, 3)}


def language_rates(task: RaceTask, method: str, options: Options, folder: Path) -> tuple[list[float], float | None]:
    """Train a language model, resumed where it stopped. All methods of a seed start from the same weights."""
    spec, _ = resolve("llm", task.env, options)
    if spec.model.build is not None:
        start = taught_model(folder.parent.parent / MODELS, spec.model.build, spec.run.seed, spec.warm_start.pass_rate)
        options = {**options, "model.build": None, "model.path": str(start), "warm_start.pass_rate": 0.0}
    try:
        finished = train(method, task.tier, task.env, out=folder, resume=True, options=options)
    except Diverged:
        return [row["pass_rate"] for row in run_folder.RunFolder(folder).read_metrics()], None
    return [row["pass_rate"] for row in finished.metrics], finished.summary["pass_rate_last"]


def taught_model(models: Path, size: str, seed: int, pass_rate: float) -> Path:
    """The folder of a starter model after phase 0, built by the first of several parallel runs that needs it."""
    from pmdkit.llm.export import export_starter

    folder = models / f"{size}-{seed}"
    models.mkdir(parents=True, exist_ok=True)
    with FileLock(models / f"{folder.name}.lock"):
        if not folder.exists():
            unfinished = models / f"{folder.name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed process
            export_starter(unfinished, size, seed, pass_rate, lambda sentence: None)
            unfinished.rename(folder)
    return folder
