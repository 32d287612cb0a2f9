"""What every token problem does: which responses count, and the whole response space by enumeration."""

import numpy as np
import pytest
import torch

from pmdkit.envs import TokenTask, make_tokens
from pmdkit.envs.tokens import KINDS
from pmdkit.envs.tokens.problem import is_held_out
from pmdkit.testing import check_task

SMALL = {
    "modular-sum": ({"modulus": 10}, 1 / 11),
    "copy": ({"symbols": 2, "length": 3}, 3**-4),
    "reverse": ({"symbols": 3, "length": 2}, 4**-3),
    "sort": ({"symbols": 4, "length": 3}, 5**-4),
    "parity": ({"length": 3}, (1 - 0.75**4) / 16),  # T = 6
    "addition": ({"digits": 1, "base": 5}, 8**-3),
    "maze": ({"size": 2, "walls": 0, "moves": 2}, None),
}


def uniform(problem):
    """[S] exact pass rates of the policy that is uniform over the tokens, by grading every response to every prompt."""
    responses, mask = problem.responses()
    size = len(problem.grid)
    right = problem.grade(problem.grid, np.tile(responses, (size, 1)), np.tile(mask, (size, 1)))
    return right @ float(len(problem.vocabulary)) ** -mask.sum(axis=1)


@pytest.mark.parametrize("kind", [kind for kind, (_, p0) in SMALL.items() if p0])
def test_the_pass_rate_of_a_uniform_policy_is_what_the_docstring_says(kind):
    options, p0 = SMALL[kind]
    np.testing.assert_allclose(uniform(make_tokens({"kind": kind, **options})), p0, rtol=1e-13)


@pytest.mark.parametrize("kind", SMALL)
def test_the_responses_are_all_there_is(kind):
    """Under any policy their probabilities add up to 1; here one that differs from place to place."""
    problem = make_tokens({"kind": kind, **SMALL[kind][0]})
    responses, mask = problem.responses()
    policy = np.random.default_rng(0).dirichlet(np.ones(len(problem.vocabulary)), size=problem.width)
    said = policy[np.arange(problem.width), responses]
    assert np.where(mask, said, 1.0).prod(axis=1).sum() == pytest.approx(1, abs=1e-12)
    assert len({tuple(row[: m.sum()]) for row, m in zip(responses, mask, strict=True)}) == len(responses)


def test_a_space_of_more_than_4096_responses_is_not_enumerated():
    assert len(make_tokens({"kind": "modular-sum", "modulus": 1000}).responses()[0]) == 1001
    assert make_tokens({"kind": "addition"}).responses() is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_teacher_is_always_right_and_row_by_row_as_in_a_batch(kind):
    problem = make_tokens({"kind": kind})
    prompts = problem.sample(np.random.default_rng(1), 200)
    responses, mask = problem.answers(prompts, np.random.default_rng(2))
    assert (problem.grade(prompts, responses, mask) == 1).all()
    for prompt in prompts[:50]:
        answer = np.array([problem.answer(prompt, np.random.default_rng(3))])
        assert problem.grade(prompt[None], answer, np.ones_like(answer, bool)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_judging_one_row_and_all_at_once_agree(kind):
    """check against right, on the teacher's answers with one token changed, dropped or added."""
    problem = make_tokens({"kind": kind})
    rng = np.random.default_rng(5)
    seen = set()
    for prompt in problem.sample(rng, 60):
        said = [token for token in problem.answer(prompt, rng) if token != problem.eos]
        other = [token for token in range(len(problem.vocabulary)) if token != problem.eos]
        changed = said.copy()
        changed[rng.integers(len(said))] = int(rng.choice(other))
        for response in (said, changed, said[:-1], [*said, int(rng.choice(other))][: problem.width - 1]):
            if not response:
                continue
            row = np.array([response + [problem.eos] * problem.needs_eos])
            reward = problem.grade(prompt[None], row, np.ones_like(row, bool))[0, 0]
            assert reward == problem.check(prompt, response)
            seen.add(reward)
    assert seen == {0.0, 1.0}


def graded(problem, prompt, *rows):
    """Rewards of token rows to one prompt, padded with a token that would be right somewhere."""
    mask = np.arange(problem.width) < np.array([[len(row)] for row in rows])
    padded = np.array([list(row) + [0] * (problem.width - len(row)) for row in rows])
    return problem.grade(np.array([prompt]), padded, mask)[0].tolist()


def test_a_response_counts_from_its_first_token_to_its_only_eos():
    copy = make_tokens({"kind": "copy", "symbols": 3, "length": 2})
    eos = copy.eos
    assert graded(copy, [1, 0], [1, 0, eos]) == [1]
    # cut at the width, ended early, no end, an end in the middle, nothing at all
    assert graded(copy, [1, 0], [1, 0, 0], [1, eos], [1, 0], [1, eos, 0], [eos], []) == [0] * 6
    # what stands in the padding would be right, and is not read
    assert graded(copy, [0, 0], [0, eos]) == [0]
    total = make_tokens({"kind": "modular-sum"})
    assert graded(total, [3, 4], [7], [6], [total.eos], []) == [1, 0, 0, 0]


# The token task: the contract of the loop, and held-out prompts that training never sees.

LARGE = {"modular-sum": {"modulus": 200}, "copy": {"length": 6}, "reverse": {"length": 6}, "parity": {"length": 12}}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_keeps_the_contract_of_the_loop(kind, roll):
    problem = make_tokens({"kind": kind})
    check_task(TokenTask(problem, prompts=7, seed=3), roll(problem))


@pytest.mark.parametrize("kind", KINDS)
def test_no_seed_and_no_step_asks_a_prompt_that_any_seed_holds_out(kind):
    problem = make_tokens({"kind": kind, **LARGE.get(kind, {})})
    assert problem.grid is None
    asked = {
        tuple(row)
        for seed in range(3)
        for step in range(1, 11)
        for row in TokenTask(problem, 256, seed).prompts(step).tolist()
    }
    held = [TokenTask(problem, 1, seed).held_out(64) for seed in range(3)]
    assert len(asked) > 500
    for rows in held:
        assert len({tuple(row) for row in rows.tolist()}) == 64
        assert not asked & {tuple(row) for row in rows.tolist()}
    assert not torch.equal(held[0], held[1])


@pytest.mark.parametrize(
    ("kind", "options"),
    [("parity", {"length": 14}), ("copy", {"length": 3, "symbols": 30}), ("modular-sum", {"modulus": 300})],
)
def test_one_prompt_in_eight_is_held_out(kind, options):
    prompts = np.unique(make_tokens({"kind": kind, **options}).sample(np.random.default_rng(0), 40_000), axis=0)
    share = is_held_out(prompts).mean()
    assert abs(share - 1 / 8) < 4 * np.sqrt(7 / 64 / len(prompts))


def test_a_problem_with_few_prompts_trains_and_evaluates_on_all_of_them():
    task = TokenTask(make_tokens({"kind": "modular-sum"}), 128, seed=5)
    everything = {(a, b) for a in range(10) for b in range(10)}
    assert {tuple(row) for step in range(1, 9) for row in task.prompts(step).tolist()} == everything
    assert [tuple(row) for row in task.held_out(100).tolist()] != sorted(everything)
    assert sorted(tuple(row) for row in task.held_out(500).tolist()) == sorted(everything)


def test_held_out_prompts_are_the_same_whatever_their_number():
    for kind in ("sort", "modular-sum"):
        task = TokenTask(make_tokens({"kind": kind}), 4, seed=2)
        assert torch.equal(task.held_out(50)[:20], task.held_out(20))
