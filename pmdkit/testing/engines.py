"""The contract suite for an Engine: checks that the trainer can rely on it. The suite for tasks is in tasks.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from pmdkit.llm.engines.base import Engine, Responses, Sampling, Tokens
from pmdkit.randomness import derive, generator

PROMPTS = ((3, 4, 5), (6,), (7, 8, 9, 10, 11, 3, 4), (5, 5))


def check_engine(
    engine: Engine,
    weights: Mapping[str, torch.Tensor],
    eos: int | Sequence[int],
    *,
    prompts: Sequence[Tokens] = PROMPTS,
    group: int = 4,
    width: int = 12,
    exact: bool = True,
    tolerance: float = 1e-4,
    seed: int = 0,
) -> None:
    """Raise an AssertionError with a sentence if an engine breaks its contract with the trainer.

    The contract: responses have the promised shapes and types, end at an end token or at the width, and carry the
    log-probabilities that `score` gives them; a row is a function of its prompt, its seed and the published weights;
    and after `publish`, nothing is computed from older weights. When the suite is done, the engine has the given
    weights again, and its version is higher by 3.

    Args:
        engine: yours.
        weights: its current weights, named as `publish` takes them.
        eos: its end tokens.
        prompts: token ids that its model knows; at least two different prompts.
        group: responses per prompt, at least 2.
        width: token budget of the responses; some should be able to end before it.
        exact: the same call gives the same bits and rows do not depend on the batch; False for engines that do not
            promise it.
        tolerance: between log-probabilities of the same tokens, nats; wider where engine and score differ in precision.
        seed: seed for the draws.
    """
    start = {name: value.detach().clone() for name, value in weights.items()}
    seeds = generator(seed, "engine").integers(0, 2**63, len(prompts) * group).astype(np.uint64)
    ends = {eos} if isinstance(eos, int) else set(eos)
    case = EngineCase(engine, prompts, group, seeds, Sampling(width), ends, tolerance)
    engine.enter("rollout")
    first = checked_responses(case)
    check_scores(case, first, "with the first weights")
    check_draws(case, first)
    if exact:
        check_rows(case, first)
    check_width(case)
    check_publish(case, first, start, exact)


@dataclass(frozen=True)
class EngineCase:
    """The engine and the inputs that all checks share; see `check_engine`."""

    engine: Engine
    prompts: Sequence[Tokens]
    group: int
    seeds: NDArray[np.uint64]
    sampling: Sampling
    ends: set[int]
    tolerance: float

    def generate(self, seeds: NDArray[np.uint64] | None = None, **options: bool) -> Responses:
        """Responses to all prompts, with other seeds or sampling options if given."""
        drawn = self.seeds if seeds is None else seeds
        return self.engine.generate(self.prompts, self.group, drawn, replace(self.sampling, **options))


def checked_responses(case: EngineCase) -> Responses:
    """Generate responses, and check that they have the promised form."""
    calls: list[tuple[int, int]] = []
    version, width = case.engine.version, case.sampling.width
    drawn = case.engine.generate(
        case.prompts, case.group, case.seeds, case.sampling, lambda tokens, rows: calls.append((tokens, rows))
    )
    rows, longest = len(case.prompts) * case.group, drawn.tokens.shape[-1]
    assert drawn.tokens.ndim == 2, f"tokens has shape {list(drawn.tokens.shape)}; expected [{rows}, T]"
    assert longest <= width, f"responses are {longest} tokens wide; the budget is {width}"
    kinds = {"tokens": torch.int64, "logp": torch.float32, "mask": torch.bool, "ended": torch.bool}
    for name, dtype in kinds.items():
        value, shape = getattr(drawn, name), [rows] if name == "ended" else [rows, longest]
        assert list(value.shape) == shape, f"{name} has shape {list(value.shape)}; expected {shape}"
        assert value.dtype == dtype, f"{name} has dtype {value.dtype}; expected {dtype}"
    lengths = drawn.mask.sum(1)
    on = torch.arange(longest) < lengths[:, None]
    assert torch.equal(drawn.mask, on), "mask has gaps; expected True from the first token of a response to its end"
    assert int(lengths.min()) >= 1, "a response has no token; an immediate end is one token, the end token"
    assert not drawn.logp[~drawn.mask].any(), "logp is not 0 past the end of a response"
    assert bool((drawn.logp <= 0).all()), "logp holds a positive or undefined number; expected nats"
    for row, (tokens, length) in enumerate(zip(drawn.tokens.tolist(), lengths.tolist(), strict=True)):
        inside, last, ended = set(tokens[: length - 1]), tokens[length - 1], bool(drawn.ended[row])
        assert not inside & case.ends, f"row {row} continues after an end token; expected it to end there"
        assert ended == (last in case.ends), f"row {row} has ended={ended}, last token {last}, ends {case.ends}"
        assert ended or length == width, f"row {row} stops after {length} tokens without an end token"
        assert set(tokens[length:]) <= case.ends, f"row {row} is not padded with the end token"
    assert drawn.version == version, f"responses have version {drawn.version}; the engine has version {version}"
    assert calls, "progress was not called; expected at least once while responses are written"
    assert calls == sorted(calls), "progress went backwards; expected the tokens and the ended rows so far"
    return drawn


def check_scores(case: EngineCase, drawn: Responses, where: str) -> None:
    """Sampled and scored log-probabilities are the same, at temperature 1."""
    each = [prompt for prompt in case.prompts for _ in range(case.group)]
    responses = [tokens[on].tolist() for tokens, on in zip(drawn.tokens, drawn.mask, strict=True)]
    scores = case.engine.score(each, responses)
    lengths = [len(score) for score in scores]
    assert lengths == drawn.mask.sum(1).tolist(), f"score gives {lengths} numbers; expected one per response token"
    error = float((torch.cat(scores).double() - drawn.logp[drawn.mask].double()).abs().max())
    what = f"log-probabilities from sampling and from score differ by {error:.1e} nats {where}"
    assert error <= case.tolerance, f"{what}: shifted, or from older weights or another distribution"


def check_draws(case: EngineCase, first: Responses) -> None:
    """Check that the responses of a group differ, and that other seeds give other responses."""
    group = case.group
    for p, rows in enumerate(first.tokens.split(group)):
        assert len(rows.unique(dim=0)) > 1, f"all responses to prompt {p} are equal; each row has its own seed"
    others = (case.seeds ^ np.uint64(derive(0, "other seeds"))).astype(np.uint64)
    assert not same(case.generate(others), first), "different seeds give the same responses"


def check_rows(case: EngineCase, first: Responses) -> None:
    """Check that equal calls give equal bits, and that a row does not depend on the rest of the batch."""
    assert same(case.generate(), first), "the same call gives different responses; expected the same bits"
    size, group = len(case.prompts), case.group
    for order in (list(reversed(range(size))), [size - 1]):
        rows = torch.cat([torch.arange(p * group, (p + 1) * group) for p in order])
        part = replace(case, prompts=[case.prompts[p] for p in order]).generate(case.seeds[rows.numpy()])
        for ours, row in enumerate(rows.tolist()):
            mine, whole = part.tokens[ours][part.mask[ours]], first.tokens[row][first.mask[row]]
            assert torch.equal(mine, whole), "a row changes with the order or the number of the others"
            error = float((part.logp[ours][part.mask[ours]] - first.logp[row][first.mask[row]]).abs().max())
            assert error <= case.tolerance, f"the log-probabilities of a row move by {error:.1e} nats with the others"


def check_width(case: EngineCase) -> None:
    """Check that a budget of one token gives one token, and that greedy responses ignore the seed."""
    one = checked_responses(replace(case, sampling=replace(case.sampling, width=1)))
    assert one.tokens.shape[1] == 1, f"a width of 1 gives {one.tokens.shape[1]} tokens"
    for rows in case.generate(greedy=True).tokens.split(case.group):
        assert len(rows.unique(dim=0)) == 1, "greedy responses to one prompt differ; expected the most likely tokens"


def check_publish(case: EngineCase, first: Responses, start: Mapping[str, torch.Tensor], exact: bool) -> None:
    """Other weights change the responses from their first token on, and the old weights give the old ones again."""
    engine, group = case.engine, case.group
    version, moved = engine.version, {name: perturbed(value) for name, value in start.items()}
    seen = []
    for step, weights in enumerate((moved, start, moved), 1):
        engine.enter("update")
        engine.publish(weights, version + step)
        engine.enter("rollout")
        assert engine.version == version + step, (
            f"version is {engine.version} after publishing version {version + step}"
        )
        seen.append(checked_responses(case))
        check_scores(case, seen[-1], f"after publish number {step}")
    for p in range(len(case.prompts)):
        rows = slice(p * group, (p + 1) * group)
        before = dict(zip(first.tokens[rows, 0].tolist(), first.logp[rows, 0].tolist(), strict=True))
        after = dict(zip(seen[0].tokens[rows, 0].tolist(), seen[0].logp[rows, 0].tolist(), strict=True))
        stale = any(before[token] == after[token] for token in before.keys() & after.keys())
        assert not stale, f"prompt {p} has the first-token log-probabilities of the old weights after publish"
    assert not same(seen[0], first), "publishing other weights changes no response; the engine does not use them"
    if exact:
        assert same(seen[1], first), "the old weights, published again, do not give the old responses"
        assert same(seen[2], seen[0]), "the same weights, published again, give different responses"
    engine.publish(start, version + 3)


def perturbed(weight: torch.Tensor) -> torch.Tensor:
    """A matrix with each entry changed by a different factor, up to 0.3 away from 1; other weights are unchanged."""
    if weight.ndim < 2 or not weight.is_floating_point():
        return weight.clone()
    wave = torch.sin(torch.arange(weight.numel(), device=weight.device, dtype=torch.float32)).view(weight.shape)
    return (weight * (1 + 0.3 * wave)).to(weight.dtype)


def same(one: Responses, other: Responses) -> bool:
    """Whether two responses are equal bit for bit, apart from the version."""
    names = ("tokens", "logp", "mask", "ended")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)
