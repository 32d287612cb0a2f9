"""vLLM in this process, for real, on a CPU: the contract, the trainer's numbers, and ways to get weights wrong."""

import random

import numpy as np
import pytest
import torch

from pmdkit.errors import Diverged, UsageError
from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.vllm.colocate import ColocatedEngine
from pmdkit.llm.head import head_weight, logits
from pmdkit.llm.logprobs import hidden_at_targets, response_logp
from pmdkit.llm.weights import GatheredWeights
from pmdkit.randomness import generator
from pmdkit.testing import check_engine

from .conftest import Starter, make_starter

pytestmark = pytest.mark.vllm
PROMPTS = [[3, 4, 5], [6], [7, 8, 9, 10, 11, 3, 4], [5, 5]]


def seeds(rows: int, seed: int = 0) -> np.ndarray:
    return generator(seed, "test").integers(0, 2**63, rows).astype(np.uint64)


def difference(engine: ColocatedEngine, starter: Starter, width: int = 24, temperature: float = 1.0) -> torch.Tensor:
    """[tokens] |engine - trainer|, nats, on responses that the engine writes."""
    drawn = engine.generate(PROMPTS, 8, seeds(32), Sampling(width, temperature))
    each = [prompt for prompt in PROMPTS for _ in range(8)]
    rows = [tokens[on].tolist() for tokens, on in zip(drawn.tokens.cpu(), drawn.mask.cpu(), strict=True)]
    with torch.no_grad():
        trainer = response_logp(starter.model, each, rows, temperature=temperature)
    return (drawn.logp.cpu()[drawn.mask.cpu()] - trainer).abs()


@pytest.fixture(scope="module")
def engine(starter):
    """One engine for many tests; it takes nothing from the process but memory."""
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    threads, setter = torch.get_num_threads(), torch.set_num_threads
    made = ColocatedEngine(starter.wanted())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before[1:]
    with pytest.raises(UsageError):  # no weights yet
        made.generate(PROMPTS, 2, seeds(8), Sampling(4))
    yield made
    made.close()
    made.close()
    assert (torch.get_num_threads(), torch.set_num_threads) == (threads, setter)
    assert not torch.distributed.is_initialized()


@pytest.fixture
def fresh(engine, starter):
    """It, with the starter's weights, which are put together when they are accessed, as those of FSDP2 are."""
    engine.publish(GatheredWeights(starter.weights()), engine.version + 1)
    return engine


def test_the_engine_keeps_the_contract_to_the_bit(fresh, starter):
    check_engine(fresh, starter.weights(), starter.ends, exact=True, tolerance=1e-5)


def test_the_trainer_agrees_whatever_the_weights(fresh, starter):
    """float32: rounding of sums over 96 to 448 terms. A weight that is left out, such as a tied head, moves nats."""
    assert float(difference(fresh, starter).max()) < 2e-5
    assert float(difference(fresh, starter, temperature=0.7).max()) < 2e-5
    other = make_starter(seed=1)
    fresh.publish(other.weights(), fresh.version + 1)
    assert float(difference(fresh, other).max()) < 2e-5
    assert float(difference(fresh, starter).max()) > 0.1


def test_log_probabilities_are_those_of_the_distribution_that_is_sampled(fresh, starter):
    """Temperature 0.7 and top-p 0.9, against the definition on the trainer's logits."""
    drawn = fresh.generate(PROMPTS, 8, seeds(32), Sampling(16, temperature=0.7, top_p=0.9))
    for row, (tokens, on) in enumerate(zip(drawn.tokens, drawn.mask, strict=True)):
        with torch.no_grad():
            states, _ = hidden_at_targets(starter.model, [PROMPTS[row // 8]], [tokens[on].tolist()])
            policy = (logits(states, head_weight(starter.model)).double() / 0.7).softmax(-1)
        mass, order = policy.sort(-1, descending=True)
        nucleus = policy * torch.zeros_like(policy).scatter(1, order, (mass.cumsum(-1) - mass < 0.9).double())
        expected = (nucleus / nucleus.sum(-1, keepdim=True)).log().gather(1, tokens[on][:, None])[:, 0]
        off = (drawn.logp[row][on].double() - expected).abs()
        # a token on the edge of the nucleus may be in it or not by rounding, which moves the mass by its share
        assert float(off.max()) < 0.02
        assert float(off.median()) < 1e-4


def test_scores_do_not_read_what_was_cached(fresh, starter):
    """A long prompt, whole blocks of which are cached by the first request."""
    prompt = list(range(3, 150))
    fresh.generate([prompt], 2, seeds(2), Sampling(4))
    with torch.no_grad():
        expected = response_logp(starter.model, [prompt, prompt], [[9, 9, 9], [9, 8]]).split([3, 2])
    for mine, theirs in zip(fresh.score([prompt, prompt], [[9, 9, 9], [9, 8]]), expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=0)


def test_progress_may_stop_a_rollout_and_the_engine_goes_on(fresh):
    def stop(tokens, ended):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fresh.generate(PROMPTS, 8, seeds(32), Sampling(64), stop)
    assert not fresh.llm.llm_engine.has_unfinished_requests()
    one, other = (fresh.generate(PROMPTS, 2, seeds(8), Sampling(8)) for _ in range(2))
    assert torch.equal(one.logp, other.logp)


def test_a_publish_that_keeps_the_cache_is_found_by_the_contract(fresh, starter, monkeypatch):
    """Keys and values of older weights: prompts of more than one block of 128 tokens are cached."""
    long = [generator(1, "prompts").integers(3, 400, 200).tolist() for _ in range(2)]
    monkeypatch.setattr(fresh.llm, "reset_prefix_cache", lambda: True)
    with pytest.raises(AssertionError):
        check_engine(fresh, starter.weights(), starter.ends, prompts=long, tolerance=1e-5)


def test_wrong_weights_are_refused_and_never_used(fresh, starter):
    name = "model.layers.1.self_attn.q_proj.weight"
    weights = starter.weights()
    with pytest.raises(UsageError):
        fresh.publish({key: value for key, value in weights.items() if key != name}, fresh.version + 1)
    assert float(difference(fresh, starter).max()) < 2e-5  # nothing was touched
    with pytest.raises(Diverged):
        fresh.publish(weights | {name: weights[name].index_fill(0, torch.tensor([3]), torch.nan)}, fresh.version + 1)
    with pytest.raises(UsageError):
        fresh.generate(PROMPTS, 2, seeds(8), Sampling(4))


def test_rows_that_do_not_fit_are_refused(fresh):
    with pytest.raises(UsageError):
        fresh.generate([[3] * 200], 1, seeds(1), Sampling(100))
    assert fresh.generate([[3] * 200], 1, seeds(1), Sampling(56)).tokens.shape[1] <= 56
    assert len(fresh.score([[3] * 200], [[4] * 56])[0]) == 56


@pytest.mark.parametrize("cache", ["keep", "recompute"])
def test_weights_in_flight(starter, cache):
    """After 64 tokens of 32 rows: the older weights' tokens, then the newer ones', scored by these where read again.

    With keys and values kept they are of a mixture: of the older policy before the change, and of neither after it.
    """
    made = ColocatedEngine(starter.wanted(rollout={"in_flight": True, "in_flight_cache": cache}, sleep=False))
    try:
        newer, written = make_starter(seed=1), []
        made.publish(starter.weights(), 1)
        plain = made.generate(PROMPTS, 8, seeds(32), Sampling(24))
        assert plain.versions.unique().tolist() == [0, 1]  # 0 off the mask

        def change(tokens, ended):
            written.append(tokens)
            if tokens >= 64 and made.version == 1:
                made.publish(newer.weights(), 2)

        found = made.generate(PROMPTS, 8, seeds(32), Sampling(24), change)
        assert written == sorted(written)
        assert written[-1] == int(found.mask.sum())
        assert set(found.versions[found.mask].tolist()) == {1, 2}
        old = (found.versions == 1) & found.mask
        assert (old.sum(1) >= found.mask.sum(1).clamp_max(2)).all()  # all rows begin together: two tokens each
        assert torch.equal(found.tokens[old], plain.tokens[: len(old), : old.shape[1]][old])
        each = [prompt for prompt in PROMPTS for _ in range(8)]
        rows = [tokens[on].tolist() for tokens, on in zip(found.tokens, found.mask, strict=True)]
        with torch.no_grad():
            scores = torch.stack([response_logp(model.model, each, rows) for model in (starter, newer)])
        off = (scores - found.logp[found.mask]).abs()
        before = old[found.mask]
        assert float(off[0, before].max()) < 2e-5
        assert (float(off[1, ~before].max()) < 2e-5) == (cache == "recompute")
        assert float(off[:, ~before].amin(0).max()) > 0.1 or cache == "recompute"
        made.generate(PROMPTS, 2, seeds(8), Sampling(8))  # goes on under the newer weights alone
        assert made.version == 2
        assert float(difference(made, newer).max()) < 2e-5
    finally:
        made.close()
