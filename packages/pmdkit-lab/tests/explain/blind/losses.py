"""Losses with known answers: for each, by hand, where the population loss comes to rest on a table.

Letters: z = pi / pi_old of a response, s = log z, m = pi_old, A = advantage, T = tokens. Over distributions on the
responses, and nothing outside them, the problem is min sum_i m_i phi_i(z_i) with sum_i m_i z_i = 1 and z >= 0. If one
number nu has every z_i in argmin_z [phi_i(z) - nu z], then z is a global minimiser, convex or not; it is the only one
where those arguments are unique. The comment above each class solves it.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pmdkit.objectives import Batch, Groups, Norm, Tau
from pmdkit.objectives.baselines import mean_baseline, standardised


@dataclass(frozen=True)
class Centred:
    """What most of them share: the reward minus its mean under pi_old, and no length rule."""

    norm: Norm = "none"

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] reward minus the mean reward of the group."""
        return groups.reward - mean_baseline(groups)


# z = max(0, 1 + (A - nu) / tau): the projection on the simplex; nu is not 0 as soon as a response is dropped.
@dataclass(frozen=True)
class Loss03(Centred):
    """Chi-square, cold."""

    tau: Tau = 0.1

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        z = batch.seq_log_ratio.exp()
        return -z * batch.advantage + batch.tau / 2 * (z - 1) ** 2


# Slopes -A - tau below z = 1 and -A + tau above: 0 where A < A_max - 2 tau, 1 in between, and the rest on the best one;
# ties share at will.
@dataclass(frozen=True)
class Loss07(Centred):
    """Total variation, narrow."""

    tau: Tau = 0.17

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        z = batch.seq_log_ratio.exp()
        return -z * batch.advantage + batch.tau * (z - 1).abs()


# As Loss07 with rewards closer than 2 tau: nobody is dropped, so pi_old is the one minimiser although the gradient does
# not vanish there.
@dataclass(frozen=True)
class Loss08(Loss07):
    """Total variation, wide."""

    tau: Tau = 0.6


# The same with edges 0.8 and 1.28 and h = 1/z - 1 + log z, which is convex below z = 2 only: slope beta (1/z - 1/z^2).
# With A > 0 and small beta a good one sits at 1.28 while nu lies in the jump; the rest by one equation in nu. Checked
# by the argument of the first lines.
@dataclass(frozen=True)
class Loss10(Centred):
    """Clip-higher on standardised rewards with the k3 penalty."""

    beta: float = 0.04

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] standardised."""
        return standardised(groups, "population")

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        z, a = s.exp(), batch.advantage
        return -torch.minimum(z * a, z.clamp(0.8, 1.28) * a) + self.beta * (torch.expm1(-s) + s)


# 0 wherever z >= e^{A/tau} for A > 0 and z <= e^{A/tau} for A <= 0: a set with inner points if the first leave mass
# over. If all A = 0, the only such policy is pi_old.
@dataclass(frozen=True)
class Loss12(Centred):
    """The regression with a hinge: far enough is enough."""

    tau: Tau = 1.0

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        residual = batch.advantage - batch.tau * batch.seq_log_ratio
        return torch.where(batch.advantage > 0, residual, -residual).clamp_min(0)


# Least possible where z >= 1.2 for A > 0 and z <= 0.8 for A < 0, which is a whole set if 1.2 P(A > 0) < 1. Otherwise
# the good ones take all there is, the worst of them first to go.
@dataclass(frozen=True)
class Loss13(Centred):
    """The clipped ratio alone."""

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        z, a = batch.seq_log_ratio.exp(), batch.advantage
        return -torch.minimum(z * a, z.clamp(0.8, 1.2) * a)


# Loss09 with the loss of a bad one flat above z = 3. A second rest would have a bad one at the ratio of the good ones,
# above 3: with bad ones at the edge 0.8 that ratio is 0.8 + 0.2 / mass, so it needs good and such bad ones of mass
# below 1/11 (prompt "rare").
@dataclass(frozen=True)
class Loss14(Centred):
    """The dual clip with a KL penalty."""

    beta: float = 0.01

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        z, a = s.exp(), batch.advantage
        gain = torch.minimum(z * a, z.clamp(0.8, 1.2) * a)
        return -torch.where(a < 0, torch.maximum(gain, 3 * a), gain) + self.beta * z * s


# Linear on the simplex: all mass on the best response; ties share at will.
@dataclass(frozen=True)
class Loss15(Centred):
    """Expected advantage and nothing else."""

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        return -batch.seq_log_ratio.exp() * batch.advantage


# With one A < 0, A s falls without bound as that response loses its probability. With all A = 0 it is 0.
@dataclass(frozen=True)
class Loss16(Centred):
    """Advantage times log-probability."""

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        return -batch.advantage * batch.seq_logp


# The gradient to log pi is m (-min(z, 1.5) A + tau s); it rests where that is lambda m z. It is the gradient of a
# potential with slope (tau log z - min(z, 1.5) A) / z, not of the loss: the loss itself has no reason to be least
# there.
@dataclass(frozen=True)
class Loss20(Centred):
    """A capped weight that carries no gradient, and a quadratic pull."""

    stop_gradient: ClassVar[bool] = True

    tau: Tau = 0.5

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        weight = s.detach().exp().clamp_max(1.5)
        return -weight * batch.advantage * s + batch.tau / 2 * s**2


# Per token -A x + tau x^2 / 2. Convex in x: whoever may share s among T tokens shares it equally, -A s + tau s^2 / (2
# T). The token mean divides all by one number. Rest: tau s / T - A = lambda z; at A = mean 0 and T = 1 this is
# PMD-mean's equation.
@dataclass(frozen=True)
class Loss22(Centred):
    """A quadratic pull on every token; mean over the tokens."""

    norm: Norm = "tokens"
    tau: Tau = 0.3

    def loss(self, batch: Batch) -> Tensor:
        """[N, T]"""
        x = batch.log_ratio
        return torch.where(batch.mask, -batch.advantage[:, None] * x + batch.tau[:, None] / 2 * x**2, 0.0)


# Strictly concave: minima are vertices only. Vertex i has the value -A_i - tau (1/m_i - 1) / 2; it is a local minimum
# if every edge from it goes up, A_i - A_j + tau / m_i > 0.
@dataclass(frozen=True)
class Loss26(Centred):
    """Chi-square with the wrong sign."""

    tau: Tau = 0.05

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        z = batch.seq_log_ratio.exp()
        return -z * batch.advantage - batch.tau / 2 * (z - 1) ** 2


# At pi_old the gradient is 0, and it is a saddle wherever two responses have A > 0, or one has and its A outweighs the
# others: slope 2 d (2 tau d^2 - A), d = z - 1. Minima have every good one near d = +- sqrt(A / (2 tau)); all sign
# patterns are tried. d and -d are equally good where no -d is below -1, so the least one is not unique.
@dataclass(frozen=True)
class Loss29(Centred):
    """A fourth power, with the advantage as the negative curvature."""

    tau: Tau = 0.5

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        d = torch.expm1(batch.seq_log_ratio)
        return batch.tau * d**4 - batch.advantage * d**2
