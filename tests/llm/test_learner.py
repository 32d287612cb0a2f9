"""The learner of language models: its update is the gradient of the loss, whatever the token budget."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from pmdkit.errors import ResumeRefused
from pmdkit.llm.engines.base import NO_WEIGHTS
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.rollouts import row_seeds
from pmdkit.objectives import OBJECTIVES, load_objective, total, traits
from pmdkit.specs.llm import UpdateTable
from pmdkit.specs.spec import ScheduleTable

from .conftest import EOS, build, learner_of, step_of

PROMPTS = [[5, 9, 3], [7, 7], [11, 4, 8, 6, 30]]


def learner(
    kind="qwen2", budget=10_000, dtype=torch.float64, lr=1e-2, reference=False, temperature=1.0, old="rollout", **update
):
    model = build(kind, dtype)
    engine = TransformersEngine(model, EOS)
    return learner_of(
        model,
        engine,
        lambda number: PROMPTS[number],
        6,
        ScheduleTable(lr=lr, optimizer="sgd"),
        UpdateTable(token_budget=budget, clip=1e9, **update),
        reference=reference,
        rollout={"temperature": temperature, "old": old},
    )


def test_it_begins_at_version_0_reports_rows_and_schedules_only_what_varies():
    """Three prompts, four responses each: 12 rows, of which each report says how many have ended."""
    mine, reports = learner(), []
    mine.report = lambda what, done, rows, tokens: reports.append((what, done, rows))
    assert (mine.version, mine.lr_scheduler) == (0, None)
    step_of(mine, "pmd-mean")
    assert {rows for what, _, rows in reports if what == "rollout"} == {12}
    assert max(done for what, done, _ in reports if what == "rollout") == 12
    for varies in ({"warmup_steps": 3}, {"lr_scheduler_type": "linear"}):
        assert learner(**varies).lr_scheduler is not None


def stock_logp(stock, rollouts, temperature=1.0):
    """[N, T] by a stock forward pass of transformers for each response."""
    rows = torch.zeros(rollouts.mask.shape, dtype=stock.dtype)
    for row, on in enumerate(rollouts.mask):
        prompt, response = PROMPTS[row // 4], rollouts.responses[row][on]
        ids = torch.cat([torch.tensor(prompt), response])[None]
        policy = (stock(ids).logits[0, len(prompt) - 1 : -1] / temperature).log_softmax(-1)
        rows[row, on] = policy.gather(1, response[:, None])[:, 0]
    return rows


@pytest.mark.parametrize("kind", ["qwen2", "qwen3-moe"])
@pytest.mark.parametrize("name", sorted(OBJECTIVES))
@pytest.mark.slow
def test_the_update_is_the_gradient_of_the_loss(name, kind):
    """A stock forward pass of transformers, one response at a time and padded by nothing, gives the same step."""
    objective = OBJECTIVES[name]()
    dtype = torch.float32 if kind == "qwen3-moe" else torch.float64  # its experts know no float64
    exact = dtype == torch.float64
    mine = learner(kind, 25, dtype, reference=traits(objective).uses_reference)
    _, rollouts, batch = step_of(mine, objective)
    with torch.no_grad():
        for weight in mine.model.parameters():
            weight.add_(0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)).to(weight))
    stock = build(kind, dtype)
    stock.load_state_dict(mine.model.state_dict())
    loss = total(objective, replace(batch, logp=stock_logp(stock, rollouts)))
    loss.backward()
    before = [weight.detach().clone() for weight in mine.model.parameters()]
    report = mine.update(objective, rollouts, batch)
    assert report["loss"] == pytest.approx(loss.item(), abs=1e-9 if exact else 1e-4)
    for (label, weight), old in zip(stock.named_parameters(), before, strict=True):
        if weight.grad is not None:
            now = dict(mine.model.named_parameters())[label]
            size = float(weight.grad.abs().max())
            atol = 1e-7 if exact else 1e-3 * size + 1e-5
            torch.testing.assert_close((old - now) / 1e-2, weight.grad, atol=atol, rtol=1e-5 if exact else 1e-2)


@pytest.mark.parametrize("temperature", [0.5, 0.7, 1.3])
@pytest.mark.parametrize("name", ["pmd-mean", "grpo"])  # by the fused head, and by the plain one
def test_the_policy_that_draws_is_the_one_that_is_trained(name, temperature):
    """Before any update no log-ratio, to the reference neither; then the step of stock logits over the temperature."""
    mine = learner(temperature=temperature, reference=True)
    objective, rollouts, batch = step_of(mine, name)
    seen = []
    mine.on_logp = lambda batch, some, logp: seen.append(logp.detach().sum(1) - batch.logp_old[some].sum(1))
    stock = build("qwen2", torch.float64)
    loss = total(objective, replace(batch, logp=stock_logp(stock, rollouts, temperature)))
    loss.backward()
    before = [weight.detach().clone() for weight in mine.model.parameters()]
    report = mine.update(objective, rollouts, batch)
    assert torch.cat(seen).abs().max() < 1e-5  # the engine's numbers are float32
    torch.testing.assert_close(rollouts.logp_ref, rollouts.logp_old.double(), atol=1e-5, rtol=0)
    assert rollouts.measured["mismatch_max"] < 1e-5
    assert report["loss"] == pytest.approx(loss.item(), abs=1e-9)
    for now, old, weight in zip(mine.model.parameters(), before, stock.parameters(), strict=True):
        if weight.grad is not None:
            torch.testing.assert_close((old - now) / 1e-2, weight.grad, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("name", ["pmd-mean", "grpo"])
def test_every_row_is_reported_once_before_its_update(name):
    """In each ministep `on_logp` gets the log-probabilities of the old weights: tokens, or sums of a response."""
    mine = learner(budget=25)
    mine.passes = 2
    objective, rollouts, batch = step_of(mine, name)
    with torch.no_grad():
        wanted = torch.where(batch.mask, mine.logp(rollouts), 0.0)
    if traits(objective).level == "response":
        wanted = wanted.sum(1, keepdim=True)
    rows, parts = [], []
    mine.on_logp = lambda batch, some, logp: (rows.extend(some), parts.append(logp.detach()))
    mine.update(objective, rollouts, batch)
    assert sorted(rows) == sorted(set(rows))
    assert len(parts) > 1
    torch.testing.assert_close(torch.cat(parts), wanted[torch.tensor(rows)], atol=1e-9, rtol=0)


@pytest.mark.slow
def test_the_step_rule_sees_every_row_whatever_the_budget():
    """A second update on the same rows is shortened by the share of the effective sample size of all of them."""
    plain, ruled = load_objective("grpo"), load_objective("grpo", ess_step=1.0)
    moves, shares = [], []
    for objective in (plain, ruled):
        mine = learner(budget=25, lr=0.5)
        _, rollouts, batch = step_of(mine, plain)
        mine.update(plain, rollouts, batch)
        with torch.no_grad():
            ratio = torch.where(batch.mask, mine.logp(rollouts) - batch.logp_old, 0.0).double().sum(1).exp()
        shares.append(ratio.sum() ** 2 / (ratio**2).sum() / len(ratio))
        before = torch.nn.utils.parameters_to_vector(mine.model.parameters()).detach()
        mine.update(objective, rollouts, batch)
        moves.append(torch.nn.utils.parameters_to_vector(mine.model.parameters()).detach() - before)
    assert shares[0] == shares[1] < 0.99
    torch.testing.assert_close(moves[1], shares[0] * moves[0], atol=1e-12, rtol=1e-6)


def test_rows_without_weight_cost_nothing_and_move_nothing():
    """A group without a verdict has weight 0: the step is that of the others alone."""
    mine, other = learner(), learner()
    objective, rollouts, batch = step_of(mine, "pmd-mean")
    dead = torch.arange(12) < 4
    batch = replace(batch, weight=torch.where(dead, 0.0, batch.weight))
    seen = []
    real = mine.loss_of_rows
    mine.loss_of_rows = lambda *given: seen.extend(given[3]) or real(*given)
    mine.update(objective, rollouts, batch)
    assert sorted(seen) == list(range(4, 12))
    other.update(objective, rollouts, replace(batch, logp_old=torch.where(dead[:, None], -50.0, batch.logp_old)))
    for a, b in zip(mine.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=0, rtol=0)


def test_a_restored_learner_goes_on_to_the_same_bits():
    mine = learner(dtype=torch.float32, reference=True)
    mine.update(*step_of(mine, "tb"))
    other = learner(dtype=torch.float32, reference=True)
    other.load_state_dict(deepcopy(mine.state_dict()))
    for each in (mine, other):
        each.update(*step_of(each, "tb", seed=7))
    for a, b in zip(mine.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_of_another_model_is_refused():
    state = learner("llama").state_dict()
    with pytest.raises(ResumeRefused, match="another model"):
        learner().load_state_dict(state)


class Sleeper(TransformersEngine):
    """Drops its weights when the rollout is over, like vLLM, and cannot write before the next publish."""

    def enter(self, phase):
        self.version = NO_WEIGHTS if phase == "update" else self.version

    def generate(self, *arguments):
        assert self.version != NO_WEIGHTS
        return super().generate(*arguments)


def test_the_engine_sleeps_while_the_trainer_scores_and_is_woken_for_a_second_rollout():
    """Dynamic sampling rolls out several times between two updates; the draws are those of an engine that stays up."""
    mine, other = (learner(reference=True, old="recompute") for _ in range(2))
    mine.engine.engine = Sleeper(mine.model, EOS)
    versions, score = [], mine.policy.logp
    mine.policy.logp = lambda *given: versions.append(mine.engine.engine.version) or score(*given)
    for seed in range(2):
        rollouts, wanted = (one.rollout(torch.arange(3), 4, seed) for one in (mine, other))
        for name in ("responses", "logp_old", "logp_ref", "logp_engine"):
            assert torch.equal(getattr(rollouts, name), getattr(wanted, name))
    assert versions == [NO_WEIGHTS] * 4  # pi_old and the reference, twice


def test_seeds_are_of_the_prompt_and_not_of_its_place():
    some = row_seeds(torch.tensor([4, 9, 4]), 2, seed=3)
    assert len(set(some.tolist())) == 6
    np.testing.assert_array_equal(row_seeds(torch.tensor([9]), 2, seed=3), some[2:4])
    assert set(row_seeds(torch.tensor([4]), 2, seed=4).tolist()).isdisjoint(some.tolist())
