"""Compares runs that differ in their options, paired by seed. Where runs come from: collect.py; tables: tables.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmdkit.errors import UsageError
from pmdkit.nearest import unknown
from pmdkit.sweeps.grid import SEED, SHORT
from pmdkit.sweeps.statistics import Array, Interval, Paired, mean_interval, paired, seed_means

Entry = Mapping[str, Any]
Key = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Arm:
    """One of the things compared.

    Attributes:
        label: the options that set it apart.
        values: metric by pair: the seed, and whatever else varies within all arms.
        interval: mean over its seeds; where a seed has several runs, over their means.
        against_first: difference to the first arm over the pairs both have; None for the first, or without a pair.
    """

    label: str
    values: Mapping[Key, float]
    interval: Interval
    against_first: Paired | None

    def row(self) -> dict[str, Any]:
        """For JSON and CSV."""
        versus = self.against_first
        return {
            "arm": self.label,
            "runs": len(self.values),
            "mean": self.interval.mean,
            "low": self.interval.low,
            "high": self.interval.high,
            "difference": versus.difference.mean if versus else None,
            "difference_low": versus.difference.low if versus else None,
            "difference_high": versus.difference.high if versus else None,
            "pairs": versus.pairs if versus else None,
            "wins": versus.wins if versus else None,
            "ties": versus.ties if versus else None,
        }


def compare(entries: Sequence[Entry], metric: str = "pass_rate_last", by: str | None = None) -> list[Arm]:
    """The arms in the order of their first run, each against the first of them.

    Args:
        entries: finished runs, with `config` (dotted keys) and `summary`.
        metric: a number of the summary.
        by: the option that makes the arms, dotted or short; by default every option in which the runs differ. What
            else varies within an arm is paired like the seed.
    """
    for entry in entries:
        check_metric(entry, metric)
    differing = differences(entries)
    by = SHORT.get(by, by) if by else None
    keys = telling(differing, entries) if by is None else [by]
    if by is not None and by not in known(entries):
        raise UsageError(unknown("option", by, known(entries)) + ", in --by")
    arms: dict[Key, list[Entry]] = {}
    for entry in entries:
        arms.setdefault(tuple((key, frozen(entry["config"].get(key))) for key in keys), []).append(entry)
    strata = [key for key in differing if key not in keys and varies_within(key, list(arms.values()))]
    tables = {arm: pairs(runs, strata, metric, label(arm)) for arm, runs in arms.items()}
    first = next(iter(tables.values()))
    return [
        Arm(label(arm), table, mean_interval(seed_means(*columns(table, list(table)))), against(first, table))
        for arm, table in tables.items()
    ]


def against(first: Mapping[Key, float], table: Mapping[Key, float]) -> Paired | None:
    """The paired difference to the first arm."""
    shared = [key for key in table if key in first]
    if table is first or not shared:
        return None
    return paired(columns(first, shared)[0], *columns(table, shared))


def columns(table: Mapping[Key, float], keys: Sequence[Key]) -> tuple[Array, Array]:
    """Values and seeds of some pairs."""
    return np.array([table[key] for key in keys]), np.array([key[0][1] for key in keys])


def pairs(runs: Sequence[Entry], strata: Sequence[str], metric: str, arm: str) -> dict[Key, float]:
    """The metric by seed and by what else varies; two runs of one seed cannot be told apart."""
    table: dict[Key, float] = {}
    for run in runs:
        key = tuple((name, frozen(run["config"].get(name))) for name in (SEED, *strata))
        if key in table:
            raise UsageError(f"'{arm}' has two runs with seed {run['config'].get(SEED)}; give each run once")
        table[key] = float(run["summary"][metric])
    return table


def telling(keys: Sequence[str], entries: Sequence[Entry]) -> list[str]:
    """The options that tell the runs apart, without those that follow from the ones before, as a clip from its
    objective."""
    chosen: list[str] = []
    for key in sorted(keys, key=lambda key: key != SHORT["objective"]):
        groups = {tuple(frozen(e["config"].get(k)) for k in chosen) for e in entries}
        finer = {tuple(frozen(e["config"].get(k)) for k in (*chosen, key)) for e in entries}
        chosen += [key] if len(finer) > len(groups) else []
    return chosen


def differences(entries: Sequence[Entry]) -> list[str]:
    """Options, seed and bookkeeping aside, that are not the same in all runs."""
    return [key for key in known(entries) if len({frozen(e["config"].get(key)) for e in entries}) > 1]


def known(entries: Sequence[Entry]) -> list[str]:
    """Every option of any of the runs that can make a difference; [run] cannot."""
    return list(dict.fromkeys(key for entry in entries for key in entry["config"] if not key.startswith("run.")))


def varies_within(key: str, arms: Sequence[Sequence[Entry]]) -> bool:
    """Whether an option takes several values in one arm; one that follows from the arm is no pair of its own."""
    return any(len({frozen(run["config"].get(key)) for run in runs}) > 1 for runs in arms)


def check_metric(entry: Entry, metric: str) -> None:
    """The metric is a number of the summary."""
    numbers = [k for k, v in entry["summary"].items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if metric not in entry["summary"]:
        raise UsageError(unknown("metric", metric, numbers))
    if metric not in numbers:
        raise UsageError(f"metric {metric} of {entry['name']} is {entry['summary'][metric]}; expected a number")


def frozen(value: Any) -> Any:
    """A list as a tuple, to be compared and hashed."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def label(arm: Key) -> str:
    """What sets an arm apart, in short names; options that it does not have are left out."""
    names = {long: short for short, long in SHORT.items()}
    told = [(names.get(key, key), value) for key, value in arm if value is not None]
    return ", ".join(str(value) if name == "objective" else f"{name} {value}" for name, value in told) or "all runs"
