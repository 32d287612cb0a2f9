"""Draws settings of a sweep from ranges, and successive halving, which gives the most steps to the best of them.

optuna draws all settings before the first run, so that they are the same with every launcher and on every resume.
Halving decides when all runs of a rung have ended; optuna's own pruner decides among those that happen to be done, so
that its choice depends on which machine is faster. A run that goes on is resumed in its folder, so nothing is computed
twice, and the result is the same as that of an uninterrupted run.

Source: successive halving as in Jamieson and Talwalkar, arXiv:1502.07943.
"""

import json
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pmdkit import foreign
from pmdkit.errors import UsageError, unknown
from pmdkit.extras import need
from pmdkit.observe import files
from pmdkit.observe.run_folder import RunFolder, read_json
from pmdkit.sweeps.grid import SEED, SHORT, Options, Trial, value
from pmdkit.sweeps.record import rounded
from pmdkit.training import plan

SEARCHES = ("random", "sobol")
DIGITS = 4  # significant digits of a drawn number: more would only make names longer


@dataclass(frozen=True)
class Range:
    """The range of an option. Attributes: key; low and high, both inclusive; log: drawn uniformly in the logarithm."""

    key: str
    low: float
    high: float
    log: bool

    @property
    def whole(self) -> bool:
        """Whether integers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)


def parse_ranges(pairs: Iterable[str]) -> list[Range]:
    """Parse `key=low:high` and `key=low:high:log` from the command line; short names become dotted keys."""
    found: list[Range] = []
    for pair in pairs:
        name, _, text = pair.partition("=")
        key, parts = SHORT.get(name, name), text.split(":")
        ends = [value(part) for part in parts[:2]]
        if len(ends) < 2 or parts[2:] not in ([], ["log"]) or not all(map(foreign.is_number, ends)):
            raise UsageError(
                f"--range got '{pair}'; expected key=low:high or key=low:high:log, such as lr=1e-5:1e-3:log"
            )
        if not ends[0] < ends[1] or ("log" in parts and ends[0] <= 0):
            raise UsageError(f"--range got '{pair}'; expected low < high" + ", both above 0" * ("log" in parts))
        if key == SEED or key in [one.key for one in found]:
            raise UsageError(
                f"--range names {key} twice, or the seed; expected each option once, and seeds with --seeds"
            )
        found.append(Range(key, ends[0], ends[1], "log" in parts))
    return found


def draw_settings(ranges: Sequence[Range], kind: str, count: int, seed: int = 0) -> list[Options]:
    """Draw settings from the ranges.

    Args:
        kind: "random", or "sobol": points of a scrambled Sobol sequence, which leave fewer gaps; a power of 2 is best.
        count: number of settings.
        seed: seed of these draws only.
    """
    if kind not in SEARCHES:
        raise UsageError(unknown("search", kind, SEARCHES))
    optuna = need("optuna", "a search")
    number, whole = optuna.distributions.FloatDistribution, optuna.distributions.IntDistribution
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {each.key: (whole if each.whole else number)(each.low, each.high, log=each.log) for each in ranges}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if kind == "sobol":
            sampler = optuna.samplers.QMCSampler(scramble=True, seed=seed)
        else:
            sampler = optuna.samplers.RandomSampler(seed=seed)
    study = optuna.create_study(sampler=sampler)
    settings = []
    for _ in range(count + 1):
        trial = study.ask(space)
        settings.append({key: rounded(trial.params[key], DIGITS) for key in space})
        study.tell(trial, 0.0)
    return settings[1:]  # optuna learns the ranges from the first, which is not in the sequence


# Successive halving.


@dataclass(frozen=True)
class Halving:
    """How settings are thinned out.

    Attributes:
        factor: one of this many settings goes on, with this many times the steps.
        metric: a number in the summary, averaged over seeds; larger is better.
    """

    factor: int = 3
    metric: str = "pass_rate_last"

    def __post_init__(self) -> None:
        if self.factor < 2:
            raise UsageError(f"--halving is {self.factor}; expected an integer >= 2: one in so many settings continues")

    def rungs(self, settings: int, steps: int) -> list[int]:
        """Numbers of steps after which settings are compared; the last is `steps`."""
        count = 0
        while self.factor ** (count + 1) <= settings:
            count += 1
        ends = [math.ceil(steps / self.factor ** (count - rung)) for rung in range(count + 1)]
        return sorted(set(ends))


def common_steps(trials: Sequence[Trial]) -> int:
    """The number of steps of the trials, which must be the same for all, since halving decides how many each gets."""
    steps = {plan(trial.tier, trial.env, trial.options)[0].schedule.steps for trial in trials}
    if len(steps) > 1:
        raise UsageError(
            f"--halving got runs of {sorted(steps)} steps; expected one number for all: give it with --set"
        )
    return steps.pop()


def halve(
    trials: Sequence[Trial],
    halving: Halving,
    steps: int,
    runs: Path,
    path: Path,
    go_on: Callable[[Sequence[Trial], int], dict[str, str]],
) -> tuple[dict[str, str], dict[str, str]]:
    """Run all trials to the first rung, the best of them to the next, and so on to the last step.

    Args:
        trials: each setting with every seed.
        halving: the factor and the metric.
        steps: steps of a run that is not stopped.
        runs: the folder that contains the run folders.
        path: file that records which settings went on from each rung, so that a resumed sweep does not decide twice.
        go_on: runs trials up to a step; returns the reasons of failed runs, by name.

    Returns:
        Reasons by name: of the runs that failed, and of those that were stopped.
    """
    settings: dict[str, list[Trial]] = {}
    for trial in trials:
        key = json.dumps({k: v for k, v in trial.options.items() if k != SEED}, sort_keys=True)
        settings.setdefault(key, []).append(trial)
    failed: dict[str, str] = {}
    stopped: dict[str, str] = {}
    rungs = halving.rungs(len(settings), steps)
    head = {**asdict(halving), "steps": rungs, "settings": sorted(settings)}
    kept = read_json(path) if path.exists() else {**head, "rungs": []}
    if {key: kept.get(key) for key in head} != head:
        raise UsageError(f"{path} was made with other settings, steps or --halving; give another --out")
    for number, end in enumerate(rungs):
        if number < len(kept["rungs"]):
            best = kept["rungs"][number]["best"]
        else:
            failed |= go_on([trial for some in settings.values() for trial in some], end)
            if end == steps:
                break
            scores = {key: score(some, halving.metric, runs, failed) for key, some in settings.items()}
            best = sorted(scores, key=lambda key: scores[key], reverse=True)[: max(1, len(scores) // halving.factor)]
            kept["rungs"].append({"steps": end, "scores": {k: finite(v) for k, v in scores.items()}, "best": best})
            files.replace(path, json.dumps(kept).encode() + b"\n", files.PUBLIC)
        sentence = f"stopped after {end} of {steps} steps: {len(best)} of {len(settings)} settings went on"
        gone = [trial.name for key, some in settings.items() if key not in best for trial in some]
        stopped |= {name: sentence for name in gone if name not in failed}
        settings = {key: some for key, some in settings.items() if key in best}
    return failed, stopped


def score(trials: Sequence[Trial], metric: str, runs: Path, failed: dict[str, str]) -> float:
    """The mean of the metric over the seeds of a setting; a setting with a failed seed ranks last."""
    if any(trial.name in failed for trial in trials):
        return -math.inf
    summaries = [RunFolder(runs / trial.name).read_summary() for trial in trials]
    numbers = [key for key, found in summaries[0].items() if foreign.is_number(found)]
    if metric not in numbers:
        raise UsageError(unknown("metric", metric, numbers) + ", in --metric")
    values = [float(summary[metric]) for summary in summaries]
    return float(np.mean(values)) if all(map(math.isfinite, values)) else -math.inf


def finite(number: float) -> float | None:
    """The number, or None if it is not finite, for JSON."""
    return number if math.isfinite(number) else None
