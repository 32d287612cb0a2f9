"""Scores are the stock model's log-probabilities and have its gradients, however the rows are laid out and chunked."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.llm.head import head_logp
from pmdkit.llm.logprobs import response_logp
from pmdkit.llm.packing import use_packing

from .conftest import EOS, build

PROMPTS = [[3, 4, 5], [3, 4, 5], [3, 4, 5], [9], [7, 8, 9, 10, 11, 12], [7, 8, 9, 10, 11, 12]]
RESPONSES = [[20, 21, EOS], [30], [40, 41, 42, 43, 44, EOS], [50, 51], [60], [61]]


def padded(model, prompts, responses):
    """The plainest way: a stock forward pass of padded rows with all their logits, [sum of T_n]."""
    rows = [[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    seen = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    log_policy = model(ids, attention_mask=seen).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[:, :, 0]
    bounds = zip(log_policy, prompts, responses, strict=True)
    return torch.cat([row[len(p) - 1 : len(p) + len(r) - 1] for row, p, r in bounds])


@pytest.mark.parametrize("share", [True, False], ids=["shared", "whole"])
@pytest.mark.parametrize("kind", ["qwen2", "qwen3-moe", "llama"])
def test_values_and_gradients_equal_those_of_padded_stock_forward(kind, share):
    weight = torch.randn(sum(map(len, RESPONSES)), generator=torch.Generator().manual_seed(0))
    values, gradients = [], []
    for packed in (True, False):
        model = build(kind)
        if packed:
            use_packing(model)
            logp = response_logp(model, PROMPTS, RESPONSES, head_tokens=4, share=share)
        else:
            logp = padded(model, PROMPTS, RESPONSES)
        (weight * logp).sum().backward()
        values.append(logp.detach())
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*values, atol=1e-5, rtol=0)
    assert gradients[0].keys() == gradients[1].keys()
    for name, stock in gradients[1].items():
        torch.testing.assert_close(gradients[0][name], stock, atol=1e-5 * float(stock.abs().max()) + 1e-9, rtol=0)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 30), st.integers(1, 40), st.sampled_from([1.0, 0.5, 0.7, 1.3]))
def test_chunks_of_the_head_change_nothing(rows, chunk, temperature):
    generator = torch.Generator().manual_seed(rows)
    make = {"generator": generator, "dtype": torch.float64, "requires_grad": True}
    states, weight = torch.randn(rows, 8, **make), torch.randn(50, 8, **make)
    targets = torch.randint(50, (rows,), generator=generator)
    plain = (states @ weight.T / temperature).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    chunked = head_logp(states, weight, targets, chunk, temperature)
    torch.testing.assert_close(chunked, plain, atol=1e-12, rtol=0)
    for ours, expected in zip(
        torch.autograd.grad((chunked**2).sum(), (states, weight)),
        torch.autograd.grad((plain**2).sum(), (states, weight)),
        strict=True,
    ):
        torch.testing.assert_close(ours, expected, atol=1e-12, rtol=1e-12)


def test_all_logits_are_never_held():
    """The largest tensor kept for the backward pass is smaller than a few chunks of logits."""
    states = torch.randn(512, 16, requires_grad=True)
    weight = torch.randn(4096, 16, requires_grad=True)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        head_logp(states, weight, torch.zeros(512, dtype=torch.long), 32)
    assert sum(size for size in kept if size != weight.numel()) < 512 * 16 * 4
