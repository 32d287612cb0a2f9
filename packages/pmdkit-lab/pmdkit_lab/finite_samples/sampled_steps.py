r"""One step from n draws: the distribution of the pass rate after solving the regression.

The model. A policy gives each cell of responses one log ratio $u_a = \log\pi'_a/\pi_a$. Two cells, right and wrong
responses, are a policy class that contains every ideal update; cells may also be single arms. A group of n draws from
pi gives cell a the share $w_a$ of the draws and the mean $\bar s_a$ of their leave-one-out targets. The
regression over the cells is solved in fit_cells.py, which lists its three cases.

A group whose rewards are all equal has targets 0, and the policy stays.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pmdkit.theory.checks import Array, group_sizes, known_method, pass_rates, problem, temperatures, together
from pmdkit.theory.pmd_part_update import pmd_part
from pmdkit.theory.target_errors import leave_one_out_targets, log_partition_estimate
from pmdkit_lab.finite_samples.fit_cells import fit_cells

OUTCOMES = 200_000  # most outcomes enumerated for one context, about 50 MB
SETTLED = 1e-9  # relative change of a pass rate below which it counts as the same: 100 times the rounding


@dataclass(frozen=True)
class SampledStep:
    r"""The law of one step from draws. Leading dimensions [...] are those of p and tau.

    Attributes:
        pass_rates: [..., K] pass rate after the step, one per outcome of the draws; the expected reward if simulated.
        probability: [..., K] of each outcome.
        before: [...] pass rate before.
        gain: [...] expected pass rate after, minus before.
        variance: [...] of the pass rate after.
        drop: [...] chance that the pass rate falls.
        still: [...] chance that it does not change: the draws say nothing.
        ideal: [...] pass rate of the exact KL-regularised (Boltzmann) step; with verifier errors, of that step on the
            mean verdict of each cell.
        chi2: [...] what the method loses of that with every response seen: its chi2 term. 0 for PMD-part, but for
            verifier errors: its baseline is then not the log partition of the mean verdicts, and this can be negative.
        support: [...] what it loses because n draws stand for the policy, with the baseline known exactly.
        targets: [...] what it loses because the baseline is estimated. ideal - chi2 - support - targets is the
            expected pass rate; a negative loss is a gain.
        fit: [...] expected squared distance E_pi (u - u_ideal)^2 of the fit to the method's own population update,
            nats^2, with log ratios above -`FLOOR_NATS`: what the target error is supposed to predict.
    """

    pass_rates: Array
    probability: Array
    before: Array
    gain: Array
    variance: Array
    drop: Array
    still: Array
    ideal: Array
    chi2: Array
    support: Array
    targets: Array
    fit: Array


FLOOR_NATS = 40.0  # a cell that loses all mass has log ratio -inf; in `fit` it counts as this many nats


def sampled_step(
    p: ArrayLike,
    tau: ArrayLike,
    n: int,
    method: str = "pmd-mean",
    *,
    k: float | None = None,
    false_positive: float = 0.0,
    false_negative: float = 0.0,
) -> SampledStep:
    r"""The law of one step from n draws with rewards {0, 1}, exactly over the binomial.

    $$ p' = p\,e^{u_+}, \qquad \min_u \tfrac{S}{n}(u_+ - \bar s_+)^2 + \tfrac{n-S}{n}(u_- - \bar s_-)^2, \quad
       p e^{u_+} + (1-p) e^{u_-} = 1, \quad S \sim Bin(n, p) $$

    Source: arXiv:2602.05933, eqs. loo-s-mean and loo-s-part, of whose empirical minimiser Lemma erm_loo has a bound;
    the rest is not in the paper. The model, which cells keep mass and how they share it, is on top of this module.
    Differs: the policy class is all pairs (u_+, u_-), which holds the ideal update; the bound takes any finite class.

    Args:
        p: pass rate in (0, 1); broadcasts with tau.
        tau: temperature in units of rewards {0, 1}.
        n: responses per prompt, >= 2.
        method: "pmd-mean" or "pmd-part".
        k: instead of the method, the baseline V_k of `between`, from 0 (PMD-mean) to 1 (PMD-part).
        false_positive: chance that the verifier calls a wrong response right.
        false_negative: chance that it calls a right one wrong. The law is then multinomial, and the cells remain what
            responses are, not what the verifier says.

    Watch: without verifier errors the pass rate never falls. With them, a group that is right throughout and has one
    false verdict leaves PMD-mean where it is, since its targets sum to 0, and pushes PMD-part down.
    """
    size = int(group_sizes(n))
    p, tau = pass_rates(p), temperatures(tau)
    if not ((p > 0) & (p < 1)).all():
        raise ValueError("p is 0 or 1 somewhere; expected pass rates in (0, 1): at the ends groups say nothing")
    shape = together(p=p, tau=tau)
    for name, value in (("false_positive", false_positive), ("false_negative", false_negative)):
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}; expected a probability in [0, 1)")
    counts = outcomes(size, false_positive, false_negative)
    if len(counts) > OUTCOMES:
        raise ValueError(
            f"groups of {size} have {len(counts)} outcomes; expected at most {OUTCOMES}: use simulate_sampled_step"
        )
    labels, k = np.array([1 - false_negative, false_positive]), place(method, k)
    pairs = zip(np.broadcast_to(p, shape).flat, np.broadcast_to(tau, shape).flat, strict=True)
    rows = [law(float(rate), float(tau), counts, labels, k) for rate, tau in pairs]
    return collect(rows, shape)


def simulate_sampled_step(
    pi: ArrayLike,
    reward: ArrayLike,
    tau: float,
    n: int,
    method: str = "pmd-mean",
    *,
    k: float | None = None,
    draws: int = 2000,
    rng: np.random.Generator | int = 0,
) -> SampledStep:
    r"""`sampled_step` for any rewards, cell by cell, from drawn groups.

    Source: as `sampled_step`. The pass rate is the expected reward here; for rewards beyond [0, 1] it is not a rate.
    Watch: draws have luck; the standard error of `gain` is sqrt(variance / draws).

    Args:
        pi: [A] policy over the cells, every probability > 0.
        reward: [A] reward of each cell, reward units.
        tau, n, method, k: as in `sampled_step`.
        draws: number of groups drawn, >= 2.
        rng: a generator or its seed.
    """
    probs, reward, tau_np = problem(pi, reward, tau)
    if probs.ndim != 1 or reward.ndim != 1 or tau_np.ndim or not (probs > 0).all():
        raise ValueError("expected one policy [A] without zeros, rewards [A] and one tau")
    if draws != int(draws) or draws < 2:
        raise ValueError(f"draws is {draws}; expected a whole number of groups >= 2")
    size = int(group_sizes(n))
    probs = probs / probs.sum()
    k = place(method, k)
    # a position k in the family is the log partition at the temperature tau / k, in units of tau
    exact = (
        (reward - (probs @ reward)) / tau_np
        if k == 0
        else (reward / tau_np - pmd_part(probs, reward, tau_np / k).log_z / k)
    )
    ideal = fit_cells(probs, probs, pmd_part(probs, reward, tau_np).log_ratio)
    population = fit_cells(probs, probs, exact)

    arms = np.random.default_rng(rng).choice(len(probs), (int(draws), size), p=probs)
    seen = (arms[..., None] == np.arange(len(probs))).sum(1)
    target = leave_one_out_targets(reward[arms], tau_np / (k or 1), "pmd-part" if k else "pmd-mean") / (k or 1)
    sums = np.zeros(seen.shape)
    np.add.at(sums, (np.arange(int(draws))[:, None], arms), target)
    share = seen / size
    known = fit_cells(probs, share, np.broadcast_to(exact, share.shape))
    found = fit_cells(probs, share, sums / np.maximum(seen, 1))
    weight = np.full(int(draws), 1 / draws)
    return summary(probs, reward, weight, ideal, population, known, found, np.ptp(reward[arms], 1) == 0)


def law(p: float, tau: float, counts: NDArray[np.int64], labels: Array, k: float) -> SampledStep:
    """The step for one p and tau.

    Args:
        counts: [K, 4] as `outcomes` gives them.
        labels: [2] chance of verdict 1 for a right and for a wrong response.
        k: as in `baseline`.
    """
    pi, size = np.array([p, 1 - p]), int(counts[0].sum())
    verdicts = np.stack([pi * labels, pi * (1 - labels)], -1).reshape(-1)  # in the order of the counts
    probability = multinomial(counts, verdicts)
    counts, probability = counts[probability > 0], probability[probability > 0]
    marked = counts[:, 0] + counts[:, 2]
    drawn = np.stack([counts[:, 0] + counts[:, 1], counts[:, 2] + counts[:, 3]], -1)
    positive = np.stack([counts[:, 0], counts[:, 2]], -1) / np.maximum(drawn, 1)  # share of verdict 1 by cell

    # V / tau, estimated from the peers of a response with verdict 1 or 0, and exactly
    high = baseline(np.maximum(marked - 1, 0), size - 1, tau, k)[:, None]
    low = baseline(np.minimum(marked, size - 1), size - 1, tau, k)[:, None]
    exact = baseline(float(pi @ labels), 1, tau, k)
    share = drawn / size
    return summary(
        pi,
        np.array([1.0, 0.0]),
        probability,
        ideal=fit_cells(pi, pi, pmd_part(pi, labels, tau).log_ratio),
        population=fit_cells(pi, pi, labels / tau - exact),
        known=fit_cells(pi, share, positive / tau - exact),
        found=fit_cells(pi, share, positive * (1 / tau - high) - (1 - positive) * low),
        silent=(marked == 0) | (marked == size),
    )


def summary(
    pi: Array,
    reward: Array,
    probability: Array,
    ideal: Array,
    population: Array,
    known: Array,
    found: Array,
    silent: NDArray[np.bool_],
) -> SampledStep:
    """Moments of the outcomes with log ratios `found` [K, A]; `known` are their twins with the exact baseline.

    A `silent` group, whose verdicts are all equal, leaves the policy: solved for, its rounding would be a large part of
    a small pass rate.
    """
    found = np.where(silent[:, None], 0.0, found)
    before = float(pi @ reward)
    after, exactly, best, all_seen = (pi * np.exp(u) @ reward for u in (found, known, ideal, population))
    gains = after - before
    mean = probability @ gains
    drop = after < before - SETTLED * abs(before)
    still = np.abs(gains) <= SETTLED * max(abs(before), 1e-300)
    distance = (pi * (np.maximum(found, -FLOOR_NATS) - np.maximum(population, -FLOOR_NATS)) ** 2).sum(-1)
    return SampledStep(
        after,
        probability,
        np.asarray(before),
        mean,
        probability @ (gains - mean) ** 2,
        probability @ drop,
        probability @ still,
        best,
        best - all_seen,
        all_seen - probability @ exactly,
        probability @ (exactly - after),
        probability @ distance,
    )


def collect(rows: list[SampledStep], shape: tuple[int, ...]) -> SampledStep:
    """Contexts stacked to their leading shape; rows with fewer outcomes are padded with outcomes of probability 0."""
    longest = max(len(row.probability) for row in rows)

    def padded(values: Array) -> Array:
        return np.pad(values, (0, longest - len(values)), mode="edge") if len(values) < longest else values

    def stacked(name: str) -> Array:
        return np.array([getattr(row, name) for row in rows]).reshape(shape)[()]

    after = np.array([padded(row.pass_rates) for row in rows]).reshape(*shape, longest)
    likely = np.array([np.pad(row.probability, (0, longest - len(row.probability))) for row in rows])
    names = [name for name in SampledStep.__dataclass_fields__ if name not in ("pass_rates", "probability")]
    return SampledStep(after, likely.reshape(*shape, longest), **{name: stacked(name) for name in names})


def place(method: str, k: float | None) -> float:
    """A method's place k between the mean reward, 0, and the log partition, 1."""
    known_method(method)
    if k is not None and not 0 <= k <= 1:
        raise ValueError(f"k is {k}; expected a number from 0 (mean reward) to 1 (log partition)")
    return float(method == "pmd-part") if k is None else float(k)


def baseline(successes: ArrayLike, peers: int, tau: float, k: float) -> Array:
    """V_k / tau from `peers` responses with `successes` rewards of 1, nats; with peers = 1, from a pass rate."""
    if k == 0:
        return np.asarray(successes, float) / peers / tau
    return log_partition_estimate(successes, peers, tau / k) / k


def outcomes(n: int, false_positive: float, false_negative: float) -> NDArray[np.int64]:
    """[K, 4] counts of right responses with verdict 1 and 0, and of wrong ones with verdict 1 and 0, that can occur."""
    possible = (
        range(n + 1),
        range(n + 1) if false_negative else range(1),
        range(n + 1) if false_positive else range(1),
    )
    grid = np.stack(np.meshgrid(*possible, indexing="ij"), -1).reshape(-1, 3)
    grid = grid[grid.sum(1) <= n]
    return np.concatenate([grid, n - grid.sum(1, keepdims=True)], 1)


def multinomial(counts: NDArray[np.int64], chance: Array) -> Array:
    """[K] probabilities of counts [K, 4], normalised."""
    from scipy.special import gammaln, xlogy

    log_pmf = gammaln(counts.sum(1) + 1) - gammaln(counts + 1).sum(1) + xlogy(counts, chance).sum(1)
    pmf = np.exp(log_pmf)
    return pmf / pmf.sum()
