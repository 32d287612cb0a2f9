"""The plan of a recipe: its arithmetic by hand, its sizes against models that are built."""

import pytest

from pmdkit.llm.plan import count, plan, shape_of
from pmdkit.planning import plan as resolve

from .conftest import KINDS, build


def test_batch_arithmetic():
    spec, _ = resolve("llm", "starter", {"prompts": 24, "group": 8, "ministeps": 3, "steps": 10, "passes": 2})
    told = plan(spec).batch
    assert told["responses per step"] == 192
    assert told["responses per ministep"] == 64
    assert told["optimizer steps"] == 60
    assert told["staleness of the last ministep, updates"] == 5
    assert told["tokens per step, at most"] == 192 * spec.rollout.width


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_weights_are_counted_without_making_them(kind):
    model = build(kind)
    total, active = count(model.config)
    assert total == sum(weight.numel() for weight in model.parameters())
    if kind == "qwen3-moe":
        experts = sum(w.numel() for n, w in model.named_parameters() if ".experts." in n)
        assert experts > 0
        assert active == total - experts // 2  # two of four experts
    else:
        assert active == total


def test_weights_and_optimizer_are_three_float32_numbers_each():
    spec, _ = resolve("llm", "starter", {})
    weights, _ = count(shape_of(spec))
    assert plan(spec).memory["weights and optimizer"] == pytest.approx(12 * weights / 2**30)
    half, _ = resolve("llm", "starter", {"model.dtype": "bfloat16"})
    cache = spec.rollout.cache_tokens * 2 * 2 * 32 * 4 / 2**30  # 2 layers, keys and values, one head of 32, float32
    rollout = plan(spec).memory["rollout"] - plan(spec).memory["weights and optimizer"]
    assert rollout == pytest.approx(cache)
    assert plan(half).memory["rollout"] < plan(spec).memory["rollout"]
