"""Packed attention is the model's own, whatever stands beside a sequence; what it cannot do is refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Gemma2Config, Gemma2ForCausalLM

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.head import head_weight
from pmdkit.llm.packed_attention import ATTENTION, PackedLayout
from pmdkit.llm.packing import check_packing, forward_packed, use_packing

from .conftest import KINDS, SIZES, VOCABULARY, build


@pytest.mark.parametrize("kind", KINDS)
def test_packed_logp_equal_those_of_the_stock_forward_pass(kind):
    check_packing(build(kind))
    if kind != "qwen3-moe":  # torch has no grouped products of experts in float64
        check_packing(build(kind, torch.float64), tolerance=1e-6)
    check_packing(build(kind, torch.bfloat16))


def test_gradients_equal_those_of_the_stock_forward_pass():
    """Where layers are computed again in the backward pass: the layout gets there too."""
    lengths, gradients = (5, 1, 12), []
    ids = torch.arange(18) * 31 % VOCABULARY
    for packed in (True, False):
        model = build("qwen2").train()
        if packed:
            use_packing(model)
            model.activation_checkpointing_enable()
            layout = PackedLayout(lengths)
            states = forward_packed(model, ids, layout.positions(), layout)
        else:
            states = torch.cat([model.model(row[None]).last_hidden_state[0] for row in ids.split(lengths)])
        (states @ head_weight(model).T).log_softmax(-1)[:, 7].sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for ours, stock in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, stock, atol=1e-5 * float(stock.abs().max()), rtol=0)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_sequence_does_not_depend_on_its_neighbours(lengths, random):
    model = build("qwen2")
    use_packing(model)
    rows = [torch.tensor([random.randrange(VOCABULARY) for _ in range(length)]) for length in lengths]
    layout = PackedLayout(tuple(lengths))
    with torch.inference_mode():
        together = forward_packed(model, torch.cat(rows), layout.positions(), layout).split(lengths)
        for row, states in zip(rows, together, strict=True):
            alone = forward_packed(model, row, torch.arange(len(row)), PackedLayout((len(row),)))
            torch.testing.assert_close(states, alone, atol=1e-5, rtol=1e-5)


def test_a_shared_beginning_gives_the_states_of_whole_sequences():
    model = build("llama", torch.float64)
    use_packing(model)
    head_ids, tails = torch.arange(9), [torch.arange(3) + 20, torch.arange(1) + 40, torch.arange(6) + 50]
    layout = PackedLayout((9, 3, 1, 6), (-1, 0, 0, 0))
    states = forward_packed(model, torch.cat((head_ids, *tails)), layout.positions(), layout).split(layout.lengths)
    for tail, ours in zip(tails, states[1:], strict=True):
        whole = torch.cat((head_ids, tail))
        alone = forward_packed(model, whole, torch.arange(len(whole)), PackedLayout((len(whole),)))
        torch.testing.assert_close(torch.cat((states[0], ours)), alone, atol=1e-6, rtol=0)  # norms are in float32


def test_capped_logits_are_refused():
    sizes = {**SIZES, "pad_token_id": 0, "head_dim": 8}
    capped = Gemma2ForCausalLM(Gemma2Config(**sizes, attn_logit_softcapping=5.0))
    with pytest.raises(UsageError, match="softcap"):
        check_packing(capped.eval())
    torch.manual_seed(0)
    only_final = Gemma2ForCausalLM(Gemma2Config(**sizes, attn_logit_softcapping=None, final_logit_softcapping=1e-3))
    with pytest.raises(EnvironmentLacks, match="differ from its own forward pass"):
        check_packing(only_final.eval())


def test_packed_and_stock_calls_are_not_mixed_up():
    """A model's own attention would see packed sequences as one, or pay for all pairs of their tokens."""
    qwen2, layout = build("qwen2"), PackedLayout((2, 3))
    with pytest.raises(ValueError, match="expected 'pmdkit'"):
        forward_packed(qwen2, torch.arange(5), layout.positions(), layout)
    use_packing(qwen2)
    assert qwen2.config._attn_implementation == ATTENTION
    with pytest.raises(UsageError, match="needs a layout"):
        qwen2(torch.arange(3)[None])
