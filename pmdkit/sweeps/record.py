"""The record of a sweep: one small JSON file with the options, summary, thinned curve and gauge of every run.

The summary gains `pass_rate_mean` (over the rollouts of all steps), `log_ratio_min` (over all steps),
`ms_per_token_rollout` and `ms_per_token_update`, and `_mean` and `_last` of each column that the objective adds.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pmdkit import untrusted
from pmdkit.observe import files, gauge, run_folder
from pmdkit.sweeps.grid import SEED, Trial

CURVE = ("step", "pass_rate", "log_ratio_min", "response_length")
POINTS = 40  # points of a curve, as many as a figure can show
DIGITS = 6  # significant digits of a summary
CURVE_DIGITS = 4

FINISHED = untrusted.table(name=str, state=Literal["finished"], config=dict, summary=dict)
OTHER = untrusted.table(name=str, state=Literal["failed", "waiting"])
SWEEP = untrusted.table(format=Literal[1], config=dict, runs=list[FINISHED | OTHER])  # type: ignore[valid-type]

Entry = dict[str, Any]


def write(path: Path, trials: Sequence[Trial], folder: Path, failed: Mapping[str, str], about: Entry) -> Entry:
    """Write the record of a sweep in `folder`, with every run as far as it got, and return it.

    `failed` has the reasons of failed runs by name, `about` what else the record says about the sweep as a whole.
    """
    entries = []
    for trial in {trial.name: trial for trial in trials}.values():
        run = run_folder.RunFolder(folder / "runs" / trial.name)
        head = {
            "name": trial.name,
            "tier": trial.tier,
            "env": trial.env,
            "seed": int(trial.options[SEED]),
            "options": trial.options,
        }
        if run.finished:
            entries.append({**head, "state": "finished", **digest(run)})
        else:
            reason = failed.get(trial.name)
            entries.append({**head, "state": "failed" if reason else "waiting", "reason": reason})
    configs = [entry["config"] for entry in entries if "config" in entry]  # values shared by all runs are stored once
    first = configs[0] if configs else {}
    common = {k: v for k, v in first.items() if all(k in other and other[k] == v for other in configs)}
    sweep = {"format": 1, **about, "config": common, "runs": entries}
    for entry in entries:
        if "config" in entry:
            entry["config"] = {k: v for k, v in entry["config"].items() if k not in sweep["config"]}
    files.replace(path, (json.dumps(sweep, separators=(",", ":"), allow_nan=False) + "\n").encode(), files.PUBLIC)
    return sweep


def digest(run: run_folder.RunFolder) -> Entry:
    """Resolved options, summary, thinned curve and merged gauge of a finished run."""
    rows = run.read_metrics()
    summary = {key: value for key, value in run.read_summary().items() if key != "out"}
    rates = [row["pass_rate"] for row in rows]
    low = [row["log_ratio_min"] for row in rows if row["log_ratio_min"] is not None]
    summary["pass_rate_mean"] = None if None in rates or not rates else sum(rates) / len(rates)
    summary["log_ratio_min"] = min(low) if low else None
    for name in [key for key in (rows[-1] if rows else {}) if key.startswith(gauge.OWN)]:
        values = [row[name] for row in rows if row.get(name) is not None]
        summary[f"{name}_mean"] = sum(values) / len(values) if values else None
        summary[f"{name}_last"] = rows[-1][name]
    for phase in ("rollout", "update"):
        seconds = sum(row[f"seconds_{phase}"] for row in rows)
        summary[f"ms_per_token_{phase}"] = 1e3 * seconds / summary["tokens"] if summary["tokens"] else None
    # evenly spaced, including the first and the last
    kept = sorted({round(i * (len(rows) - 1) / (POINTS - 1)) for i in range(POINTS if rows else 0)})
    return {
        "config": dict(run_folder.flatten(run.read_config())),
        "summary": rounded(summary),
        "curve": {key: [rounded(rows[i][key], CURVE_DIGITS) for i in kept] for key in CURVE},
        "gauge": rounded(gauge.merge(row["gauge"] for row in rows if row["gauge"]), CURVE_DIGITS),
    }


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Round to significant digits, recursively: more digits than any interval here can resolve."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(entry, digits) for key, entry in value.items()}
    return [rounded(entry, digits) for entry in value] if isinstance(value, list) else value


def read(path: Path) -> Entry:
    """Read the record of a sweep, with the complete `config` of each finished run."""
    sweep = untrusted.check_fields(run_folder.read_json(path), SWEEP, path, "give a file that pmdkit sweep wrote")
    common = sweep["config"]
    whole = [{**run, "config": common | run["config"]} if "config" in run else run for run in sweep["runs"]]
    return {**sweep, "runs": whole}
