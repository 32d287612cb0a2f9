"""The gauge: measured and predicted effect of one step on easy and hard prompts, by pass rate.

A gauge is a list of buckets, small enough for every line of metrics.jsonl; the lists of many steps can be merged.
The columns are explained in docs/use/gauges.md.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, Field

from pmdkit import untrusted
from pmdkit.theory.binary_rewards import mean_over_successes

EDGES = (0.0, 0.02, 0.1, 0.3, 0.7, 0.98, 1.0)
COLUMNS = (
    "log_ratio_neg", "theory_log_ratio_neg", "log_ratio_pos", "theory_log_ratio_pos", "tau", "theory_lambda_over_tau",
    "ess", "noise_share", "theory_noise_share",
)  # fmt: skip
OWN = "objective/"
"Begins the names of the columns of metrics.jsonl that an objective adds."

Values = NDArray[np.float64]
Bucket = dict[str, Any]


def row(pass_rate: Values | None, columns: dict[str, Values]) -> dict[str, Any]:
    """The columns of a step as keys of metrics.jsonl: means over its prompts, null where no prompt has a value.

    Args:
        pass_rate: [P] of each prompt under pi_old; None if nothing passes or fails, so that nothing can be sorted.
        columns: maps COLUMNS to [P] values, NaN where a prompt has no such response or no prediction.
    """
    means: dict[str, Any] = {name: mean(columns[name]) for name in COLUMNS}
    return means | {"gauge": None if pass_rate is None else fill(pass_rate, columns)}


def fill(pass_rate: Values, columns: dict[str, Values]) -> list[Bucket]:
    """Buckets of one step: means over the prompts of each, with the number of prompts if it is not all of them."""
    index = np.clip(np.searchsorted(EDGES, pass_rate, side="right") - 1, 0, len(EDGES) - 2)
    order = np.argsort(index, kind="stable")
    found, starts = np.unique(index[order], return_index=True)
    if not len(found):
        return []
    table = np.stack([pass_rate, *columns.values()])[:, order]
    known = ~np.isnan(table)
    counts = np.add.reduceat(known, starts, axis=1, dtype=np.int64)  # vectorised: this runs in every step
    means = np.add.reduceat(np.where(known, table, 0.0), starts, axis=1) / np.maximum(counts, 1)
    buckets = []
    for place, bucket in enumerate(found):
        prompts = int(counts[0, place])
        entry: Bucket = {"bucket": int(bucket), "prompts": prompts, "pass_rate": float(means[0, place])}
        for name, count, value in zip(columns, counts[1:, place], means[1:, place], strict=True):
            entry[name] = float(value) if count else None
            if 0 < count < prompts:
                entry[f"{name}_prompts"] = int(count)
        buckets.append(entry)
    return buckets


class StoredBucket(BaseModel, extra="allow", strict=True):
    """The keys that a bucket in a file must have; every other key is a column, a number or null."""

    __pydantic_extra__: dict[str, untrusted.Number | None] = Field(init=False)
    bucket: int = Field(ge=0, lt=len(EDGES) - 1)
    prompts: untrusted.Count


def merge(gauges: Iterable[list[Bucket]]) -> list[Bucket]:
    """Merge the buckets of many steps as if of one large step: a prompt counts once per step, in each column it has."""
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
            counts: list[Any] = [e.get(f"{name}_prompts", e["prompts"]) for e in known]
            weight = sum(counts)
            total = sum(count * e[name] for count, e in zip(counts, known, strict=True))
            whole[name] = total / weight if weight else None
            if 0 < weight < whole["prompts"]:
                whole[f"{name}_prompts"] = weight
        merged.append(whole)
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


def abs_median(log_ratio: Values) -> float | None:
    """Half of the responses moved less than this, up or down, nats; None without responses."""
    return float(np.median(np.abs(log_ratio))) if log_ratio.size else None


def largest_share(row: dict[str, Any]) -> float:
    r"""The share of a step's `kl` that one response makes, the one that grew likelier most; 0 where KL is exact.

    KL(pi_new || pi_old) is estimated from n draws of pi_old, the log-ratios s, without a negative term:

    $$ \frac1n\sum_i \big(e^{s_i} s_i - e^{s_i} + 1\big) $$

    Unbiased, but with a tail: a response of 7 nats weighs 1,100 times. The bandit's KL is exact, and has one token.
    """
    if row["response_length"] <= 1 or not row["tokens"] or not row["kl"]:
        return 0.0
    top = min(row["log_ratio_max"], 700.0)  # e^700 is a float64; beyond it there is nothing to share
    return float((np.exp(top) * (top - 1) + 1) * row["response_length"] / row["tokens"] / row["kl"])


def label(bucket: int) -> str:
    """The range of pass rates of a bucket, for a table."""
    return f"{EDGES[bucket]:g} to {EDGES[bucket + 1]:g}"


# Noise: groups whose peers misjudge the partition function of PMD-part. A run knows its groups but not its pass rates,
# so the test uses the group alone: how many of its n draws are right.


def misjudged(successes: ArrayLike, n: ArrayLike, tau: ArrayLike) -> NDArray[np.bool_]:
    r"""Whether the peers of some response misjudge the partition function by more than a factor e, one nat.

    $$ Z(q) = 1 + (e^{1/\tau} - 1)\,q, \qquad
       \Big|\log Z(\hat p) - \log Z\Big(\frac{S - r_i}{n - 1}\Big)\Big| > 1 \text{ for some } i, \quad
       \hat p = \frac{S + 1/2}{n + 1} $$

    Source: arXiv:2602.05933, eq. loo-s-part and Proposition tgt_err_clean (b), which bounds this error. The threshold
    is not in the paper: a nat of log Z is a nat of the response's target, a factor e in the target ratio.
    Differs: the pass rate is the group's own smoothed one, since a run does not know the true one.

    Args:
        successes: right responses S of a group; shapes broadcast.
        n: number of its responses, >= 2.
        tau: temperature over the gap between the two rewards; NaN for an objective without one: the limit tau to 0.

    Good values: at tau up to 0.1 and n up to 256 these are the groups with at most one right response. Peers that are
    all right mislead little, since the pass rate is near 1 then. From tau = 1 on there are none: log Z is below a nat.
    """
    right, size, tau = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (successes, n, tau)))
    floor = np.exp(-1 / np.where(np.isnan(tau), 1e-4, tau))  # Z e^(-1/tau) = floor + (1 - floor) q does not overflow

    def partition(share: Values) -> Values:
        return floor + (1 - floor) * share

    ours = partition((right + 0.5) / (size + 1))
    wild = np.zeros(right.shape, dtype=bool)
    for reward, there in ((1, right > 0), (0, right < size)):
        peers = partition(np.maximum(right - reward, 0) / (size - 1))
        wild |= there & ((ours > np.e * peers) | (peers > np.e * ours))
    return wild


def expected_noise(p: ArrayLike, n: ArrayLike, tau: ArrayLike) -> Values:
    r"""The expected share of groups that are `misjudged`, exact over the binomial count S of right responses.

    $$ \sum_{S=0}^{n} \binom nS p^S (1-p)^{n-S}\, 1[\text{misjudged}(S, n, \tau)] $$

    Shapes broadcast: pass rates p in [0, 1], n responses, tau as in `misjudged`.
    """
    rate, size, tau = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (p, n, tau)))
    return mean_over_successes(
        lambda _, temperature, right, draws: misjudged(right, draws, temperature), rate, size, tau
    )


def noise_columns(
    reward: Values, present: NDArray[np.bool_], passed: float, tau: Values, rate: Values
) -> dict[str, Values]:
    """`noise_share` of the groups of a step, 0 or 1 each, and its expectation at their pass rates `rate` [P].

    Rewards are [P, G], `present` says which count, and `passed` lies halfway between the two rewards. NaN for a group
    of fewer than two, and everywhere if rewards take more than two values: log Z is then no function of a pass rate.
    None counts on the full support, where the partition function is exact and not estimated.
    """
    from_middle = np.where(present, np.abs(reward - passed), np.nan)
    columns = {name: np.full(len(reward), np.nan) for name in ("noise_share", "theory_noise_share")}
    known = from_middle[present]
    if known.size and known.min() > 0 and np.allclose(known, known[0], rtol=1e-9, atol=0):
        size = present.sum(1)
        rows = size >= 2
        tau = tau[rows] / (2 * known[0])
        right = (present & (reward > passed)).sum(1)[rows]
        columns["noise_share"][rows] = misjudged(right, size[rows], tau)
        columns["theory_noise_share"][rows] = expected_noise(rate[rows], size[rows], tau)
    return columns
