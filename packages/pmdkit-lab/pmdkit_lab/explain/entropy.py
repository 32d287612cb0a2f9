r"""What a loss does to the entropy: by its first step, by a sampler that it does not know of, and at its rest.

A change dz of the logits changes the entropy H and the expected reward R of a table by

$$ dH = -\mathrm{Cov}_\pi(\log\pi,\, dz), \qquad dR = \mathrm{Cov}_\pi(r,\, dz) $$

and dz is minus the gradient of the loss, for draws from any policy q. Source of dH: arXiv:2505.22617.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike

from pmdkit.errors import UsageError
from pmdkit.llm.engines.sampling import nucleus
from pmdkit.objectives import Objective
from pmdkit.theory.checks import numbers, policy, together
from pmdkit_lab.explain.solver import StationaryPoint, normalised
from pmdkit_lab.explain.tabular import GRADED_PROMPTS, Array, TabularPrompt, binary_prompts, population_loss

RATES = np.array([0.01, 0.1, 0.5, 0.9])
STEP = 0.01  # nats by which the logit that moves most moves in a step of the on-policy flow
MOST = 20.0  # nats between two ratios of an exponential tilt


@dataclass(frozen=True)
class SamplerEffect:
    """The first step with draws from q in place of pi_old.

    Attributes:
        top_p, temperature: of the sampler.
        drawn: what pi_old gives to the responses that q can draw, on the graded problem.
        c: minus the mean advantage under q there, reward units.
        by_pass_rate: pairs of the pass rate of what is drawn, and c, rewards {0, 1}.
        entropy: nats that the push c (pi - q) adds per unit of step size there; all that is left where rewards say
            nothing.
    """

    top_p: float
    temperature: float
    drawn: float
    c: float
    by_pass_rate: tuple[tuple[float, float], ...]
    entropy: float


@dataclass(frozen=True)
class EntropyCost:
    """Nats of entropy that are lost for the reward that is gained, on the graded problem; negative where some is won.

    Attributes:
        first_step: nats per unit of reward at pi_old; NaN if the first step does not move the reward.
        gain: reward gained at the rest of one batch; NaN without one best policy. The next three are nats lost there.
        at_rest: by this objective.
        on_policy: by the policy gradient with a new batch for every small step, at the same gain.
        tilt: by pi_old e^{r / T} / Z, the policy nearest to pi_old in KL with the same gain.
    """

    first_step: float
    gain: float
    at_rest: float
    on_policy: float
    tilt: float


def sampled_policy(pi: ArrayLike, top_p: float = 1.0, temperature: float = 1.0) -> Array:
    """[..., A] the policy q that an engine draws from: pi^(1/T), cut to its nucleus as pmdkit's own engine cuts it."""
    if not (0 < top_p <= 1 and 0 < temperature < np.inf):
        raise UsageError(
            f"the sampler has top_p {top_p:g} and temperature {temperature:g}; expected top_p > 0, at most 1, and a "
            "finite temperature > 0: 0.01 for the likeliest responses"
        )
    mass = torch.as_tensor(pi, dtype=torch.float64)
    mass = (mass / mass.amax(-1, keepdim=True)).pow(1 / temperature)  # the largest is 1: no underflow of all
    q = nucleus(mass.flatten(0, -2) if mass.ndim > 1 else mass[None], top_p)
    return (q / q.sum(-1, keepdim=True)).view(mass.shape).numpy()


def sampler_effect(objective: Objective, top_p: float = 1.0, temperature: float = 1.0) -> SamplerEffect:
    """The change of a loss's first step where draws have a top_p and a temperature that the loss does not apply.

    c is read off the gradient at pi_old: the derivatives by the log-probabilities sum to it.
    Source: `sampler_push`.
    """
    problem = GRADED_PROMPTS["graded rewards"]
    q = sampled_policy(problem.pi, top_p, temperature)
    drawn = population_loss(objective, replace(problem, drawn=q), np.zeros(len(q)))
    c = float(drawn.multiplier[0])
    # c depends on the rewards of what is drawn alone, so a sampler only changes their pass rate
    by_rate = population_loss(objective, binary_prompts(RATES), np.zeros((len(RATES), 2))).multiplier
    return SamplerEffect(
        top_p,
        temperature,
        float(problem.pi[q > 0].sum()),
        c,
        tuple(zip(RATES.tolist(), by_rate.tolist(), strict=True)),
        entropy_slope(problem.pi, sampler_push(problem.pi, q, c)),
    )


def sampler_push(pi: ArrayLike, q: ArrayLike, c: ArrayLike) -> Array:
    r"""What a baseline that is c too high does to the logits at the first step, if responses are drawn from q.

    With L_b(pi) = E_q (r - b - tau log pi/mu)^2 / (2 tau), for every pi, q, mu and baseline b,

    $$ L_b(\pi) = L_{mean}(\pi) - c\, KL(q\|\pi) + \mathrm{const}, \qquad c = b - E_q r $$

    exactly, as in `theory.anchor`. At pi = mu the minimum of KL(q || pi) is elsewhere unless q = pi, so descent has

    $$ \Delta z = c\,(\pi - q) $$

    as a push from the first step on: up for what is drawn too seldom, and so flatter where q is sharper than pi. Any
    loss has it whose first step is E_q[A grad log pi], with c = -E_q A: no such push for PMD-mean, RLOO and GRPO.

    Source: not in the paper. Args: pi, q [..., A] policies; c scalar or [...], reward units: `theory.anchor` of q.
    Returns: [..., A] per unit of the step size; sums to 0.
    """
    pi, q, strength = policy(pi), policy(q), numbers("c", c)
    together(pi=pi[..., 0], q=q[..., 0], c=strength)
    return strength[..., None] * (pi - q)


def entropy_cost(objective: Objective, rest: StationaryPoint) -> EntropyCost:
    """Entropy against reward at the first step and at the rest of the graded problem, beside two other ways there."""
    problem = GRADED_PROMPTS["graded rewards"]
    step = -population_loss(objective, problem, np.zeros(len(problem.pi))).logits[0]
    gain = covariance(problem.pi, problem.reward, step)
    first = -entropy_slope(problem.pi, step) / gain if abs(gain) > 1e-12 * np.abs(step).max() > 0 else np.nan
    if rest.kind not in ("minimiser", "boundary") or rest.reward <= 0:
        return EntropyCost(first, np.nan, np.nan, np.nan, np.nan)
    ways = (rest.log_ratio, on_policy(problem, rest.reward), tilt(problem, rest.reward))
    return EntropyCost(first, rest.reward, *(entropy_lost(problem, u) for u in ways))


def entropy_of_batch(slope: torch.Tensor, logp: torch.Tensor) -> tuple[float, float]:
    r"""Change of the entropy by the first step of a batch, and its standard error over prompts: read its sign.

    With the draws of each group in place of pi, and dz of a response minus the slope of the loss by its
    log-probability over its mass, which is a step of mirror descent. A network shares its weights between responses,
    so that neither the size nor, for certain, the sign is its own.

    Args:
        slope: [P, G] d loss / d log pi of each response, weights included.
        logp: [P, G] log-probabilities of the responses, nats; NaN for a response that does not count.
    """
    slope = torch.where(logp.isnan(), 0.0, slope)
    away = torch.where(logp.isnan(), 0.0, logp - logp.nanmean(1, keepdim=True))
    change = len(slope) * (slope * away).sum(1)
    return float(change.mean()), float(change.std() / len(change) ** 0.5)


def covariance(pi: Array, x: Array, y: Array) -> float:
    """Cov_pi(x, y)."""
    return float(pi @ ((x - pi @ x) * y))


def entropy_slope(pi: Array, dz: Array) -> float:
    """Change of the entropy by a small change of the logits, nats."""
    return -covariance(pi, np.log(pi), dz)


def entropy_lost(problem: TabularPrompt, log_ratio: Array) -> float:
    """Entropy of the old policy minus that of a policy, given as log ratios to the old one."""
    new = problem.pi * np.exp(log_ratio)
    return float(new @ np.log(np.where(new > 0, new, 1.0)) - problem.pi @ np.log(problem.pi))


def on_policy(problem: TabularPrompt, gain: float) -> Array:
    """[A] log ratios where the flow dz = pi (r - E r) has gained so much reward: midpoint steps, the last one cut."""
    u, reached = np.zeros(len(problem.pi)), 0.0

    def direction(u: Array) -> Array:
        pi = problem.pi * np.exp(u)
        step: Array = pi * (problem.reward - pi @ problem.reward)
        return STEP * step / np.abs(step).max()

    while True:
        trial = normalised(problem.pi, u + direction(normalised(problem.pi, u + direction(u) / 2)))
        after = float(problem.pi * np.expm1(trial) @ problem.reward)
        if after >= gain:
            return normalised(problem.pi, u + (gain - reached) / (after - reached) * (trial - u))
        u, reached = trial, after


def tilt(problem: TabularPrompt, gain: float) -> Array:
    """[A] log ratios of the exponential tilt with this gain, by bisection of its strength."""
    low, high = 0.0, MOST / float(np.diff(np.unique(problem.reward)).min())
    for _ in range(80):
        middle = (low + high) / 2
        u = normalised(problem.pi, middle * problem.reward)
        low, high = (middle, high) if problem.pi * np.expm1(u) @ problem.reward < gain else (low, middle)
    return u
