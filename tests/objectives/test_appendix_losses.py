"""The appendix of the paper again, in plain numpy loops that share nothing with the package."""

import math

import numpy as np
import pytest

from pmdkit.objectives import (
    CISPO,
    DAPO,
    GRPO,
    GSPO,
    RLOO,
    DrGRPO,
    PMDMean,
    response_loss,
)
from tests.objectives.loops import ragged, tensors


def draws_of(seed, prompts=3):
    """Rewards +-1, and the token log-probabilities of pi_old and the policy, one list per response."""
    reward, new, old, _ = ragged(seed, prompts, size=4, tokens=7)
    return reward, old, new


def padded(reward, old, new):
    """The same numbers as tensors, prompt-major."""
    reward, (logp, logp_old), mask = tensors(reward, new, old)
    return reward, logp, logp_old, mask


def group_advantage(r, ddof=0):
    std = np.std(r, ddof=ddof)
    return (r - np.mean(r)) / std if max(r) > min(r) else np.zeros(len(r))


def leave_one_out(r):
    return [r[i] - sum(r[j] for j in range(len(r)) if j != i) / (len(r) - 1) for i in range(len(r))]


def clipped(ratio, advantage, low, high):
    return min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)


def pmd(reward, old, new, tau, advantage):
    prompts, size = reward.shape
    value = 0.0
    for x in range(prompts):
        a = advantage(reward[x])
        for i in range(size):
            s = sum(new[x][i]) - sum(old[x][i])
            value += tau / len(old[x][i]) * (s - a[i] / tau) ** 2 / size / prompts
    return value


def rloo(reward, old, new):
    prompts, size = reward.shape
    value = 0.0
    for x in range(prompts):
        a = leave_one_out(reward[x])
        for i in range(size):
            value -= a[i] * sum(new[x][i]) / len(new[x][i]) / size / prompts
    return value


def grpo(reward, old, new, low, high, advantage, divide):
    """`divide(x, i)` is the weight of a token."""
    value = 0.0
    for x in range(reward.shape[0]):
        a = advantage(reward[x])
        for i in range(reward.shape[1]):
            for n, o in zip(new[x][i], old[x][i], strict=True):
                value -= clipped(math.exp(n - o), a[i], low, high) * divide(x, i)
    return value


def gspo(reward, old, new, low, high):
    prompts, size = reward.shape
    value = 0.0
    for x in range(prompts):
        a = group_advantage(reward[x])
        for i in range(size):
            ratio = math.exp((sum(new[x][i]) - sum(old[x][i])) / len(old[x][i]))
            value -= clipped(ratio, a[i], low, high) / size / prompts
    return value


def ours(objective, case, width=None):
    reward, logp, logp_old, mask = padded(*case)
    return response_loss(objective, reward, logp, logp_old, mask, width=width).item()


@pytest.mark.parametrize("seed", range(5))
class TestAppendix:
    """1e-12 relative: both sides sum some hundred float64 terms."""

    @pytest.mark.parametrize("tau", [0.005, 0.1, 2.0])
    def test_pmd_mean(self, seed, tau):
        case = draws_of(seed)
        expected = pmd(*case, tau, leave_one_out)
        assert ours(PMDMean(tau=tau, scale="paper"), case) == pytest.approx(expected, rel=1e-12)
        assert ours(PMDMean(tau=tau), case) == pytest.approx(expected / 2, rel=1e-12)

    def test_rloo(self, seed):
        case = draws_of(seed)
        assert ours(RLOO(), case) == pytest.approx(rloo(*case), rel=1e-12)

    def test_grpo(self, seed):
        reward, old, _ = case = draws_of(seed)
        rows = reward.size
        by_length = lambda x, i: 1 / len(old[x][i]) / rows  # noqa: E731
        expected = grpo(*case, 0.2, 0.2, group_advantage, by_length)
        assert ours(GRPO(), case) == pytest.approx(expected, rel=1e-12)
        expected = grpo(*case, 0.1, 0.3, lambda r: group_advantage(r, ddof=1), by_length)
        assert ours(GRPO(clip_low=0.1, clip_high=0.3, std="sample"), case) == pytest.approx(expected, rel=1e-12)

    def test_dr_grpo_and_dapo(self, seed):
        reward, old, _ = case = draws_of(seed)
        rows, tokens = reward.size, sum(len(o) for row in old for o in row)
        expected = grpo(*case, 0.2, 0.2, lambda r: r - np.mean(r), lambda x, i: 1 / 32 / rows)
        assert ours(DrGRPO(), case, width=32) == pytest.approx(expected, rel=1e-12)
        expected = grpo(*case, 0.2, 0.28, group_advantage, lambda x, i: 1 / tokens)
        assert ours(DAPO(), case) == pytest.approx(expected, rel=1e-12)

    def test_gspo(self, seed):
        case = draws_of(seed)
        assert ours(GSPO(), case) == pytest.approx(gspo(*case, 3e-4, 4e-4), rel=1e-12)
        assert ours(GSPO(clip_low=0.2, clip_high=0.2), case) == pytest.approx(gspo(*case, 0.2, 0.2), rel=1e-12)

    def test_cispo_gradient(self, seed):
        """Per token: -clip(ratio, 0, 5) A / tokens, whatever its log-probability is."""
        reward, old, new = case = draws_of(seed)
        reward_t, logp, logp_old, mask = padded(*case)
        logp.requires_grad_()
        response_loss(CISPO(), reward_t, logp, logp_old, mask).backward()
        tokens = sum(len(o) for row in old for o in row)
        rows = [(x, i) for x in range(reward.shape[0]) for i in range(reward.shape[1])]
        for n, (x, i) in enumerate(rows):
            advantage = group_advantage(reward[x])[i]
            for t, (a, b) in enumerate(zip(new[x][i], old[x][i], strict=True)):
                expected = -min(math.exp(a - b), 5.0) * advantage / tokens
                assert logp.grad[n, t].item() == pytest.approx(expected, rel=1e-12, abs=1e-15)
