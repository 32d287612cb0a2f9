"""Weights in flight: who drew each token, with which keys and values, and what that is worth; tiny models in float64.

A change of weights is made by `progress`, which an engine calls between two tokens.
"""

import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM

from pmdkit import train
from pmdkit.errors import ComponentDied, UsageError
from pmdkit.llm.async_rollouts import RolloutQueue, async_rollouts
from pmdkit.llm.engines import transformers
from pmdkit.llm.engines.base import EngineLost, Responses, Sampling
from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.in_flight import NewestPolicy, age_columns, read_changes, with_versions
from pmdkit.llm.rollouts import EngineRollouts
from pmdkit.llm.task import MathTask
from pmdkit.loop import Schedule, run
from pmdkit.objectives import OBJECTIVES
from pmdkit.randomness import derive
from pmdkit.specs.llm import UpdateTable
from pmdkit.specs.spec import ScheduleTable
from pmdkit_lab.dumps.recorded import unpack
from tests.test_resume_matrix import CHANGES, TINY, by_parity, left

from .conftest import EOS, SIZES, build, learner_of
from .ranks import PROMPTS as RANK_PROMPTS
from .ranks import Problems

PROMPTS = [[3, 4, 5], [6, 9], [7, 8, 4, 4, 10]]
GROUP, WIDTH, CUT = 4, 12, 4  # CUT: the first position that the newer weights draw
SEEDS = np.arange(50, 50 + GROUP * len(PROMPTS), dtype=np.uint64)
CACHES = ["keep", "recompute"]


def changing(engine: TransformersEngine, weights: dict[str, Tensor], version: int, call: int):
    """A `progress` whose nth call publishes; all rows begin together, so it is made after their nth token."""
    calls = iter(range(1, 1000))

    def progress(tokens: int, ended: int) -> None:
        if next(calls) == call:
            engine.publish(weights, version)

    return progress


def drawn(cache: str, newer: torch.nn.Module | None, dtype=torch.float64) -> Responses:
    """Responses whose weights change after CUT tokens; None leaves them."""
    engine = TransformersEngine(build("qwen2", dtype), EOS, in_flight_cache=cache)
    progress = None if newer is None else changing(engine, newer.state_dict(), 1, CUT)
    return engine.generate(PROMPTS, GROUP, SEEDS, Sampling(WIDTH), progress)


def texts(found: Responses) -> list[list[int]]:
    return [tokens[on].tolist() for tokens, on in zip(found.tokens, found.mask, strict=True)]


@pytest.mark.parametrize("cache", CACHES)
def test_the_same_weights_again_change_nothing(cache):
    """To the bit where keys and values are kept; read again in another order of sums, to the rounding of float32."""
    one, other = drawn(cache, None), drawn(cache, build("qwen2", torch.float64))
    assert torch.equal(one.tokens, other.tokens)
    torch.testing.assert_close(one.logp, other.logp, atol=0 if cache == "keep" else 1e-6, rtol=0)
    assert other.versions.unique().tolist() == [0, 1]


@pytest.mark.parametrize("cache", CACHES)
def test_tokens_before_a_change_are_the_old_run_s_and_every_later_one_says_who_drew_it(cache):
    old, mixed = drawn(cache, None), drawn(cache, build("qwen2", torch.float64, seed=1))
    assert old.versions is None
    assert mixed.version == 0
    assert torch.equal(old.tokens[:, :CUT], mixed.tokens[:, :CUT])
    assert torch.equal(old.logp[:, :CUT], mixed.logp[:, :CUT])
    width = mixed.tokens.shape[1]
    assert width > CUT
    assert not torch.equal(old.tokens[:, CUT:width], mixed.tokens[:, CUT:])
    assert (mixed.versions[mixed.mask] == (torch.arange(width) >= CUT).int().expand(mixed.mask.shape)[mixed.mask]).all()


def by_hand(old, new, prompt, response):
    """[T] log-probabilities after CUT by transformers' own cache: the old model's up to the token before, then new."""
    cache = DynamicCache(config=old.config)
    with torch.no_grad():
        old(torch.tensor([[*prompt, *response[: CUT - 1]]]), past_key_values=cache)
        logits = new(torch.tensor([response[CUT - 1 : -1]]), past_key_values=cache).logits[0]
    return logits.log_softmax(-1).gather(1, torch.tensor(response[CUT:])[:, None])[:, 0]


@pytest.mark.parametrize("cache", CACHES)
def test_after_a_change_keys_and_values_are_those_that_the_option_names(cache):
    newer = build("qwen2", torch.float64, seed=1)
    mixed, rows = drawn(cache, newer), 0
    score = TransformersEngine(build("qwen2", torch.float64, seed=1), EOS).score
    for row, response in enumerate(texts(mixed)):
        if len(response) <= CUT:
            continue
        prompt, rows = PROMPTS[row // GROUP], rows + 1
        under_new = score([prompt], [response])[0][CUT:].double()
        kept = by_hand(build("qwen2", torch.float64), newer, prompt, response)
        wanted, other = (kept, under_new) if cache == "keep" else (under_new, kept)
        recorded = mixed.logp[row, CUT : len(response)].double()
        torch.testing.assert_close(recorded, wanted, atol=1e-6, rtol=0)
        assert (recorded - other).abs().max() > 1e-3  # the two are told apart
    assert rows > 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_sampler_s_copy_of_the_head_is_made_again(dtype):
    """On a CPU the head of a model in bfloat16 is copied once a rollout; only the head differs here."""
    newer = build("qwen2", dtype)
    with torch.no_grad():
        newer.lm_head.weight.copy_(newer.lm_head.weight.flip(0))
    mixed = drawn("keep", newer, dtype)
    answers = texts(mixed)
    each = [prompt for prompt in PROMPTS for _ in range(GROUP)]
    scores = TransformersEngine(newer, EOS).score(each, answers)  # the states are the same under both
    late = [(mixed.logp[n, CUT : len(a)] - scores[n][CUT:]).abs() for n, a in enumerate(answers)]
    assert torch.cat(late).max() < (1e-4 if dtype == torch.float32 else 0.05)


@pytest.mark.parametrize("cache_tokens", [2**18, 40])
def test_rows_that_begin_later_and_texts_read_in_parts_have_their_own_versions(cache_tokens, monkeypatch):
    """With room for 40 tokens rows take turns; read again ten tokens at a time, every row keeps its place."""
    monkeypatch.setattr(transformers, "READ_TOKENS", 10)
    models = [build("qwen2", torch.float64, seed=seed) for seed in (0, 1)]
    options = {"cache_tokens": cache_tokens, "in_flight_cache": "recompute"}
    engine = TransformersEngine(build("qwen2", torch.float64), EOS, **options)
    found = engine.generate(PROMPTS, GROUP, SEEDS, Sampling(WIDTH), changing(engine, models[1].state_dict(), 1, CUT))
    each = [prompt for prompt in PROMPTS for _ in range(GROUP)]
    scores = torch.stack([torch.cat(TransformersEngine(model, EOS).score(each, texts(found))) for model in models])
    author = found.versions[found.mask].long()
    wanted = scores.gather(0, author[None])[0]
    torch.testing.assert_close(found.logp[found.mask], wanted, atol=1e-6, rtol=0)
    whole = int((found.versions.masked_fill(~found.mask, 1) == 1).all(1).sum())
    assert (whole > 0) == (cache_tokens == 40)  # rows that the newer weights drew alone


def three_tokens(seed):
    """A model of three tokens, of which 2 ends a response."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(Qwen2Config(**SIZES | {"vocab_size": 3})).double().eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.mul_(20.0 if "lm_head" in name else 3.0 if weight.ndim > 1 else 1.0)
    return model


@pytest.mark.parametrize("cache", CACHES)
def test_recorded_probabilities_are_those_of_the_mixture_that_drew(cache):
    """All 15 responses: they sum to 1, are drawn as often as they say, and reweight to the new policy."""
    engine, new = TransformersEngine(three_tokens(0), 2, in_flight_cache=cache), three_tokens(1)
    n = 6000
    progress = changing(engine, new.state_dict(), 1, 2)
    found = engine.generate([[0, 1]], n, np.arange(n, dtype=np.uint64), Sampling(3), progress)
    rows = [tuple(text) for text in texts(found)]
    recorded = dict(zip(rows, found.logp.double().sum(1).tolist(), strict=True))
    assert len(recorded) == 15
    mixture = np.exp(np.array(list(recorded.values())))
    assert mixture.sum() == pytest.approx(1, abs=1e-6)
    share = np.array([rows.count(row) / n for row in recorded])
    assert (np.abs(share - mixture) < 4 * np.sqrt(mixture * (1 - mixture) / n)).all()
    scores = TransformersEngine(new, 2).score([[0, 1]] * 15, [list(row) for row in recorded])
    policy = np.exp([score.double().sum().item() for score in scores])
    weight, f = policy / mixture, np.array([len(row) + row[0] for row in recorded])
    assert weight.max() > 1.05  # the new policy is another one
    assert (mixture * weight * f).sum() == pytest.approx((policy * f).sum(), abs=1e-6)
    draws = np.array([weight[list(recorded).index(row)] * f[list(recorded).index(row)] for row in rows])
    assert abs(draws.mean() - (policy * f).sum()) < 4 * draws.std() / np.sqrt(n)


def test_a_change_that_fails_half_way_draws_nothing():
    engine, newer = TransformersEngine(build("qwen2"), EOS), build("qwen2", seed=1).state_dict()
    broken = newer | {list(newer)[-1]: list(newer.values())[-1][:1]}
    with pytest.raises(UsageError, match="has shape"):
        engine.generate(PROMPTS, GROUP, SEEDS, Sampling(WIDTH), changing(engine, broken, 1, CUT))
    with pytest.raises(EngineLost, match="in part"):
        engine.generate(PROMPTS, GROUP, SEEDS, Sampling(WIDTH))
    engine.publish(newer, 2)
    assert engine.generate(PROMPTS, GROUP, SEEDS, Sampling(WIDTH)).version == 2


# Between the trainer and the engine.


def test_the_inbox_holds_the_newest_policy_and_each_is_taken_once():
    newest = NewestPolicy()
    assert newest.take(7, 0, 3) is None
    newest.offer(4, "four")
    newest.offer(5, "five")  # before the engine looks: 4 is never drawn with
    assert newest.take(7, 10, 3) == (5, "five")
    assert newest.take(7, 20, 5) is None


def test_a_repeated_change_waits_for_the_trainer_unless_the_trainer_waits_too():
    newest = NewestPolicy({7: [(0, 0, 3), (1, 8, 4), (0, 12, 5)]})
    for version in (3, 4, 5):
        newest.offer(version, version)
    assert newest.take(7, 0, -1) == (3, 3)
    assert newest.take(7, 11, 3) is None  # 4 is for the other process
    assert newest.take(7, 14, 3) == (5, 5)
    late = NewestPolicy({7: [(0, 0, 1)]})
    timer = threading.Timer(0.3, late.offer, (1, "one"))
    timer.start()
    assert late.take(7, 0, 0) == (1, "one")
    late = NewestPolicy({7: [(0, 0, 2)]})
    late.allow_waiting(False)
    with pytest.raises(UsageError, match="saves and evaluates after the same steps"):
        late.take(7, 0, 1)
    with pytest.raises(UsageError, match="process 0"):
        NewestPolicy({7: [(1, 0, 2)]}).take(7, 0, 1)


def test_changes_are_read_from_a_run(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1, "weight_changes": [[0, 0, 0]]}\n{"step": 2, "weight_changes": [[0, 0, 0], [0, 9, 1]]}\n'
    )
    seeds = [derive(3, "rollout", step) for step in (1, 2)]
    assert read_changes(str(path), 3, 2) == {seeds[0]: [(0, 0, 0)], seeds[1]: [(0, 0, 0), (0, 9, 1)]}
    for text, steps in ((path.read_text(), 3), ('{"step": 1}', 1), ('{"step": 1, "weight_changes": [[0, 0, 1]]}', 1)):
        path.write_text(text)
        with pytest.raises(UsageError, match="of a run with rollout"):
            read_changes(str(path), 3, steps)


def two_groups(versions, responses_version=0, max_age=None, now=3, too_old="drop"):
    """Two groups of two rows, of 3, 1, 2 and 2 tokens."""
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 0]], dtype=torch.bool)
    zeros = torch.zeros(mask.shape)
    rollouts = EngineRollouts(
        torch.arange(2), mask.long(), zeros, mask, torch.full((2, 2), 0.5, dtype=torch.float64), True, 0, 1, 3,
        changes=[(0, 0, 1), (0, 4, 3)],
    )  # fmt: skip
    drawn = Responses(mask.long(), zeros, mask, mask[:, 0], responses_version, versions)
    return with_versions(rollouts, drawn, 1, now, max_age, too_old)


def test_ages_by_hand():
    """Step 4, two updates, trainer at version 3. Row 0 has tokens of versions 1, 2, 3, row 1 of 3, both others of 2.

    Ages are 2, 1, 0 | 0 | 1, 1 | 1, 1, mean 7/8: staleness (1 + 7/8) 2 - 1. At most one step old: row 0 leaves its
    group, row 1 has the group's whole mass, and 4 of the 5 tokens that stay are 1 old.
    """
    versions = torch.tensor([[1, 2, 3], [3, 0, 0], [2, 2, 0], [2, 2, 0]], dtype=torch.int32)
    changes = {"weight_changes": [[0, 0, 1], [0, 4, 3]]}
    assert age_columns(two_groups(versions), 4, 2) == {
        "staleness": 2.75, "oldest_token": 2, "mixed_versions": 1, "too_old": 0, **changes,
    }  # fmt: skip
    bounded = two_groups(versions, max_age=1)
    assert bounded.mass.tolist() == [[0, 1], [0.5, 0.5]]
    assert age_columns(bounded, 4, 2) == {
        "staleness": 2.6, "oldest_token": 1, "mixed_versions": 0, "too_old": 1, **changes,
    }  # fmt: skip
    masked = two_groups(versions, max_age=1, too_old="mask")  # 5 of the 7 tokens with a loss are 1 old
    assert torch.equal(masked.mass, two_groups(versions).mass)
    ages = {"oldest_token": 1, "mixed_versions": 1, "too_old": 1}
    assert age_columns(masked, 4, 2) == ages | changes | {"staleness": pytest.approx(2 * (1 + 5 / 7) - 1)}
    none = two_groups(torch.ones_like(versions), max_age=0)
    assert age_columns(none, 4, 2) == {
        "staleness": None, "oldest_token": None, "mixed_versions": 0, "too_old": 4, **changes,
    }  # fmt: skip
    assert two_groups(None, responses_version=2).versions.unique().tolist() == [2]
    for wrong in (versions - 1, versions + 1):  # older than the request, and not made yet
        with pytest.raises(ComponentDied, match="expected 1 to 3"):
            two_groups(wrong)


MASKED = {"rollout.in_flight": True, "rollout.lag": 1, "rollout.too_old": "mask"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rollout.in_flight": True}, "rollout.lag is 0"),
        ({"rollout.in_flight": True, "rollout.lag": 1, "rollout.old": "recompute"}, "rollout.old is 'recompute'"),
        ({"rollout.in_flight": True, "rollout.lag": 1, "rollout.engine": "vllm-server"}, "'vllm-server' does not take"),
        (
            {"rollout.in_flight": True, "rollout.lag": 1, "rollout.engine": "vllm", "vllm.tensor_parallel": 2},
            "'vllm' does not take",
        ),
        ({"rollout.lag": 1, "rollout.max_age": 1}, "max_age is 1 without"),
        (
            {"rollout.in_flight": True, "rollout.lag": 1, "rollout.too_old": "mask"},
            "pmd-mean has one loss per response",
        ),
        (
            {"objective.name": "grpo", "rollout.in_flight": True, "rollout.lag": 1, "rollout.too_old": "mask"},
            "expected rollout.max_age",
        ),
        ({"rollout.repeat_changes": "m"}, "repeat_changes is 'm' without"),
    ],
)
def test_refused_before_a_model_is_loaded(options, said, tmp_path):
    with pytest.raises(UsageError, match=said):
        train("pmd-mean", "llm", TINY, out=tmp_path / "run", options=options)


# Runs.


QUICK = {"rollout.width": 6, "env.problems": 100, "evaluation.problems": 2, "evaluation.every": 0}


@pytest.mark.slow
def test_a_run_records_who_drew_each_token_and_is_repeated_from_its_own_lines(tmp_path, monkeypatch):
    """Version 1 is there when 20 tokens of step 2 are written. The second run repeats what the first one did freely."""
    monkeypatch.setattr(MathTask, "reward", by_parity)
    options = QUICK | {"rollout.lag": 1, "rollout.in_flight": True, "record": 1, "checkpoint_every": 2}
    options |= {"rollout.record_every": 1}
    first = train("pmd-mean", "llm", TINY, out=tmp_path / "first", steps=4, options=options).path
    options |= {"rollout.repeat_changes": str(first / "metrics.jsonl")}
    again = train("pmd-mean", "llm", TINY, out=tmp_path / "again", steps=4, options=options).path
    (files, rows), (others, other_rows) = left(again), left(first)
    assert rows == other_rows
    other = {key.rpartition("/")[2] for key in files if files[key] != others[key]}
    assert other <= {"README.md", "manifest.json"}  # they hold the recipe
    options |= {"rollout.repeat_changes": CHANGES, "rollout.max_age": 0, "rollout.in_flight_cache": "recompute"}
    given = train("pmd-mean", "llm", TINY, out=tmp_path / "given", steps=4, options=options)
    wanted = [json.loads(line) for line in Path(CHANGES).read_text().splitlines()]
    for step, (row, line) in enumerate(zip(given.metrics, wanted, strict=True), 1):
        changes = row["weight_changes"]
        assert [version for _, _, version in changes] == [version for _, _, version in line["weight_changes"]]
        # one token of each of up to 16 rows is drawn at a time
        assert all(
            0 <= at - asked < 16 for (_, at, _), (_, asked, _) in zip(changes, line["weight_changes"], strict=True)
        )
        recorded = unpack((given.path / "rollouts" / f"step-{step}.safetensors").read_bytes(), "a recording")
        versions, mask = recorded["versions"], recorded.mask
        lines = (given.path / "rollouts" / f"step-{step}.jsonl").read_text().splitlines()
        authors = [sorted(set(row[on].tolist())) for row, on in zip(versions, mask, strict=True)]
        assert [json.loads(line)["weight_versions"] for line in lines] == authors
        order = versions.masked_fill(~mask, 99)
        assert bool((order[:, 1:] >= order[:, :-1]).all())
        drawn = [int((versions[mask] == version).sum()) for _, _, version in changes]
        starts = [at for _, at, _ in changes] + [int(mask.sum())]
        assert drawn == np.diff(starts).tolist()
        old = int((torch.where(mask, versions, step - 1) < step - 1).any(1).sum())
        assert (row["too_old"], row["policy_version"]) == (old, changes[0][2])
    assert given.metrics[1]["too_old"] > 0


@pytest.mark.slow
def test_a_run_masks_the_tokens_beyond_an_age(tmp_path, monkeypatch):
    monkeypatch.setattr(MathTask, "reward", by_parity)
    options = QUICK | MASKED | {"rollout.max_age": 0, "rollout.repeat_changes": CHANGES, "record": 1}
    made = train("grpo", "llm", TINY, out=tmp_path / "run", steps=3, options=options)
    for step, row in enumerate(made.metrics, 1):
        recorded = unpack((made.path / "rollouts" / f"step-{step}.safetensors").read_bytes(), "a recording")
        late = recorded.mask & (recorded["versions"] < step - 1)
        assert torch.equal(recorded["correction"][recorded.mask], (~late)[recorded.mask].double())
        assert (row["too_old"], row["oldest_token"]) == (int(late.any(1).sum()), 0)
        assert bool((recorded["mass"] > 0).all())
    assert made.metrics[1]["too_old"] > 0


class Slow(TransformersEngine):
    """A consumer of weights that is slow: while it loads some, the trainer makes more."""

    def publish(self, given, version):
        time.sleep(0.3)
        super().publish(given, version)


class DiesInAChange(TransformersEngine):
    def publish(self, given, version):
        if version == 1:
            raise EngineLost("gone in a change of weights")
        super().publish(given, version)


def trained(engine, lag, steps=4):
    """The rollouts of a run in flight."""
    supervised, seen = DistributedEngine(engine, end=EOS, in_flight=True), []
    mine = learner_of(
        build("qwen2"), supervised, lambda number: RANK_PROMPTS[number], 6,
        ScheduleTable(lr=1e-2, optimizer="adamw"), UpdateTable(token_budget=40),
        queue=RolloutQueue(supervised, NewestPolicy()), rollout={"lag": lag, "in_flight": True},
    )  # fmt: skip
    watch = lambda step, learner, rollouts, *rest: seen.append((step, rollouts))  # noqa: E731
    try:
        run(OBJECTIVES["pmd-mean"](), mine, Problems(), Schedule(steps, 4, 2, seed=3), [watch], async_rollouts(lag))
    finally:
        mine.queue.close()
    return seen


@pytest.mark.parametrize("lag", [1, 3])
def test_a_slow_engine_stays_within_the_lag(lag):
    for step, rollouts in trained(Slow(build("qwen2"), EOS), lag):
        drawn = rollouts.versions[rollouts.mask]
        assert step - 1 - lag <= int(drawn.min())
        assert int(drawn.max()) <= step - 1


def test_an_engine_that_dies_in_a_change_ends_the_run():
    with pytest.raises(EngineLost, match="gone in a change"):
        trained(DiesInAChange(build("qwen2"), EOS), 1)
