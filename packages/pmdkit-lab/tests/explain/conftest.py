"""Objectives that exist for these tests alone: what they solve is known beforehand."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from pmdkit.objectives import OBJECTIVES, expect
from pmdkit_lab.explain import explain


@dataclass(frozen=True)
class Penalised:
    """The importance-weighted gain minus weight * f(ratio): the problem max E_pi[r] - weight E_old f, as it stands."""

    weight: float = 0.3
    norm: str = "none"

    def advantage(self, groups):
        return torch.where(groups.present, groups.reward - expect(groups.reward, groups.mass), 0.0)

    def f(self, ratio):
        return 0 * ratio

    def loss(self, batch):
        ratio = batch.seq_log_ratio.exp()
        return -ratio * batch.advantage + self.weight * self.f(ratio)


class ReverseKL(Penalised):
    def f(self, ratio):
        return ratio - 1 - ratio.log()


class Chi2(Penalised):
    def f(self, ratio):
        return (ratio - 1) ** 2 / 2


class Hellinger(Penalised):
    def f(self, ratio):
        return 2 * (ratio.sqrt() - 1) ** 2


@dataclass(frozen=True)
class HeldBack:
    """The policy gradient with a KL pull, the weight and the pull held back from differentiation: no loss has it."""

    stop_gradient: ClassVar[bool] = True

    tau: float = 0.1
    norm: str = "none"

    def advantage(self, groups):
        return torch.where(groups.present, groups.reward - expect(groups.reward, groups.mass), 0.0)

    def loss(self, batch):
        s = batch.seq_log_ratio
        return -(s.exp() * (batch.advantage - batch.tau * s)).detach() * batch.seq_logp


@pytest.fixture
def made_up():
    return {"reverse kl": ReverseKL, "chi2": Chi2, "hellinger": Hellinger, "free": Penalised, "held back": HeldBack}


# All are settled; what a reward of QRPO or SPPO costs is searched for where ranks jump, five seconds each.
SLOW = {"qrpo", "sppo"}


@pytest.fixture(scope="session")
def explained():
    """Every objective but two explained, once for all tests."""
    return {name: explain(name) for name in OBJECTIVES if name not in SLOW}
