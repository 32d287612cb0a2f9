"""The engine of transformers draws from the model's distribution, row by row, and wastes no row's time on another."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.errors import Diverged, UsageError
from pmdkit.llm.engines import transformers
from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.kv_cache import CHUNK
from pmdkit.llm.engines.sampling import CDF_BLOCK, sample_tokens
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.randomness import uniforms

from ..conftest import EOS, VOCABULARY, build

PROMPTS = [[3, 4, 5], [6], list(range(10, 40)), [7, 8]]
SEEDS = np.arange(100, 132, dtype=np.uint64)
STOP = [EOS, 5, 9]


def responses(drawn):
    return [tokens[on].tolist() for tokens, on in zip(drawn.tokens, drawn.mask, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qwen2", "qwen3-moe", "llama"])
def test_greedy_tokens_equal_those_of_transformers(kind):
    drawn = TransformersEngine(build(kind), EOS).generate(PROMPTS, 1, SEEDS[:4], Sampling(24, greedy=True))
    theirs = build(kind)
    for prompt, ours in zip(PROMPTS, responses(drawn), strict=True):
        ids = torch.tensor([prompt])
        written = theirs.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24, pad_token_id=EOS
        )
        assert written[0, len(prompt) :].tolist() == ours


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.integers(1, 5),
    st.integers(1, 12),
    st.integers(0, 400),
    st.integers(1, 64),
)
def test_a_row_is_a_function_of_its_prompt_and_seed(lengths, group, width, extra, read_tokens):
    """Whatever the budget, the order, and how much is read at a time: the same tokens, in float64 exactly."""
    model = build("llama", torch.float64)
    prompts = [[(7 * i + j) % VOCABULARY for j in range(length)] for i, length in enumerate(lengths)]
    seeds = np.arange(len(prompts) * group, dtype=np.uint64)
    whole = TransformersEngine(model, STOP).generate(prompts, group, seeds, Sampling(width))
    order = list(reversed(range(len(prompts))))
    rows = np.concatenate([np.arange(p * group, (p + 1) * group) for p in order])
    engine = TransformersEngine(model, STOP, cache_tokens=max(lengths) + width + extra)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformers, "READ_TOKENS", read_tokens)
        part = engine.generate([prompts[p] for p in order], group, seeds[rows], Sampling(width))
    assert torch.equal(part.tokens, whole.tokens[rows])
    assert torch.equal(part.mask, whole.mask[rows])
    torch.testing.assert_close(part.logp, whole.logp[rows], atol=1e-5, rtol=0)


def test_frequencies_of_whole_responses_match_their_probabilities():
    """Every response of up to 2 tokens over few tokens: counts within 4 standard errors of the exact probability."""
    model, draws = build("llama"), 8000
    with torch.no_grad():
        model.lm_head.weight[4:] = 0  # tokens 0 to 3 stand out
        model.lm_head.weight[:4] *= 3
    engine = TransformersEngine(model, EOS)
    drawn = engine.generate([[3, 4]], draws, np.arange(draws, dtype=np.uint64), Sampling(2))
    space = [[EOS], *(list(pair) for pair in itertools.product((0, 1, 3), range(4)))]
    probability = torch.stack([score.sum() for score in engine.score([[3, 4]] * len(space), space)]).exp().double()
    written = responses(drawn)
    count = torch.tensor([written.count(row) for row in space])
    error = (probability * (1 - probability) / draws).sqrt()
    assert count.sum() > 100
    assert ((count / draws - probability).abs() < 4 * error).all()


def test_every_prompt_is_read_once_and_ended_rows_never(monkeypatch):
    read = []
    plain = transformers.forward_packed
    monkeypatch.setattr(transformers, "forward_packed", lambda *a: read.append(len(a[1])) or plain(*a))
    drawn = TransformersEngine(build("qwen2"), STOP).generate(PROMPTS, 8, SEEDS, Sampling(50))
    assert sum(read) == sum(map(len, PROMPTS)) + int((drawn.mask.sum(1) - 1).sum())


def test_the_cache_stays_within_its_budget(monkeypatch):
    """Also after a prompt that fills it on its own: the slots of short prompts must not have its room."""
    sizes = []
    advance = transformers.RaggedKVCache.advance

    def watched(cache):
        place = advance(cache)
        sizes.append((len(cache.lengths), cache.capacity))
        assert torch.equal(cache.lengths[: cache.n], torch.tensor(cache.host_lengths))
        return place

    monkeypatch.setattr(transformers.RaggedKVCache, "advance", watched)
    engine = TransformersEngine(build("qwen2"), STOP, cache_tokens=230)
    drawn = engine.generate([[3], [9] * 200, [6] * 90], 8, SEEDS[:24], Sampling(10))
    assert {slots for slots, _ in sizes} >= {1, 2, 8}
    assert all(slots * room <= 230 + CHUNK * slots for slots, room in sizes)  # the room of a slot is whole chunks
    assert drawn.mask.any(1).all()


@pytest.mark.parametrize("sampling", [Sampling(20, temperature=0.5), Sampling(20, top_p=0.6), Sampling(20, 2.0, 0.9)])
def test_logp_are_those_of_the_distribution_that_is_sampled(sampling):
    """Against the plain way: logits of a stock forward pass, divided, sorted, cut and normalised again."""
    engine, stock = TransformersEngine(build("qwen2"), STOP), build("qwen2")
    drawn = engine.generate(PROMPTS, 4, SEEDS[:16], sampling)
    for row, response in enumerate(responses(drawn)):
        prompt = PROMPTS[row // 4]
        logits = stock(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1].detach()
        probs = (logits / sampling.temperature).double().softmax(-1)
        for t, token in enumerate(response):
            order = probs[t].argsort(descending=True)
            size = int((probs[t][order].cumsum(0) < sampling.top_p).sum()) + 1
            kept = order[:size] if sampling.top_p < 1 else order
            assert token in kept
            expected = (probs[t][token] / probs[t][kept].sum()).log().item()
            assert abs(expected - drawn.logp[row, t].item()) < 1e-5


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3 * CDF_BLOCK),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 2**32),
)
def test_a_draw_is_the_inverse_of_the_cumulated_probabilities(size, uniform, dtype, seed):
    rng = np.random.default_rng(seed)
    values = np.where(rng.random(size) < rng.random(), -np.inf, rng.normal(0, 5, size))
    logits = torch.tensor(values[None], dtype=dtype)
    logits[0, rng.integers(size)] = 1.0
    for number in (uniform, 0.0, float(np.nextafter(1.0, 0.0))):
        token, logp = sample_tokens(
            logits, torch.tensor([number], dtype=torch.float64), temperature=1.0, top_p=1.0, greedy=False
        )
        exact = logits.double().softmax(-1)[0]
        ladder = exact.cumsum(0)
        assert exact[token] > 0
        assert ladder[token] >= number - 1e-6
        assert ladder[token] - exact[token] <= number + 1e-6
        torch.testing.assert_close(logp, exact[token].log(), atol=1e-5, rtol=0)


def test_logits_that_are_not_numbers_are_reported():
    for bad in (torch.nan, torch.inf):
        logits = torch.zeros(2, 9)
        logits[1, 4] = bad
        with pytest.raises(Diverged, match="not numbers"):
            sample_tokens(logits, torch.zeros(2).double(), temperature=1.0, top_p=1.0, greedy=False)
    with pytest.raises(Diverged):
        sample_tokens(torch.full((1, 9), -torch.inf), torch.zeros(1).double(), temperature=1.0, top_p=1.0, greedy=True)


def test_uniform_numbers_are_uniform_and_independent():
    """Neighbouring seeds and positions, the worst case: chi-square of pairs, and correlations, within 4.5 sigma."""
    rows, width = 4000, 50
    table = uniforms(np.arange(rows, dtype=np.uint64)[:, None], np.arange(width)[None])
    assert table.shape == (rows, width)
    assert table.min() >= 0
    assert table.max() < 1
    for one, other in ((table[:-1], table[1:]), (table[:, :-1], table[:, 1:]), (table[:-1, :-1], table[1:, 1:])):
        count = np.histogram2d(one.ravel(), other.ravel(), bins=16, range=((0, 1), (0, 1)))[0]
        expected = one.size / 256
        chi = ((count - expected) ** 2 / expected).sum()
        assert abs(chi - 255) < 4.5 * np.sqrt(2 * 255)
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4.5 / np.sqrt(one.size)
    assert len(np.unique(table)) == table.size
    assert uniforms(np.array([5], dtype=np.uint64), 3) == table[5, 3]


def test_publish_copies_unless_the_memory_is_the_same():
    model, other = build("qwen2"), build("qwen2", seed=1)
    engine = TransformersEngine(model, EOS)
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    shared = {name: value.clone() for name, value in model.state_dict().items()}
    engine.publish(model.state_dict(), 1)
    assert engine.version == 1
    assert all(torch.equal(value, shared[name]) for name, value in model.state_dict().items())
    engine.publish(other.state_dict(), 2)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items())


def test_publish_refuses_what_does_not_fit_and_changes_nothing():
    model = build("qwen2")
    engine = TransformersEngine(model, EOS)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    moved = {name: value + 1 for name, value in before.items()}
    first, *rest = moved
    for wrong in (
        {name: moved[name] for name in rest},
        {**moved, "model.more": moved[first]},
        {**moved, first: moved[first][:1]},
    ):
        with pytest.raises(UsageError):
            engine.publish(wrong, 4)
    assert engine.version == 0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_model_is_left_as_it_was_even_if_progress_stops_a_rollout():
    model = build("qwen2").train()
    engine = TransformersEngine(model, EOS)

    def stop(tokens, rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate(PROMPTS, 1, SEEDS[:4], Sampling(3), stop)
    engine.generate(PROMPTS, 1, SEEDS[:4], Sampling(3))
    assert model.training
    assert all(p.requires_grad and not p.is_inference() for p in model.parameters())


def test_what_the_model_or_the_cache_has_no_room_for_is_refused():
    engine = TransformersEngine(build("qwen2"), EOS, cache_tokens=120)
    for prompts, width in ((PROMPTS, 240), (PROMPTS, 100), ([[VOCABULARY]] * 4, 3)):
        with pytest.raises(UsageError):
            engine.generate(prompts, 1, SEEDS[:4], Sampling(width))
    with pytest.raises(UsageError):
        TransformersEngine(build("qwen2"), VOCABULARY)
