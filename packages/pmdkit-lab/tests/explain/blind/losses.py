"""Thirty losses with known answers: for each, by hand, where the population loss comes to rest on a table.

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
from pmdkit.objectives.baselines import highest_reward, mean_baseline, standardised


@dataclass(frozen=True)
class Centred:
    """What most of them share: the reward minus its mean under pi_old, and no length rule."""

    norm: Norm = "none"

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] reward minus the mean reward of the group."""
        return groups.reward - mean_baseline(groups)


# z log z has slope 1 + log z, so log z = (r - nu') / tau: z = e^{r/tau} / E e^{r/tau}. On a normalised policy a
# baseline adds a constant.
@dataclass(frozen=True)
class Loss01(Centred):
    """KL to pi_old, with the highest reward as the baseline."""

    tau: Tau = 0.3

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] never positive."""
        return groups.reward - highest_reward(groups)

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        return s.exp() * (batch.tau * s - batch.advantage)


# tau (z - 1) = A - nu, and E A = 0 makes nu = 0: z = 1 + A / tau, here within 1e-6 of 1.
@dataclass(frozen=True)
class Loss02(Centred):
    """Chi-square, very hot."""

    tau: Tau = 1e6

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        gap = torch.expm1(batch.seq_log_ratio)
        return -gap * batch.advantage + batch.tau / 2 * gap**2


# z = max(0, 1 + (A - nu) / tau): the projection on the simplex; nu is not 0 as soon as a response is dropped.
@dataclass(frozen=True)
class Loss03(Centred):
    """Chi-square, cold."""

    tau: Tau = 0.1

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        z = batch.seq_log_ratio.exp()
        return -z * batch.advantage + batch.tau / 2 * (z - 1) ** 2


# -A - tau / z = nu: z = tau / (c - A) with c above the largest A; E z falls from infinity to 0 in c.
@dataclass(frozen=True)
class Loss04(Centred):
    """The other KL, of pi_old to pi."""

    tau: Tau = 0.2

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        return -s.exp() * batch.advantage - batch.tau * s


# The slope of 2 (sqrt z - 1)^2 is 2 - 2 / sqrt z: z = (2 tau / (c - A))^2 with c above the largest A.
@dataclass(frozen=True)
class Loss05(Centred):
    """Squared Hellinger distance (alpha = 1/2)."""

    tau: Tau = 0.2

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        return -s.exp() * batch.advantage + 2 * batch.tau * torch.expm1(s / 2) ** 2


# The slope of (4/3)(z^1.5 - 1.5 z + 0.5) is 2 (sqrt z - 1), -2 at z = 0: z = max(0, 1 + (A - nu) / (2 tau))^2.
@dataclass(frozen=True)
class Loss06(Centred):
    """Tsallis of order 3/2."""

    tau: Tau = 0.15

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        z = s.exp()
        return -z * batch.advantage + batch.tau * 4 / 3 * ((1.5 * s).exp() - 1.5 * z + 0.5)


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


# A > 0: slope -A + beta (1 + log z) below 1.2 and beta (1 + log z) above. A < 0: beta (1 + log z) below 0.8, |A| more
# above. Strictly convex: with u = exp(nu / beta - 1), z = u beyond the edge, u e^{A / beta} before it, and the edge
# itself in between.
@dataclass(frozen=True)
class Loss09(Centred):
    """The clipped ratio with a KL penalty."""

    beta: float = 0.05

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        z, a = s.exp(), batch.advantage
        return -torch.minimum(z * a, z.clamp(0.8, 1.2) * a) + self.beta * z * s


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


# E e^{A/tau} >= 1 = E z. So nobody is above its target e^{A/tau}: else mass moved to one below its target would help
# both. Below, the loss is -tau log z, convex: z = min(e^{A/tau}, c), where c makes E z = 1. The low ones sit on their
# kinks.
@dataclass(frozen=True)
class Loss11(Centred):
    """The regression with an absolute residual."""

    tau: Tau = 0.25

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        return (batch.advantage - batch.tau * batch.seq_log_ratio).abs()


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


# Every policy is a minimiser.
@dataclass(frozen=True)
class Loss17(Centred):
    """Nothing."""

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        return 0.0 * batch.seq_log_ratio * batch.advantage


# The own reward as the baseline: no reward is left, and pi_old is the minimiser of tau KL.
@dataclass(frozen=True)
class Loss18(Centred):
    """KL with the own reward as the baseline."""

    tau: Tau = 0.1

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] zero."""
        return groups.reward - groups.reward

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        return s.exp() * (batch.tau * s - batch.advantage)


# Loss01 for the reward -r: z = e^{-r/tau} / E e^{-r/tau}.
@dataclass(frozen=True)
class Loss19(Centred):
    """KL, the sign of the advantage the other way."""

    tau: Tau = 0.3

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        return s.exp() * (batch.tau * s + batch.advantage)


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


# The gradient to log pi is -m z (A - tau s), that of the potential -z A + tau (z log z - z): it rests at the KL policy
# of Loss01, tau 0.4, and nowhere else. The loss itself, -E z (A - tau s) s, is not least there.
@dataclass(frozen=True)
class Loss21(Centred):
    """The score function with the penalised reward in front, held back from differentiation. It does not say so."""

    tau: Tau = 0.4

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        weight = (s.exp() * (batch.advantage - batch.tau * s)).detach()
        return -weight * s


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


# The same with every response divided by its length: (tau s / T - A) / T = lambda z.
@dataclass(frozen=True)
class Loss23(Loss22):
    """A quadratic pull on every token; mean over the responses of their mean over tokens."""

    norm: Norm = "length"


# T (tau s - A) = lambda z: the pull back of a long response counts T times.
@dataclass(frozen=True)
class Loss24(Centred):
    """The regression, a response counted once per token."""

    tau: Tau = 0.3

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        return batch.length * (batch.advantage - batch.tau * batch.seq_log_ratio) ** 2 / (2 * batch.tau)


# Targets e^{(r - V)/tau} far below a policy: somebody has to exceed its target. s - a = kappa z with kappa > 0 has a
# lower and an upper solution; the curvature is positive on the lower one, so a minimum has at most one response on the
# upper. One local minimum for each response that can be that one, or none.
@dataclass(frozen=True)
class Loss25(Centred):
    """The regression with a value that nothing reaches."""

    tau: Tau = 0.5
    value: float = 2.5

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] reward minus the value."""
        return groups.reward - self.value

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        return (batch.advantage - batch.tau * batch.seq_log_ratio) ** 2 / (2 * batch.tau)


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


# Loss01 with the quantile in place of the reward: q = P(r' < r) + P(r' = r) / 2, z = e^{q/tau} / E e^{q/tau}.
@dataclass(frozen=True)
class Loss27(Centred):
    """KL on the quantile of the reward under pi_old."""

    tau: Tau = 0.25

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] the middle of the rank, minus one half."""
        r, mass = groups.reward, groups.mass / groups.mass.sum(1, keepdim=True)
        beats = (r[:, :, None] > r[:, None, :]).double() + (r[:, :, None] == r[:, None, :]).double() / 2
        return (beats * mass[:, None, :]).sum(2).to(r.dtype) - 0.5

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        s = batch.seq_log_ratio
        return s.exp() * (batch.tau * s - batch.advantage)


# Theorem 1 at tau = 1e-4: log z = A / tau - kappa z, z = W(kappa e^{A/tau}) / kappa, kappa >= 0 with E z = 1; log z of
# -thousands.
@dataclass(frozen=True)
class Loss28(Centred):
    """The regression on the mean reward, very cold."""

    tau: Tau = 1e-4

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        return (batch.advantage - batch.tau * batch.seq_log_ratio) ** 2 / (2 * batch.tau)


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


# Targets e^{r/tau}, r >= 0: they sum to more than a policy, so kappa >= 0 as in Loss28, with a = r / tau: one
# minimiser, and another one than with the mean as the value.
@dataclass(frozen=True)
class Loss30(Centred):
    """The regression with the value 0."""

    tau: Tau = 0.2

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] the reward itself."""
        return groups.reward + 0.0

    def loss(self, batch: Batch) -> Tensor:
        """[N]"""
        return (batch.advantage - batch.tau * batch.seq_log_ratio) ** 2 / (2 * batch.tau)
