"""Compares finished runs that differ in their options, paired by seed: finds runs, forms arms, writes tables."""

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pmdkit import stats, untrusted
from pmdkit.errors import UsageError, printable, short, unknown
from pmdkit.observe.run_folder import RunFolder
from pmdkit.specs.spec import SHORT
from pmdkit.sweeps import record
from pmdkit.sweeps.grid import SEED

Entry = dict[str, Any]  # name, config (dotted keys) and summary of a finished run
Key = tuple[tuple[str, Any], ...]
LATEX = {"\\": r"\textbackslash{}", **{c: rf"\{c}" for c in "&%$#_{}"}, "~": r"\textasciitilde{}", "^": r"\^{}"}


@dataclass(frozen=True)
class Arm:
    """One group of runs to compare.

    Attributes:
        label: the options that distinguish it.
        runs: how many it has.
        values: the metric by seed; if a seed has several runs, their mean.
        interval: mean over its seeds.
        against_first: difference to the first arm over the seeds that both have; None for the first, or without any.
    """

    label: str
    runs: int
    values: Mapping[int, float]
    interval: stats.MeanInterval
    against_first: stats.PairedDifference | None

    def row(self) -> dict[str, Any]:
        """The arm as a row for JSON and CSV."""
        versus, own = self.against_first, self.interval
        gap = versus.difference if versus else None
        row = {"arm": self.label, "runs": self.runs, "mean": own.mean, "low": own.low, "high": own.high}
        row |= {f"difference{end}": getattr(gap, end[1:] or "mean", None) for end in ("", "_low", "_high")}
        return row | {name: getattr(versus, name, None) for name in ("pairs", "wins", "ties")}


def collect(places: Iterable[Path]) -> tuple[list[Entry], list[str]]:
    """Every finished run, once, and the names of unfinished ones.

    Args:
        places: run folders, folders that contain runs (one or two levels down), or records of sweeps (.json).
    """
    finished: dict[str, Entry] = {}
    skipped: list[str] = []
    for path in places:
        if path.suffix == ".json":
            runs = record.read(path)["runs"]
            finished |= {run["name"]: run for run in runs if run["state"] == "finished"}
            skipped += [run["name"] for run in runs if run["state"] != "finished"]
            continue
        if not os.path.isdir(path):
            raise UsageError(f"{path} does not exist; expected a run folder, a folder of runs, or a sweep's record")
        folders = [RunFolder(path)] if RunFolder(path).started else []
        below = (found for depth in ("*", "*/*") for found in sorted(path.glob(f"{depth}/config.json")))
        for run in folders or [RunFolder(config.parent) for config in below]:
            if run.finished:
                finished[str(run.path.resolve())] = {"name": run.path.name, **record.digest(run)}
            else:
                skipped.append(str(run.path))
    if not finished:
        words = f": {len(skipped)} runs are not finished" if skipped else ""
        raise UsageError(f"nothing to compare{words}; expected finished runs: give run folders or a folder of a sweep")
    return list(finished.values()), skipped


def compare(entries: Sequence[Entry], metric: str = "pass_rate_last", by: str | None = None) -> list[Arm]:
    """The arms in the order of their first run, each compared with the first arm.

    Args:
        entries: finished runs, with `config` (dotted keys) and `summary`.
        metric: a number in the summary.
        by: the option that defines the arms, dotted or short; by default every option in which the runs differ.
            Whatever else varies within an arm is averaged for each seed, whose runs are not independent draws.
    """
    for entry in entries:
        numbers = [key for key, value in entry["summary"].items() if untrusted.is_number(value)]
        if metric not in entry["summary"]:
            raise UsageError(unknown("metric", metric, numbers))
        if metric not in numbers:
            got = short(entry["summary"][metric])
            raise UsageError(f"metric {metric} of {entry['name']} is {got}; expected a number")
        if not isinstance(seed := entry["config"].get(SEED), int):
            raise UsageError(f"the seed of {entry['name']} is {short(seed)}; expected an integer")
    by = SHORT.get(by, by) if by else None
    if by is not None and by not in known(entries):
        raise UsageError(unknown("option", by, known(entries)) + ", in --by")
    keys = independent_options(entries) if by is None else [by]
    groups: dict[Key, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(tuple((key, frozen(entry["config"].get(key))) for key in keys), []).append(entry)
    arms: list[Arm] = []
    for key, runs in groups.items():
        seeds: dict[int, list[float]] = {}
        for run in runs:
            seeds.setdefault(run["config"][SEED], []).append(float(run["summary"][metric]))
        values = {seed: float(np.mean(found)) for seed, found in seeds.items()}
        first = arms[0].values if arms else {}
        shared = [seed for seed in values if seed in first]
        pairs = [np.array([table[seed] for seed in shared]) for table in (first, values)]
        versus = stats.paired_difference(*pairs) if shared else None
        arms.append(Arm(label(key), len(runs), values, stats.mean_interval(np.array(list(values.values()))), versus))
    return arms


def independent_options(entries: Sequence[Entry]) -> list[str]:
    """The options in which the runs differ, without those that earlier ones determine, such as a clip range by its
    objective."""
    chosen: list[str] = []
    for key in sorted(known(entries), key=lambda key: key != SHORT["objective"]):
        groups = {tuple(frozen(e["config"].get(k)) for k in chosen) for e in entries}
        finer = {tuple(frozen(e["config"].get(k)) for k in (*chosen, key)) for e in entries}
        chosen += [key] if len(finer) > len(groups) else []
    return chosen


def known(entries: Sequence[Entry]) -> list[str]:
    """Dotted keys of all options that some run has, without those of [run], which change no result."""
    return list(dict.fromkeys(key for entry in entries for key in entry["config"] if not key.startswith("run.")))


def frozen(value: Any) -> Any:
    """A list or a table as nested tuples, which can be compared and hashed."""
    if isinstance(value, dict):
        return tuple((key, frozen(part)) for key, part in value.items())
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def label(arm: Key) -> str:
    """The options that distinguish an arm, by short name; options that the arm lacks are left out."""
    names = {long: short for short, long in SHORT.items()}
    words = [(names.get(key, key), value) for key, value in arm if value is not None]
    told = ", ".join(str(value) if name == "objective" else f"{name} {value}" for name, value in words) or "all runs"
    return " ".join(printable(told).split())  # the configuration is untrusted


def to_csv(arms: Sequence[Arm]) -> str:
    """One row per arm, with unrounded numbers; missing numbers are empty."""
    rows = [arm.row() for arm in arms]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_latex(arms: Sequence[Arm], metric: str) -> str:
    """A LaTeX tabular in booktabs style: mean with interval, paired difference with interval, wins."""
    special = str.maketrans(LATEX)
    lines = [
        r"% needs \usepackage{booktabs}; 95 % intervals of Student's t, differences paired by seed",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        rf" & {metric.translate(special)} & difference to the first & wins \\",
        r"\midrule",
    ]
    for arm in arms:
        versus = arm.against_first
        gap = stats.interval_text(versus.difference, ".4g") if versus else "--"
        cells = [arm.label.translate(special), stats.interval_text(arm.interval, ".4g"), gap, wins(arm)]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def wins(arm: Arm) -> str:
    """`4 of 5`, or a dash for the first arm."""
    versus = arm.against_first
    if versus is None:
        return "--"
    ties = f", {versus.ties} equal" if versus.ties else ""
    return f"{versus.wins} of {versus.pairs}{ties}"
