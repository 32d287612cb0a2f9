"""A bandit (expected rewards, success probabilities, initial policy), and the same as a Task of the loop.

NumPy only: torch is imported when a task is asked for prompts, so that `import pmdkit.envs` stays light.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pmdkit.randomness import generator

if TYPE_CHECKING:
    from torch import Tensor

    from pmdkit.loop import Rollouts

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Bandit:
    """A contextual bandit over S contexts and A arms, with every number known.

    Attributes:
        name: for tables and figures.
        reward: [S, A] expected reward of an arm, reward units.
        log_policy: [S, A] log-probabilities of the initial policy, nats.
        success: [S, A] true probability that an arm passes, free of verifier noise; None where nothing passes or fails.
        features: [S, A, d] features of a log-linear policy with logits log_policy + features @ theta, where theta = 0
            at the start. None for a table of logits.
        values: the two possible rewards of a draw, low and high; None for real-valued rewards.
        sd: standard deviation of a real-valued draw about its expectation, reward units.
    """

    name: str
    reward: Array
    log_policy: Array
    success: Array | None = None
    features: Array | None = None
    values: tuple[float, float] | None = (0.0, 1.0)
    sd: float = 0.0

    def __post_init__(self) -> None:
        for field in ("reward", "log_policy", "success", "features"):
            value = getattr(self, field)
            if value is not None:
                object.__setattr__(self, field, frozen(field, value))
        if self.reward.ndim != 2 or self.contexts < 1 or self.arms < 2:
            raise ValueError(
                f"reward has shape {list(self.reward.shape)}; expected [S, A]: at least one context (row) and two arms"
            )
        for field, axes in (("log_policy", 2), ("success", 2), ("features", 3)):
            value = getattr(self, field)
            if value is not None and (value.ndim != axes or value.shape[:2] != self.reward.shape):
                expected = [*self.reward.shape, "d"][:axes]
                raise ValueError(f"{field} has shape {list(value.shape)}; expected {expected}, as reward has")
        if self.success is not None and not ((self.success >= 0) & (self.success <= 1)).all():
            raise ValueError(f"success has the entry {outside(self.success, 0, 1)}; expected probabilities from 0 to 1")
        total = np.exp(self.log_policy).sum(-1)
        worst = int(np.abs(total - 1).argmax())
        if abs(total[worst] - 1) > 1e-8:  # the tolerance of `theory`
            got = f"log_policy gives context {worst} a total probability of {total[worst]:.10g}"
            raise ValueError(f"{got}; expected 1 within 1e-8: subtract the logsumexp of each row")
        if not (np.isfinite(self.sd) and self.sd >= 0):
            raise ValueError(f"sd is {self.sd}; expected a finite number >= 0, in reward units")
        if self.values is None:
            return
        low, high = self.values
        if not low < high:
            raise ValueError(f"values is {self.values}; expected (low, high) with low < high")
        if self.sd:
            raise ValueError(f"sd is {self.sd} for rewards of {low:g} or {high:g}; give values=None for Gaussian noise")
        if self.reward.min() < low or self.reward.max() > high:
            entry = outside(self.reward, low, high)
            raise ValueError(f"reward has the entry {entry:g}; expected {low:g} to {high:g}")

    @property
    def contexts(self) -> int:
        """S, the number of contexts."""
        return self.reward.shape[0]

    @property
    def arms(self) -> int:
        """A, the number of arms."""
        return self.reward.shape[1]

    @property
    def scale(self) -> str:
        """The reward scale in words. A tau on {0, 1} corresponds to twice that tau on {-1, 1}."""
        if self.values is None:
            return "real"
        return "{" + ", ".join(f"{value:g}" for value in self.values) + "}"

    def sample_reward(self, contexts: Indices, arms: Indices, rng: np.random.Generator) -> Array:
        """One reward for each pair of context and arm, in the shape of the two; independent given the pair."""
        expected = self.reward[contexts, arms]
        if self.values is None:
            return expected + self.sd * rng.standard_normal(np.shape(expected))
        low, high = self.values
        rate = (expected - low) / (high - low)  # P(high), so that the expectation is exact
        return np.where(rng.random(np.shape(expected)) < rate, high, low)

    def pass_rate(self, log_policy: Array) -> Array | None:
        """[S] probability that an arm drawn from a policy [S, A] passes, exact. None where nothing passes or fails."""
        return None if self.success is None else (np.exp(log_policy) * self.success).sum(-1)

    def mean_reward(self, log_policy: Array) -> Array:
        """[S] expected reward of a policy [S, A], exact."""
        return (np.exp(log_policy) * self.reward).sum(-1)


class BanditTask:
    """Shuffled epochs of contexts, and a reward for every arm.

    Step s of P prompts takes places (s - 1) P to s P - 1 of an endless sequence of epochs, each a fresh shuffle of
    all contexts drawn from (seed, "epoch", number). So any step can be computed without the ones before it.

    Args:
        bandit: the problem.
        prompts: P, contexts per step; by default every context once. P > S repeats some.
        seed: of the shuffles.
    """

    def __init__(self, bandit: Bandit, prompts: int | None = None, seed: int = 0) -> None:
        self.bandit = bandit
        self.count = bandit.contexts if prompts is None else prompts
        self.seed = seed

    def prompts(self, step: int) -> "Tensor":
        """[P] contexts of a step; steps count from 1."""
        import torch

        size = self.bandit.contexts
        first, end = (step - 1) * self.count, step * self.count
        epochs = range(first // size, (end - 1) // size + 1)
        order = np.concatenate([generator(self.seed, "epoch", epoch).permutation(size) for epoch in epochs])
        start = first - epochs.start * size
        return torch.from_numpy(order[start : start + self.count])

    def reward(self, rollouts: "Rollouts") -> "Tensor":
        """[P, G] rewards, drawn with the rollouts' seed if they are sampled; expected rewards on the full support."""
        import torch

        shape = rollouts.mass.shape
        contexts = rollouts.prompts.cpu().numpy()[:, None]
        arms = rollouts.responses.cpu().numpy().reshape(shape)
        if rollouts.sampled:
            rng = generator(rollouts.seed, "reward")
            rewards = self.bandit.sample_reward(np.broadcast_to(contexts, arms.shape), arms, rng)
        else:
            rewards = self.bandit.reward[contexts, arms]
        return torch.from_numpy(rewards).to(rollouts.mass.device)


def frozen(name: str, value: Array) -> Array:
    """A read-only float64 copy, checked to be finite: logits of -inf would have NaN gradients."""
    array = np.array(value, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has a NaN or infinite entry; expected finite numbers")
    array.setflags(write=False)
    return array


def outside(array: Array, low: float, high: float) -> float:
    """The first entry that is not between two bounds."""
    return float(array[(array < low) | (array > high)][0])
