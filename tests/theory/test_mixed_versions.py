"""What PMD-mean and PMD-part solve if the responses of a group were drawn by several versions of the policy.

Each response is compared with the versions that drew its tokens. The statement stands in docs/use/engines.md.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize
from scipy.special import lambertw, log_softmax, logsumexp

from pmdkit import theory
from pmdkit.objectives import GRPO, Groups, credit, total

TAU, REWARD = 0.3, np.array([1.0, 0.0, 0.0, 1.0, 0.0])


def versions(seed, count):
    """[V] shares of the draws and [V, A] policies."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(count)), rng.dirichlet(2 * np.ones(len(REWARD)), size=count)


def target(method, mixture):
    if method == "pmd-mean":
        return (REWARD - mixture @ REWARD) / TAU
    return REWARD / TAU - logsumexp(REWARD / TAU, b=mixture)


def law(joint, policies, aim):
    """The stated minimiser: u + x (g / q) e^u = aim with u = log pi / g, and x such that pi sums to 1.

    joint [V, A]: how often the versions v draw a. aim [V, A] counts by its mean over who may have drawn a.
    """
    mixture = joint.sum(0)
    weight = joint / mixture  # [V, A] who probably drew a
    log_g, aim = (weight * np.log(policies)).sum(0), (weight * aim).sum(0)

    def step(x):
        slope = x * np.exp(log_g) / mixture
        return aim - lambertw(slope * np.exp(aim)).real

    x = brentq(lambda x: np.exp(log_g + step(x)).sum() - 1, -1e-6, 1e6, xtol=1e-15)
    return np.exp(log_g + step(x)), log_g, mixture, weight


def minimiser(joint, policies, aim):
    """[A] by descent on the enumerated loss."""

    def loss(logits):
        return 0.5 * (joint * (log_softmax(logits) - np.log(policies) - aim) ** 2).sum()

    found = minimize(loss, np.zeros(joint.shape[1]), tol=1e-14, options={"gtol": 1e-10})
    return np.exp(log_softmax(found.x))


@pytest.mark.parametrize("method", ["pmd-mean", "pmd-part"])
def test_the_law_minimises_the_enumerated_loss(method):
    share, policies = versions(0, 3)
    joint, aim = share[:, None] * policies, target(method, share @ policies)[None]
    best, log_g, mixture, weight = law(joint, policies, aim)
    np.testing.assert_allclose(minimiser(joint, policies, aim), best, atol=1e-6)
    # g is at least q, by as many nats as the response says about its version
    told = (weight * np.log(weight / share[:, None])).sum(0)
    np.testing.assert_allclose(log_g - np.log(mixture), told, atol=1e-12)
    assert (told > 0).all()


def in_flight(rule):
    """Responses of three tokens out of two, drawn by version 0 up to a change before token k, and by 1 from there.

    rule(k, prefix): probability that version 0 still draws token k after these tokens. Returns how often each of
    k = 0..3 and each response occurs, and its recorded probabilities, [4, 8] both.
    """
    rng = np.random.default_rng(5)
    table = [{prefix: rng.uniform(0.2, 0.8) for n in range(3) for prefix in product((0, 1), repeat=n)} for _ in "01"]
    joint, recorded = np.ones((4, 8)), np.ones((4, 8))
    for k, (a, tokens) in product(range(4), enumerate(product((0, 1), repeat=3))):
        for t, token in enumerate(tokens):
            prefix = tokens[:t]
            one = table[int(t >= k)][prefix]
            recorded[k, a] *= one if token else 1 - one
            if t <= k:
                joint[k, a] *= rule(t, prefix) if t < k else 1 - rule(t, prefix)
    return joint * recorded, recorded


RULES = {
    "by position": lambda k, prefix: (0.7, 0.5, 0.2)[k],
    "by the text so far": lambda k, prefix: 0.9 - 0.3 * sum(prefix) - 0.1 * k,  # as a clock that longer texts hold up
}


@pytest.mark.parametrize("method", ["pmd-mean", "pmd-part"])
@pytest.mark.parametrize("name", RULES)
def test_the_law_holds_for_tokens_and_the_recorded_probabilities_reweight(name, method):
    """The change may look at the tokens that are written, not at those to come."""
    joint, recorded = in_flight(RULES[name])
    reward = np.array([0, 1, 0, 0, 1, 1, 0, 1.0])
    mixture = joint.sum(0)
    assert mixture.sum() == pytest.approx(1, abs=1e-12)
    new = np.random.default_rng(6).dirichlet(np.ones(8))
    assert (joint * new / recorded * reward).sum() == pytest.approx(new @ reward, abs=1e-12)
    # given where the weights changed, the draws are those of the recorded policy only if the text had no say in it
    given = joint / joint.sum(1, keepdims=True)
    assert np.allclose(given, recorded, atol=1e-12) == (name == "by position")
    aim = reward / TAU
    aim = aim - (mixture @ aim if method == "pmd-mean" else logsumexp(aim, b=mixture))
    np.testing.assert_allclose(minimiser(joint, recorded, aim[None]), law(joint, recorded, aim[None])[0], atol=1e-6)


@pytest.mark.parametrize("method", ["pmd-mean", "pmd-part"])
def test_a_group_that_changes_together_has_a_baseline_for_each_change(method):
    """Its members are independent given the versions only: each is compared with peers of its own versions."""
    share, policies = versions(2, 3)
    joint = share[:, None] * policies
    aim = np.stack([target(method, policy) for policy in policies])
    best = law(joint, policies, aim)[0]
    np.testing.assert_allclose(minimiser(joint, policies, aim), best, atol=1e-6)
    apart = law(joint, policies, target(method, share @ policies)[None])[0]
    assert np.abs(best - apart).max() > 1e-3


TEXTS = list(product((0, 1), repeat=3))
RIGHT = np.array([0, 0, 0, 1, 0, 0, 1, 0.0])


def token_probabilities(policy):
    """[8, 3] of each token of each text, given the tokens before it."""
    table = policy.reshape(2, 2, 2)
    mass = [table.sum((1, 2)), table.sum(2), table]
    found = np.array([[level[text[: n + 1]] for n, level in enumerate(mass)] for text in TEXTS])
    return found / np.column_stack([np.ones(8), found[:, :2]])


def trained(method, age, seed, tau=2.0, steps=24):
    """Exact steps on draws that the newest policy takes over, at any token alike, from one that is `age` steps older.

    Returns the last pass rate, and the means over the steps of k, x and the anti-anchor of PMD-part's groups of 16.
    GRPO, which has none of them, takes four ascents of rate 1 with the clip at 0.2.
    """
    history, told = [np.random.default_rng(seed).dirichlet(3 * np.ones(8))], []
    for step in range(steps):
        old, new = (token_probabilities(history[at]) for at in (max(0, step - age), step))
        recorded = np.stack([np.where(np.arange(3) < k, old, new).prod(1) for k in range(4)])
        joint, aim = recorded / 4, RIGHT / tau
        mixture = joint.sum(0)
        if method == "grpo":
            advantage, logits = (
                (RIGHT - mixture @ RIGHT) / np.sqrt(mixture @ RIGHT * (1 - mixture @ RIGHT)),
                np.log(history[-1]),
            )
            for _ in range(4):
                ratio = np.exp(log_softmax(logits)) / recorded
                live = np.where(advantage > 0, ratio < 1.2, ratio > 0.8)
                push = (joint * advantage * ratio * live).sum(0)
                logits = logits + push - np.exp(log_softmax(logits)) * push.sum()
            history.append(np.exp(log_softmax(logits)))
            continue
        aim = aim - (mixture @ aim if method == "pmd-mean" else logsumexp(aim, b=mixture))
        best, log_g, *_ = law(joint, recorded, aim[None])
        x = ((aim - np.log(best) + log_g) * mixture / best)[0]
        told.append([mixture @ (log_g - np.log(mixture)), x, theory.anchor(mixture @ RIGHT, tau, 16)])
        history.append(best)
    return [history[-1] @ RIGHT, *np.mean(told or [[0, 0, 0]], 0)]


def test_masked_tokens_count_as_part_of_the_prompt():
    """rollout.too_old = "mask": GRPO's gradient at the policy of the last token, for texts that another one began."""
    old, new = (token_probabilities(np.random.default_rng(seed).dirichlet(np.ones(8))) for seed in (0, 1))
    early = np.arange(3) < 2
    recorded = torch.tensor(np.where(early, old, new))
    groups = Groups(torch.tensor(RIGHT)[None], recorded.prod(1)[None], sampled=False)
    batch = credit(GRPO(), groups, recorded.log(), torch.ones(8, 3, dtype=torch.bool))
    logp = torch.tensor(new).log().requires_grad_()
    mask = torch.tensor(~early).double().expand(8, 3)
    (masked,) = torch.autograd.grad(total(GRPO(), replace(batch, logp=logp, correction=mask)), logp)
    reward_after = (torch.tensor(old[:, :2].prod(1)) * logp[:, 2].exp() * batch.advantage).sum()
    torch.testing.assert_close(masked, -torch.autograd.grad(reward_after, logp)[0] / 3, atol=1e-12, rtol=0)
    (whole,) = torch.autograd.grad(total(GRPO(), replace(batch, logp=logp)), logp)
    assert (whole - masked).abs().max() > 0.01


def test_with_age_k_and_x_grow_and_learning_slows():
    """Expected before the first run: k and x grow with age, from 0 for PMD-part's; pass rates fall, PMD-mean's least.

    The last is not so: PMD-mean and PMD-part fall alike, GRPO's steps, which no tau bounds, less. 20 starts each.
    """
    found = {
        (method, age): np.mean([trained(method, age, seed) for seed in range(20)], 0)
        for method in ("pmd-mean", "pmd-part", "grpo")
        for age in (0, 2, 8)
    }
    for method in ("pmd-mean", "pmd-part"):
        rates, k, x, _ = np.transpose([found[method, age] for age in (0, 2, 8)])
        assert (np.diff(k) > 0).all()
        assert (np.diff(x) > 0).all()
        np.testing.assert_allclose(rates, [1.000, 0.993, 0.87], atol=0.01)
    np.testing.assert_allclose(found["pmd-part", 0][1:3], 0, atol=1e-9)
    np.testing.assert_allclose([found["grpo", age][0] for age in (0, 2, 8)], [0.999, 0.995, 0.991], atol=1e-3)
    np.testing.assert_allclose([found["pmd-part", age][2] for age in (0, 2, 8)], [0, 0.0033, 0.0184], atol=1e-4)


def test_the_anti_anchor_grows_with_age_only_through_the_pass_rate():
    """Expected before the first run: groups know rewards and no versions, so at equal pass rates it is the same at any
    age. Older draws pass less often, and stay longer where it is large: its mean over the steps grows with age."""
    found = [np.mean([trained("pmd-part", age, seed)[3] for seed in range(20)]) for age in (0, 2, 8)]
    np.testing.assert_allclose(found, [0.015, 0.028, 0.049], atol=5e-4)


@pytest.mark.parametrize("method", ["pmd-mean", "pmd-part"])
def test_one_version_is_the_known_problem(method):
    policy = versions(1, 1)[1]
    best = law(policy, policy, target(method, policy[0])[None])[0]
    solve = theory.pmd_mean if method == "pmd-mean" else theory.pmd_part
    np.testing.assert_allclose(best, solve(policy[0], REWARD, TAU).probs, atol=1e-9)
