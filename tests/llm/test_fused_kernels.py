"""The kernels for GPUs, on a CPU: their functions without compilation, in models and in the head, and compiled."""

import random
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from pmdkit.llm import fused_kernels, head
from pmdkit.llm.fused_kernels import (
    compiled,
    fused_class,
    is_copy,
    logit_gradient,
    logit_statistics,
    rotary,
    rows_of_tokens,
    sum_of_rows,
    swiglu,
    weighted_swiglu,
)
from pmdkit.llm.logprobs import response_logp
from pmdkit.llm.model import prepare_model

from .conftest import build

LONG = [[*range(3, 60)], [5, 9, 11], [*range(20, 50)]]


@pytest.fixture
def eager(monkeypatch):
    """Kernels are used on a CPU, and not compiled."""
    monkeypatch.setattr(fused_kernels, "fuses", lambda x: True)
    monkeypatch.setattr(fused_kernels, "compiled", lambda function: function)


class Kernels(TorchDispatchMode):
    """Counts the kernels that run."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name()
        self.calls[name.removeprefix("pmdkit::")] += name.startswith("pmdkit::")
        return function(*args, **(kwargs or {}))


def draws(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def test_swiglu_and_rotary_with_their_gradients(eager):
    gate, up = draws(5, 3), draws(5, 3, seed=1)
    torch.testing.assert_close(swiglu(gate, up), F.silu(gate) * up, atol=1e-14, rtol=0)
    assert torch.autograd.gradcheck(swiglu, (gate, up))
    x, angles = draws(1, 2, 5, 4), draws(1, 5, 2).detach().repeat(1, 1, 2)
    cos, sin = angles.cos(), angles.sin()
    torch.testing.assert_close(rotary(x, cos[:, None], sin[:, None]), apply_rotary_pos_emb(x, x, cos, sin)[0])
    assert torch.autograd.gradcheck(lambda x: rotary(x, cos[:, None], sin[:, None]), (x,))


def routed(tokens=5, chosen=3, seed=0):
    """Of each token's rows, sorted as if by expert: the order [S], the token [S] and the places [T, k]."""
    order = torch.randperm(tokens * chosen, generator=torch.Generator().manual_seed(seed))
    return order, order // chosen, order.argsort().view(tokens, chosen)


def test_the_rows_of_experts_with_their_gradients(eager):
    order, tokens, places = routed()
    products, weights, x, rows = draws(15, 8), draws(15, seed=1), draws(5, 4, seed=2), draws(15, 4, seed=3)
    gate, up = products.chunk(2, -1)
    weighted = weighted_swiglu(products, weights, order)
    torch.testing.assert_close(weighted, F.silu(gate) * up * weights[order][:, None], atol=1e-14, rtol=0)
    assert torch.autograd.gradcheck(lambda *given: weighted_swiglu(*given, order), (products, weights))
    assert torch.equal(rows_of_tokens(x, tokens, places), x[tokens])
    summed = torch.zeros(5, 4, dtype=torch.float64).index_add(0, tokens, rows)
    torch.testing.assert_close(sum_of_rows(rows, tokens, places), summed, atol=1e-14, rtol=0)
    for kernel, given in ((rows_of_tokens, x), (sum_of_rows, rows)):
        assert torch.autograd.gradcheck(lambda one, kernel=kernel: kernel(one, tokens, places), (given,))


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "qwen3-moe", "llama", "mistral"])
def test_a_model_with_kernels_has_the_gradients_of_one_without(kind, eager, monkeypatch):
    """Every layer uses them, and again when recomputed. In float64; the products of a mixture are float32."""
    dtype, tolerance = (torch.float32, 1e-4) if kind == "qwen3-moe" else (torch.float64, 1e-10)
    with_kernels, without = (prepare_model(build(kind, dtype), checkpointing=on) for on in (True, False))
    prompts = [LONG[0]] * 3
    with Kernels() as ran:
        response_logp(with_kernels, prompts, LONG).sum().backward()
    layers = with_kernels.config.num_hidden_layers
    gated = {"swiglu": 2 * layers, "swiglu_gradient": layers}
    if kind == "qwen3-moe":
        gated = {f"weighted_{name}": count for name, count in gated.items()}
        gated |= {"rows_of_tokens": 3 * layers, "sum_of_rows": 3 * layers}
    assert +ran.calls == {"rotary": 6 * layers, **gated}
    monkeypatch.setattr(fused_kernels, "fuses", lambda x: False)
    response_logp(without, prompts, LONG).sum().backward()
    for (name, one), other in zip(with_kernels.named_parameters(), without.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=tolerance, rtol=tolerance, msg=name)


def test_only_llama_s_formula_is_replaced():
    from transformers.models.cohere.modeling_cohere import rotate_half as interleaved
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
    from transformers.models.llama import modeling_llama as llama

    assert not is_copy(interleaved, llama.rotate_half)
    assert fused_class(Gemma3RMSNorm) is Gemma3RMSNorm
    assert fused_class(torch.nn.Linear) is torch.nn.Linear


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_head_in_two_passes(temperature, eager, monkeypatch):
    """bfloat16 states on a CPU, whose products with a float32 result only GPUs have; against float64."""
    mm, addmm = torch.mm, torch.addmm
    monkeypatch.setattr(torch, "mm", lambda a, b, out, **_: out.copy_(mm(a.to(out.dtype), b.to(out.dtype))))
    monkeypatch.setattr(torch, "addmm", lambda c, a, b, out, **_: out.copy_(addmm(c, a.to(c.dtype), b.to(c.dtype))))
    states, weight, c = draws(30, 16), draws(211, 16, seed=1), draws(30, seed=2).detach()
    targets = torch.randint(211, (30,), generator=torch.Generator().manual_seed(3))
    narrow = [x.detach().bfloat16() for x in (states, weight)]
    states, weight = (x.double().requires_grad_() for x in narrow)
    logp = (states @ weight.T / temperature).log_softmax(1).gather(1, targets[:, None])[:, 0]
    (c * logp).sum().backward()
    ours = head.ChunkedHead(*narrow, targets, 8, temperature)
    found = []
    for rows in head.chunks(slice(0, 30), 8):
        found.append(ours.forward(rows))
        ours.backward(rows, c[rows], ours.grad_weight)
    torch.testing.assert_close(torch.cat(found).double(), logp.detach(), atol=2e-5, rtol=0)
    for gradient, exact in ((ours.grad_states, states.grad), (ours.grad_weight, weight.grad)):
        assert (gradient.double() - exact).abs().max() < 2**-7 * exact.abs().max()  # dz is rounded, as it was


def test_where_nothing_compiles_the_function_runs_and_a_warning_says_why(monkeypatch):
    def fails(*given):
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(torch, "compile", lambda function, dynamic: fails)
    double = compiled(lambda x: 2 * x)
    with pytest.warns(UserWarning, match="no C compiler"):
        assert double(3) == 6
    assert double(4) == 8  # said once


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")  # of the compiler's own imports
def test_compiled_kernels_take_every_size():
    """By inductor, float64: rows and vocabularies of any size and any temperature, few graphs, and the same numbers."""
    chance = random.Random(0)
    for _ in range(40):
        rows, vocabulary, temperature = chance.randint(1, 70), chance.randint(2, 90), chance.choice([1.0, 0.3, 0.8])
        z, scale = draws(rows, vocabulary).detach(), draws(rows, seed=1).detach()
        targets = torch.randint(vocabulary, (rows,))
        largest, sums, logp = logit_statistics(z, targets, temperature)
        exact = (z.requires_grad_() / temperature).log_softmax(1).gather(1, targets[:, None])[:, 0]
        torch.testing.assert_close(logp, exact.detach(), atol=1e-12, rtol=0)
        (wanted,) = torch.autograd.grad((-temperature * scale * sums * exact).sum(), z)
        found = logit_gradient(z, targets, largest, sums, scale, temperature, torch.float64)
        torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12)
        gate, up = draws(rows, vocabulary), draws(rows, vocabulary, seed=1)
        torch.testing.assert_close(swiglu(gate, up), F.silu(gate) * up, atol=1e-14, rtol=1e-12)
    from torch._dynamo.utils import counters

    assert 3 <= counters["stats"]["unique_graphs"] <= 12
