"""The transformer against itself with and without a cache; tests/toy/test_hf.py has it against transformers."""

import math

import pytest
import torch

from pmdkit.toy.model import ModelConfig, Transformer

SMALL = ModelConfig(vocabulary=13, context=40, dimension=48, layers=3, heads=3, inner=40)


def lively(config: ModelConfig, seed: int = 1) -> Transformer:
    """A model whose logits differ by nats and whose norms are not one, so that nothing cancels by chance."""
    model = Transformer(config, seed)
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.head.weight.mul_(15)
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(0.3 * torch.randn(weight.shape, generator=chance))
    return model


def tokens(rows: int, count: int, config: ModelConfig = SMALL) -> torch.Tensor:
    return torch.randint(config.vocabulary, (rows, count), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("chunks", [[1] * 12, [4, 8], [3, 1, 5, 3]])
def test_reading_in_parts_with_a_cache_equals_reading_at_once(chunks):
    model, read = lively(SMALL).double(), tokens(3, 12)
    prompt, *rest = read.split(chunks, dim=1)
    with torch.no_grad():
        whole = model(read)
        last, cache = model.prefill(prompt, max_length=12)
        at = prompt.shape[1]
        torch.testing.assert_close(last, whole[:, at - 1], atol=1e-12, rtol=0)
        for part in rest:
            part_logits = model.head(model.hidden(part, cache))
            torch.testing.assert_close(part_logits, whole[:, at : at + part.shape[1]], atol=1e-12, rtol=0)
            at += part.shape[1]


def test_converting_to_float64_keeps_the_positions():
    """1e-5: float32 against float64. A complex buffer would lose its imaginary part here."""
    model, read = lively(SMALL), tokens(2, 12)
    single = model(read)
    torch.testing.assert_close(model.to(torch.float64)(read).float(), single, atol=1e-5, rtol=0)


def test_first_weights_depend_on_the_seed_alone_and_the_first_policy_is_nearly_uniform():
    torch.manual_seed(1)
    one = Transformer(SMALL, seed=5)
    torch.manual_seed(2)
    two, three = Transformer(SMALL, seed=5), Transformer(SMALL, seed=6)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one.head.weight, three.head.weight)
    policy = one(tokens(20, 10)).softmax(-1)
    entropy = -(policy * policy.log()).sum(-1)
    assert entropy.min() > 0.95 * math.log(SMALL.vocabulary)


def test_bad_sizes_are_sentences():
    with pytest.raises(ValueError, match=r"model\.layers is 0; expected at least 1"):
        ModelConfig(13, layers=0)
    with pytest.raises(ValueError, match="dimension is 48 with 5 heads; expected a multiple of 10"):
        ModelConfig(13, dimension=48, heads=5)
    with pytest.raises(ValueError, match="a row has 41 tokens; the model has a context of 40"):
        Transformer(SMALL)(tokens(1, 41))
    with pytest.raises(ValueError, match="a row has 41 tokens; the model has a context of 40"):
        Transformer(SMALL).prefill(tokens(1, 3), max_length=41)
