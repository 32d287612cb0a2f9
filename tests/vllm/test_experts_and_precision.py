"""Experts, bfloat16 and what vLLM refuses, each with an engine of its own: a process holds one at a time."""

from contextlib import closing

import pytest
import torch

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.vllm.colocate import ColocatedEngine
from pmdkit.testing import check_engine

from .conftest import Starter, make_starter
from .test_colocate import difference

pytestmark = pytest.mark.vllm


def test_experts_arrive_in_float32():
    """On a CPU vLLM pads and packs experts; a publish that does not pack again gives numbers that are off by nats."""
    one, other = make_starter("starter-moe"), make_starter("starter-moe", seed=1)
    with closing(ColocatedEngine(one.wanted())) as engine:
        engine.publish(one.weights(), 1)
        check_engine(engine, one.weights(), one.ends, tolerance=1e-5)
        engine.publish(other.weights(), engine.version + 1)
        assert float(difference(engine, other).max()) < 2e-5


@pytest.mark.nightly
def test_bfloat16_differs_from_a_float32_trainer_by_rounding(starter):
    """8 bits of mantissa, two layers, logits of some nats: hundredths of a nat in the mean."""
    with closing(ColocatedEngine(starter.wanted(dtype="bfloat16"))) as engine:
        engine.publish(starter.weights(), 1)
        found = difference(engine, starter)
        assert 1e-3 < float(found.mean()) < 0.05
        assert float(found.max()) < 0.5


def test_what_vllm_does_not_know_is_a_sentence(starter):
    from transformers import CTRLConfig, CTRLLMHeadModel

    with torch.random.fork_rng():
        model = CTRLLMHeadModel(CTRLConfig(vocab_size=448, n_embd=64, dff=64, n_layer=1, n_head=2, n_positions=64))
    with pytest.raises(UsageError):
        ColocatedEngine(Starter(model, starter.tokenizer, starter.ends).wanted(context=32))
    with pytest.raises(EnvironmentLacks):
        ColocatedEngine(starter.wanted(options={"attention_backend": "no_such"}))
