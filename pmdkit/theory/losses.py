"""Population losses of PMD-mean and PMD-part: values, curvature, and an identity linking them to the update."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.inputs import Array, centred, known_method, lengths, numbers, policy, problem, together
from pmdkit.theory.pmd_mean_update import pmd_mean
from pmdkit.theory.pmd_part_update import pmd_part


def target_loss(log_ratio: ArrayLike, target: ArrayLike, pi: ArrayLike, length: ArrayLike | None = None) -> Array:
    r"""Half the mean squared distance of log ratios to targets, nats^2, each action divided by its length.

    $$ L = \tfrac12\,E_{y\sim\pi}\Big[\frac{(u(y) - s(y))^2}{|y|}\Big] $$

    Source: arXiv:2602.05933, eq. population-loss with s the ideal log ratio. Differs: lengths are optional.
    Shapes: all [..., A], lengths in tokens, to [...].
    """
    probs, u, goal = policy(pi), numbers("log_ratio", log_ratio), numbers("target", target)
    shape = together(log_ratio=u, target=goal, pi=probs)
    size = lengths(length, shape)
    weight = probs / probs.sum(-1, keepdims=True) / (1.0 if size is None else size)
    return (weight * (u - goal) ** 2).sum(-1) / 2


def mean_loss(
    log_ratio: ArrayLike, pi: ArrayLike, reward: ArrayLike, tau: ArrayLike, length: ArrayLike | None = None
) -> Array:
    r"""PMD-mean's population loss at log ratios u, nats^2.

    $$ L_{mean} = \tfrac12\,E_{y\sim\pi}\Big[\frac{(u(y) - \Delta(y)/\tau)^2}{|y|}\Big], \quad \Delta = r - E_\pi r $$

    Source: arXiv:2602.05933, eq. L_mean; with lengths, the appendix loss. Differs: the objective multiplies it by tau.
    Shapes: [..., A] to [...].
    """
    pi, reward, tau = problem(pi, reward, tau)
    return target_loss(log_ratio, centred(pi, reward) / tau[..., None], pi, length)


def part_loss(
    log_ratio: ArrayLike, pi: ArrayLike, reward: ArrayLike, tau: ArrayLike, length: ArrayLike | None = None
) -> Array:
    r"""PMD-part's population loss at log ratios u, nats^2.

    $$ L_{part} = \tfrac12\,E_{y\sim\pi}\Big[\frac{(u(y) - r(y)/\tau + \log Z)^2}{|y|}\Big], \quad
       Z = E_\pi e^{r/\tau} $$

    Source: arXiv:2602.05933, eq. L_partition. Differs: the objective multiplies it by tau. Shapes: [..., A] to [...].
    """
    return target_loss(log_ratio, pmd_part(pi, reward, tau).log_ratio, pi, length)


@dataclass(frozen=True)
class QuadraticGrowth:
    """The two sides of the identity gap = distance + pull, each [...], nats^2.

    Attributes:
        gap: how far PMD-mean's loss is above its minimum.
        distance: half the mean squared distance to the ideal log ratio.
        pull: lambda/tau^2 KL(ideal || policy), what the simplex adds.
    """

    gap: Array
    distance: Array
    pull: Array


def quadratic_growth(
    log_ratio: ArrayLike, pi: ArrayLike, reward: ArrayLike, tau: ArrayLike, length: ArrayLike | None = None
) -> QuadraticGrowth:
    r"""PMD-mean's excess loss is the distance to its solution plus a KL term, exactly.

    $$ L_{mean}(u) - L_{mean}(u^\star) = \tfrac12\,E_\pi\Big[\frac{(u - u^\star)^2}{|y|}\Big]
       + \frac{\lambda}{\tau^2}\,KL(\pi^\star\|\pi e^u) $$

    Source: arXiv:2602.05933, Lemma pmdmean_quad_growth. Differs: holds with lengths too.
    Shapes: log_ratio [..., A] of a policy, E_pi e^u = 1.
    Watch: `gap` is taken from the losses, `pull` from the solution: they agree only if both are right.
    """
    pi, reward, tau = problem(pi, reward, tau)
    u, best = numbers("log_ratio", log_ratio), pmd_mean(pi, reward, tau, length)
    target = centred(pi, reward) / tau[..., None]
    size = lengths(length, together(log_ratio=u, pi=pi, target=target))
    weight = pi / pi.sum(-1, keepdims=True) / (1.0 if size is None else size)
    gap = (weight * (u - best.log_ratio) * (u + best.log_ratio - 2 * target)).sum(-1) / 2
    pull = best.lam / tau**2 * (best.probs * (best.log_ratio - u)).sum(-1) / pi.sum(-1)
    return QuadraticGrowth(gap, target_loss(u, best.log_ratio, pi, length), pull)


def logit_hessian(
    logits: ArrayLike,
    pi: ArrayLike,
    reward: ArrayLike,
    tau: ArrayLike,
    method: str = "pmd-mean",
    length: ArrayLike | None = None,
) -> Array:
    r"""Second derivatives of tau times the population loss with respect to the new policy's logits, reward units.

    $$ H = \tau\,\big[J^\top W J + c\,(\mathrm{diag}\,\pi' - \pi'\pi'^\top)\big], \quad J = I - 1\pi'^\top, \quad
       W = \mathrm{diag}\frac{\pi}{|y|}, \quad c = E_\pi\Big[\frac{s - u}{|y|}\Big] $$

    u are the log ratios of the new policy pi', s the targets. For PMD-mean without lengths E s = 0, so
    c = KL(pi || pi') >= 0 and H is positive semidefinite: the loss is convex. For PMD-part c is smaller by
    KL(pi || pi_part); at pi' = pi this leaves H = tau (1 - KL(pi || pi_part)) (diag pi - pi pi'), negative where the
    target lies more than one nat away.

    Source: not in the paper; eq. L_mean and eq. L_partition differentiated twice.

    Args:
        logits: [..., A] of the new policy; pi' = softmax(logits).
        pi: [..., A] the old policy, every probability > 0.
        reward: [..., A] reward units.
        tau: scalar or [...] temperature.
        method: "pmd-mean" or "pmd-part".
        length: [..., A] tokens per action.

    Returns:
        [..., A, A]; constants added to all logits are a null direction.

    Watch: lengths break the convexity of PMD-mean as well: E[s / |y|] is not 0 when the better answers are longer.
    """
    pi, reward, tau = problem(pi, reward, tau)
    if not (pi > 0).all():
        raise ValueError("pi has a zero; expected every probability > 0, since the loss needs log pi")
    if known_method(method) == "pmd-mean":
        target = centred(pi, reward) / tau[..., None]
    else:
        target = pmd_part(pi, reward, tau).log_ratio
    scores = np.asarray(logits, float)
    scores = scores - scores.max(-1, keepdims=True)
    log_new = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    new, u = np.exp(log_new), log_new - np.log(pi / pi.sum(-1, keepdims=True))
    size = lengths(length, together(logits=scores, pi=pi, target=target))
    weight = pi / pi.sum(-1, keepdims=True) / (1.0 if size is None else size)
    identity = np.eye(pi.shape[-1])
    jacobian = identity - new[..., None, :]
    spread = new[..., :, None] * (identity - new[..., None, :])
    c = (weight * (target - u)).sum(-1)[..., None, None]
    curved = np.swapaxes(jacobian, -1, -2) @ (weight[..., :, None] * jacobian)
    return tau[..., None, None] * (curved + c * spread)
