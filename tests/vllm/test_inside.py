"""vLLM in this process, for real, on a CPU: the contract, the trainer's numbers, and every way to get weights wrong."""

import numpy as np
import pytest
import torch

from pmdkit.errors import Diverged, EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import EngineLost, Sampling
from pmdkit.llm.engines.vllm.colocate import ColocatedEngine, make
from pmdkit.llm.head import head_weight, logits
from pmdkit.llm.logprobs import hidden_at_targets, response_logp
from pmdkit.randomness import generator
from pmdkit.testing import check_engine

from .conftest import Starter, make_starter

pytestmark = pytest.mark.vllm
PROMPTS = [[3, 4, 5], [6], [7, 8, 9, 10, 11, 3, 4], [5, 5]]


def seeds(rows: int, seed: int = 0) -> np.ndarray:
    return generator(seed, "test").integers(0, 2**63, rows).astype(np.uint64)


def difference(engine: ColocatedEngine, starter: Starter, width: int = 24) -> torch.Tensor:
    """[tokens] engine minus trainer, nats, on responses that the engine writes."""
    drawn = engine.generate(PROMPTS, 8, seeds(32), Sampling(width))
    each = [prompt for prompt in PROMPTS for _ in range(8)]
    rows = [tokens[on].tolist() for tokens, on in zip(drawn.tokens, drawn.mask, strict=True)]
    with torch.no_grad():
        trainer = torch.cat(response_logp(starter.model, each, rows).rows())
    return drawn.logp[drawn.mask] - trainer


@pytest.fixture(scope="module", params=["file", "ipc"])
def engine(starter, request):
    """One engine for many tests: each begins by publishing."""
    made = make(starter.wanted(transfer=request.param))
    yield made
    made.close()


@pytest.fixture
def fresh(engine, starter):
    """It, with the starter's weights, also after a test that broke it."""
    if engine.sleep_state.state == "broken":
        engine.restart()
    engine.publish(starter.weights(), engine.version + 1)
    return engine


def test_nothing_is_written_before_weights_were_published(engine):
    assert engine.sleep_state.state == "empty"
    with pytest.raises(UsageError, match="no weights yet; publish"):
        engine.generate(PROMPTS, 2, seeds(8), Sampling(4))
    with pytest.raises(UsageError, match="no weights yet; publish"):
        engine.score([[3]], [[4]])


def test_the_engine_keeps_the_contract_to_the_bit(fresh, starter):
    check_engine(fresh, starter.weights(), starter.ends, exact=True, tolerance=1e-5)


def test_the_trainer_agrees(fresh, starter):
    """float32: rounding of 32-bit sums over 96 to 448 terms, logits of some nats."""
    assert float(difference(fresh, starter).abs().max()) < 2e-5


def test_other_weights_have_other_numbers_and_the_trainers(fresh):
    """Every weight is another one: one that is left out, as a tied head might be, moves the numbers by nats."""
    other = make_starter(seed=1)
    fresh.publish(other.weights(), fresh.version + 1)
    assert float(difference(fresh, other).abs().max()) < 2e-5


def test_a_row_has_the_same_bits_whatever_is_beside_it(fresh):
    rng = generator(0, "prompts")
    prompts = [rng.integers(3, 400, rng.integers(5, 40)).tolist() for _ in range(64)]
    all_seeds = seeds(64 * 8)
    whole = fresh.generate(prompts, 8, all_seeds, Sampling(24))
    for p in (63, 3, 40):
        rows = slice(p * 8, p * 8 + 8)
        alone = fresh.generate([prompts[p]], 8, all_seeds[rows], Sampling(24))
        width = alone.tokens.shape[1]
        assert torch.equal(alone.tokens, whole.tokens[rows, :width])
        assert torch.equal(alone.logp, whole.logp[rows, :width])


def test_processed_log_probabilities_are_those_of_the_distribution_that_is_sampled(fresh, starter):
    """Temperature 0.7 and top-p 0.9, against the definition on the trainer's logits."""
    drawn = fresh.generate(PROMPTS, 8, seeds(32), Sampling(16, temperature=0.7, top_p=0.9))
    outside = 0
    for row, (tokens, on) in enumerate(zip(drawn.tokens, drawn.mask, strict=True)):
        prompt, response = PROMPTS[row // 8], tokens[on].tolist()
        with torch.no_grad():
            states, _ = hidden_at_targets(starter.model, [prompt], [response])
            policy = (logits(states, head_weight(starter.model)).double() / 0.7).softmax(-1)
        mass, order = policy.sort(-1, descending=True)
        kept = torch.zeros_like(policy).scatter(1, order, (mass.cumsum(-1) - mass < 0.9).double())
        nucleus = policy * kept
        expected = (nucleus / nucleus.sum(-1, keepdim=True)).log().gather(1, tokens[on][:, None])[:, 0]
        found = drawn.logp[row][on].double()
        outside += int((~torch.isfinite(expected)).sum())
        inside = torch.isfinite(expected)
        # a token on the edge of the nucleus may be in it or not by rounding, which moves the mass by its share
        assert float((found - expected)[inside].abs().max()) < 0.02
        assert float((found - expected)[inside].abs().median()) < 1e-4
    assert outside == 0
    plain = fresh.score(*zip(*[(PROMPTS[0], drawn.tokens[0][drawn.mask[0]].tolist())], strict=True))[0]
    assert float((plain - drawn.logp[0][drawn.mask[0]]).abs().max()) > 0.1, "score is at temperature 1"


def test_score_does_not_read_what_generate_cached(fresh, starter):
    """A long prompt, whole blocks of which are cached by the first request."""
    prompt = list(range(3, 150))
    fresh.generate([prompt], 2, seeds(2), Sampling(4))
    found = fresh.score([prompt, prompt], [[9, 9, 9], [9, 8]])
    with torch.no_grad():
        expected = response_logp(starter.model, [prompt, prompt], [[9, 9, 9], [9, 8]]).rows()
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=0)


class Asked(Exception):
    """Raised by a test's progress."""


def test_progress_may_stop_a_rollout_and_the_engine_goes_on(fresh):
    def stop(tokens, ended):
        raise Asked(tokens)

    with pytest.raises(Asked):
        fresh.generate(PROMPTS, 8, seeds(32), Sampling(64), stop)
    assert not fresh.llm.llm_engine.has_unfinished_requests()
    one = fresh.generate(PROMPTS, 2, seeds(8), Sampling(8))
    other = fresh.generate(PROMPTS, 2, seeds(8), Sampling(8))
    assert torch.equal(one.logp, other.logp)


def test_a_sabotaged_publish_that_keeps_the_cache_is_found(fresh, starter, monkeypatch):
    """Keys and values of older weights: prompts of more than one block of 128 tokens are cached."""
    rng = generator(1, "prompts")
    long = [rng.integers(3, 400, 200).tolist() for _ in range(2)]
    check_engine(fresh, starter.weights(), starter.ends, prompts=long, tolerance=1e-5)
    monkeypatch.setattr(fresh.llm, "reset_prefix_cache", lambda: True)
    with pytest.raises(AssertionError, match=r"differ by|older weights|old weights"):
        check_engine(fresh, starter.weights(), starter.ends, prompts=long, tolerance=1e-5)


def bent(weights: dict[str, torch.Tensor], how: str) -> dict[str, torch.Tensor]:
    """Weights with one thing wrong."""
    name = "model.layers.1.self_attn.q_proj.weight"
    if how == "missing":
        return {key: value for key, value in weights.items() if key != name}
    if how == "unknown":
        return weights | {"model.layers.7.mlp.up_proj.weight": weights["model.layers.1.mlp.up_proj.weight"]}
    value = weights[name]
    bad = torch.cat((value, value)) if how == "larger" else value.index_fill(0, torch.tensor([3]), torch.nan)
    return weights | {name: bad}


@pytest.mark.parametrize(
    ("how", "error", "match"),
    [
        ("missing", UsageError, "lack .*q_proj"),
        ("unknown", UsageError, "unknown .*layers.7"),
        ("larger", UsageError, r"q_proj.weight has shape \[192, 96\]; expected \[96, 96\]"),
        ("nan", Diverged, "not finite"),
    ],
)
def test_wrong_weights_are_refused_and_never_used(fresh, starter, how, error, match):
    before = fresh.version
    one = fresh.generate(PROMPTS, 2, seeds(8), Sampling(8))
    with pytest.raises(error, match=match):
        fresh.publish(bent(starter.weights(), how), before + 1)
    assert fresh.version == before
    if fresh.backend == "file" or how in ("missing", "unknown"):  # nothing has been touched
        again = fresh.generate(PROMPTS, 2, seeds(8), Sampling(8))
        assert again.version == before
        assert torch.equal(one.logp, again.logp)
    else:
        with pytest.raises(EngineLost, match="restart"):
            fresh.generate(PROMPTS, 2, seeds(8), Sampling(8))


def test_a_version_does_not_go_back(fresh, starter):
    with pytest.raises(UsageError, match="must not go back"):
        fresh.publish(starter.weights(), fresh.version - 1)


def test_rows_of_other_weights_are_refused(fresh):
    fresh.llm.update_weight_version("someone else's")
    with pytest.raises(EngineLost, match="expected version"):
        fresh.generate(PROMPTS, 2, seeds(8), Sampling(4))


@pytest.mark.parametrize("what", [float("nan"), 0.5, None])
def test_a_log_probability_that_is_none_is_refused_with_its_row_and_token(fresh, monkeypatch, what):
    step = fresh.llm.llm_engine.step

    def spoilt():
        outputs = step()
        for output in outputs:
            if output.request_id.endswith("-5"):
                output.outputs[0].logprobs.logprobs[1] = what
        return outputs

    monkeypatch.setattr(fresh.llm.llm_engine, "step", spoilt)
    with pytest.raises(EngineLost, match=r"row 5 with log-probability .* for token 1"):
        fresh.generate(PROMPTS, 2, seeds(8), Sampling(4))


def test_a_failure_inside_vllm_loses_the_engine_until_restart(fresh, starter, monkeypatch):
    def fail():
        raise RuntimeError("a kernel failed")

    monkeypatch.setattr(fresh.llm.llm_engine, "step", fail)
    with pytest.raises(EngineLost, match="a kernel failed"):
        fresh.generate(PROMPTS, 2, seeds(8), Sampling(4))
    with pytest.raises(EngineLost, match="restart"):
        fresh.publish(starter.weights(), fresh.version + 1)
    version = fresh.version
    fresh.restart()
    with pytest.raises(UsageError, match="no weights yet"):
        fresh.generate(PROMPTS, 2, seeds(8), Sampling(4))
    fresh.publish(starter.weights(), version)
    assert float(difference(fresh, starter).abs().max()) < 2e-5


def test_rows_that_do_not_fit_are_refused(fresh):
    with pytest.raises(UsageError, match="need 300 tokens"):
        fresh.generate([[3] * 200], 1, seeds(1), Sampling(100))
    drawn = fresh.generate([[3] * 200], 1, seeds(1), Sampling(56))
    assert drawn.tokens.shape[1] <= 56
    assert len(fresh.score([[3] * 200], [[4] * 56])[0]) == 56


def test_a_model_that_vllm_cannot_serve_is_named():
    from transformers import CTRLConfig, CTRLLMHeadModel

    with torch.random.fork_rng():
        model = CTRLLMHeadModel(CTRLConfig(vocab_size=448, n_embd=64, dff=64, n_layer=1, n_head=2, n_positions=64))
    starter = make_starter()
    with pytest.raises(UsageError, match="cannot serve a CTRLLMHeadModel"):
        make(Starter(model, starter.tokenizer, starter.ends).wanted(context=32))


def test_an_option_that_vllm_does_not_know_is_a_sentence(starter):
    with pytest.raises(EnvironmentLacks, match=r"does not start .*no_such_option"):
        make(starter.wanted(options={"no_such_option": 1}))
