"""What a sweep keeps: one small JSON with the options, summary and thinned curve of every run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pmdkit.observe import files, gauge
from pmdkit.observe.folder import RunFolder, read_json
from pmdkit.sweeps.grid import Point

CURVE = ("step", "pass_rate", "reward_mean", "log_ratio_min", "response_length", "entropy", "kl")
POINTS = 40  # of a curve: a figure shows no more
DIGITS = 6

Entry = dict[str, Any]


def write(path: Path, points: Sequence[Point], folder: Path, failed: Mapping[str, str], about: Entry) -> Entry:
    """Write down every run of a sweep as far as it got, and return it.

    Args:
        path: of the JSON file.
        points: the runs of the sweep.
        folder: where its runs/ are.
        failed: name to sentence.
        about: what else the file says of the sweep as a whole.
    """
    entries = []
    for point in {point.name: point for point in points}.values():
        run = RunFolder(folder / "runs" / point.name)
        head = {"name": point.name, "tier": point.tier, "env": point.env, "seed": point.seed, "options": point.options}
        if run.finished:
            entries.append({**head, "state": "finished", **digest(run)})
        else:
            reason = failed.get(point.name)
            entries.append({**head, "state": "failed" if reason else "waiting", "reason": reason})
    sweep = {"format": 1, **about, "runs": entries}
    files.replace(path, (json.dumps(sweep, separators=(",", ":"), allow_nan=False) + "\n").encode())
    return sweep


def digest(run: RunFolder) -> Entry:
    """Summary, thinned curve, merged gauge and milliseconds per token of a finished run."""
    rows = run.read_metrics()
    summary = {key: value for key, value in run.read_summary().items() if key != "out"}
    rates = [row["pass_rate"] for row in rows]
    summary["pass_rate_mean"] = None if None in rates else sum(rates) / len(rates)
    low = [row["log_ratio_min"] for row in rows if row["log_ratio_min"] is not None]
    summary["log_ratio_min"] = min(low) if low else None
    kept = thin(len(rows))
    tokens = summary["tokens"]
    seconds = {phase: sum(row[f"seconds_{phase}"] for row in rows) for phase in ("rollout", "update")}
    return {
        "summary": rounded(summary),
        "curve": {key: [rounded(rows[i][key]) for i in kept] for key in CURVE},
        "gauge": rounded(gauge.merge(row["gauge"] for row in rows if row["gauge"])),
        "ms_per_token": {phase: rounded(1e3 * s / tokens) if tokens else None for phase, s in seconds.items()},
    }


def thin(count: int) -> list[int]:
    """Evenly spaced indices, first and last among them."""
    if count <= POINTS:
        return list(range(count))
    return sorted({round(i * (count - 1) / (POINTS - 1)) for i in range(POINTS)})


def rounded(value: Any) -> Any:
    """Six significant digits, all the way down: more than any interval here can resolve."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    return [rounded(entry) for entry in value] if isinstance(value, list) else value


def read(path: Path) -> Entry:
    """A sweep that was written down."""
    from pmdkit.errors import UsageError

    sweep = read_json(path)
    if "runs" not in sweep or sweep.get("format") != 1:
        raise UsageError(f"{path} is not the record of a sweep; expected a file that pmdkit sweep wrote")
    return sweep
