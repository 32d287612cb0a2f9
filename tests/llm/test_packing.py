"""Packed attention is the model's own, whatever stands beside a sequence; what it cannot do is refused."""

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.micro_batches import token_budget_batches
from pmdkit.llm.packed_attention import ATTENTION, PackedLayout
from pmdkit.llm.packing import check_packing, forward_packed, use_packing

from .conftest import KINDS, SIZES, build


@pytest.mark.parametrize("kind", KINDS)
def test_packed_logp_equal_those_of_the_stock_forward_pass(kind):
    check_packing(build(kind))
    if kind != "qwen3-moe":  # torch has no grouped products of experts in float64
        check_packing(build(kind, torch.float64), tolerance=1e-6)
    check_packing(build(kind, torch.bfloat16))


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


def test_a_prompt_that_rows_share_is_counted_once():
    """Two prompts of 6 tokens, three responses of 2 each: a group costs 6 + 3 * 2 = 12, both together 24."""
    prompts, responses = [[1] * 6] * 6, [[2, 2]] * 6

    def batches(budget, whole_groups=False):
        return list(token_budget_batches(prompts, responses, 3, budget, whole_groups))

    assert batches(24) == [[0, 1, 2, 3, 4, 5]]
    assert batches(23) == [[0, 1, 2, 3, 4], [5]]
    assert batches(12) == [[0, 1, 2], [3, 4, 5]]
    assert batches(11) == [[0, 1], [2], [3, 4], [5]]  # the prompt is fed again in each batch
    assert batches(23, whole_groups=True) == [[0, 1, 2], [3, 4, 5]]
