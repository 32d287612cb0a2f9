"""A real model trained by TRL: losses and gradients of every ministep are those of `pmdkit.objectives`."""

import json
import os
from dataclasses import replace

import pytest
import torch

from pmdkit.objectives import GRPO, REBEL, PMDMean, PMDPart, credit, cut, parts, total
from pmdkit.testing.golden import groups_of

from . import train_tiny as tiny

PROMPTS = 4


def wanted(objective, updates, lr=0.0, order=range(PROMPTS), passes=1):
    """Loss and gradient of each ministep by pmdkit, the model read row by row without padding; SGD between them."""
    model, _ = tiny.model_and_tokenizer()
    rows = [(p, p * tiny.SIZE + g) for p in order for g in range(tiny.SIZE)]
    prompts = len(order)
    width = max(len(tiny.response(row)) for _, row in rows)

    def score():
        found = []
        for p, row in rows:
            asked, answer = tiny.prompt(p), tiny.response(row)
            logits = model(torch.tensor([asked + answer])).logits[0, len(asked) - 1 : -1]
            logp = logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0]
            found.append(torch.nn.functional.pad(logp, (0, width - len(answer))))
        return torch.stack(found)

    mask = torch.tensor([[t < len(tiny.response(row)) for t in range(width)] for _, row in rows])
    reward = [[tiny.reward(p * tiny.SIZE + g) for g in range(tiny.SIZE)] for p in order]
    whole = credit(objective, groups_of({"reward": reward}), score().detach(), mask, width=8)
    losses, gradients = [], []
    for part in [*parts(prompts, updates)] * passes:
        model.zero_grad()
        batch = cut(whole, part, prompts, tiny.SIZE)
        logp = score()[part.start * tiny.SIZE : part.stop * tiny.SIZE]
        loss = total(objective, replace(batch, logp=logp))
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
        with torch.no_grad():
            for weight in model.parameters():
                weight -= lr * weight.grad
    return losses, gradients


def assert_same_updates(losses, gradients, expected):
    assert losses == pytest.approx(expected[0], abs=1e-6)
    assert len(gradients) == len(expected[1])
    largest = 0.0
    for mine, theirs in zip(gradients, expected[1], strict=True):
        for name, gradient in theirs.items():
            torch.testing.assert_close(torch.as_tensor(mine[name]), gradient, atol=1e-6, rtol=1e-5, msg=name)
            largest = max(largest, gradient.abs().max().item())
    assert largest > 1e-2  # there was something to compare


def logged(log):
    return [row["loss"] for row in log if "loss" in row]


SPLITS = [  # micro, accumulation, per_rollout, updates
    (16, 1, 1, 1),
    (4, 4, 4, 1),
    (1, 16, 16, 1),
    (2, 4, 8, 2),
    (8, 1, 2, 2),
    (1, 4, 16, 4),
]


@pytest.mark.parametrize("objective", [PMDMean(tau=0.5), PMDPart(tau=1.0)], ids=["mean", "part"])
@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_one_process(split, objective):
    """SGD moves the model between ministeps, so that pi_old is not what is trained from the second one on."""
    _, log, gradients = tiny.train(PROMPTS, *split, lr=0.02, objective=objective)
    assert_same_updates(logged(log), gradients, wanted(objective, split[3], lr=0.02))


@pytest.mark.parametrize(
    ("objective", "micro"),
    [(PMDMean(tau=0.5, norm="tokens"), 2), (PMDMean(tau=0.5, norm="max"), 2), (GRPO(), 2), (REBEL(tau=0.5), 4)],
    ids=["tokens", "max", "grpo", "rebel"],
)
def test_length_rules_a_loss_per_token_and_one_that_compares_the_responses_of_a_group(objective, micro):
    _, log, gradients = tiny.train(PROMPTS, micro, 8 // micro, 16 // micro, 2, lr=0.02, objective=objective)
    assert_same_updates(logged(log), gradients, wanted(objective, 2, lr=0.02))


def test_a_rule_of_the_groups_rewards_as_temperature():
    options = {"tau": {"rule": "pass-rate", "scale": 0.7}}
    made, log, gradients = tiny.train(PROMPTS, 2, 4, 8, 2, lr=0.02, objective_options=options)
    assert callable(made.objective.tau)
    assert_same_updates(logged(log), gradients, wanted(made.objective, 2, lr=0.02))


def test_a_second_pass_over_the_rollout_batch():
    """pi_old stays what it was before the first."""
    _, log, gradients = tiny.train(PROMPTS, 2, 4, 8, 4, lr=0.02, tau=0.5, num_iterations=2)
    assert_same_updates(logged(log), gradients, wanted(PMDMean(tau=0.5), 2, lr=0.02, passes=2))


def test_two_rollout_batches_in_one_update():
    """One prompt is written at a time, and the update waits for four of them."""
    _, log, gradients = tiny.train(PROMPTS, 4, 4, 1, 1, objective=PMDMean(tau=0.5))
    assert_same_updates(logged(log), gradients, wanted(PMDMean(tau=0.5), 1))


@pytest.mark.parametrize(
    ("split", "order"),
    [
        ((2, 4, 4, 1), range(4)),
        ((8, 1, 1, 1), range(4)),
        ((2, 3, 3, 1), range(3)),  # two responses to the second prompt on each process
        ((2, 2, 4, 2), (0, 2, 1, 3)),  # a ministep takes the next prompt of each process
    ],
    ids=str,
)
def test_two_processes(split, order, launch, tmp_path):
    """Gradients are averaged over gloo."""
    out = tmp_path / "out.json"
    names = ("micro", "accumulation", "per_rollout", "updates")
    options = dict(zip(names, split, strict=True)) | {"prompts": len(order), "lr": 0.02, "tau": 0.5}
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    launch(*command, tiny.__file__, str(out), json.dumps(options), env=environment)
    found = json.loads(out.read_text())
    assert_same_updates(found["losses"], found["gradients"], wanted(PMDMean(tau=0.5), split[3], 0.02, order))
