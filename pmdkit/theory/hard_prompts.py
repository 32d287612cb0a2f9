"""What PMD-mean does on hard prompts: a law in p/tau alone, between the paper's two limits. Rewards {0, 1}."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.inputs import Array, pass_rates, temperatures, together


@dataclass(frozen=True)
class HardPrompt:
    """PMD-mean in the limit of a small pass rate and a small temperature with p/tau held fixed.

    Attributes:
        y: the solution of y (1 - e^-y) = p/tau; -log rho_-, nats.
        eta: 1 - e^-y.
        lam: tau^2 y, reward units squared.
    """

    y: Array
    eta: Array
    lam: Array


def hard_prompt(p: ArrayLike, tau: ArrayLike) -> HardPrompt:
    r"""The law of PMD-mean on hard prompts, rewards {0, 1}: one equation in p/tau.

    $$ y\,(1 - e^{-y}) = \frac{p}{\tau}, \qquad \rho_- = e^{-y}, \quad \eta = 1 - e^{-y}, \quad \lambda = \tau^2 y $$

    Source: not in the paper. Write x = lambda/tau^2 and w = x rho, Theorem 1's Lambert-W. The normalisation is
    x = p w_+ + (1-p) w_-. As p, tau -> 0, w_+ -> 1/tau and w_- = x rho_-, so x (1 - rho_-) = p/tau; at reward 0,
    -log rho_- = p/tau + w_- = x. Hence y = x. At large p/tau it is the paper's e^(-p/tau); at small p/tau
    eta = sqrt(p/tau), far above the paper's p/tau.
    Good values: eta within 1 % for p <= 1e-4 and p/tau >= 0.1.
    Watch: it needs e^(-1/tau) far below p; at p = 0.01, tau = 0.5 it is off by a factor of 2.7.
    """
    p, tau = pass_rates(p), temperatures(tau)
    together(p=p, tau=tau)
    s = p / tau
    y = np.sqrt(s) + s  # above the root, where Newton falls towards it
    for _ in range(30):
        slope = -np.expm1(-y) + y * np.exp(-y)
        y = y + (y * np.expm1(-y) + s) / np.where(slope > 0, slope, 1)
    return HardPrompt(y, -np.expm1(-y), tau**2 * y)
