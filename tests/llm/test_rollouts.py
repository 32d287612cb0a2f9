"""Rollouts ahead of the updates: an exact lag, the same bits after an interruption, and the canary."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom

from pmdkit.errors import ComponentDied
from pmdkit.llm.async_rollouts import RolloutQueue, async_rollouts
from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.engines.weight_sync_check import WeightSyncCheck, typical
from pmdkit.llm.mismatch import off_policy_parts
from pmdkit.llm.rollouts import row_seeds
from pmdkit.loop import Schedule, inline, run
from pmdkit.objectives import OBJECTIVES
from pmdkit.randomness import derive, generator
from pmdkit.specs.llm import UpdateTable
from pmdkit.specs.spec import ScheduleTable

from .conftest import EOS, build, learner_of
from .ranks import PROMPTS, Problems

STEPS, GROUP, MINISTEPS = 5, 4, 2
OBJECTIVE = OBJECTIVES["pmd-mean"](tau=0.05)


def learner(engine=None, lag=0, **more):
    model = build("qwen2")
    own = TransformersEngine(build("qwen2"), EOS) if engine is None else engine
    supervised = DistributedEngine(own, end=EOS)
    return learner_of(
        model, supervised, lambda number: PROMPTS[number], 6, ScheduleTable(lr=1e-2, optimizer="adamw"),
        UpdateTable(token_budget=40), queue=RolloutQueue(supervised) if lag else None, **more,
    )  # fmt: skip


def trained(mine, lag, steps=STEPS, start=0, observers=(), ministeps=MINISTEPS):
    """The rollouts of a run, step by step."""
    seen = []
    watch = lambda step, learner, rollouts, *rest: seen.append((step, rollouts))  # noqa: E731
    schedule = Schedule(steps, GROUP, ministeps, seed=3)
    run(OBJECTIVE, mine, Problems(), schedule, [watch, *observers], streamed(lag), start)
    return seen


def streamed(lag):
    """The stream of a run with this lag."""
    return async_rollouts(lag) if lag else inline


def weights(mine):
    return {name: weight.detach().clone() for name, weight in mine.model.named_parameters()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0, 1, 2, 3])
def test_each_step_is_written_by_exactly_the_weights_that_the_lag_names(lag):
    """A twin without threads keeps the weights of every version, and writes with those that the lag names."""
    mine, history = learner(lag=lag), {0: weights(learner())}

    def keep(step, learner, *rest):
        history[step] = weights(learner)

    for step, rollouts in trained(mine, lag, observers=[keep]):
        # with a lag, the first versions have no earlier response that both sides could score
        assert (rollouts.measured.get("mismatch_max", 1.0) < 1e-4) == (lag == 0 or step > 1 + lag)
        version = max(0, step - 1 - lag)
        assert rollouts.version == version
        engine = TransformersEngine(build("qwen2"), EOS)
        engine.publish(history[version], version)
        seeds = row_seeds(rollouts.prompts, GROUP, derive(3, "rollout", step))
        twin = engine.generate([PROMPTS[p] for p in rollouts.prompts.tolist()], GROUP, seeds, Sampling(6))
        assert torch.equal(twin.tokens, rollouts.responses)
        assert torch.equal(twin.logp, rollouts.logp_old)
    assert len({tuple(w["model.norm.weight"].tolist()) for w in history.values()}) == STEPS + 1  # weights do move


@pytest.mark.parametrize("bfloat16", [False, True])
def test_a_version_is_copied_once_in_the_dtype_of_the_engine_and_freed_when_the_engine_has_it(bfloat16):
    mine, lag, copies = learner(lag=3, bfloat16=bfloat16), 3, []
    real = mine.snapshot

    def snapshot(sample):
        copies.append(real(sample))
        assert {x.dtype for x in copies[-1].weights.values()} == {torch.bfloat16 if bfloat16 else torch.float32}
        return copies[-1]

    mine.snapshot = snapshot
    trained(mine, lag)
    assert len(copies) == STEPS - lag  # the initial policy, for four requests, and that after the first step
    assert not any(copy.weights for copy in copies)


def watched(engine, lag=0):
    mine = learner(engine, lag)
    mine.engine.sync_check = WeightSyncCheck([[5, 9, 3], [7, 7, 4]], [[4, 6, 8, 9], [3, 3]], 1e-4)
    return mine


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0, 2])
def test_the_canary_compares_the_weights_that_were_published(lag):
    mine = watched(TransformersEngine(build("qwen2"), EOS), lag)
    for _, rollouts in trained(mine, lag):
        assert 0 <= rollouts.measured["canary_mean"] <= rollouts.measured["canary_max"] < 1e-5
        assert rollouts.measured["canary_own"] < 1e-5


def test_a_few_tokens_that_rounding_moves_by_nats_do_not_stop_a_run():
    """128 tokens that differ by 0.01 nats, and by 2.4 at a rate of 1/64: P(Binomial(128, 1/64) > 2) stops a plain mean.

    The typical mean alarms if more than 9 of them are that far: 8 are left out, and two more are 0.05 nats of the rest.
    """
    draws = generator(0, "moved")
    moved = torch.from_numpy(draws.random((4000, 128)) < 1 / 64)
    difference = torch.from_numpy(draws.exponential(0.01, (4000, 128))) + 2.4 * moved
    plain = (difference.mean(1) > 0.05).double().mean().item()
    alarms = [typical(one) > 0.05 for one in difference]
    assert plain == pytest.approx(binom.sf(2, 128, 1 / 64), abs=0.04)
    assert np.mean(alarms) <= binom.sf(8, 128, 1 / 64) + 4 * (binom.sf(8, 128, 1 / 64) / 4000) ** 0.5
    swapped = torch.full((128,), 0.01)
    swapped[:16] = 3.0
    assert typical(swapped) > 0.05
    swapped[0] = torch.nan
    assert not typical(swapped) <= 0.05


class OldWeights(TransformersEngine):
    def publish(self, given, version):
        if version == 0:
            super().publish(given, version)
        list(given.values())
        self.version = version


class LostLayer(TransformersEngine):
    def publish(self, given, version):
        super().publish(given, version)
        with torch.no_grad():
            self.model.model.layers[0].mlp.down_proj.weight.zero_()


class Shifted(TransformersEngine):
    """Writes and reads every token as a quarter of a nat likelier than it is."""

    def generate(self, *work):
        found = super().generate(*work)
        return replace(found, logp=torch.where(found.mask, found.logp + 0.25, 0.0))

    def score(self, prompts, responses):
        return [score + 0.25 for score in super().score(prompts, responses)]


@pytest.mark.slow
def test_mismatch_and_staleness_are_told_apart_under_a_lag():
    """The first update measures their sum; less the mismatch it is log pi/pi_v under the weights of two versions."""
    mine, history, sums = learner(Shifted(build("qwen2"), EOS), 1), {0: weights(learner())}, {}
    twin = learner()

    def keep(step, learner, rollouts, groups, batch, updates):
        history[step], sums[step] = weights(learner), updates[0]["off_policy"]

    def logp(version, rollouts):
        with torch.no_grad():
            for name, weight in twin.model.named_parameters():
                weight.copy_(history[version][name])
            return twin.score(rollouts)[rollouts.mask].double().mean().item()

    for step, one in trained(mine, 1, observers=[keep], ministeps=1)[2:]:
        assert one.measured["mismatch_mean"] == pytest.approx(0.25, abs=1e-5)
        parts = off_policy_parts(sums[step], -one.measured["mismatch_kl"], None, 0.0)
        assert parts["off_policy_mismatch"] == pytest.approx(-0.25, abs=1e-5)
        moved = logp(step - 1, one) - logp(one.version, one)
        assert abs(moved) > 1e-3
        assert parts["off_policy_staleness"] == pytest.approx(moved, abs=1e-5)


class OldWords(TransformersEngine):
    """Writes with what it knew first, reads with what it was given: as caches that survive a publish do."""

    def publish(self, given, version):
        super().publish(given, version)
        if version == 0:
            self.old = TransformersEngine(build("qwen2"), EOS)
            self.old.publish(dict(given), 0)

    def generate(self, *work):
        self.old.version = self.version
        return self.old.generate(*work)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "said"), [(OldWeights, "fixed tokens"), (LostLayer, "fixed tokens"), (OldWords, "its own reading")]
)
@pytest.mark.parametrize("lag", [0, 1])
def test_the_canary_stops_an_engine_with_other_weights(engine, said, lag):
    with pytest.raises(ComponentDied, match=said):
        trained(watched(engine(build("qwen2"), EOS), lag), lag)
