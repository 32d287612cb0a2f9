"""Weights in flight: who drew each token, with which keys and values, and what that is worth; tiny models in float64.

A change of weights is made by `progress`, which an engine calls between two tokens.
"""

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM

from pmdkit.errors import UsageError
from pmdkit.llm.engines.base import EngineLost, Responses, Sampling
from pmdkit.llm.engines.transformers import TransformersEngine

from .conftest import EOS, SIZES, build

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
    """All 15 responses of three tokens: they sum to 1, are drawn as often as they say, and reweight to the new policy."""
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
