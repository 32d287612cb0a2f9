"""Statements of the paper checked on random problems, each computed in two independent ways.

The tests check more, and more strictly; this is a short list that a reader of the report can follow.
"""

from collections.abc import Iterator

import numpy as np
import torch

from pmdkit import theory
from pmdkit.objectives import OBJECTIVES, Batch, Groups, credit, total
from pmdkit_lab.reproduce.part import ClaimCheck, PartContext, Piece
from pmdkit_lab.small_tau import binary_small_tau, hard_prompt

Array = np.ndarray
PROBLEMS, ARMS = 200, 12
SEED = 0


def checks(context: PartContext) -> list[Piece]:
    """All checks, in the order of the paper."""
    rng = np.random.default_rng(SEED)
    return [found for check in (gradients, mixture, contraction) for found in check(rng)]


def problems(rng: np.random.Generator, smallest: float = 0.02) -> tuple[Array, Array, Array]:
    """[P, A] policies, [P, A] graded rewards in [0, 1], [P] temperatures from `smallest` to 2."""
    pi = rng.dirichlet(np.ones(ARMS), PROBLEMS)
    tau = smallest * (2 / smallest) ** rng.random(PROBLEMS)
    return pi, rng.random((PROBLEMS, ARMS)), tau


def below(name: str, claim: str, tried: str, worst: float, limit: float, unit: str = "") -> ClaimCheck:
    """A check that an error is at most a limit; NaN fails it."""
    return ClaimCheck(name, claim, tried, f"{worst:.1e}{unit}", f"at most {limit:g}{unit}", bool(worst <= limit))


def gradients(rng: np.random.Generator) -> Iterator[ClaimCheck]:
    """The gradients of the losses as implemented vanish where the theory says, with lengths and without."""
    pi, reward, tau = problems(rng, 0.1)
    length = rng.integers(1, 9, pi.shape).astype(float)
    cases = (
        ("pmd-mean", "none", theory.pmd_mean(pi, reward, tau).log_ratio, "Theorem 1"),
        ("pmd-part", "none", theory.pmd_part(pi, reward, tau).log_ratio, "Boltzmann update"),
        ("pmd-mean", "length", theory.pmd_mean(pi, reward, tau, length).log_ratio, "Theorem 1 with lengths"),
    )
    for name, norm, solution, law in cases:
        worst = max(
            residual(name, norm, pi[i], reward[i], float(tau[i]), solution[i], length[i]) for i in range(PROBLEMS)
        )
        words = "divided by length" if norm == "length" else "without a length rule"
        yield below(
            law,
            f"The gradient of the {name} loss as implemented, {words}, is 0 at the solution of theory",
            f"{PROBLEMS} random policies of {ARMS} responses, tau 0.1 to 2; autograd against a closed form",
            worst,
            1e-10,
            " of that at pi_old",
        )


def residual(name: str, norm: str, pi: Array, reward: Array, tau: float, log_ratio: Array, length: Array) -> float:
    """Largest entry of d loss / d logits at a solution, on the full support, as a share of that at pi_old."""
    objective = OBJECTIVES[name](tau=tau, norm=norm)
    width = int(length.max())
    mask = torch.arange(width) < torch.tensor(length)[:, None]
    groups = Groups(torch.tensor(reward)[None], torch.tensor(pi)[None], sampled=False)
    # put the log-probability of a response on its first token: the loss sees the sum, and the length from the mask
    first = torch.zeros(width, dtype=torch.float64)
    first[0] = 1.0

    def slope(logits: Array) -> float:
        theta = torch.tensor(logits, requires_grad=True)
        batch = credit(objective, groups, torch.log(torch.tensor(pi))[:, None] * first, mask)
        moved = Batch(**{**vars(batch), "logp": torch.log_softmax(theta, 0)[:, None] * first})
        (gradient,) = torch.autograd.grad(total(objective, moved), theta)
        return float(gradient.abs().max())

    return slope(np.log(pi) + log_ratio) / slope(np.log(pi))


def mixture(rng: np.random.Generator) -> Iterator[ClaimCheck]:
    """Proposition mixed_subproblem, and the two lambdas."""
    pi, reward, tau = problems(rng)
    mean = theory.pmd_mean(pi, reward, tau)
    other = theory.mixed(pi, reward, tau, mean.lam)
    tried = f"{PROBLEMS} random problems, tau 0.02 to 2"
    yield below(
        "mixed KL-chi2",
        "PMD-mean's update solves max E r - tau KL - lambda/(2 tau) chi2",
        f"{tried}; Lambert-W against a solver of that problem",
        float(np.abs(other.probs - mean.probs).max()),
        1e-9,
    )
    low, high = theory.lambda_bounds(pi, reward, tau)
    outside = np.maximum(low / mean.lam, mean.lam / high).max() - 1
    yield below(
        "bounds on lambda",
        "tau^2 A(A-1)/B <= lambda <= tau^2 log A",
        tried,
        max(0.0, float(outside)),
        1e-9,
        " beyond",
    )


def contraction(rng: np.random.Generator) -> Iterator[ClaimCheck]:
    """Rewards {0, 1}: where the small-tau formula of the contraction is wrong, and what replaces it."""
    small = binary_small_tau(0.01, 0.05).eta
    true, law = theory.binary(0.01, 0.05).eta, hard_prompt(0.01, 0.05).eta
    off, near = float(true / small), float(abs(law / true - 1))
    yield ClaimCheck(
        "hard prompts",
        "The paper's eta = 1 - e^(-p/tau) is far too small on hard prompts; y (1 - e^-y) = p/tau replaces it",
        "p = 0.01, tau = 0.05: the exact eta beside both",
        f"exact {true:.3f}, paper {small:.3f}, law {law:.3f}",
        "paper off by more than a factor of 1.5, law by less than 10 %",
        off > 1.5 and near < 0.1,
    )
