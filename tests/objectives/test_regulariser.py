"""KL and entropy around an objective: exact gradients by enumeration, and the same objective without them."""

import math

import pytest
import torch

from pmdkit.objectives import OBJECTIVES, Groups, credit, load_objective, objective_name, total, traits
from pmdkit.objectives.regulariser import EffectiveSampleSize, kl_estimate
from pmdkit.testing.objectives import ragged_draws

REWARD = torch.tensor([[0.0, 1.0, 0.3, 0.0]], dtype=torch.float64)


def policies():
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(4, generator=generator, dtype=torch.float64) for _ in range(2)]


def gradient(objective, logits, ref):
    """Of the expected loss by the logits, over the full support."""
    logits = logits.clone().requires_grad_()
    logp = logits.log_softmax(0)
    groups = Groups(REWARD, logp.detach().exp()[None], sampled=False)
    one = torch.ones(4, 1, dtype=torch.bool)
    batch = credit(objective, groups, logp[:, None], one, ref.log_softmax(0)[:, None])
    (found,) = torch.autograd.grad(total(objective, batch), logits)
    return found


def exact(logits, ref, of):
    logits = logits.clone().requires_grad_()
    logp = logits.log_softmax(0)
    (found,) = torch.autograd.grad(of(logp, ref.log_softmax(0)), logits)
    return found


def kl(p, q):
    return (p.exp() * (p - q)).sum()


@pytest.mark.parametrize("name", ["pmd-mean", "rloo", "grpo"])
def test_gradients_at_the_old_policy_are_those_of_the_divergences(name):
    """k2 in the loss: KL(pi || ref). k3: KL(ref || pi). k1: nothing. In the reward, k1: KL(pi || ref), and -entropy."""
    logits, ref = policies()
    plain = {"norm": "none"}
    in_reward = (("kl_coef", kl), ("entropy_coef", lambda p, q: (p.exp() * p).sum()))
    if name == "grpo":
        plain, in_reward = {"norm": "none", "std": "none"}, in_reward[:1]
    base = gradient(load_objective(name, **plain), logits, ref)
    for estimator, wanted in (
        ("k1", torch.zeros(4, dtype=torch.float64)),
        ("k2", exact(logits, ref, kl)),
        ("k3", exact(logits, ref, lambda p, q: kl(q, p))),
    ):
        found = gradient(load_objective(name, kl_coef=0.7, kl_estimator=estimator, **plain), logits, ref) - base
        torch.testing.assert_close(found, 0.7 * wanted, atol=1e-12, rtol=0)
    for key, of in in_reward:
        objective = load_objective(name, kl_in="reward", kl_estimator="k1", **{key: 0.7}, **plain)
        found = gradient(objective, logits, ref) - base
        torch.testing.assert_close(found, 0.7 * exact(logits, ref, of), atol=1e-12, rtol=0)


def test_estimators_have_the_exact_mean():
    """E_pi[k1] = E_pi[k3] = KL(pi || ref), by enumeration; k2 is close to it for close policies."""
    p, q = (x.log_softmax(0) for x in policies())
    for name in ("k1", "k3"):
        torch.testing.assert_close((p.exp() * kl_estimate(p - q, name)).sum(), kl(p, q), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_without_weight_it_is_the_objective_itself(name):
    """Same loss to the bit, same name and level; with a weight it asks for the reference and claims no solution."""
    plain, wrapped = load_objective(name), load_objective(name, entropy_coef=0.0, kl_coef=0.0)
    logp = -torch.rand(6, 5, generator=torch.Generator().manual_seed(0))
    reward = torch.tensor([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]], dtype=torch.float64)
    groups, mask = Groups(reward, torch.full_like(reward, 1 / 3)), torch.ones(6, 5).bool()
    losses = [total(o, credit(o, groups, logp, mask, logp - 0.1, 5)) for o in (plain, wrapped)]
    assert losses[0].item() == losses[1].item()
    assert objective_name(wrapped) == name
    assert traits(wrapped).level == traits(plain).level
    heavy = load_objective(name, kl_coef=0.1)
    assert traits(heavy).uses_reference
    assert traits(heavy).population is None


def test_options_are_checked_and_misspelt_ones_answered():
    with pytest.raises(ValueError, match="kl_coef is -1"):
        load_objective("grpo", kl_coef=-1)
    with pytest.raises(ValueError, match="did you mean 'kl_in'"):
        load_objective("grpo", kl_coef=0.1, kl_inn="loss")


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_a_step_shrinks_by_the_power_of_the_share_of_rows_that_count(kind, power):
    """Rows in two parts, the second as sums over tokens; against ESS / B of the ratios in plain Python."""
    it = ragged_draws(0)
    objective = load_objective("grpo", ess_step=power)
    batch = it.batch(objective)
    rows = [batch.log_ratio[n][batch.mask[n]].tolist() for n in range(len(batch.mask))]
    weights = [math.exp(sum(row)) for row in rows]
    share = sum(weights) ** 2 / sum(w**2 for w in weights) / len(weights)
    assert 0.5 < share < 0.98

    ess = EffectiveSampleSize(objective)
    ess(batch, range(7), batch.logp[:7])
    sums = torch.where(batch.mask, batch.logp, 0.0).sum(1, keepdim=True)
    ess(batch, range(7, len(rows)), sums[7:])
    moved = []
    for shortened in (True, False):
        weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
        weight.grad = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
        optimizer = kind([weight], lr=0.1)
        if shortened:
            ess.step(optimizer)
        else:
            optimizer.step()
        assert optimizer.param_groups[0]["lr"] == 0.1
        moved.append(weight.detach())
    torch.testing.assert_close(moved[0], share**power * moved[1], atol=0, rtol=1e-12)
