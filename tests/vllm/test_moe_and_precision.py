"""Experts and bfloat16 in real vLLM: weights arrive, the difference to the trainer is what rounding explains."""

import numpy as np
import pytest
import torch

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import Responses, Sampling
from pmdkit.llm.engines.vllm.colocate import ColocatedEngine, make
from pmdkit.llm.engines.vllm.outputs import engine_routes, routing_mismatch, trainer_routes
from pmdkit.llm.logprobs import response_logp
from pmdkit.randomness import generator
from pmdkit.testing import check_engine

from .conftest import Starter, make_starter

pytestmark = pytest.mark.vllm
PROMPTS = [generator(p, "prompt").integers(3, 400, 5 + 4 * p).tolist() for p in range(8)]
SEEDS = generator(0, "test").integers(0, 2**63, 32).astype(np.uint64)


def moe(starter: Starter, dtype: str) -> ColocatedEngine:
    return make(starter.wanted(dtype=dtype))


def rows_of(drawn: Responses) -> tuple[list[list[int]], list[list[int]]]:
    rows = [tokens[on].tolist() for tokens, on in zip(drawn.tokens, drawn.mask, strict=True)]
    return [prompt for prompt in PROMPTS for _ in range(len(rows) // len(PROMPTS))], rows


def difference(engine: ColocatedEngine, starter: Starter) -> torch.Tensor:
    drawn = engine.generate(PROMPTS, 4, SEEDS, Sampling(24))
    each, rows = rows_of(drawn)
    with torch.no_grad():
        trainer = torch.cat(response_logp(starter.model, each, rows).rows())
    return (drawn.logp[drawn.mask] - trainer).abs()


def test_experts_arrive_in_float32_and_are_routed_alike(starter_moe):
    """On a CPU vLLM pads and packs experts; a publish that does not pack again gives numbers that are off by nats."""
    engine = moe(starter_moe, "float32")
    try:
        engine.publish(starter_moe.weights(), 1)
        check_engine(engine, starter_moe.weights(), starter_moe.ends, tolerance=1e-5)
        assert float(difference(engine, starter_moe).max()) < 2e-5
        each, rows = rows_of(engine.generate(PROMPTS, 1, SEEDS[:8], Sampling(24)))
        assert routing_mismatch(engine, starter_moe.model, each, rows) < 0.001
        assert trainer_routes(starter_moe.model, [3, 4, 5, 6]).shape == (3, 2, 2)
        assert torch.equal(engine_routes(engine, [3, 4, 5, 6])[:3].sort().values,
                           trainer_routes(starter_moe.model, [3, 4, 5, 6]).sort().values)  # fmt: skip
        other = make_starter("starter-moe", seed=1)
        assert routing_mismatch(engine, other.model, each, rows) > 0.5, "other routers choose others"
        engine.publish(other.weights(), engine.version + 1)
        assert float(difference(engine, other).max()) < 2e-5
        assert routing_mismatch(engine, other.model, each, rows) < 0.001
    finally:
        engine.close()


def test_experts_in_bfloat16_are_routed_differently_at_near_ties(starter_moe):
    engine = moe(starter_moe, "bfloat16")
    try:
        engine.publish(starter_moe.weights(), 1)
        each, rows = rows_of(engine.generate(PROMPTS, 1, SEEDS[:8], Sampling(24)))
        assert 0 <= routing_mismatch(engine, starter_moe.model, each, rows) < 0.05
        assert float(difference(engine, starter_moe).mean()) < 0.05
    finally:
        engine.close()


def test_bfloat16_differs_from_a_float32_trainer_by_rounding(starter):
    """8 bits of mantissa, two layers, logits of some nats: hundredths of a nat in the mean."""
    engine = make(starter.wanted(dtype="bfloat16"))
    try:
        engine.publish(starter.weights(), 1)
        found = difference(engine, starter)
        assert 1e-3 < float(found.mean()) < 0.05
        assert float(found.max()) < 0.5
        check_engine(engine, starter.weights(), starter.ends, tolerance=0.05)
    finally:
        engine.close()


def test_a_dense_model_has_no_routers(starter):
    with pytest.raises(UsageError, match="no routers"):
        trainer_routes(starter.model, [3, 4, 5])


def test_a_vllm_that_cannot_return_routes_says_so(starter_moe):
    """Its model runner 2 needs Triton, which knows no CPU."""
    with pytest.raises(EnvironmentLacks, match="requires Model Runner V2"):
        make(starter_moe.wanted(options={"enable_return_routed_experts": True}))
