"""What pushes one response at a given ratio, where the push ends, and what the first step is. No fixed point here."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pmdkit.explaining.landscape import RARE, Array, Problem, view
from pmdkit.explaining.narrowing import narrow
from pmdkit.explaining.problems import LONG, PROBLEMS, binary
from pmdkit.objectives import Objective

P_SHOWN = 0.1
SHOWN: Array = np.linspace(-3, 3, 121)  # nats, for the picture
OUTWARD: Array = np.concatenate([[0.0], np.geomspace(1e-5, 5e3, 400)])


@dataclass(frozen=True)
class Force:
    """The coefficient in front of grad log pi(y) for a right and a wrong response, p = 0.1, rewards {0, 1}.

    Attributes:
        right, wrong: [121] coefficient at log ratios SHOWN, in units of the advantage; > 0 pushes up.
        right_end, wrong_end: log ratio at which the push ends, nats; NaN where it never does.
        right_back, wrong_back: whether a response beyond that is pushed back; otherwise it is left alone.
        mirror: whether flipping the sign of reward and log ratio flips the push, at p = 0.5.
    """

    right: Array
    wrong: Array
    right_end: float
    wrong_end: float
    right_back: bool
    wrong_back: bool
    mirror: bool


@dataclass(frozen=True)
class FirstStep:
    """The gradient at pi = pi_old beside the policy gradient of reward minus its mean.

    Attributes:
        factor: the policy gradient is multiplied by it, on graded rewards.
        misfit: what of the gradient is no multiple of the policy gradient, as a share.
        by_pass_rate: pairs of p and factor, rewards {0, 1}.
        token: weight of a token in a response of 4 tokens over that in a response of 1, at the same reward.
    """

    factor: float
    misfit: float
    by_pass_rate: tuple[tuple[float, float], ...]
    token: float


def force(objective: Objective) -> Force:
    """How a rare right and a rare wrong response are pushed while all others stand at pi_old."""
    right, wrong = (push(objective, SHOWN, reward, P_SHOWN) for reward in (1.0, 0.0))
    ends = [push_end(objective, reward, sign) for reward, sign in ((1.0, 1.0), (0.0, -1.0))]
    up, down = push(objective, SHOWN, 1.0, 0.5), push(objective, -SHOWN, 0.0, 0.5)
    mirror = bool(np.abs(up + down).max() <= 1e-9 * np.abs(up).max())
    return Force(right, wrong, ends[0][0], ends[1][0], ends[0][1], ends[1][1], mirror)


def push(objective: Objective, log_ratio: Array, reward: float, p: float) -> Array:
    """[K] minus d loss / d log pi of a rare response, per unit of its mass."""
    problem = binary(np.array([p]))
    one = Problem(problem.pi[0], problem.reward[0], problem.length)
    policies = np.concatenate([np.zeros((len(log_ratio), 2)), log_ratio[:, None]], 1)
    with np.errstate(over="ignore"):
        values: Array = -view(objective, one.with_rare(np.full(len(log_ratio), reward)), policies).pull[:, -1] / RARE
    return values


def push_end(objective: Objective, reward: float, sign: float) -> tuple[float, bool]:
    """The log ratio, in the direction of the first push, where it stops; and whether it turns round there."""
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

    end = narrow(ended, np.array([low]), np.array([high]))[0]
    return float(sign * end), bool((value[place:][known[place:]] < -1e-9 * start).any())


def first_step(objective: Objective) -> FirstStep:
    """The gradient by the logits at pi_old, against that of the expected reward."""
    problem = PROBLEMS["graded rewards"]
    gradient = view(objective, problem, np.zeros(len(problem.pi))).logits[0]
    plain = -problem.pi * problem.advantage
    factor = float(gradient @ plain / (plain @ plain))
    misfit = float(np.linalg.norm(gradient - factor * plain) / max(float(np.linalg.norm(gradient)), 1e-300))
    rates = np.array([0.01, 0.1, 0.5, 0.9])
    wrong = view(objective, binary(rates), np.zeros((len(rates), 2))).logits[:, 1]
    factors = wrong / (rates * (1 - rates))
    return FirstStep(factor, misfit, tuple(zip(rates.tolist(), factors.tolist(), strict=True)), token_weight(objective))


def token_weight(objective: Objective) -> float:
    """How much a token of a long response counts beside that of a short one with the same reward."""
    twins = Problem.of([0.25, 0.25, 0.25, 0.25], [1.0, 1.0, 0.0, 0.0], [1, LONG, 1, LONG])
    pull = view(objective, twins, np.zeros(4)).pull[0]
    # right minus wrong, so that a baseline that is not the mean drops out
    return float((pull[1] - pull[3]) / (pull[0] - pull[2]))
