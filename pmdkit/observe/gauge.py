"""Theory over measurement by pass rate: what one step did to easy and hard prompts, and what was to be expected.

A gauge is a list of buckets, small enough to stand in every line of metrics.jsonl; lists of many steps merge. Where the
columns come from: meter.py and bandit/measure.py; what they mean: docs/use/gauges.md.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

EDGES = (0.0, 0.02, 0.1, 0.3, 0.7, 0.98, 1.0)
COLUMNS = (
    "log_ratio_neg", "theory_log_ratio_neg", "log_ratio_pos", "theory_log_ratio_pos", "tau", "theory_lambda_over_tau",
    "ess", "noise_share", "theory_noise_share",
)  # fmt: skip

Values = NDArray[np.float64]
Bucket = dict[str, Any]


def row(pass_rate: Values | None, columns: dict[str, Values]) -> dict[str, Any]:
    """The columns of a step as keys of metrics.jsonl: means over its prompts, null where no prompt has a value.

    Args:
        pass_rate: [P] of each prompt under pi_old; None where nothing passes or fails, and so nothing can be sorted.
        columns: COLUMNS to [P] values, NaN where a prompt has no such response or no prediction.
    """
    means: dict[str, Any] = {name: mean(columns[name]) for name in COLUMNS}
    return means | {"gauge": None if pass_rate is None else fill(pass_rate, columns)}


def fill(pass_rate: Values, columns: dict[str, Values]) -> list[Bucket]:
    """Buckets of one step: means over the prompts of each, and over how many where it is not all of them.

    Args:
        pass_rate, columns: as in `row`.
    """
    index = np.clip(np.searchsorted(EDGES, pass_rate, side="right") - 1, 0, len(EDGES) - 2)
    order = np.argsort(index, kind="stable")
    found, starts = np.unique(index[order], return_index=True)
    if not len(found):
        return []
    table = np.stack([pass_rate, *columns.values()])[:, order]
    known = ~np.isnan(table)
    counts = np.add.reduceat(known, starts, axis=1, dtype=np.int64)  # all at once: this runs in every step
    means = np.add.reduceat(np.where(known, table, 0.0), starts, axis=1) / np.maximum(counts, 1)
    buckets = []
    for place, bucket in enumerate(found):
        prompts = int(counts[0, place])
        entry: Bucket = {"bucket": int(bucket), "prompts": prompts, "pass_rate": float(means[0, place])}
        for name, count, value in zip(columns, counts[1:, place], means[1:, place], strict=True):
            entry[name] = float(value) if count else None
            if 0 < count < prompts:
                entry[counted(name)] = int(count)
        buckets.append(entry)
    return buckets


def merge(gauges: Iterable[list[Bucket]]) -> list[Bucket]:
    """Buckets of many steps as of one large step: each prompt counts once per step, in each column that it has.

    Columns that older runs did not write are None.
    """
    gathered: dict[int, list[Bucket]] = {}
    for gauge in gauges:
        for entry in gauge:
            gathered.setdefault(entry["bucket"], []).append(entry)
    merged = []
    for bucket in sorted(gathered):
        entries = gathered[bucket]
        whole: Bucket = {"bucket": bucket, "prompts": sum(e["prompts"] for e in entries)}
        for name in ("pass_rate", *COLUMNS):
            known = [e for e in entries if e.get(name) is not None]
            counts = [e[counted(name)] if counted(name) in e else e["prompts"] for e in known]
            weight = sum(counts)
            total = sum(count * e[name] for count, e in zip(counts, known, strict=True))
            whole[name] = total / weight if weight else None
            if 0 < weight < whole["prompts"]:
                whole[counted(name)] = weight
        merged.append(whole)
    return merged


def counted(name: str) -> str:
    """The key that says how many prompts a column has in a bucket, where it is not all of them."""
    return f"{name}_prompts"


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
