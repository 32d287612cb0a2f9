"""Where the population loss is stationary: Newton from several starts, checked by gradient, curvature and rays."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pmdkit.explain.tabular import Array, PopulationLoss, TabularPrompt, population_loss
from pmdkit.objectives import Objective
from pmdkit.randomness import generator

Kind = Literal["minimiser", "plateau", "boundary", "unbounded"]

STARTS = 4
SWEEPS = 60
FADED = np.log(1e-3)  # nats: a ratio below that still falls is on its way to 0
STILL = 1e-9  # nats: a Newton step this small is rounding
RAY = (1e2, 1e3, 1e4)  # nats along which a loss is followed outwards


@dataclass(frozen=True)
class StationaryPoint:
    """Where the loss of one problem comes to rest, or that it does not.

    Attributes:
        kind: "minimiser" (inside the simplex), "plateau" (many policies with the same smallest loss and no gradient),
            "boundary" (the best is approached only as probabilities go to 0), "unbounded" (there is no best).
        log_ratio: [A] log pi/pi_old there, nats; where the search ended if there is no minimiser.
        multiplier: sum of d loss / d log pi there, reward units: what normalisation costs.
        gradient: largest d loss / d logit there, per unit of the old probability.
        curvature: smallest eigenvalue (real part) of the Hessian by logits scaled with pi_old; > 0 at a minimum.
        starts: how many of the starts ended in a point like this.
        apart: largest distance between their ends, nats.
        slope: for "unbounded", change of the loss per nat along `ray` at its end; else NaN.
        ray: [A] direction of the logits, largest entry 1.
    """

    kind: Kind
    log_ratio: Array
    multiplier: float
    gradient: float
    curvature: float
    starts: int
    apart: float
    slope: float
    ray: Array


@dataclass(frozen=True)
class NewtonEnd:
    """Where one start ended: u [A] nats, whether it converged, whether the gradient is flat around it."""

    u: Array
    converged: bool
    flat: bool


def stationary_point(
    objective: Objective, problem: TabularPrompt, integrable: bool = True, starts: int = STARTS, seed: int = 0
) -> StationaryPoint:
    """Search the simplex for the objective's resting point on one problem.

    Args:
        problem: one prompt, pi [A] > 0.
        integrable: whether the gradient is that of the loss; otherwise (a factor held back from differentiation) the
            search is for a zero of the gradient alone.
        starts: how many; the first is pi_old itself.
        seed: of the others.
    """
    noise = generator(seed, "explain", "starts").normal(size=(starts, len(problem.pi)))
    noise[0] = 0
    # without a loss that must fall Newton is easily lost: small steps lead the way
    first = np.zeros(len(problem.pi)) if integrable else natural_gradient_flow(objective, problem)[0]
    ends = [newton(objective, problem, normalised(problem.pi, first + each), integrable) for each in noise]
    converged = [end for end in ends if end.converged and curvature(objective, problem, end.u) > 0]
    flat = [end for end in ends if end.flat]
    alike = converged or flat
    best = min(alike or ends, key=lambda end: float(population_loss(objective, problem, end.u).loss[0]))
    seen = population_loss(objective, problem, best.u)
    gradient = float(np.abs(seen.logits[0] / problem.pi).max())
    bend = curvature(objective, problem, best.u)
    apart = max((float(np.abs(end.u - best.u).max()) for end in converged), default=0.0)
    ray = best.u - best.u.mean()
    ray = problem.advantage if np.abs(ray).max() < 1 else ray
    ray = ray / np.abs(ray).max()
    slope = np.nan
    if converged:
        kind: Kind = "minimiser"
    elif flat:
        kind = "plateau"
    else:
        slope = slope_along(objective, problem, ray)
        kind = "unbounded" if integrable and slope < 0 else "boundary"
    return StationaryPoint(
        kind, best.u, float(seen.multiplier[0]), gradient, bend, len(alike or ends), apart, slope, ray
    )


def newton(objective: Objective, problem: TabularPrompt, u: Array, integrable: bool) -> NewtonEnd:
    """Damped Newton in logits scaled by the square root of the old policy; saddles are left downhill."""
    root = np.sqrt(problem.pi)
    seen = population_loss(objective, problem, u)
    radius, damping, small = 2.0, 0.0, 0
    for _ in range(SWEEPS):
        force = seen.logits[0] / root
        matrix = hessian(objective, problem, u)
        # per unit of the new policy: far out a gradient fades with the policy, and that is no plateau
        if (np.abs(seen.logits[0]) <= 1e-12 * problem.pi * np.exp(u)).all() and np.abs(matrix).max() < 1e-9:
            return NewtonEnd(u, False, True)
        if integrable:
            values, axes = np.linalg.eigh((matrix + matrix.T) / 2)
            bend = np.maximum(np.abs(values), 1e-14 * np.abs(values).max() + 1e-300)
            along = axes.T @ force
            step = -(axes @ np.where(np.abs(values) < 1e-13 * np.abs(values).max(), 0.0, along / (bend + damping)))
        else:
            step = -np.linalg.lstsq(
                np.vstack([matrix, damping * np.eye(len(force))]), np.append(force, 0 * force), rcond=1e-13
            )[0]
        step = step / root
        step -= (problem.pi * step).sum()
        length = np.abs(step).max()
        trial = normalised(problem.pi, u + step * min(1.0, radius / max(length, 1e-300)))
        after = population_loss(objective, problem, trial)
        if improves(after, seen, root, integrable):
            small = small + 1 if length < STILL and damping == 0 else 0
            u, seen = trial, after
            radius, damping = radius * 2, 0.0 if damping < 1e-9 else damping / 10
        elif length < 1e-7 and damping == 0:  # neither loss nor gradient can fall further: rounding
            small += 1
        else:
            radius, damping = max(min(radius, length) / 4, 1e-12), max(10 * damping, 1e-9)
        if small == 3:
            return NewtonEnd(u, True, False)
        if np.abs(u).max() > 1e5:
            break
    return NewtonEnd(u, False, False)


def improves(after: PopulationLoss, before: PopulationLoss, root: Array, integrable: bool) -> bool:
    """Whether a step is kept: the loss falls, or the gradient does where the loss cannot tell."""
    loss, last = after.loss[0], before.loss[0]
    force, old = (np.linalg.norm(seen.logits[0] / root) for seen in (after, before))
    if not (np.isfinite(loss) and np.isfinite(force)):
        return False
    if not integrable:
        return bool(force <= old)
    return bool(loss < last - 1e-9 * abs(last) or (loss <= last + 1e-9 * abs(last) and force <= old))


def hessian(objective: Objective, problem: TabularPrompt, u: Array, width: float = 1e-5) -> Array:
    """[A, A] derivative of the logit gradient by the logits, by central differences, scaled by the old policy.

    Differences and not a second autograd: a factor held back from differentiation moves with the policy all the same.
    """
    root = np.sqrt(problem.pi)
    steps = width * np.eye(len(u))
    points = np.concatenate([u + steps, u - steps])
    forces = population_loss(objective, problem, normalised(problem.pi, points)).logits
    change = (forces[: len(u)] - forces[len(u) :]) / (2 * width)
    matrix: Array = change.T / root[:, None] / root[None, :]
    return np.where(np.isfinite(matrix), matrix, 0.0)


def slope_along(objective: Objective, problem: TabularPrompt, ray: Array) -> float:
    """Slope of the loss far out along a direction of the logits, loss per nat; 0 where it levels off."""
    points = normalised(problem.pi, np.outer(RAY, ray))
    loss = population_loss(objective, problem, points).loss
    slopes = np.diff(loss) / np.diff(RAY)
    if not np.isfinite(slopes).all() or slopes.max() >= 0:
        return 0.0
    return float(slopes[-1]) if slopes[-1] < 0.5 * slopes[0] else 0.0


def natural_gradient_flow(objective: Objective, problem: TabularPrompt, sweeps: int = 500) -> tuple[Array, Array]:
    """[A] log ratios to which small natural-gradient steps lead from pi_old, and the ratios with 0 for those that fade.

    A natural step moves log pi by the gradient per unit of pi, so a response that loses ground does so at a steady rate
    and what is left of it can be distinguished from what stays.
    """
    u = np.zeros(len(problem.pi))
    scale = np.abs(population_loss(objective, problem, u).logits[0] / problem.pi).max() or 1.0
    for _ in range(sweeps):
        move = -population_loss(objective, problem, u).logits[0] / (problem.pi * np.exp(np.maximum(u, -600.0))) / scale
        before, u = u, normalised(problem.pi, u + np.clip(move / 2, -1, 1))
        if u.min() < -600:
            break
    return u, np.where((u < FADED) & (u < before - 1e-3), 0.0, np.exp(u))


def normalised(pi: Array, u: Array) -> Array:
    """Log ratios shifted so that pi e^u sums to 1."""
    top = u.max(-1, keepdims=True)
    moved: Array = u - top - np.log((pi * np.exp(u - top)).sum(-1, keepdims=True))
    return moved


def curvature(objective: Objective, problem: TabularPrompt, u: Array) -> float:
    """Smallest eigenvalue of the scaled Hessian, but for shifting all logits together, which changes nothing."""
    shift = np.sqrt(problem.pi)[:, None]
    others = np.linalg.svd(shift)[0][:, 1:]
    return float(np.linalg.eigvals(others.T @ hessian(objective, problem, u) @ others).real.min())
