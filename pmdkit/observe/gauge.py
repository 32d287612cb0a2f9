"""Theory over measurement: log-ratios of right and wrong responses by pass rate, predicted and measured.

A gauge is a list of buckets, small enough to stand in every line of metrics.jsonl; lists of many steps merge.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

EDGES = (0.0, 0.02, 0.1, 0.3, 0.7, 0.98, 1.0)
COLUMNS = ("log_ratio_neg", "theory_log_ratio_neg", "log_ratio_pos", "theory_log_ratio_pos")

Values = NDArray[np.float64]
Bucket = dict[str, Any]


def fill(pass_rate: Values, columns: dict[str, Values]) -> list[Bucket]:
    """Buckets of one step.

    Args:
        pass_rate: [P] of each prompt under pi_old.
        columns: COLUMNS to [P] values in nats, NaN where a prompt has no such response or no prediction.
    """
    index = np.clip(np.searchsorted(EDGES, pass_rate, side="right") - 1, 0, len(EDGES) - 2)
    buckets = []
    for bucket in np.unique(index):
        rows = index == bucket
        entry: Bucket = {"bucket": int(bucket), "prompts": int(rows.sum()), "pass_rate": float(pass_rate[rows].mean())}
        buckets.append(entry | {name: mean(values[rows]) for name, values in columns.items()})
    return buckets


def merge(gauges: Iterable[list[Bucket]]) -> list[Bucket]:
    """Buckets of many steps, each prompt counted once per step."""
    gathered: dict[int, list[Bucket]] = {}
    for gauge in gauges:
        for entry in gauge:
            gathered.setdefault(entry["bucket"], []).append(entry)
    merged = []
    for bucket in sorted(gathered):
        entries = gathered[bucket]
        row: Bucket = {"bucket": bucket, "prompts": sum(e["prompts"] for e in entries)}
        for name in ("pass_rate", *COLUMNS):
            known = [e for e in entries if e[name] is not None]
            weight = sum(e["prompts"] for e in known)
            row[name] = sum(e["prompts"] * e[name] for e in known) / weight if weight else None
        merged.append(row)
    return merged


def class_mean(values: Values, pi: Values, members: NDArray[np.bool_]) -> Values:
    """[P] mean of `values` under pi within a class of arms; NaN where the class has no mass."""
    weight = np.where(members, pi, 0.0)
    mass = weight.sum(1)
    mean = np.where(members, weight * values, 0.0).sum(1) / np.where(mass > 0, mass, 1.0)
    return np.where(mass > 0, mean, np.nan)


def mean(values: Values) -> float | None:
    """Mean of the values that exist, or None."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def label(bucket: int) -> str:
    """The pass rates of a bucket, for a table."""
    return f"{EDGES[bucket]:g} to {EDGES[bucket + 1]:g}"
