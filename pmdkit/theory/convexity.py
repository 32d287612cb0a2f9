"""Curvature of the population losses in the logits: PMD-mean's is convex, PMD-part's is not."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.boltzmann import pmd_part
from pmdkit.theory.inputs import Array, centred, known_method, lengths, problem, together


def logit_hessian(
    logits: ArrayLike,
    pi: ArrayLike,
    reward: ArrayLike,
    tau: ArrayLike,
    method: str = "pmd-mean",
    length: ArrayLike | None = None,
) -> Array:
    r"""Second derivatives of tau times the population loss by the logits of the new policy, reward units.

    $$ H = \tau\,\big[J^\top W J + c\,(\mathrm{diag}\,\pi' - \pi'\pi'^\top)\big], \quad J = I - 1\pi'^\top, \quad
       W = \mathrm{diag}\frac{\pi}{|y|}, \quad c = E_\pi\Big[\frac{s - u}{|y|}\Big] $$

    u are the log ratios of the new policy pi', s the targets. For PMD-mean without lengths E s = 0, so
    c = KL(pi || pi') >= 0 and H is positive semidefinite: the loss is convex. For PMD-part c is less by
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
        raise ValueError("pi has a zero; expected every probability > 0, for the loss needs log pi")
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
