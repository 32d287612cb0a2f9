"""metrics.jsonl: one flushed line per step, the same keys in all tiers, null where a key has no meaning."""

import json
import math
from pathlib import Path
from typing import Any

from pmdkit.errors import Diverged
from pmdkit.observe import files

KEYS = (
    "step", "reward_mean", "pass_rate", "loss", "grad_norm", "log_ratio_min", "log_ratio_max", "kl", "ess", "entropy",
    "tokens", "response_length", "zero_variance_groups", "policy_version", "staleness", "theory_log_ratio_neg",
    "log_ratio_neg", "theory_log_ratio_pos", "log_ratio_pos", "tau", "theory_lambda", "theory_lambda_over_tau",
    "noise_share", "theory_noise_share", "gauge", "seconds_rollout", "seconds_update",
)  # fmt: skip


def append(path: Path, row: dict[str, Any]) -> None:
    """Write one step. It is on the disk before the step's checkpoint is."""
    finite_or_stop(row)
    files.append(path, json.dumps(row, allow_nan=False).encode() + b"\n")


def finite_or_stop(row: dict[str, Any]) -> None:
    """A loss or a log-ratio that is not finite ends the run before anything of the step is kept."""
    for key in ("loss", "grad_norm", "log_ratio_min", "log_ratio_max", "reward_mean"):
        value = row.get(key)
        if value is not None and not math.isfinite(value):
            raise Diverged(
                f"{key} is {value} at step {row['step']}; the last checkpoint is intact: lower lr or raise tau, "
                "and start again from it with --resume or anew with another --out"
            )


def null(value: float) -> float | None:
    """A number for JSON: NaN means that the key has no meaning here."""
    return None if math.isnan(value) else float(value)
