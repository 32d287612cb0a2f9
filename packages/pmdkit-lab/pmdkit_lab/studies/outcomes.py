"""Results of a race: tuned methods against the reference, good settings, equal settings, and runs that fall.

Everything is computed from the grid and the runs of a record. `stated` is the protocol's table [outcome].
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import scipy

from pmdkit import stats
from pmdkit.stats import Array
from pmdkit_lab.studies import adaptive, paired_tests

LR = "schedule.lr"
TAU = "objective.tau"
UPDATES = "schedule.ministeps"
MEASURES = ("auc", "final", "drop")
FALL = 0.2  # pass rate; a run that ends this far below its own peak counts as fallen
BELOW_MARGIN = "smaller than the margin"
PAIR = ("pmd-mean", "pmd-part")
"The two methods of the paper."

Grid = list[dict[str, Any]]  # a row per setting: "setting" and "seeds", its scores on the tuning seeds
Row = dict[str, Any]


def tables(stated: Row, grid: dict[str, dict[str, Grid]], runs: list[Row]) -> dict[str, list[Row]]:
    """task -> a row per method: means after tuning, outcome against the reference, and volume of good settings."""
    found: dict[str, list[Row]] = {}
    for task in dict.fromkeys(each["task"] for each in runs):
        members = sorted((each for each in runs if each["task"] == task), key=lambda each: int(each["seed"]))
        names = list(dict.fromkeys(each["method"] for each in members))
        values = {
            name: {key: np.array([r[key] for r in members if r["method"] == name], float) for key in MEASURES}
            for name in names
        }
        against = stated["reference"]
        best_of_all = max(float(scores(rows).max()) for rows in grid[task].values())
        rates = learning_rates(grid[task][against])
        rows = [
            {"method": name, **means(values[name]), **volume(grid[task][name], rates, best_of_all, stated["near"])}
            for name in names
        ]
        others = [row for row in rows if row["method"] != against]
        pairs = [(values[against]["auc"], values[row["method"]]["auc"]) for row in others]
        different = paired_tests.holm([paired_tests.paired_p_value(*pair) for pair in pairs])
        equal = paired_tests.holm([paired_tests.equivalence_p_value(*pair, stated["margin"]) for pair in pairs])
        for row, pair, p, p_equal in zip(others, pairs, different, equal, strict=True):
            row |= verdict(*pair, p, p_equal, len(others), stated)
            shifts = tuning_luck(grid[task][row["method"]], grid[task][against])
            row["gain_with_tuning"] = None if shifts is None else with_tuning(pair[1] - pair[0], shifts)
        found[task] = rows
    return found


def means(values: dict[str, Array]) -> Row:
    """Number of seeds, and mean and interval of each measure."""
    return {"seeds": len(values["auc"]), **{k: adaptive.ends(stats.mean_interval(v)) for k, v in values.items()}}


def scores(rows: Grid) -> Array:
    """[settings] mean over the tuning seeds."""
    return np.array([np.mean(row["seeds"]) for row in rows])


def learning_rates(rows: Grid) -> Array:
    """The learning rates of a grid, sorted."""
    return np.array(sorted({row["setting"][LR] for row in rows}))


def verdict(reference: Array, own: Array, p: float, p_equal: float, comparisons: int, stated: Row) -> Row:
    """The paired difference, own minus reference, and its outcome in a word.

    Args:
        reference, own: [seeds] paired values.
        p, p_equal: corrected p-values of the test of a difference, and of the two one-sided tests that it is smaller
            than the margin.
        comparisons: how many the p-values are corrected for.
        stated: level and margin.

    If `p_equal` decides, the word is "smaller than the margin" where the 95 % interval excludes 0, else "no
    difference". If neither test decides it is "undecided", and `seeds_needed` is the number of pairs that detect a
    difference as large as the margin in four of five races.
    """
    difference = own - reference
    interval = stats.mean_interval(difference)
    assert interval.low is not None
    assert interval.high is not None
    if p_equal < stated["level"]:
        word = BELOW_MARGIN if interval.low > 0 or interval.high < 0 else "no difference"
    elif p < stated["level"]:
        word = "better" if interval.mean > 0 else "worse"
    else:
        word = "undecided"
    level, deviation = stated["level"] / comparisons, float(difference.std(ddof=1))
    needed = paired_tests.seeds_for_power(stated["margin"], deviation, level) if word == "undecided" else None
    return {
        "gain": adaptive.ends(interval),
        "p": p,
        "p_equal": p_equal,
        "outcome": word,
        "seeds_needed": needed,
    }


# Noise that the choice of a setting adds.


def tuning_luck(own: Grid, reference: Grid) -> Array | None:
    """[resamples] changes of the gain when the tuning seeds are resampled with replacement.

    A resample chooses both settings anew, on the same seeds for both methods; what the choices are worth is their mean
    over all tuning seeds. Every resample is enumerated. None with a single tuning seed, which shows no spread.

    Watch: two seeds are few, and a choice is judged by the seeds that made it, so the true spread is larger.
    """
    worth = [np.array([row["seeds"] for row in rows]) for rows in (own, reference)]
    seeds = worth[0].shape[1]
    if seeds == 1:
        return None
    resamples = [list(columns) for columns in product(range(seeds), repeat=seeds)]

    def lost(table: Array) -> Array:
        overall = table.mean(1)
        return np.array([overall[table[:, columns].mean(1).argmax()] for columns in resamples]) - overall.max()

    return lost(worth[0]) - lost(worth[1])


def with_tuning(difference: Array, shifts: Array) -> Row:
    """Mean and 95 % interval of a paired difference whose settings were themselves chosen by chance.

    The distribution is the mean of Student's t about the difference plus each of the equally likely shifts.
    """
    centre, freedom = float(difference.mean()), len(difference) - 1
    spread = max(float(np.std(difference, ddof=1)) / len(difference) ** 0.5, 1e-12)

    def below(x: float, share: float) -> float:
        return float(np.mean(scipy.stats.t.cdf((x - centre - shifts) / spread, freedom))) - share

    reach = spread * scipy.stats.t.ppf(1 - stats.TAIL / 100, freedom)
    ends = (centre + float(shifts.min()) - reach, centre + float(shifts.max()) + reach)
    low, high = (float(scipy.optimize.brentq(below, *ends, args=(share,))) for share in (stats.TAIL, 1 - stats.TAIL))
    return {"mean": centre + float(shifts.mean()), "low": low, "high": high}


# Which settings work.


def volume(rows: Grid, rates: Sequence[float] | Array, best_of_all: float, near: float) -> Row:
    """The share of a common grid that comes within `near` of the best of all methods, and whether the best is on an
    edge.

    The common grid is the learning rates `rates` times the numbers of updates, with the method's own option at its
    tuned value: grids of that option differ in width from method to method, so a share of the whole grid would not
    compare. A method without an option has more learning rates, and is interpolated between them, linearly in log lr.
    The edge is that of the learning rates: a method whose best lies there was not tuned.
    """
    best = rows[int(scores(rows).argmax())]["setting"]
    knob = {key: value for key, value in best.items() if key not in (LR, UPDATES)}
    own = [row for row in rows if knob.items() <= row["setting"].items()]
    works = []
    for updates in dict.fromkeys(row["setting"][UPDATES] for row in own):
        line = [row for row in own if row["setting"][UPDATES] == updates]
        heights = np.interp(np.log(rates), np.log([row["setting"][LR] for row in line]), scores(line))
        works.append(heights >= best_of_all - near)
    ends = learning_rates(rows)
    return {"volume": float(np.mean(works)), "edge": best[LR] in (ends[0], ends[-1])}


# Two methods at the same settings, and runs that fall.


def matched(grid: dict[str, dict[str, Grid]], first: str, second: str) -> list[Row]:
    """Scores of one method minus the other's at equal learning rate, tau, updates and seed.

    There is a row for each task and tau, and one for each task with `tau` None over all of them.

    `wins` is the share of pairs in which the first is ahead. The interval of the mean gap is Student's over settings,
    each averaged over its tuning seeds: it shows how the gap varies from setting to setting. Settings share their
    seeds, so it is not an interval over seeds, and it has no p-value.
    """
    found = []
    for task, methods in grid.items():
        rows = list(zip(methods[first], methods[second], strict=True))
        assert all(a["setting"] == b["setting"] for a, b in rows)
        for tau in (None, *dict.fromkeys(a["setting"][TAU] for a, _ in rows)):
            own = [(a, b) for a, b in rows if tau in (None, a["setting"][TAU])]
            gaps = np.array([np.subtract(a["seeds"], b["seeds"]) for a, b in own])
            found.append(
                {"task": task, "tau": tau, "pairs": gaps.size, "seeds": gaps.shape[1]}
                | {"wins": float((gaps > 0).mean()), "gap": adaptive.ends(stats.mean_interval(gaps.mean(1)))}
            )
    return found


def fallen(runs: dict[str, dict[str, list[Row]]]) -> dict[str, dict[str, Row]]:
    """task -> method -> the share of runs that end more than FALL below their own highest block of steps.

    Over a whole grid: a tuned run cannot show a collapse, since tuning picks the settings that do not. The interval
    is the exact binomial one, as if runs of one seed were independent.
    """
    found: dict[str, dict[str, Row]] = {}
    for task, methods in runs.items():
        for name, own in methods.items():
            share = float(np.mean([max(run["curve"]) - run["final"] > FALL for run in own]))
            ends = stats.clopper_pearson(share, len(own))
            row = {"runs": len(own), "share": share, "low": ends.low, "high": ends.high}
            found.setdefault(task, {})[name] = row
    return found
