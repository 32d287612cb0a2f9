"""One batch through a table and through a transformer: the same loss and the same gradient, for every objective."""

from dataclasses import replace

import pytest
import torch

from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs.tokens import TokenTask, make_tokens
from pmdkit.objectives import OBJECTIVES, Groups, credit, total, traits
from pmdkit.toy.learner import ToyLearner
from pmdkit.toy.model import ModelConfig, Transformer

PROBLEM = make_tokens({"kind": "modular-sum", "modulus": 5})
SPACE = tuple(torch.from_numpy(x) for x in PROBLEM.responses())


def network(seed, reference=True):
    """A learner whose policy is away from uniform."""
    config = ModelConfig(len(PROBLEM.vocabulary), context=3, dimension=16, layers=1, heads=2, inner=32)
    model = Transformer(config, seed).double()
    with torch.no_grad():
        model.head.weight.mul_(20)
    return ToyLearner(model, PROBLEM.eos, 1, SPACE, reference=reference)


@pytest.mark.parametrize("group", [8, None])
@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_table_and_transformer_see_the_same_loss_and_gradient(name, group):
    """Responses of one token are arms. pi_old and pi_ref are other networks than pi, so no log-ratio is zero.

    The gradient by the log-probabilities is compared, and what the transformer makes of it by its weights: the table's
    gradient, pulled back through the network, is the gradient that the learner's own update follows.
    """
    objective = OBJECTIVES[name]()
    toy, old, reference = network(1), network(2), network(3)
    toy.reference = reference.model
    prompts = TokenTask(PROBLEM, 6, seed=4).prompts(1)
    drawn = replace(old.rollout(prompts, group, seed=5), logp_ref=None)
    with torch.no_grad():
        drawn = replace(drawn, logp_ref=reference.logp(drawn) if traits(objective).uses_reference else None)
        policy = toy.enumerate(prompts, seed=0).logp_old.view(6, -1)
    arms = {int(token): arm for arm, token in enumerate(SPACE[0][:, 0])}
    table = BanditLearner(policy)
    pulled = replace(
        drawn, prompts=torch.arange(6), responses=torch.tensor([[arms[int(t)]] for t in drawn.responses[:, 0]])
    )
    groups = Groups(TokenTask(PROBLEM, 6).reward(drawn), drawn.mass, drawn.sampled)
    batch = credit(objective, groups, drawn.logp_old, drawn.mask, drawn.logp_ref, drawn.width)

    losses, gradients = [], []
    for learner, rollouts in ((table, pulled), (toy, drawn)):
        logp = learner.logp(rollouts)
        assert (logp - drawn.logp_old).abs().min() > 1e-6
        loss = total(objective, replace(batch, logp=logp))
        losses.append(loss)
        gradients.append(torch.autograd.grad(loss, logp, retain_graph=True)[0])
    torch.testing.assert_close(losses[1], losses[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6, rtol=0)
    assert gradients[0].abs().max() > 1e-3

    weights = list(toy.model.parameters())
    pulled_back = torch.autograd.grad(logp, weights, gradients[0])
    norm = torch.nn.utils.get_total_norm(pulled_back)
    report = toy.update(objective, drawn, batch)
    assert report["loss"] == pytest.approx(losses[0].item(), abs=1e-6)
    assert report["grad_norm"] == pytest.approx(norm.item(), abs=1e-6)
    scale = min(1.0, 1 / norm.item())  # the update clips the norm to one
    for weight, wanted in zip(weights, pulled_back, strict=True):
        torch.testing.assert_close(weight.grad, wanted * scale, atol=1e-6, rtol=0)
