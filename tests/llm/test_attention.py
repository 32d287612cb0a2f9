"""Attention of packed sequences against one dense softmax in float64: windows, sinks, shared prompts, every kernel."""

import pytest
import torch
from torch import Tensor

from pmdkit.llm import packed_attention
from pmdkit.llm.engines.kv_cache import RaggedKVCache
from pmdkit.llm.packed_attention import Attention, GatheredRows, PackedLayout

from .conftest import Largest

LENGTHS, AFTER = (9, 14, 1, 7, 12, 5), (-1, 0, 0, 0, -1, -1)
EXACT = {"atol": 1e-12, "rtol": 0}
CASES = [
    # window, sinks
    pytest.param(None, False, id="full"),
    pytest.param(4, False, id="window"),
    pytest.param(None, True, id="sinks"),
    pytest.param(11, True, id="window and sinks"),
]


def drawn(lengths=LENGTHS, heads=4, heads_of_keys=2, d=8, d_value=8, dtype=torch.float64, sinks=False, seed=0):
    """Queries, keys, values and sinks, with gradient."""
    chance = torch.Generator().manual_seed(seed)
    sizes = [
        (1, heads, sum(lengths), d),
        (1, heads_of_keys, sum(lengths), d),
        (1, heads_of_keys, sum(lengths), d_value),
    ]
    found = [torch.randn(size, generator=chance, dtype=torch.float64).to(dtype) for size in sizes]
    found += [torch.randn(heads, generator=chance, dtype=torch.float64).to(dtype)] if sinks else []
    return [x.requires_grad_() for x in found]


def dense(layout, q, k, v, how) -> Tensor:
    """The definition: all scores of all pairs, a mask by sequence and place, one softmax with the sink among them."""
    places, heads = layout.positions(), q.shape[1]
    own = torch.arange(len(layout.lengths)).repeat_interleave(torch.tensor(layout.lengths))
    seen = torch.zeros(len(own), len(own), dtype=torch.bool)
    for i in range(len(own)):
        for j in range(len(own)):
            same = own[i] == own[j] and j <= i
            prompt = bool(layout.after) and layout.after[own[i]] == own[j]
            seen[i, j] = (same or prompt) and (how.window is None or places[i] - places[j] < how.window)
    k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
    scores = (q @ k.mT * (how.scaling or q.shape[3] ** -0.5)).masked_fill(~seen, -torch.inf)
    if how.sinks is not None:
        scores = torch.cat((scores, how.sinks[None, :, None, None].expand(*scores.shape[:3], 1)), -1)
    return (scores.softmax(-1)[..., : k.shape[2]] @ v).transpose(1, 2)


def gradients(function, tensors, seed=1):
    """What a function gives, and the gradient of a weighted sum of it by each tensor."""
    out = function()
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return [out.detach(), *torch.autograd.grad((out * weights.to(out.dtype)).sum(), tensors)]


@pytest.mark.parametrize("rows", [3, 512])
@pytest.mark.parametrize("most", [0, 2**20], ids=["recomputed", "masked"])
@pytest.mark.parametrize(("window", "sinks"), CASES)
@pytest.mark.parametrize("d_value", [8, 4])
@pytest.mark.slow
def test_values_and_gradients_are_those_of_one_dense_softmax(window, sinks, most, rows, d_value, monkeypatch):
    """Prompts with responses to them, sequences of their own, groups of heads; masked, cut or recomputed."""
    monkeypatch.setattr(packed_attention, "MASK", most)
    monkeypatch.setattr(packed_attention, "ROWS", rows)
    tensors = drawn(sinks=sinks, d_value=d_value)
    layout, how = PackedLayout(LENGTHS, AFTER), Attention(0.3, window, tensors[3] if sinks else None)
    ours = gradients(lambda: layout.attend(0, *tensors[:3], how), tensors)
    exact = gradients(lambda: dense(layout, *tensors[:3], how), tensors)
    for one, other in zip(ours, exact, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("how", [Attention(), Attention(window=64)])
def test_nothing_grows_with_the_square_of_a_long_response(how):
    lengths = (64, 4096, 4096)
    layout, tensors = PackedLayout(lengths, (-1, 0, 0)), drawn(lengths, 2, 1, 8, dtype=torch.float32)
    with Largest() as seen:
        layout.attend(0, *tensors, how).sum().backward()
    assert seen.numbers <= 4 * sum(lengths) * 2 * 8


@pytest.mark.parametrize(("window", "sinks"), CASES)
def test_a_decoded_token_sees_what_it_sees_in_a_whole_sequence(window, sinks):
    """Rows of several lengths in one cache, a token at a time, against each sequence at once."""
    lengths = (5, 12, 9)
    tensors = [x.detach() for x in drawn((*lengths,), sinks=sinks, d_value=4)]
    how = Attention(None, window, tensors[3] if sinks else None)
    whole = PackedLayout(lengths).attend(0, *tensors[:3], how).split(lengths, 1)
    rows = [[x.split(lengths, 2)[row] for x in tensors[:3]] for row in range(3)]
    cache = RaggedKVCache(torch.device("cpu"))
    kept = {0: tuple(torch.cat([rows[row][which][:, :, :2] for row in range(3)], 2) for which in (1, 2))}
    cache.add(kept, [2, 2, 2], [1, 1, 1])
    for at in range(2, 5):
        cache.advance()
        q, k, v = (torch.cat([rows[row][which][:, :, at : at + 1] for row in range(3)], 2) for which in range(3))
        out = cache.attend(0, q, k, v, how)
        assert out.shape == (1, 3, 4, 4)
        for row in range(3):
            torch.testing.assert_close(out[0, row], whole[row][0, at], **EXACT)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kernel", "window", "sinks"),
    [
        (kernel, *case.values)
        for kernel in ("varlen", "sdpa")
        for case in CASES
        if kernel == "sdpa" or not case.values[1]
    ],
)  # flash attention, behind varlen, knows no sinks
def test_every_kernel_gives_the_dense_softmax_on_a_gpu(kernel, window, sinks, monkeypatch):
    """bfloat16, values and gradients, to a few roundings."""
    lengths, after = (200, 300, 64, 190, 33), (-1, 0, 0, 0, -1)
    tensors = [
        x.detach().cuda().requires_grad_() for x in drawn(lengths, d=64, d_value=64, dtype=torch.bfloat16, sinks=sinks)
    ]
    wide = [x.detach().double().cpu().requires_grad_() for x in tensors]
    window = None if window is None else 16 * window
    layout = PackedLayout(lengths, after)
    monkeypatch.setattr(packed_attention, "choose_kernel", lambda *args: kernel)
    how, exactly = (Attention(None, window, some[3] if sinks else None) for some in (tensors, wide))
    out = layout.attend(0, *tensors[:3], how)
    exact = dense(layout, *wide[:3], exactly)
    weights = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ours = [out, *torch.autograd.grad((out * weights.to(out)).sum(), tensors)]
    theirs = [exact, *torch.autograd.grad((exact * weights).sum(), wide)]
    for one, other in zip(ours, theirs, strict=True):
        one, other = one.detach().double().cpu(), other.detach()
        assert float((one - other).norm() / other.norm()) < 0.02


def test_the_rows_and_ends_of_the_kernel_are_those_of_the_layout():
    """What a GPU is told: keys gathered so that every sequence has what it goes on from right before it."""
    layout = PackedLayout((3, 2, 1, 2), (-1, 0, 0, -1))
    assert layout.rows(torch.device("cpu")).tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 5, 6, 7]
    ends_q, ends_k = layout.ends(torch.device("cpu"))
    assert ends_q.tolist() == [0, 3, 5, 6, 8]
    assert ends_k.tolist() == [0, 3, 8, 12, 14]
    assert layout.positions().tolist() == [0, 1, 2, 3, 4, 3, 0, 1]


def test_the_gradient_of_gathered_rows_is_that_of_an_index():
    """Two prompts, one of them continued three times: its rows are wanted four times, all others once."""
    layout = PackedLayout((2, 1, 5, 3, 4), (-1, -1, 0, 0, 0))
    x = torch.randn(15, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    rows = layout.rows(torch.device("cpu"))
    weight = torch.arange(len(rows), dtype=torch.float64)[:, None, None]
    ours, theirs = GatheredRows.apply(x, layout, rows), x[rows]
    assert torch.equal(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad((y * weight).sum(), x)[0] for y in (ours, theirs)))
