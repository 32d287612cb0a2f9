"""The fused head has the loss and the gradients of the plain path, asks once, and holds no more than it says."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pmdkit.errors import UsageError
from pmdkit.llm import fused_loss
from pmdkit.llm.forward_root import ForwardRoot
from pmdkit.llm.fused_loss import fused_linear_loss, fused_total
from pmdkit.llm.head import ChunkedHead, head_logp, head_weight
from pmdkit.llm.logprobs import response_logp, to_rows
from pmdkit.llm.packing import use_packing
from pmdkit.objectives import OBJECTIVES, Groups, coefficient, credit, total, traits

from .conftest import EOS, build

PROMPTS = [[3, 4, 5]] * 4 + [[9]] * 4
RESPONSES = [
    *([20, 21, EOS], [30], [40, 41, 42, 43, 44, 45, 46, 47, EOS], [50, 51]),
    *([60], [61], [62, 63, EOS], [7, 8, 9, 10, 11, 12]),
]
LENGTHS = [len(row) for row in RESPONSES]


def batch_of(objective, lengths, groups, seed=0, reference=True):
    """Rows of some groups whose old policy is not the present one, so that coefficients differ."""
    generator = torch.Generator().manual_seed(seed)
    rows, width = len(lengths), max(lengths)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    logp_old = -3 + torch.randn(rows, width, dtype=torch.float64, generator=generator)
    logp_ref = logp_old + 0.1 * torch.randn(rows, width, dtype=torch.float64, generator=generator)
    reward = torch.rand(groups, rows // groups, dtype=torch.float64, generator=generator)
    mass = torch.full_like(reward, groups / rows)
    given_ref = logp_ref if reference and traits(objective).uses_reference else None
    return credit(objective, Groups(reward, mass), torch.where(mask, logp_old, 0.0), mask, given_ref, width)


RESPONSE_LEVEL = sorted(
    name for name, make in OBJECTIVES.items() if coefficient(make(), batch_of(make(), [2, 1], 1)) is not None
)


def make(name, lengths=LENGTHS, groups=2, **changes):
    """An objective at a temperature where its terms are of one size, and its batch."""
    options = {"tau": 0.5} if "tau" in OBJECTIVES[name].__dataclass_fields__ else {}
    objective = OBJECTIVES[name](**options)
    return objective, replace(batch_of(objective, lengths, groups), **changes)


def plain_total(states, weight, targets, lengths, objective, batch):
    """All logits at once, and autograd."""
    logp = (states @ weight.T).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    return total(objective, replace(batch, logp=to_rows(logp, lengths, batch.mask.shape[1])))


def drawn(lengths, width=6, size=37, seed=0, dtype=torch.float64):
    """States, weight and targets of some responses."""
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": dtype, "requires_grad": True}
    states, weight = torch.randn(sum(lengths), width, **options), torch.randn(size, width, **options)
    return states, weight, torch.randint(size, (sum(lengths),), generator=generator)


def test_the_objectives_that_have_one_number_per_response():
    assert RESPONSE_LEVEL == [
        "asymre",
        "chi2-po",
        "dro",
        "gspo",
        "opmd",
        "pmd-between",
        "pmd-mean",
        "pmd-part",
        "qrpo",
        "rebel",
        "rloo",
        "sppo",
        "tb",
        "topr",
    ]


@pytest.mark.parametrize("head_tokens", [4, 64], ids=["longer-than-the-buffer", "fits"])
@pytest.mark.parametrize("kind", ["qwen2", "qwen3-moe", "llama"])
@pytest.mark.parametrize("name", RESPONSE_LEVEL)
def test_loss_and_gradients_are_those_of_the_plain_path(name, kind, head_tokens):
    """Every weight of the model, through the packed transformer with shared prompts."""
    dtype = torch.float32 if kind == "qwen3-moe" else torch.float64  # its experts know no float64
    objective, batch = make(name)
    found = []
    for fuse in (True, False):
        model = build(kind, dtype)
        use_packing(model)
        if fuse:
            loss, logp, seq_logp = fused_total(model, PROMPTS, RESPONSES, objective, batch, head_tokens=head_tokens)
            assert torch.equal(seq_logp, torch.stack([row.double().sum() for row in logp.split(LENGTHS)]))
        else:
            scores = response_logp(model, PROMPTS, RESPONSES)
            loss, logp = total(objective, replace(batch, logp=to_rows(scores.logp, LENGTHS, 9).double())), scores.logp
        loss.backward()
        found.append((loss.detach(), logp.detach(), {n: p.grad for n, p in model.named_parameters()}))
    (loss, logp, ours), (plain_loss, plain_logp, plain) = found
    rounding = 1e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(logp, plain_logp, atol=rounding, rtol=0)
    torch.testing.assert_close(loss, plain_loss, atol=rounding, rtol=rounding)
    rounding = 1e-5 if dtype == torch.float32 else 1e-6  # the norms of transformers compute in float32
    for label, gradient in plain.items():
        if gradient is None:
            assert ours[label] is None
        else:
            size = float(gradient.abs().max())
            torch.testing.assert_close(ours[label], gradient, atol=rounding * size + 1e-9, rtol=0)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("name", RESPONSE_LEVEL)
@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=2), min_size=1, max_size=4),
    st.integers(1, 25),
    st.integers(0, 1000),
)
def test_any_lengths_and_any_buffer_give_the_same_gradient(name, dtype, rounding, lengths, head_tokens, seed):
    flat = [length for pair in lengths for length in pair]
    objective, batch = make(name, flat, len(lengths))
    states, weight, targets = drawn(flat, seed=seed, dtype=dtype)
    loss = fused_linear_loss(states, weight, targets, flat, objective, batch, head_tokens).loss
    plain = plain_total(states, weight, targets, flat, objective, batch)
    torch.testing.assert_close(loss, plain, atol=rounding, rtol=rounding)
    inputs = states, weight
    expected = torch.autograd.grad(plain, inputs)
    for one, other in zip(torch.autograd.grad(loss, inputs), expected, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one, other, atol=rounding * max(1.0, float(other.abs().max())), rtol=0)


@pytest.mark.parametrize("head_tokens", [1, 4, 9, 64])
@pytest.mark.parametrize("name", ["pmd-mean", "rebel"])
def test_coefficients_are_asked_once_per_response(name, head_tokens, monkeypatch):
    asked = []
    monkeypatch.setattr(fused_loss, "coefficient", lambda o, b: asked.extend(b.length.tolist()) or coefficient(o, b))
    objective, batch = make(name)
    fused_linear_loss(*drawn(LENGTHS), LENGTHS, objective, batch, head_tokens)
    assert asked == LENGTHS


class Sizes(TorchDispatchMode):
    """What every operation hands out: numbers per tensor, and matrix products."""

    def __init__(self):
        super().__init__()
        self.largest, self.products = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.products += func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_)
        sizes = [x.untyped_storage().nbytes() // x.element_size() for x in tree_leaves(out) if torch.is_tensor(x)]
        self.largest = max([self.largest, *sizes])
        return out


@pytest.mark.parametrize(
    ("name", "lengths", "products"),
    [
        ("pmd-mean", [4] * 8, 3 * 4),  # two responses to a chunk of 8
        ("pmd-mean", [32, 32], 3 * 8),  # each in four chunks, none computed twice
        ("rebel", [4] * 8, 3 * 4),  # a group of two to a chunk
        ("rebel", [32, 32], 4 * 8),  # a group that does not fit is scored first
    ],
)
def test_logits_are_computed_once(name, lengths, products):
    objective, batch = make(name, lengths, len(lengths) // 2)
    with Sizes() as seen:
        fused_linear_loss(*drawn(lengths), lengths, objective, batch, 8).loss.backward()
    assert seen.products == products


@pytest.mark.slow
@pytest.mark.parametrize("length", [8, 64])
def test_memory_does_not_grow_with_the_number_of_tokens(length):
    """The largest tensor is a chunk of logits or a gradient, never [M, V], in both passes."""
    width, size, chunk = 4, 500, 16
    for rows in (8, 64):
        objective, batch = make("pmd-mean", [length] * rows, 2)
        states, weight, targets = drawn([length] * rows, width, size)
        with Sizes() as seen:
            fused_linear_loss(states, weight, targets, [length] * rows, objective, batch, chunk).loss.backward()
        assert seen.largest == max(chunk * size, length * rows * width)


def test_logits_and_second_buffer_are_given_back_after_the_forward_pass():
    """What waits for the backward pass is a gradient of the states and one of the weight."""
    states, weight, targets = drawn(LENGTHS, 4, 500)
    objective, batch = make("pmd-mean")
    loss = fused_linear_loss(states, weight, targets, LENGTHS, objective, batch, 4).loss
    held = [x.shape for x in loss.grad_fn.gradients]
    assert held == [states.shape, weight.shape]
    assert all(x.untyped_storage().nbytes() == x.numel() * 8 for x in loss.grad_fn.gradients)


def test_the_weight_takes_the_buffer_as_its_gradient():
    """No copy of [V, d] is made on the way to .grad."""
    states, weight, targets = drawn(LENGTHS)
    loss = fused_linear_loss(states, weight, targets, LENGTHS, *make("pmd-mean")).loss
    place = loss.grad_fn.gradients[1].data_ptr()
    loss.backward()
    assert weight.grad.data_ptr() == place


@pytest.mark.parametrize("head_tokens", [4, 64])
def test_a_head_that_is_the_embedding_gets_both_gradients(head_tokens):
    objective, batch = make("pmd-mean")
    found = []
    for fuse in (True, False):
        model = build("llama", torch.float64)
        model.lm_head.weight = model.model.embed_tokens.weight
        use_packing(model)
        if fuse:
            loss = fused_total(model, PROMPTS, RESPONSES, objective, batch, head_tokens=head_tokens).loss
        else:
            logp = response_logp(model, PROMPTS, RESPONSES).logp
            loss = total(objective, replace(batch, logp=to_rows(logp, LENGTHS, 9)))
        loss.backward()
        found.append(head_weight(model).grad)
    torch.testing.assert_close(*found, atol=1e-6 * float(found[1].abs().max()), rtol=0)


@pytest.mark.parametrize("head_tokens", [100, 4000])
def test_log_probabilities_are_summed_in_float64(head_tokens):
    """The loss is that of the token log-probabilities to the last digits, which a sum in float32 is not."""
    lengths = [700, 900]
    objective, batch = make("pmd-mean", lengths, 1)
    loss, logp, _ = fused_linear_loss(*drawn(lengths, dtype=torch.float32), lengths, objective, batch, head_tokens)
    exact = total(objective, replace(batch, logp=to_rows(logp.double(), lengths, 900)))
    assert logp.dtype == torch.float32
    torch.testing.assert_close(loss, exact, atol=0, rtol=1e-12)


def test_what_comes_after_the_loss_scales_the_gradient():
    states, weight, targets = drawn(LENGTHS)
    objective, batch = make("pmd-mean")
    whole = torch.autograd.grad(
        fused_linear_loss(states, weight, targets, LENGTHS, objective, batch).loss, (states, weight)
    )
    loss = -3 * fused_linear_loss(states, weight, targets, LENGTHS, objective, batch).loss
    scaled = torch.autograd.grad(loss, (states, weight), retain_graph=True)
    torch.testing.assert_close(scaled, tuple(-3 * x for x in whole), atol=1e-12, rtol=1e-12)
    with pytest.raises(UsageError, match="second backward"):
        torch.autograd.grad(loss, (states, weight))


@pytest.mark.parametrize("head_tokens", [4, 64])
@pytest.mark.parametrize("name", RESPONSE_LEVEL)
def test_rows_without_weight_and_corrections(name, head_tokens):
    """A row of weight 0, a row that is absent although it has tokens, and importance weights of an engine."""
    objective, batch = make(name)
    batch = replace(
        batch,
        weight=torch.where(torch.arange(8) == 2, 0.0, batch.weight),
        mask=batch.mask & (torch.arange(8) != 7)[:, None],
        correction=torch.linspace(0.2, 2.0, 8, dtype=torch.float64),
    )
    states, weight, targets = drawn(LENGTHS)
    loss = fused_linear_loss(states, weight, targets, LENGTHS, objective, batch, head_tokens).loss
    plain = plain_total(states, weight, targets, LENGTHS, objective, batch)
    inputs = states, weight
    ours = torch.autograd.grad(loss, inputs)
    torch.testing.assert_close(loss, plain, atol=1e-12, rtol=0)
    torch.testing.assert_close(ours, torch.autograd.grad(plain, inputs), atol=1e-10, rtol=0)
    assert not ours[0][-LENGTHS[-1] :].any()


def test_responses_with_coefficient_0_cost_one_product():
    """RLOO over groups of equal rewards: there is nothing to follow."""
    objective = OBJECTIVES["rloo"]()
    batch = replace(make("rloo")[1], advantage=torch.zeros(8, dtype=torch.float64))
    states, weight, targets = drawn(LENGTHS)
    with Sizes() as seen:
        fused_linear_loss(states, weight, targets, LENGTHS, objective, batch, 64).loss.backward()
    assert seen.products == 1
    assert not states.grad.any()
    assert not weight.grad.any()


def test_half_precision_scores_1024_tokens_to_five_thousandths_of_a_nat():
    """Against float64 from the same bfloat16 states and weights; logits rounded to bfloat16 are off by far more."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(1024, 64, generator=generator).bfloat16().requires_grad_()
    weight = torch.randn(500, 64, generator=generator).div(3).bfloat16().requires_grad_()
    targets = torch.randint(500, (1024,), generator=generator)
    exact = torch.log_softmax(states.double() @ weight.double().T, -1).gather(1, targets[:, None]).sum().detach()
    objective, batch = make("pmd-mean", [1024, 1024], 1)
    twice = torch.cat((states, states)), weight, torch.cat((targets, targets))
    for precise in (
        fused_linear_loss(*twice, [1024] * 2, objective, batch, 100).logp[:1024],
        head_logp(states, weight, targets),
    ):
        assert abs(float(precise.detach().double().sum() - exact)) < 0.005
    loss = fused_linear_loss(*twice, [1024] * 2, objective, batch, 100).loss
    rounded = (states @ weight.T).float().log_softmax(-1).gather(1, targets[:, None])
    assert abs(float(rounded.detach().double().sum() - exact)) > 0.01
    loss.backward()
    assert weight.grad.dtype == states.grad.dtype == torch.bfloat16


def test_a_model_in_bfloat16_gets_the_gradient_of_its_weights_in_float32():
    """The tied and the separate head alike; close to the gradient in float32, to the rounding of bfloat16."""
    objective, batch = make("pmd-mean")
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        model = build("llama")
        model.lm_head.weight = model.model.embed_tokens.weight
        use_packing(model)
        root = ForwardRoot(model, dtype)
        root(lambda model: fused_total(model, PROMPTS, RESPONSES, objective, batch, head_tokens=4)).loss.backward()
        found.append(head_weight(model).grad)
    assert found[0].dtype == torch.float32
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 0.05


def test_the_products_for_accelerators_give_the_plain_gradient(monkeypatch):
    """Their kernels exist on accelerators only, so plain products stand in for them here."""

    def product(a, b, out_dtype=None, out=None):
        return out.copy_(a.to(out.dtype) @ b.to(out.dtype))

    def add(into, a, b, out_dtype, out):
        return out.add_(a.to(out_dtype) @ b.to(out_dtype))

    states, weight, targets = (x.detach() for x in drawn([8], dtype=torch.float32))
    states, weight = states.bfloat16(), weight.bfloat16()
    numbers = torch.linspace(-1, 1, 8)
    wide = states.float().requires_grad_(), weight.float().requires_grad_()
    plain = (wide[0] @ wide[1].T).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    expected = torch.autograd.grad((numbers * plain).sum(), wide)
    monkeypatch.setattr(torch, "mm", product)
    monkeypatch.setattr(torch, "addmm", add)
    head = ChunkedHead(states, weight, targets, 8)
    torch.testing.assert_close(head.forward(slice(0, 8)), plain.detach(), atol=1e-5, rtol=0)
    head.backward(slice(0, 8), numbers, head.grad_weight)
    assert head.grad_weight.dtype == torch.float32
    torch.testing.assert_close(head.grad_states.float(), expected[0], atol=0.02, rtol=0.01)
    torch.testing.assert_close(head.grad_weight, expected[1], atol=0.02, rtol=0.01)


def test_what_does_not_fit_is_refused():
    states, weight, targets = drawn(LENGTHS)
    objective, batch = make("pmd-mean")
    with pytest.raises(UsageError, match="expected the same numbers"):
        fused_linear_loss(states, weight, targets, LENGTHS[::-1], objective, batch)
    with pytest.raises(UsageError, match="per token"):
        fused_linear_loss(states, weight, targets, LENGTHS, OBJECTIVES["grpo"](), batch)
    apart = replace(batch, group=torch.arange(8) % 2)
    with pytest.raises(UsageError, match="not next to each other"):
        fused_linear_loss(states, weight, targets, LENGTHS, OBJECTIVES["rebel"](), apart)
