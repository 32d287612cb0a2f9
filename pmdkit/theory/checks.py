"""Checks of the arguments of `theory`, and arithmetic that keeps digits."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pmdkit.errors import unknown

Array = NDArray[np.float64]

METHODS = ("pmd-mean", "pmd-part")

SMALLEST = 1e-305  # smaller probabilities count as 0: their ratios, up to 1 / probability, would overflow
FLOOR = float(np.log(SMALLEST))


def policy(pi: ArrayLike | None, log_pi: ArrayLike | None = None) -> Array:
    """[..., A] probabilities that sum to 1 within 1e-8; the problem solved is that of pi / sum(pi)."""
    if (pi is None) == (log_pi is None):
        raise ValueError("pi and log_pi are both given or both missing; expected exactly one of them")
    name = "pi" if log_pi is None else "exp(log_pi)"
    probs = numbers("pi", pi) if log_pi is None else np.exp(np.minimum(numbers("log_pi", log_pi), 1.0))
    if probs.ndim == 0 or probs.shape[-1] == 0:
        raise ValueError(f"{name} has shape {list(probs.shape)}; expected [..., A] with at least one action")
    low = probs.min(initial=1.0)
    if not low >= 0:
        raise ValueError(f"{name} has a negative or NaN entry; expected probabilities")
    worst = np.abs(probs.sum(-1) - 1).max(initial=0.0)
    if not worst <= 1e-8:
        raise ValueError(f"{name} sums to 1 only within {worst:.2g}; expected 1 within 1e-8: divide by the sum first")
    return probs if low >= SMALLEST else np.where(probs < SMALLEST, 0.0, probs)


def rewards(reward: ArrayLike | None, actions: int | None = None) -> Array:
    """[..., A] finite rewards, one per action."""
    values = numbers("reward", reward)
    if not np.isfinite(values).all():
        raise ValueError("reward has a NaN or infinite entry; expected finite numbers, in reward units")
    if values.ndim == 0 or (actions is not None and values.shape[-1] != actions):
        raise ValueError(
            f"reward has shape {list(values.shape)}; expected [..., {actions or 'A'}], one number per action"
        )
    return values


def temperatures(tau: ArrayLike | None) -> Array:
    """Scalar or [...] temperatures, finite and > 0."""
    values = numbers("tau", tau)
    require(
        np.isfinite(values) & (values > 0),
        values,
        "tau is {}; expected finite numbers > 0 in reward units (0.05 on rewards {{0, 1}} is 0.1 on +-1)",
    )
    return values


def problem(
    pi: ArrayLike | None, reward: ArrayLike | None, tau: ArrayLike | None, log_pi: ArrayLike | None = None
) -> tuple[Array, Array, Array]:
    """Policy, rewards and temperatures that fit together; leading dimensions are left to broadcast."""
    probs, temperature = policy(pi, log_pi), temperatures(tau)
    values = rewards(reward, probs.shape[-1])
    together(pi=probs[..., 0], reward=values[..., 0], tau=temperature)
    return probs, values, temperature


def pass_rates(p: ArrayLike | None) -> Array:
    """Scalar or [...] pass rates, in [0, 1]. The two updates treat one below SMALLEST as 0."""
    values = numbers("p", p)
    require((values >= 0) & (values <= 1), values, "p is {}; expected pass rates in [0, 1]")
    return values


def group_sizes(n: ArrayLike | None) -> NDArray[np.int64]:
    """Scalar or [...] responses per prompt: whole numbers >= 2, because a draw needs a peer."""
    values = numbers("n", n)
    require(
        np.isfinite(values) & (values >= 2) & (values == np.floor(values)),
        values,
        "n is {}; expected whole numbers >= 2: leaving one out of a group needs a second response",
    )
    return values.astype(np.int64)


def confidences(delta: ArrayLike | None) -> Array:
    """Scalar or [...] failure probabilities, in (0, 1)."""
    values = numbers("delta", delta)
    require((values > 0) & (values < 1), values, "delta is {}; expected failure probabilities in (0, 1), such as 0.05")
    return values


def lengths(length: ArrayLike | None, shape: tuple[int, ...]) -> Array | None:
    """[..., A] tokens per action, > 0; None where every action counts as one."""
    if length is None:
        return None
    values = numbers("length", length)
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError("length has an entry that is not a finite number > 0; expected tokens per action")
    together(length=values, policy=np.empty(shape))
    return np.broadcast_to(values, shape)


def known_method(method: str) -> str:
    """One of METHODS, or an error that suggests the nearest name."""
    if method not in METHODS:
        raise ValueError(unknown("method", str(method), METHODS))
    return method


def numbers(name: str, value: Any) -> Array:
    """A float64 array, or an error that names the argument."""
    if value is None:
        raise ValueError(f"{name} is missing; expected numbers")
    return np.asarray(value, dtype=np.float64)


def weights(name: str, value: ArrayLike) -> Array:
    """Finite numbers >= 0 as float64, or an error that names the argument."""
    values = numbers(name, value)
    require(np.isfinite(values) & (values >= 0), values, name + " is {}; expected finite numbers >= 0")
    return values


def require(good: NDArray[np.bool_], values: Array, sentence: str) -> None:
    """Raise a ValueError about the first value that is not good."""
    if not good.all():
        raise ValueError(sentence.format(f"{values[~good].flat[0]:g}"))


def together(**arrays: NDArray[Any]) -> tuple[int, ...]:
    """The common shape of the arguments, or an error that names a shape that does not fit."""
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        raise ValueError(f"leading shapes do not fit: {shapes}; expected shapes that broadcast") from None


def leading_shape(pi: Array, reward: Array, **arrays: NDArray[Any]) -> tuple[int, ...]:
    """The common shape of the prompts: of pi and reward without their actions, and of arrays that have none."""
    return together(pi=pi[..., 0], reward=reward[..., 0], **arrays)


def centred(pi: Array, reward: Array) -> Array:
    """[..., A] advantage r - E[r], from differences to the likeliest action: keeps digits if pi is almost 1 there."""
    pi, reward = np.broadcast_arrays(pi, reward)
    most = pi.argmax(-1, keepdims=True)
    advantage = reward - np.take_along_axis(reward, most, -1)
    advantage = advantage - np.einsum("...a,...a->...", pi, advantage)[..., None] / pi.sum(-1, keepdims=True)
    return advantage


def ratio(log_ratio: Array) -> Array:
    """e^u, 0 below SMALLEST; only an action of probability 0 can exceed e^709, and its product with pi stays 0."""
    if log_ratio.max(initial=0.0) > 709:
        log_ratio = np.minimum(log_ratio, 709.0)
    if log_ratio.min(initial=0.0) >= FLOOR:
        return np.exp(log_ratio)
    values = np.exp(np.maximum(log_ratio, FLOOR))  # subnormal results make np.exp ten times slower
    values *= log_ratio > FLOOR
    return values


def excess(x: Array) -> Array:
    """e^x - 1 - x >= 0 without cancellation: a series near 0, the definition elsewhere."""
    small = np.abs(x) < 0.02
    t = np.where(small, x, 0.0)
    series = t * t / 2 * (1 + t / 3 * (1 + t / 4 * (1 + t / 5 * (1 + t / 6 * (1 + t / 7)))))
    return np.where(small, series, np.expm1(x) - x)
