r"""A budget of tokens: whole sampled runs, and the temperature, group, batch and ministeps that gain most.

A run repeats the step of `sampled_steps`, each from the policy after the previous one. A pool has kinds of prompts; all
prompts of a kind share one policy over their cells, and kinds share nothing. A step draws n responses to each of g
prompts of every kind, all from the policy before the step, and either

* solves the regression of the batch (`lr=None`): its minimum does not depend on a start, and no update is stale; or
* takes M gradient steps, each on the groups of g / M prompts of every kind. The last one is M - 1 updates stale: its
  targets, draws and anchor are those of the policy before the step.

With two cells a policy generalises from one right response to all of them; with a cell for each arm, to nothing.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.fit_cells import fit_cells
from pmdkit.theory.inputs import Array, group_sizes, numbers, temperatures, together
from pmdkit_lab.finite_samples.sampled_steps import baseline, open_rates, place, take_steps

LOWEST = 1e-12  # probability of a cell: a softmax in floating point never loses a cell for good
SILENT = 1e-12  # nats: smaller targets count as those of a group whose rewards are all equal
TAUS = (0.02, 0.05, 0.2, 1.0)
SIZES = (2, 4, 8, 16, 32)
BATCHES = (1, 4, 16)
MINISTEPS = (1, 2, 4, 8, 16)
RATES = (1.0, 4.0, 16.0)


@dataclass(frozen=True)
class SampledRun:
    """The pass rate over a run, averaged over drawn runs. Leading dimensions [...] are those of tau and lr.

    Attributes:
        pass_rates: [..., steps + 1, P] mean pass rate of each kind, the first before any step.
        error: [...] standard error of the last one, averaged over the kinds.
    """

    pass_rates: Array
    error: Array


def sampled_run(
    p: ArrayLike,
    tau: ArrayLike,
    n: int,
    steps: int,
    method: str = "pmd-mean",
    *,
    k: float | None = None,
    groups: int = 1,
    ministeps: int = 1,
    lr: ArrayLike | None = None,
    cells: tuple[int, int] = (1, 1),
    false_positive: float = 0.0,
    false_negative: float = 0.0,
    runs: int = 100,
    seed: int = 0,
) -> SampledRun:
    r"""How a pool of pass rates changes over `steps` steps from draws.

    $$ \pi_{t+1} = \pi_t\,e^{u_t}, \qquad u_t \text{ one sampled step from } g \text{ groups of } n
       \text{ draws of } \pi_t $$

    Source: not in arXiv:2602.05933. One step with one group has the law of `sampled_step`.

    Args:
        p: [P] pass rates of the kinds, in (0, 1).
        tau: scalar or [...] temperature in units of rewards {0, 1}.
        n: responses per prompt, >= 2.
        steps: rollout batches, >= 1.
        method, k: as in `sampled_step`.
        groups: g, prompts of each kind in a batch.
        ministeps: M, a divisor of g; only with lr.
        lr: None solves the regression of each batch. A number (or [...]) is the step size of a ministep, in logits of
            a cell per reward unit, for the mean loss over the groups of one kind.
        cells: how many right and wrong cells a policy has, equally likely at the start.
        false_positive, false_negative: chances of a wrong verdict.
        runs: number of runs drawn. All temperatures and step sizes use the same uniform numbers.
        seed: seed for the draws.

    Watch: the step size is that of plain gradient descent on a table; it says nothing of the learning rate of Adam.
    """
    size, rates = int(group_sizes(n)), open_rates(p)
    if rates.ndim != 1:
        raise ValueError(f"p has shape {list(rates.shape)}; expected [P], a pass rate for each kind of prompt")
    heat = temperatures(tau)
    rate = None if lr is None else step_sizes(lr)
    shape = together(tau=heat) if rate is None else together(tau=heat, lr=rate)
    check_batch(steps, groups, ministeps, rate is not None, cells, runs)
    spot = place(method, k)
    heats = np.broadcast_to(heat, shape).reshape(-1)
    peers = np.array([baseline(np.arange(size), size - 1, float(each), spot) for each in heats])  # [H, n], V / tau
    column = heats[:, None, None, None]
    stride = None if rate is None else np.broadcast_to(rate, shape).reshape(-1)[:, None, None, None]

    arms = sum(cells)
    right = np.arange(arms) < cells[0]
    start = np.where(right, rates[:, None] / cells[0], (1 - rates[:, None]) / cells[1])
    pi = np.broadcast_to(start, (len(heats), runs, *start.shape))
    label = np.where(right, 1 - false_negative, false_positive)
    chance = np.random.default_rng(seed)
    curve = [rates[None].repeat(len(heats), 0)]
    for _ in range(steps):
        draws = (runs, len(rates), groups * size)
        uniform = chance.random(draws)
        verdict = chance.random(draws) if false_positive or false_negative else None
        share, target = batch_targets(pi, uniform, verdict, label, peers, heats, size, ministeps)
        u = np.zeros(pi.shape)
        if stride is None:
            moves = (np.abs(target[..., 0, :]) > SILENT).any(-1)  # the others are solved where they are
            u[moves] = fit_cells(pi[moves], share[..., 0, :][moves], target[..., 0, :][moves])
        else:
            for turn in range(ministeps):
                u = take_steps(pi, share[..., turn, :], target[..., turn, :], tau=column, start=u, lr=stride)
        pi = np.maximum(pi * np.exp(u), LOWEST)
        pi = pi / pi.sum(-1, keepdims=True)
        reached = pi[..., right].sum(-1)
        curve.append(reached.mean(1))
    error = reached.mean(-1).std(-1, ddof=1) / np.sqrt(runs)
    return SampledRun(np.stack(curve, 1).reshape(*shape, steps + 1, len(rates)), error.reshape(shape)[()])


def batch_targets(
    pi: Array,
    uniform: Array,
    verdict: Array | None,
    label: Array,
    peers: Array,
    heats: Array,
    size: int,
    ministeps: int,
) -> tuple[Array, Array]:
    """Shares of draws and means of their leave-one-out targets, both [H, R, P, M, A], of one batch.

    Args:
        pi: [H, R, P, A] policies.
        uniform: [R, P, g n] uniform numbers that choose the cell of each draw.
        verdict: the same for verdicts; None if no verdict errs.
        label: [A] chance of verdict 1.
        peers: [H, n] V / tau by the number of peers with verdict 1.
        heats: [H] temperatures.
        size: n.
        ministeps: M.
    """
    cdf = pi.cumsum(-1)
    cell = (uniform[None, ..., None] > (cdf[..., :-1] / cdf[..., -1:])[..., None, :]).sum(-1)  # [H, R, P, g n]
    passed = label[cell] > (0.5 if verdict is None else verdict)
    groups = passed.reshape(*passed.shape[:-1], -1, size)
    others = groups.sum(-1, keepdims=True) - groups
    value = peers[np.arange(len(heats))[:, None, None, None, None], others]
    target = groups / heats[:, None, None, None, None] - value
    # counts by cell of every ministep: rows of cells laid end to end
    kept = (*passed.shape[:-1], ministeps)
    row = np.arange(int(np.prod(kept))).repeat(uniform.shape[-1] // ministeps) * pi.shape[-1] + cell.reshape(-1)
    count, total = (np.bincount(row, each, int(np.prod(kept)) * pi.shape[-1]) for each in (None, target.reshape(-1)))
    count, total = (each.reshape(*kept, pi.shape[-1]) for each in (count, total))
    return count * (ministeps / uniform.shape[-1]), total / np.maximum(count, 1)


@dataclass(frozen=True)
class BudgetChoice:
    """One way to spend a budget.

    Attributes:
        tau: temperature.
        n: responses per prompt.
        prompts: prompts per rollout batch.
        ministeps: updates per rollout batch; None if each batch is solved.
        lr: step size of a ministep; None likewise.
        steps: rollout batches that the budget pays for.
        pass_rate: expected pass rate of the pool at the end.
        error: its standard error.
    """

    tau: float
    n: int
    prompts: int
    ministeps: int | None
    lr: float | None
    steps: int
    pass_rate: float
    error: float


def best_budget(
    p: ArrayLike,
    tokens: float,
    *,
    length: float = 1.0,
    overhead: float = 0.0,
    taus: tuple[float, ...] = TAUS,
    sizes: tuple[int, ...] = SIZES,
    groups: tuple[int, ...] = BATCHES,
    ministeps: tuple[int, ...] = MINISTEPS,
    lr: tuple[float, ...] | None = RATES,
    method: str = "pmd-mean",
    k: float | None = None,
    cells: tuple[int, int] = (1, 1),
    false_positive: float = 0.0,
    false_negative: float = 0.0,
    runs: int = 50,
    seed: int = 0,
) -> tuple[BudgetChoice, ...]:
    r"""Every way in a grid to spend a budget of tokens on a pool, the best first, by `sampled_run`.

    $$ \text{steps} = \Big\lfloor\frac{\text{tokens}}{n\,g\,P\,\text{length} + \text{overhead}}\Big\rfloor, \qquad
       \max_{\tau, n, g, M, \ell}\; E[\bar p_{\text{steps}}] $$

    Source: not in arXiv:2602.05933.

    Args:
        p: [P] pass rates of the kinds of prompts, equally many of each.
        tokens: total of all responses and overheads of the run.
        length: mean tokens of a response.
        overhead: tokens that could have been generated while a rollout batch waits for its longest response and for new
            weights. At 0, every batch of several ministeps could have been as many batches for the same price, and
            staleness has a cost but no use.
        taus, sizes, groups, ministeps, lr: the grid. `groups` are prompts of each kind in a batch, so that a batch has
            P times as many; ministeps that do not divide them are left out. lr None solves each batch.
        method, k, cells, false_positive, false_negative, runs, seed: as in `sampled_run`.

    Watch: differences below two standard errors are chance, and the best of a grid is a little lucky.
    """
    rates = open_rates(p)
    kinds = int(rates.size)
    for name, value, low in (("tokens", tokens, 0.0), ("length", length, 0.0), ("overhead", overhead, -1e-300)):
        if not (np.isfinite(value) and value > low):
            raise ValueError(f"{name} is {value}; expected a finite number of tokens {'>=' if low else '>'} 0")
    found: list[BudgetChoice] = []
    for n, g, turns in product(sizes, groups, ministeps if lr is not None else (1,)):
        steps = int(tokens / (n * g * kinds * length + overhead) * (1 + 1e-12))
        if steps < 1 or g % turns:
            continue
        heat = np.asarray(taus, float)
        run = sampled_run(
            rates,
            heat if lr is None else heat[:, None],
            n,
            steps,
            method,
            k=k,
            groups=g,
            ministeps=turns,
            lr=None if lr is None else np.asarray(lr, float),
            cells=cells,
            false_positive=false_positive,
            false_negative=false_negative,
            runs=runs,
            seed=seed,
        )
        ends = run.pass_rates[..., -1, :].mean(-1)
        for at in np.ndindex(ends.shape):
            found.append(
                BudgetChoice(
                    float(taus[at[0]]),
                    int(n),
                    g * kinds,
                    None if lr is None else turns,
                    None if lr is None else float(lr[at[1]]),
                    steps,
                    float(ends[at]),
                    float(run.error[at]),
                )
            )
    if not found:
        least = min(sizes) * min(groups) * kinds * length + overhead
        raise ValueError(
            f"tokens is {tokens:g}; expected at least {least:g}, the price of the smallest rollout batch of the grid: "
            "raise it, or take fewer kinds of prompts"
        )
    return tuple(sorted(found, key=lambda one: -one.pass_rate))


def step_sizes(lr: ArrayLike) -> Array:
    """Scalar or [...] step sizes, finite and > 0."""
    values = numbers("lr", lr)
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"lr is {lr!r}; expected finite numbers > 0, logits per reward unit")
    return values


def check_batch(steps: int, groups: int, ministeps: int, gradient: bool, cells: tuple[int, int], runs: int) -> None:
    """Check that the counts are whole numbers that fit together."""
    counts = {"steps": (steps, 1), "groups": (groups, 1), "ministeps": (ministeps, 1), "runs": (runs, 2)}
    counts |= {"cells": (min(cells), 1)} if len(cells) == 2 else {"cells": (0, 1)}
    for name, (value, least) in counts.items():
        if value != int(value) or value < least:
            raise ValueError(f"{name} is {cells if name == 'cells' else value}; expected whole numbers >= {least}")
    if groups % ministeps:
        raise ValueError(f"ministeps is {ministeps}; expected a divisor of groups, which is {groups}")
    if ministeps > 1 and not gradient:
        raise ValueError(f"ministeps is {ministeps} without lr; a batch that is solved exactly has one update: give lr")
