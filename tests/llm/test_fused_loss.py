"""The fused head has the loss and the gradients of the plain path, asks once, and holds no more than it says."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from pmdkit.llm.fused_loss import fused_linear_loss, fused_total
from pmdkit.llm.head import head_logp, head_weight
from pmdkit.llm.logprobs import response_logp, to_rows
from pmdkit.llm.packing import use_packing
from pmdkit.objectives import OBJECTIVES, Groups, coefficient, credit, total, traits

from .conftest import EOS, Largest, build

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


def plain_total(states, weight, targets, lengths, objective, batch, temperature=1.0):
    """All logits at once, and autograd."""
    logp = (states @ weight.T / temperature).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    return total(objective, replace(batch, logp=to_rows(logp, lengths, batch.mask.shape[1])))


def drawn(lengths, width=6, size=37, seed=0, dtype=torch.float64):
    """States, weight and targets of some responses."""
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": dtype, "requires_grad": True}
    states, weight = torch.randn(sum(lengths), width, **options), torch.randn(size, width, **options)
    return states, weight, torch.randint(size, (sum(lengths),), generator=generator)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("name", RESPONSE_LEVEL)
@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=2), min_size=1, max_size=4),
    st.integers(1, 25),
    st.integers(0, 1000),
    st.sampled_from([1.0, 0.7, 1.3]),
)
@pytest.mark.slow
def test_any_lengths_buffer_and_temperature_give_the_same_gradient(
    name, dtype, rounding, lengths, head_tokens, seed, temperature
):
    flat = [length for pair in lengths for length in pair]
    objective, batch = make(name, flat, len(lengths))
    states, weight, targets = drawn(flat, seed=seed, dtype=dtype)
    loss = fused_linear_loss(states, weight, targets, flat, objective, batch, head_tokens, temperature).loss
    plain = plain_total(states, weight, targets, flat, objective, batch, temperature)
    torch.testing.assert_close(loss, plain, atol=rounding, rtol=rounding)
    inputs = states, weight
    expected = torch.autograd.grad(plain, inputs)
    for one, other in zip(torch.autograd.grad(loss, inputs), expected, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one, other, atol=rounding * max(1.0, float(other.abs().max())), rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("length", [8, 64])
def test_memory_does_not_grow_with_the_number_of_tokens(length):
    """The largest tensor is a chunk of logits or a gradient, never [M, V], in both passes."""
    width, size, chunk = 4, 500, 16
    for rows in (8, 64):
        objective, batch = make("pmd-mean", [length] * rows, 2)
        states, weight, targets = drawn([length] * rows, width, size)
        with Largest() as seen:
            fused_linear_loss(states, weight, targets, [length] * rows, objective, batch, chunk).loss.backward()
        assert seen.numbers == max(chunk * size, length * rows * width)


@pytest.mark.parametrize("name", RESPONSE_LEVEL)
def test_a_chunk_of_many_short_responses_takes_as_many_operators_as_a_chunk_of_few(name):
    """On an accelerator each operator is a launch, and 128 answers fit one chunk."""

    class Counted(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.calls += 1
            return func(*args, **(kwargs or {}))

    calls = []
    for lengths in ([16] * 4, [4] * 16):
        objective, batch = make(name, lengths)
        with Counted() as counted:
            fused_linear_loss(*drawn(lengths), lengths, objective, batch, head_tokens=64)
        calls.append(counted.calls)
    assert calls[0] == calls[1]


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
            logp = response_logp(model, PROMPTS, RESPONSES)
            loss = total(objective, replace(batch, logp=to_rows(logp, LENGTHS, 9)))
        loss.backward()
        found.append(head_weight(model).grad)
    torch.testing.assert_close(*found, atol=1e-6 * float(found[1].abs().max()), rtol=0)


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
        fused_linear_loss(*twice, [1024] * 2, objective, batch, 100).seq_logp[:1],
        head_logp(states, weight, targets),
    ):
        assert abs(float(precise.detach().double().sum() - exact)) < 0.005
    loss = fused_linear_loss(*twice, [1024] * 2, objective, batch, 100).loss
    rounded = (states @ weight.T).float().log_softmax(-1).gather(1, targets[:, None])
    assert abs(float(rounded.detach().double().sum() - exact)) > 0.01
    loss.backward()
    assert weight.grad.dtype == states.grad.dtype == torch.bfloat16
