"""Draws have the model's probabilities, their scores are its log-probabilities, and nothing is computed twice."""

import itertools

import pytest
import torch

from pmdkit.errors import Diverged
from pmdkit.toy import sampling
from pmdkit.toy.model import ModelConfig, Transformer
from pmdkit.toy.sampling import generate, inverse_cdf, score, uniforms

EOS = 4
CONFIG = ModelConfig(vocabulary=5, context=24, dimension=32, layers=2, heads=2, inner=48)
PROMPTS = torch.tensor([[0, 1, 2], [3, 3, 0], [2, 1, 0], [1, 1, 1]])


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def model(request) -> Transformer:
    return uneven().to(request.param)


def uneven(scale: float = 10) -> Transformer:
    """Logits that differ by about a nat per token."""
    model = Transformer(CONFIG, seed=2)
    with torch.no_grad():
        model.head.weight.mul_(scale)
    return model


def tolerance(model: Transformer) -> float:
    """Of a log-probability after two blocks."""
    return 1e-12 if model.head.weight.dtype == torch.float64 else 1e-5


def by_forward(model: Transformer, prompts, responses, mask) -> torch.Tensor:
    """Teacher forcing in the plainest way: every row with its own copy of the prompt, padding and all."""
    rows = torch.cat((prompts.repeat_interleave(len(responses) // len(prompts), 0), responses), 1)
    log_policy = model(rows[:, :-1])[:, prompts.shape[1] - 1 :].log_softmax(-1)
    return torch.where(mask, log_policy.gather(2, responses[:, :, None])[:, :, 0], 0.0)


@pytest.mark.parametrize("width", [1, 2, 9])
def test_logp_of_draws_equals_teacher_forcing(model, width):
    responses, logp, mask = generate(model, PROMPTS, 8, width, EOS, seed=3)
    expected = by_forward(model, PROMPTS, responses, mask)
    torch.testing.assert_close(logp, expected, atol=tolerance(model), rtol=0)
    torch.testing.assert_close(score(model, PROMPTS, responses, mask), expected, atol=tolerance(model), rtol=0)


@pytest.mark.parametrize("width", [1, 2, 9])
def test_gradient_of_scores_equals_that_of_teacher_forcing(width):
    """Sharing prompts, beginnings and equal rows must not lose or double a gradient."""
    model = uneven().double()
    responses, _, mask = generate(model, PROMPTS, 8, width, EOS, seed=3)
    weight = torch.randn(responses.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gradients = []
    for way in (score, by_forward):
        model.zero_grad()
        (weight * way(model, PROMPTS, responses, mask)).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-12, rtol=1e-10)


def test_padding_tokens_do_not_matter_to_scores():
    model = uneven().double()
    responses, logp, mask = generate(model, PROMPTS, 8, 9, EOS, seed=3)
    assert not mask.all()
    for filler in range(CONFIG.vocabulary):
        padded = torch.where(mask, responses, filler)
        torch.testing.assert_close(score(model, PROMPTS, padded, mask), logp, atol=1e-12, rtol=0)


def test_a_response_ends_at_eos_or_at_the_width():
    responses, logp, mask = generate(uneven(), PROMPTS, 50, 6, EOS, seed=1)
    lengths = set()
    for row, nats, on in zip(responses.tolist(), logp.tolist(), mask.tolist(), strict=True):
        length = row.index(EOS) + 1 if EOS in row else 6
        assert on == [t < length for t in range(6)]
        assert row[length:] == [EOS] * (6 - length)
        assert nats[length:] == [0.0] * (6 - length)
        lengths.add(length)
    assert lengths == {1, 2, 3, 4, 5, 6}


def test_frequencies_of_whole_responses_match_their_probabilities():
    """Every response of up to 3 tokens, enumerated: counts within 4 standard errors of the exact probability."""
    model, draws = uneven().double(), 40_000
    prompt = PROMPTS[:1]
    going = range(EOS)
    space = [(EOS,), *((a, EOS) for a in going), *itertools.product(going, going, range(EOS + 1))]
    responses = torch.tensor([(*row, *[EOS] * (3 - len(row))) for row in space])
    mask = torch.tensor([[t < len(row) for t in range(3)] for row in space])
    probability = score(model, prompt, responses, mask).detach().sum(1).exp()
    torch.testing.assert_close(probability.sum().item(), 1.0, atol=1e-12, rtol=0)

    code = torch.tensor([25, 5, 1])
    drawn = (generate(model, prompt, draws, 3, EOS, seed=7)[0] * code).sum(1)
    count = torch.bincount(drawn, minlength=125)[(responses * code).sum(1)]
    assert count.sum() == draws
    error = (probability * (1 - probability) / draws).sqrt()
    assert ((count / draws - probability).abs() < 4 * error).all()


def test_a_row_is_a_function_of_its_prompt_and_its_uniform_numbers(monkeypatch):
    """Whatever else is in the batch, in whatever order and in whatever blocks."""
    model, group = uneven().double(), 8
    chance = uniforms(3, len(PROMPTS) * group, 9)
    responses, logp, _ = generate(model, PROMPTS, group, 9, EOS, seed=3)
    for some in ([2], [3, 0], [1, 3, 2]):
        rows = torch.cat([torch.arange(p * group, (p + 1) * group) for p in some])
        monkeypatch.setattr(sampling, "uniforms", lambda seed, count, width, rows=rows: chance[rows])
        part = generate(model, PROMPTS[some], group, 9, EOS, seed=99)
        assert torch.equal(part[0], responses[rows])
        torch.testing.assert_close(part[1], logp[rows], atol=1e-12, rtol=0)


@pytest.mark.parametrize("rows", [1, 9, 17])
def test_blocks_change_nothing(monkeypatch, rows):
    model = uneven().double()
    whole = generate(model, PROMPTS, 8, 9, EOS, seed=3)
    monkeypatch.setattr(sampling, "ROWS", rows)
    parts = generate(model, PROMPTS, 8, 9, EOS, seed=3)
    assert torch.equal(whole[0], parts[0])
    assert torch.equal(whole[2], parts[2])
    torch.testing.assert_close(whole[1], parts[1], atol=1e-12, rtol=0)


def test_every_beginning_is_read_once(monkeypatch):
    """Tokens read while sampling: the prompts, and one for each different beginning that is written on."""
    model, read = uneven(), []
    hidden = Transformer.hidden
    monkeypatch.setattr(Transformer, "hidden", lambda self, *a: read.append(a[0].numel()) or hidden(self, *a))

    responses, _, mask = generate(model, PROMPTS, 32, 6, EOS, seed=3)
    beginnings = {
        (row // 32, tuple(tokens[:t]))
        for row, (tokens, length) in enumerate(zip(responses.tolist(), mask.sum(1).tolist(), strict=True))
        for t in range(1, length)
    }
    assert sum(read) == PROMPTS.numel() + len(beginnings)
    assert len(beginnings) < 0.7 * (mask.sum() - len(mask))

    read.clear()
    responses, _, mask = generate(model, PROMPTS, 32, 1, EOS, seed=3)
    assert read == [PROMPTS.numel()]
    score(model, PROMPTS, responses, mask)
    assert read == [PROMPTS.numel()] * 2


def test_a_token_of_probability_zero_is_never_drawn():
    """At both ends of the unit interval too, where the cumulated sum is flat."""
    policy = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]]).log()
    below_one = torch.nextafter(torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)).item()
    chance = torch.tensor([0.0, 0.49, 0.5, below_one, 0.0, below_one], dtype=torch.float64)
    assert inverse_cdf(policy, torch.tensor([0, 0, 0, 0, 1, 1]), chance).tolist() == [1, 1, 3, 3, 2, 2]


def test_a_model_that_diverged_is_a_sentence():
    model = uneven()
    with torch.no_grad():
        model.head.weight.fill_(float("nan"))
    with pytest.raises(Diverged, match="probabilities are not numbers"):
        generate(model, PROMPTS, 2, 3, EOS, seed=0)


def test_rows_without_a_token_score_zero():
    nothing = torch.zeros(8, 3, dtype=torch.bool)
    assert torch.equal(score(uneven(), PROMPTS, nothing.long(), nothing), torch.zeros(8, 3))


def test_rows_that_do_not_fit_are_refused():
    model = uneven()
    with pytest.raises(ValueError, match="context"):
        generate(model, PROMPTS, 2, 23, EOS, seed=0)
    with pytest.raises(ValueError, match="7 rows for 4 prompts"):
        score(model, PROMPTS, torch.zeros(7, 2, dtype=torch.long), torch.ones(7, 2, dtype=torch.bool))
