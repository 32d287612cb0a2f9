"""Sizes of models by arithmetic, against models that are built."""

from dataclasses import asdict

import pytest
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from pmdkit.envs.math import make_math
from pmdkit.llm import dry_run
from pmdkit.llm.starter.model import build as make_starter
from pmdkit.llm.starter.tokenizer import train_tokenizer
from pmdkit.llm.starter.vocabulary import PIECES, SIZES, starter_shape
from pmdkit.resolve import resolve
from pmdkit_lab.planner.model_shapes import SHAPES, ModelShape, shape_of
from pmdkit_lab.planner.model_size import count
from tests.llm.conftest import KINDS, build


@pytest.mark.slow
def test_batch_arithmetic():
    spec, _ = resolve("llm", "starter", {"prompts": 24, "group": 8, "ministeps": 3, "steps": 10, "passes": 2})
    told = dry_run.batch(spec)
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


@pytest.mark.parametrize("name", [*SHAPES, *SIZES])
def test_shipped_shapes_are_counted_as_models_of_transformers(name):
    """Arithmetic on a shape, against the empty model of its configuration."""
    shape = SHAPES.get(name) or ModelShape(**starter_shape(name, 395))
    assert shape.count() == count(shape.config())


@pytest.mark.slow
def test_the_shape_of_a_starter_is_that_of_the_model_which_is_built():
    """And its text is cut as a Qwen2 tokenizer cuts it."""
    spec, _ = resolve("llm", "starter", {})
    tokenizer = train_tokenizer(make_math(spec.env))
    built, shape = make_starter("starter", tokenizer, 0).config, asdict(shape_of(spec))
    assert {key: value for key, value in shape.items() if value} == {k: getattr(built, k) for k in shape if shape[k]}
    assert PIECES == PRETOKENIZE_REGEX


def test_smollm2_has_its_published_size():
    """As transformers counts the weights of the model on the hub."""
    spec, _ = resolve("llm", "smollm2", {})
    assert count(shape_of(spec))[0] == 134_515_008


@pytest.mark.parametrize(
    ("name", "billions", "active", "context"),
    [
        ("Qwen/Qwen2.5-0.5B", 0.49, 0.49, 2**15),
        ("Qwen/Qwen2.5-1.5B", 1.54, 1.54, 2**17),
        ("Qwen/Qwen2.5-7B", 7.61, 7.61, 2**17),
        ("Qwen/Qwen3-30B-A3B-Base", 30.5, 3.3, 2**15),
    ],
)
def test_shipped_shapes_have_the_published_sizes(name, billions, active, context):
    """As the model cards state them, in the digits that they have."""
    found = count(SHAPES[name])
    assert found[0] / 1e9 == pytest.approx(billions, rel=0.01)
    assert found[1] / 1e9 == pytest.approx(active, rel=0.02)
    assert SHAPES[name].max_position_embeddings == context
