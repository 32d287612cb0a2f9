"""Where the population loss is smallest, with a certificate: by curves, or by Newton from several starts."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from pmdkit.objectives import Objective
from pmdkit.randomness import generator
from pmdkit_lab.explain import curves, separable
from pmdkit_lab.explain.certificate import Certificate
from pmdkit_lab.explain.tabular import Array, TabularPrompt, population_loss, with_fixed_tau
from pmdkit_lab.json_values import plain

Kind = Literal["minimiser", "plateau", "boundary", "unbounded", "constant", "not settled"]

STARTS = 12
FEWEST = 3  # starts, if one of them does not come to rest
SWEEPS = 60
STILL = 1e-9  # nats: a Newton step this small is rounding
RAY = (1e2, 1e3, 1e4)  # nats along which a loss is followed outwards
PAIRS = 512  # pairs of policies between which the gradient must rise for a loss to count as convex


@dataclass(frozen=True)
class StationaryPoint:
    """Where the loss of one problem comes to rest, if it does.

    Attributes:
        kind: "minimiser" (one best policy, with every probability above 0), "plateau" (many, with nothing to choose
            between them), "boundary" (the best is approached only as probabilities go to 0), "unbounded" (there is no
            best), "constant" (all policies are equally good: no gradient), "not settled".
        log_ratio: [A] log pi/pi_old there, nats, -inf where the limit has probability 0; one of many for a plateau;
            where the search ended if nothing is settled or there is no best.
        unique: whether the best policy, or the limit, is the only one; None if not settled.
        descends: "loss", or "gradient" if the loss is not the integral of its gradient (a stop-gradient, a jump):
            then everything here is about what the gradient descends.
        reward: expected reward there, minus that of pi_old; NaN without a best policy.
        multiplier: sum of d loss / d log pi there, reward units: what normalisation costs.
        slope: for "unbounded", change of the loss per nat along `ray` at its end; else NaN.
        ray: [A] direction of the logits, largest entry 1.
        certificate: why the answer holds.
    """

    kind: Kind
    log_ratio: Array
    unique: bool | None
    descends: Literal["loss", "gradient"]
    reward: float
    multiplier: float
    slope: float
    ray: Array
    certificate: Certificate

    @property
    def is_settled(self) -> bool:
        """Whether anything is claimed."""
        return self.kind != "not settled"

    @property
    def exists(self) -> bool | None:
        """Whether a policy with all probabilities above 0 has the smallest loss; None if not settled."""
        return None if not self.is_settled else self.kind in ("minimiser", "plateau", "constant")

    def to_json(self, problem: TabularPrompt) -> dict[str, Any]:
        """The answer in the form that tests compare; `problem` is the one that was solved."""
        has_policy = self.is_settled and self.kind != "unbounded"
        ratio = np.exp(self.log_ratio)
        return {
            "pi_old": problem.pi.tolist(),
            "reward": problem.reward.tolist(),
            "length": problem.length.tolist(),
            "settled": self.is_settled,
            "kind": self.kind,
            "exists": self.exists,
            "unique": self.unique,
            "descends": self.descends,
            "probabilities": (problem.pi * ratio).tolist() if has_policy else None,
            "log_ratio": plain(self.log_ratio) if has_policy else None,
            "reward_gain": plain(self.reward),
            "certificate": plain(asdict(self.certificate)),
        }


def stationary_point(objective: Objective, problem: TabularPrompt, starts: int = STARTS) -> StationaryPoint:
    """The best policy of the objective on one problem, among all tabular policies.

    Args:
        problem: one prompt, pi [A] > 0.
        starts: number of starts, if rows depend on each other; the first is pi_old itself.
    """
    objective = with_fixed_tau(objective, problem)
    if no_gradient(objective, problem):
        nothing = Certificate("no gradient", 0.0, 0.0, 0.0, 0.0, (), convex=True, rivals=0)
        return at(objective, problem, "constant", np.zeros(len(problem.pi)), nothing, unique=False)
    nothing = Certificate("", np.nan, np.nan, np.nan, np.nan, (), convex=False, rivals=None)
    if not curves.separable(objective, problem):
        if integrable(objective, problem):
            return from_starts(objective, problem, starts)
        why = replace(nothing, why="rows depend on each other, and the gradient is not that of the loss")
        return at(objective, problem, "not settled", np.zeros(len(problem.pi)), why, descends="gradient")
    found = curves.curves(objective, problem)
    if isinstance(found, str):
        return at(objective, problem, "not settled", np.zeros(len(problem.pi)), replace(nothing, why=found))
    best = separable.minimise(found)
    kind, unique, why = best.kind, best.unique, best.certificate
    far = np.maximum(best.log_ratio, -300)
    if why.proof == "enumeration" and found.integrable and beaten(objective, problem, far):
        kind, unique = "not settled", None
        why = replace(why, proof="", why="a policy elsewhere has a lower loss than all that were found")
    fall = problem.pi * found.fall
    return at(
        objective,
        problem,
        kind,
        best.log_ratio,
        why,
        unique=unique,
        descends="loss" if found.integrable else "gradient",
        slope=-float(fall.max()) if kind == "unbounded" else np.nan,
        ray=np.where(fall == fall.max(), -1.0, 0.0),
    )


def at(
    objective: Objective,
    problem: TabularPrompt,
    kind: Kind,
    u: Array,
    why: Certificate,
    *,
    unique: bool | None = None,
    descends: Literal["loss", "gradient"] = "loss",
    slope: float = np.nan,
    ray: Array | None = None,
) -> StationaryPoint:
    """The stationary point with everything that follows from it."""
    has_policy = kind not in ("unbounded", "not settled")
    shown = np.where(np.isneginf(u), -700.0, u)
    seen = population_loss(objective, problem, shown)
    gain = float((problem.pi * np.exp(u)) @ problem.reward - problem.pi @ problem.reward) if has_policy else np.nan
    direction = np.zeros(len(u)) if ray is None else ray
    return StationaryPoint(kind, u, unique, descends, gain, float(seen.multiplier[0]), slope, direction, why)


def no_gradient(objective: Objective, problem: TabularPrompt) -> bool:
    """Whether nothing moves a softmax at any of many policies, near and far."""
    draws = generator(0, "explain", "no gradient")
    spread = np.geomspace(1e-3, 10, 128)[:, None]
    u = normalised(problem.pi, spread * draws.normal(size=(128, len(problem.pi))))
    seen = population_loss(objective, problem, np.concatenate([0 * u[:1], u]))
    loud = np.abs(seen.pull).max(1)
    return bool((np.abs(seen.logits).max(1) <= 1e-12 * loud).all())


def integrable(objective: Objective, problem: TabularPrompt) -> bool:
    """Whether the gradient is the slope of the loss, with no factor detached from differentiation."""
    u, way = generator(0, "explain", "slope").normal(size=(2, len(problem.pi))) / 2
    width = 1e-5
    loss = population_loss(objective, problem, np.stack([u + width * way, u - width * way])).loss
    pull = population_loss(objective, problem, u).pull[0]
    return bool(abs((loss[0] - loss[1]) / (2 * width) - pull @ way) <= 1e-6 * (np.abs(pull) @ np.abs(way)))


def from_starts(objective: Objective, problem: TabularPrompt, starts: int) -> StationaryPoint:
    """Solve where a row depends on the ratios of other rows: Newton from several starts, checked for convexity.

    The answer is settled if every start ends at the same point, or if the loss keeps falling along a ray. Kinks are
    not settled: Newton cannot distinguish one from a place where it is lost.
    """
    noise = generator(0, "explain", "starts").normal(size=(starts, len(problem.pi)))
    noise *= np.resize([0.3, 1.0, 3.0], starts)[:, None]
    noise[0] = 0
    ends: list[tuple[Array, bool]] = []
    for each in noise:
        ends.append(newton(objective, problem, normalised(problem.pi, each)))
        if len(ends) >= FEWEST and not all(still for _, still in ends):  # a best policy needs every one to come to rest
            break
    converged = [u for u, still in ends if still and curvature(objective, problem, u) > 0]
    reached = converged or [u for u, _ in ends]
    best = min(reached, key=lambda u: float(population_loss(objective, problem, u).loss[0]))
    apart = max((float(np.abs(u - best).max()) for u in converged), default=np.nan)
    convex = convex_in(objective, problem)
    residual = float(np.abs(population_loss(objective, problem, best).logits[0] / problem.pi).max())
    bend = curvature(objective, problem, best)
    off = abs(float(problem.pi @ np.exp(best)) - 1)

    def certificate(proof: str, why: str = "", rivals: int | None = None) -> Certificate:
        return Certificate(proof, residual, off, np.nan, bend, (), convex == "convex in pi", rivals, why)

    lower = beaten(objective, problem, best)
    if len(converged) == len(ends) and apart < 1e-6 and residual < 1e-8 and not lower:
        return at(
            objective,
            problem,
            "minimiser",
            best,
            certificate(convex or "restarts", rivals=0 if convex else None),
            unique=True,
        )
    for ray in (best - best.mean(), problem.advantage, -problem.advantage):
        if np.abs(ray).max() == 0:
            continue
        unit = ray / np.abs(ray).max()
        loss = population_loss(objective, problem, normalised(problem.pi, np.outer(RAY, unit))).loss
        slopes = np.diff(loss) / np.diff(RAY)  # per nat, far out
        if np.isfinite(slopes).all() and slopes.max() < 0 and slopes[-1] < 0.5 * slopes[0]:  # it does not level off
            slope = float(slopes[-1])
            return at(objective, problem, "unbounded", best, certificate("ray"), unique=False, slope=slope, ray=unit)
    why = f"rows depend on each other, and {len(converged)} of {len(ends)} starts came to rest"
    if len(converged) == len(ends):
        why += f", {apart:.2g} nats apart" + (", and a policy elsewhere has a lower loss" if lower else "")
    return at(objective, problem, "not settled", best, certificate("", why))


def beaten(objective: Objective, problem: TabularPrompt, u: Array) -> bool:
    """Whether any of many policies, near, far and very far, has a lower loss than this one."""
    draws = generator(0, "explain", "beaten")
    spread = np.geomspace(0.01, 1e3, 2048)[:, None]
    others = normalised(problem.pi, spread * draws.normal(size=(2048, len(u))))
    along = (np.linspace(-20, 20, 201)[:, None, None] * np.eye(len(u))).reshape(-1, len(u))
    near = normalised(problem.pi, u + np.concatenate([others, along]))
    with np.errstate(over="ignore", invalid="ignore"):
        losses = population_loss(objective, problem, np.concatenate([u[None], near, others])).loss
    known = losses[np.isfinite(losses)]
    return bool(known.min() < losses[0] - 1e-9 * np.abs(np.median(known) - losses[0]) - 1e-12 * abs(losses[0]))


def convex_in(objective: Objective, problem: TabularPrompt) -> str:
    """ "convex in log pi", "convex in pi" or "": whether the gradient rises between every two of many policies.

    In log pi it also has to ignore a shift of all logits: the simplex is not convex there.
    """
    draws = generator(0, "explain", "convex")
    spread = np.tile([0.1, 0.5, 2.0, 5.0], PAIRS // 4)[:, None]
    size = (PAIRS, len(problem.pi))
    a, b = (normalised(problem.pi, spread * draws.normal(size=size)) for _ in range(2))
    seen = [population_loss(objective, problem, u) for u in (a, b)]
    shift = np.abs(np.stack([each.multiplier for each in seen])).max()
    loud = max(float(np.abs(each.pull).max()) for each in seen)
    for name, x, y in (("convex in log pi", a, b), ("convex in pi", np.exp(a), np.exp(b))):
        if name == "convex in log pi" and shift > 1e-9 * loud:
            continue
        slopes = (
            [each.pull for each in seen]
            if name == "convex in log pi"
            else [each.pull * np.exp(-u) for each, u in zip(seen, (a, b), strict=True)]
        )
        rise = ((slopes[0] - slopes[1]) * (x - y)).sum(1)
        size_of = (np.abs(slopes[0] - slopes[1]) * np.abs(x - y)).sum(1)
        if (rise >= -1e-9 * size_of).all():
            return name
    return ""


def newton(objective: Objective, problem: TabularPrompt, u: Array) -> tuple[Array, bool]:
    """[A] where damped Newton in logits scaled by the square root of the old policy ends, and whether it converged.

    Saddles are left downhill.
    """
    root = np.sqrt(problem.pi)
    seen = population_loss(objective, problem, u)
    radius, damping, small = 2.0, 0.0, 0
    for _ in range(SWEEPS):
        force = seen.logits[0] / root
        matrix = hessian(objective, problem, u)
        # per unit of the new policy: far out, a gradient fades with the policy, which is not a plateau
        if (np.abs(seen.logits[0]) <= 1e-12 * problem.pi * np.exp(u)).all() and np.abs(matrix).max() < 1e-9:
            return u, False
        values, axes = np.linalg.eigh((matrix + matrix.T) / 2)
        bend = np.maximum(np.abs(values), 1e-14 * np.abs(values).max() + 1e-300)
        along = axes.T @ force
        step = -(axes @ np.where(np.abs(values) < 1e-13 * np.abs(values).max(), 0.0, along / (bend + damping))) / root
        step -= (problem.pi * step).sum()
        length = np.abs(step).max()
        trial = normalised(problem.pi, u + step * min(1.0, radius / max(length, 1e-300)))
        after = population_loss(objective, problem, trial)
        loss, last = after.loss[0], seen.loss[0]
        here, before = (np.linalg.norm(each.logits[0] / root) for each in (after, seen))
        # a step is kept if the loss falls, or the gradient does where the loss cannot tell
        finite, rounding = np.isfinite(loss) and np.isfinite(here), 1e-9 * abs(last)
        if finite and (loss < last - rounding or (loss <= last + rounding and here <= before)):
            small = small + 1 if length < STILL and damping == 0 else 0
            u, seen = trial, after
            radius, damping = radius * 2, 0.0 if damping < 1e-9 else damping / 10
        elif length < 1e-7 and damping == 0:  # neither loss nor gradient can fall further: rounding
            small += 1
        else:
            radius, damping = max(min(radius, length) / 4, 1e-12), max(10 * damping, 1e-9)
        if small == 3:
            return u, True
        if np.abs(u).max() > 1e5:
            break
    return u, False


def hessian(objective: Objective, problem: TabularPrompt, u: Array, width: float = 1e-5) -> Array:
    """[A, A] derivative of the logit gradient by the logits, by central differences, scaled by the old policy.

    Differences rather than a second autograd pass: a factor detached from differentiation still moves with the policy.
    """
    root = np.sqrt(problem.pi)
    steps = width * np.eye(len(u))
    points = np.concatenate([u + steps, u - steps])
    forces = population_loss(objective, problem, normalised(problem.pi, points)).logits
    change = (forces[: len(u)] - forces[len(u) :]) / (2 * width)
    matrix: Array = change.T / root[:, None] / root[None, :]
    return np.where(np.isfinite(matrix), matrix, 0.0)


def normalised(pi: Array, u: Array) -> Array:
    """Log ratios shifted so that pi e^u sums to 1."""
    top = u.max(-1, keepdims=True)
    moved: Array = u - top - np.log((pi * np.exp(u - top)).sum(-1, keepdims=True))
    return moved


def curvature(objective: Objective, problem: TabularPrompt, u: Array) -> float:
    """Smallest eigenvalue of the scaled Hessian, excluding the shift of all logits together, which changes nothing."""
    shift = np.sqrt(problem.pi)[:, None]
    others = np.linalg.svd(shift)[0][:, 1:]
    return float(np.linalg.eigvals(others.T @ hessian(objective, problem, u) @ others).real.min())
