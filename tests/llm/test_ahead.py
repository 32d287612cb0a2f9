"""Rollouts ahead of the updates: an exact lag, the same bits after an interruption, engines that are lost or hang."""

import threading
import time
from pathlib import Path

import pytest
import torch

from pmdkit import train
from pmdkit.errors import ComponentDied, UsageError
from pmdkit.llm import stages
from pmdkit.llm.ahead import ahead
from pmdkit.llm.canary import Canary
from pmdkit.llm.engines.embedded import EmbeddedEngine
from pmdkit.llm.engines.protocol import EngineLost, Sampling
from pmdkit.llm.engines.shared import SharedEngine
from pmdkit.llm.learner import CausalLearner, row_seeds
from pmdkit.llm.writer import Abandoned, Writer
from pmdkit.loop import Schedule, run
from pmdkit.objectives import OBJECTIVES
from pmdkit.randomness import derive
from pmdkit.tables import ScheduleTable, UpdateTable

from .conftest import EOS, build

TINY = str(Path(__file__).with_name("tiny.toml"))
PROMPTS = [[5, 9, 3], [7, 7], [11, 4, 8, 6, 30], [12, 3]]
STEPS, GROUP, MINISTEPS = 5, 4, 2
OBJECTIVE = OBJECTIVES["pmd-mean"](tau=0.05)


class Task:
    """Two prompts a step; the first token decides."""

    def prompts(self, step):
        return torch.tensor([step % 4, (step + 1) % 4])

    def reward(self, rollouts):
        return (rollouts.responses[:, 0] % 3).double().view(rollouts.mass.shape)


def learner(engine=None, **how):
    model = build("qwen2")
    own = EmbeddedEngine(build("qwen2"), EOS) if engine is None else engine
    return CausalLearner(
        model,
        None,
        lambda number: PROMPTS[number],
        Writer(SharedEngine(own, end=EOS), **how),
        Sampling(6),
        ScheduleTable(lr=1e-2, optimizer="adamw"),
        UpdateTable(token_budget=40),
    )


def trained(mine, lag, steps=STEPS, start=0, observers=()):
    """The rollouts of a run, step by step."""
    seen = []
    watch = lambda step, learner, rollouts, *rest: seen.append((step, rollouts))  # noqa: E731
    schedule = Schedule(steps, GROUP, MINISTEPS, seed=3)
    run(OBJECTIVE, mine, Task(), schedule, [watch, *observers], ahead(lag), start)
    return seen


def weights(mine):
    return {name: weight.detach().clone() for name, weight in mine.model.named_parameters()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("lag", [0, 1, 2, 3])
def test_each_step_is_written_by_exactly_the_weights_that_the_lag_names(lag):
    """A twin without threads keeps the weights of every version, and writes with those that the lag names."""
    mine, history = learner(ahead=lag > 0), {0: weights(learner())}

    def keep(step, learner, *rest):
        history[step] = weights(learner)

    for step, rollouts in trained(mine, lag, observers=[keep]):
        version = max(0, step - 1 - lag)
        assert rollouts.version == version
        engine = EmbeddedEngine(build("qwen2"), EOS)
        engine.publish(history[version], version)
        seeds = row_seeds(rollouts.prompts, GROUP, derive(3, "rollout", step))
        twin = engine.generate([PROMPTS[p] for p in rollouts.prompts.tolist()], GROUP, seeds, Sampling(6))
        assert torch.equal(twin.tokens, rollouts.responses)
        assert torch.equal(twin.logp, rollouts.logp_old)
    assert len({tuple(w["model.norm.weight"].tolist()) for w in history.values()}) == STEPS + 1  # weights do move


def test_a_lag_changes_what_is_learned():
    plain, lagged = learner(), learner(ahead=True)
    trained(plain, 0)
    trained(lagged, 1)
    assert not same(weights(plain), weights(lagged))


@pytest.mark.parametrize("lag", [1, 3])
@pytest.mark.parametrize("stop", [1, 3])
def test_a_checkpoint_holds_what_was_written_ahead_of_it(lag, stop):
    whole, first, second = learner(ahead=True), learner(ahead=True), learner(ahead=True)
    trained(whole, lag)
    states = {}

    class Enough(Exception):
        pass

    def keep(step, mine, *rest):
        states[step] = {**mine.state_dict(), "model": weights(mine)}
        if step == stop:
            raise Enough

    with pytest.raises(Enough):
        trained(first, lag, observers=[keep])
    assert len(states[stop]["pending"]) == 6 * min(lag, STEPS - stop)
    second.load_state_dict(states[stop])
    went_on = trained(second, lag, start=stop)
    assert [rollouts.version for _, rollouts in went_on] == [max(0, s - 1 - lag) for s in range(stop + 1, STEPS + 1)]
    assert same(weights(second), weights(whole))


class Flaky(EmbeddedEngine):
    """Is lost in some of its calls of generate, counted from 0; after that it knows no weights."""

    def __init__(self, lost_in, also_publish=()):
        super().__init__(build("qwen2"), EOS)
        self.calls = self.publishes = self.restarts = 0
        self.lost_in, self.lost_publishes = set(lost_in), set(also_publish)

    def generate(self, *work):
        self.calls += 1
        if self.calls - 1 in self.lost_in:
            with torch.no_grad():
                for weight in self.model.parameters():
                    weight.fill_(torch.nan)
            raise EngineLost("the engine was killed")
        return super().generate(*work)

    def publish(self, given, version):
        self.publishes += 1
        if self.publishes - 1 in self.lost_publishes:
            next(iter(given.values()))
            raise EngineLost("the publish was cut off")
        super().publish(given, version)

    def restart(self):
        self.restarts += 1


@pytest.mark.parametrize("how", [{}, {"aside": True}, {"ahead": True}], ids=["in turns", "aside", "ahead"])
def test_a_lost_engine_is_restarted_and_writes_the_same_again(how):
    lag = 1 if "ahead" in how else 0
    plain, engine = learner(ahead=lag > 0), Flaky({1, 4}, {2})
    mended = learner(engine, **how)
    warned = []
    mended.engine.warn = warned.append
    trained(plain, lag)
    trained(mended, lag)
    assert engine.restarts == mended.engine.restarts == len(warned) == 3
    assert same(weights(mended), weights(plain))


@pytest.mark.parametrize("how", [{}, {"aside": True}, {"ahead": True}], ids=["in turns", "aside", "ahead"])
def test_the_third_loss_in_a_row_ends_the_run(how):
    mine = learner(Flaky({2, 3, 4}), **how)
    with pytest.raises(ComponentDied, match=r"killed; lost 3 times in a row.*--resume"):
        trained(mine, 1 if "ahead" in how else 0)


@pytest.mark.parametrize("how", [{"aside": True}, {"ahead": True}], ids=["aside", "ahead"])
def test_an_engine_that_hangs_is_noticed(how):
    never = threading.Event()

    class Hung(EmbeddedEngine):
        def generate(self, *work):
            never.wait(20)
            raise EngineLost("let go at last")

    mine = learner(Hung(build("qwen2"), EOS), silence=0.2, **how)
    with pytest.raises(ComponentDied, match="wrote nothing for 0 s"):
        trained(mine, 1 if "ahead" in how else 0)
    never.set()


def test_a_run_that_ends_early_does_not_wait_for_what_is_written_ahead():
    """The second order is given up in the middle of a rollout that would take a quarter of a minute."""
    closed = []

    class Slow(EmbeddedEngine):
        def generate(self, prompts, group, seeds, sampling, progress=None):
            for tokens in range(1000 if seeds[0] in slow else 0):
                time.sleep(0.015)
                progress(tokens, 0)
            return super().generate(prompts, group, seeds, sampling, progress)

        def close(self):
            closed.append(True)

    class Enough(Exception):
        pass

    def stop(*rest):
        raise Enough

    slow = set(row_seeds(Task().prompts(2), GROUP, derive(3, "rollout", 2)).tolist())
    mine = learner(Slow(build("qwen2"), EOS), ahead=True)
    with pytest.raises(Enough):
        trained(mine, 1, observers=[stop])
    began = time.monotonic()
    mine.writer.close()
    assert closed == [True]
    assert time.monotonic() - began < 4
    assert isinstance(mine.writer.begun.problem, Abandoned)


def texts():
    return Canary([[5, 9, 3], [7, 7, 4]], [[4, 6, 8, 9], [3, 3]], 1e-4)


def watched(engine, lag=0):
    mine = learner(engine, ahead=lag > 0)
    mine.engine.canary = texts()
    return mine


@pytest.mark.parametrize("lag", [0, 2])
def test_the_canary_compares_the_weights_that_were_published(lag):
    mine = watched(EmbeddedEngine(build("qwen2"), EOS), lag)
    trained(mine, lag)
    assert 0 <= mine.engine.found["canary_mean"] <= mine.engine.found["canary_max"] < 1e-5
    assert mine.engine.found["canary_own"] < 1e-5


class OldWeights(EmbeddedEngine):
    def publish(self, given, version):
        if version == 0:
            super().publish(given, version)
        list(given.values())
        self.version = version


class LostLayer(EmbeddedEngine):
    def publish(self, given, version):
        super().publish(given, version)
        with torch.no_grad():
            self.model.model.layers[0].mlp.down_proj.weight.zero_()


class OldWords(EmbeddedEngine):
    """Writes with what it knew first, reads with what it was given: as caches that survive a publish do."""

    def publish(self, given, version):
        super().publish(given, version)
        if version == 0:
            self.old = EmbeddedEngine(build("qwen2"), EOS)
            self.old.publish(dict(given), 0)

    def generate(self, *work):
        self.old.version = self.version
        return self.old.generate(*work)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (OldWeights, r"disagree on 6 fixed tokens by .* nats on average .* version 1"),
        (LostLayer, r"disagree on 6 fixed tokens by .* nats on average .* version 0"),
        (OldWords, "its own reading of them.*older weights"),
    ],
)
@pytest.mark.parametrize("lag", [0, 1])
def test_the_canary_stops_an_engine_with_other_weights(engine, said, lag):
    said = said if lag == 0 or engine is not OldWeights else said.replace("version 1", "version [12]")
    with pytest.raises(ComponentDied, match=said):
        trained(watched(engine(build("qwen2"), EOS), lag), lag)


LAGGED = {"rollout.lag": 1}


def test_a_run_says_its_staleness_and_is_resumed_to_the_same_bits(tmp_path, monkeypatch):
    """Through the front door: lag 1, killed between the measurement and the checkpoint of a step."""

    def start(out, **more):
        return train("pmd-mean", "llm", TINY, out=tmp_path / out, steps=4, options=LAGGED, **more)

    whole = start("whole")
    assert [row["policy_version"] for row in whole.metrics] == [0, 0, 1, 2]
    assert [row["staleness"] for row in whole.metrics] == [1, 3, 3, 3]
    assert whole.metrics[-1]["canary_mean"] < 1e-5

    class Killed(BaseException):
        pass

    observe = stages.Stages.observe

    def killed(self, step, *rest):
        if step == 3:
            raise Killed
        observe(self, step, *rest)

    monkeypatch.setattr(stages.Stages, "observe", killed)
    with pytest.raises(Killed):
        start("broken")
    monkeypatch.setattr(stages.Stages, "observe", observe)
    again = start("broken", resume=True)
    clocks = ("seconds_rollout", "seconds_update")
    for one, other in zip(whole.metrics, again.metrics, strict=True):
        assert {k: v for k, v in one.items() if k not in clocks} == {k: v for k, v in other.items() if k not in clocks}
    one, other = (path / "checkpoints" / "step-4" / "model.safetensors" for path in (whole.path, again.path))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rollout.old": "recompute"}, "old is 'recompute' with a lag of 1"),
        ({"rollout.correction": "sequence-mask"}, "correction is 'sequence-mask' with a lag of 1"),
        ({"vllm.urls": ["http://127.0.0.1:1"]}, "vllm.urls is set and rollout.engine is 'transformers'"),
    ],
)
def test_what_a_lag_rules_out(tmp_path, changes, said):
    with pytest.raises(UsageError, match=said):
        train("pmd-mean", "llm", TINY, out=tmp_path / "run", options=LAGGED | changes)
