"""What the gradient does to one response: the push at every ratio, the first step, and one exact step."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from pmdkit.objectives import Groups, Objective, credit, total
from pmdkit_lab.explain.tabular import GRADED_PROMPTS, LONG, RARE, Array, TabularPrompt, binary_prompts, population_loss

P_SHOWN = 0.1
OUTWARD: Array = np.concatenate([[0.0], np.geomspace(1e-5, 5e3, 400)])
STEP_SIZES: Array = np.concatenate([[0.0], np.geomspace(1e-6, 2e4, 600)])  # nats by which right moves away from wrong
FLAT = 1e-14  # of the ratio: a push below this is rounding on a plateau
FADED = 600.0  # nats: beyond this, a push of 0 may be an underflow
POINTS = 16
ROUNDS = 13  # 16^13 = 2^52


@dataclass(frozen=True)
class Force:
    """The coefficient in front of grad log pi(y) for a right and a wrong response, p = 0.1, rewards {0, 1}.

    Attributes:
        right, wrong: coefficient at ratio 1, in units of the advantage; > 0 pushes up.
        right_end, wrong_end: log ratio at which the push ends, nats; NaN where it never does.
        right_back, wrong_back: whether a response beyond that is pushed back; otherwise it is left alone.
    """

    right: float
    wrong: float
    right_end: float
    wrong_end: float
    right_back: bool
    wrong_back: bool


@dataclass(frozen=True)
class FirstStep:
    """The gradient at pi = pi_old compared with the policy gradient of reward minus its mean.

    Attributes:
        factor: the gradient as a multiple of the policy gradient, on graded rewards.
        misfit: share of the gradient that is not a multiple of the policy gradient.
        by_pass_rate: pairs of p and factor, rewards {0, 1}.
        pull_back: pairs of p and the strength, reward units, of the anchor KL(pi_old || pi) near pi_old, in a direction
            that the reward says nothing about; below 0 it pushes away. PMD-part: tau - c of the anchor law.
        token: weight of a token in a response of 4 tokens over that in a response of 1, at the same reward; NaN where
            right and wrong responses are pushed alike.
    """

    factor: float
    misfit: float
    by_pass_rate: tuple[tuple[float, float], ...]
    pull_back: tuple[tuple[float, float], ...]
    token: float


@dataclass(frozen=True)
class ExactSteps:
    """Where the gradient flow of one prompt with a right and a wrong response first comes to rest.

    Attributes:
        p: [P] pass rate before.
        log_ratio_right, log_ratio_wrong: [P] nats; NaN where the flow never rests, so that p goes to its end.
        end: [P] where p goes then: 1, or 0 under a loss that lowers the reward.
    """

    p: Array
    log_ratio_right: Array
    log_ratio_wrong: Array
    end: Array

    @property
    def eta(self) -> Array:
        """[P] share of the gap closed: 1 - p_new = (1 - eta)(1 - p); negative where the reward falls."""
        never = 1 - (1 - self.end) / (1 - self.p)
        eta: Array = np.where(self.rests, -np.expm1(self.log_ratio_wrong), never)
        return eta

    @property
    def rests(self) -> NDArray[np.bool_]:
        """[P] whether there is a resting point."""
        return np.isfinite(self.log_ratio_wrong)


def force(objective: Objective) -> Force:
    """How a rare right and a rare wrong response are pushed while all others stay at pi_old."""
    right, wrong = (float(push(objective, np.zeros(1), reward, P_SHOWN)[0]) for reward in (1.0, 0.0))
    ends = [push_end(objective, reward, sign) for reward, sign in ((1.0, 1.0), (0.0, -1.0))]
    return Force(right, wrong, ends[0][0], ends[1][0], ends[0][1], ends[1][1])


def push(objective: Objective, log_ratio: Array, reward: float, p: float) -> Array:
    """[K] minus d loss / d log pi of a rare response, per unit of its mass."""
    problem = binary_prompts(np.array([p]))
    one = TabularPrompt(problem.pi[0], problem.reward[0], problem.length)
    policies = np.concatenate([np.zeros((len(log_ratio), 2)), log_ratio[:, None]], 1)
    with np.errstate(over="ignore"):
        values: Array = (
            -population_loss(objective, one.with_rare(np.full(len(log_ratio), reward)), policies).pull[:, -1] / RARE
        )
    return values


def push_end(objective: Objective, reward: float, sign: float) -> tuple[float, bool]:
    """The log ratio, in the direction of the first push, at which the push stops; and whether it reverses there."""
    value = sign * push(objective, sign * OUTWARD, reward, P_SHOWN)
    known = np.isfinite(value)
    start = abs(value[0]) if value[0] != 0 else 1.0
    over = known & (value <= 1e-12 * start * np.exp(np.minimum(sign * OUTWARD, 0.0)))
    if value[0] <= 0 or not over.any():
        return (0.0, True) if value[0] < 0 else (np.nan, False)
    place = int(over.argmax())
    low, high = OUTWARD[place - 1], OUTWARD[place]
    if low > 600 and value[place] == 0:  # the ratio itself underflowed
        return np.nan, False

    def ended(places: Array) -> NDArray[np.bool_]:
        s = sign * places[0]
        value = sign * push(objective, s, reward, P_SHOWN)
        return (value <= 1e-12 * start * np.exp(np.minimum(s, 0.0)))[None]

    end = first_true(ended, np.array([low]), np.array([high]))[0]
    return float(sign * end), bool((value[place:][known[place:]] < -1e-9 * start).any())


def first_step(objective: Objective) -> FirstStep:
    """The gradient by the logits at pi_old, compared with that of the expected reward."""
    problem = GRADED_PROMPTS["graded rewards"]
    gradient = population_loss(objective, problem, np.zeros(len(problem.pi))).logits[0]
    plain = -problem.pi * problem.advantage
    factor = float(gradient @ plain / (plain @ plain))
    misfit = float(np.linalg.norm(gradient - factor * plain) / max(float(np.linalg.norm(gradient)), 1e-300))
    rates = np.array([0.01, 0.1, 0.5, 0.9])
    wrong = population_loss(objective, binary_prompts(rates), np.zeros((len(rates), 2))).logits[:, 1]
    factors = wrong / (rates * (1 - rates))
    twins = TabularPrompt.of([0.25, 0.25, 0.25, 0.25], [1.0, 1.0, 0.0, 0.0], [1, LONG, 1, LONG])
    pull = population_loss(objective, twins, np.zeros(4)).pull[0]
    # right minus wrong, so that a baseline that is not the mean drops out
    short = pull[0] - pull[2]
    token = float((pull[1] - pull[3]) / short) if short != 0 else np.nan
    by_pass_rate = tuple(zip(rates.tolist(), factors.tolist(), strict=True))
    # curvature of the loss at pi_old along a coin beside the answer, which has Fisher eigenvalue 1
    coin, width = np.array([1.0, -1.0, 1.0, -1.0]), 1e-4
    tossed = np.outer([width, -width], coin) - np.log(np.cosh(width))
    pull_back = []
    for p in rates.tolist():
        beside = TabularPrompt.of([p / 2, p / 2, (1 - p) / 2, (1 - p) / 2], [1.0, 1.0, 0.0, 0.0])
        slope = population_loss(objective, beside, tossed).logits @ coin
        pull_back.append((p, float(slope[0] - slope[1]) / (2 * width)))
    return FirstStep(factor, misfit, by_pass_rate, tuple(pull_back), token)


def sampled_first_step(objective: Objective, p: float, draws: int) -> tuple[float, float]:
    """Mean and standard deviation of the first step from groups of draws, as multiples of the exact policy gradient.

    Exact over the binomial: a group of `draws` responses with rewards {0, 1} is determined by how many are right.

    Args:
        p: pass rate in (0, 1).
        draws: responses of a group, at least 2.
    """
    right = np.tri(draws + 1, draws, -1)  # row k has k right ones
    mass = torch.full((draws + 1, draws), 1 / draws, dtype=torch.float64)
    logp = torch.from_numpy(np.log(np.where(right == 1, p, 1 - p))).reshape(-1, 1).requires_grad_()
    groups = Groups(torch.from_numpy(right), mass, sampled=True)
    mask = torch.ones(logp.shape, dtype=torch.bool)
    batch = replace(credit(objective, groups, logp.detach(), mask, width=1, prompts_apart=True), logp=logp)
    (slope,) = torch.autograd.grad(total(objective, batch), logp)
    # `credit` averages over the groups; here every group counts by itself
    pull = -(draws + 1) * slope.numpy().reshape(right.shape)
    factor = (pull * (right - p)).sum(1) / (p * (1 - p))
    k = np.arange(draws + 1)
    chance = np.array([math.comb(draws, int(each)) for each in k]) * p**k * (1 - p) ** (draws - k)
    mean = float(chance @ factor)
    return mean, float(np.sqrt(chance @ (factor - mean) ** 2))


def exact_steps(objective: Objective, p: Array) -> ExactSteps:
    """Follow the right and the wrong response as they move apart, until nothing moves them.

    A prompt with two responses has one direction, so the first zero of the gradient along it is where gradient flow
    from pi_old ends: the minimiser of a regression, the edge of the plateau of a clipped objective. Most losses raise
    the right response against the wrong one; under one that lowers it, the flow goes the other way.

    Args:
        p: [P] pass rates in (0, 1).
    """
    sign = np.where(drive(objective, p, np.zeros(len(p)))[0] < 0, -1.0, 1.0)
    push, ratio = drive(objective, np.repeat(p, len(STEP_SIZES)), np.outer(sign, STEP_SIZES).ravel())
    stopped = (push <= FLAT * ratio).reshape(len(p), -1)
    stopped &= (push < 0).reshape(len(p), -1) | (STEP_SIZES <= FADED)
    found = np.flatnonzero(stopped.any(1))
    place = stopped[found].argmax(1)
    rates, ways = p[found], sign[found]

    def stopped_at(steps: Array) -> NDArray[np.bool_]:
        push, ratio = drive(objective, np.repeat(rates, steps.shape[1]), (ways[:, None] * steps).ravel())
        return (push <= FLAT * ratio).reshape(steps.shape)

    places = first_true(stopped_at, STEP_SIZES[np.maximum(place - 1, 0)], STEP_SIZES[place])
    right, wrong = np.full(len(p), np.nan), np.full(len(p), np.nan)
    right[found], wrong[found] = apart(rates, ways * places)
    return ExactSteps(p, right, wrong, (sign > 0).astype(float))


def drive(objective: Objective, p: Array, step: Array) -> tuple[Array, Array]:
    """[P] the downward push on the logit of the response that loses, per unit of its old probability; and its ratio.

    The wrong one loses with a step >= 0; with a step below 0 the right one does. A first push below 0 asks for that.
    """
    right, wrong = apart(p, step)
    seen = population_loss(objective, binary_prompts(p), np.stack([right, wrong], -1))
    rising = ~np.signbit(step)
    push = np.where(rising, seen.logits[:, 1] / (1 - p), seen.logits[:, 0] / p)
    return push, np.exp(np.where(rising, wrong, right))


def apart(p: Array, step: Array) -> tuple[Array, Array]:
    """[P] log ratios of the right and the wrong response when the first gains `step` nats on the second."""
    wrong = -np.logaddexp(np.log(p) + step, np.log1p(-p))
    return wrong + step, wrong


def first_true(holds: Callable[[Array], NDArray[np.bool_]], low: Array, high: Array) -> Array:
    """[P] the smallest place where the condition holds, between `low`, where it does not, and `high`, where it does.

    Args:
        holds: [P, 15] places to [P, 15] booleans, row by row.
        low, high: [P].
    """
    rows = np.arange(len(low))
    for _ in range(ROUNDS if len(low) else 0):
        places = low[:, None] + (high - low)[:, None] * np.arange(POINTS + 1) / POINTS
        places[:, -1] = high
        inside = holds(places[:, 1:-1])
        first = 1 + np.where(inside.any(1), inside.argmax(1), POINTS - 1)
        low, high = places[rows, first - 1], places[rows, first]
    return high
