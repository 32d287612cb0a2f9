"""The token task: the contract of the loop, and held-out prompts that training never sees."""

import numpy as np
import pytest
import torch

from pmdkit.envs import TokenTask, make_tokens
from pmdkit.envs.tokens import KINDS
from pmdkit.envs.tokens.split import draw, is_held_out
from pmdkit.testing import check_task

LARGE = {
    "modular-sum": {"modulus": 200},
    "copy": {"length": 6},
    "reverse": {"length": 6},
    "parity": {"length": 12},
    "countdown": {"highest": 50},
}


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


def test_fewer_held_out_prompts_than_asked_for_are_all_there_are():
    problem = make_tokens({"kind": "parity", "length": 11})
    space = np.indices((2,) * 11).reshape(11, -1).T
    assert len(TokenTask(problem, 1).held_out(5000)) == is_held_out(space).sum()


def test_held_out_prompts_are_the_same_whatever_their_number():
    for kind in ("sort", "modular-sum"):
        task = TokenTask(make_tokens({"kind": kind}), 4, seed=2)
        assert torch.equal(task.held_out(50)[:20], task.held_out(20))


def test_the_reward_is_the_grade(roll):
    problem = make_tokens({"kind": "maze"})
    task = TokenTask(problem, 6)
    rollouts = roll(problem)(task.prompts(1), 8, 0)
    arrays = (tensor.numpy() for tensor in (rollouts.prompts, rollouts.responses, rollouts.mask))
    assert torch.equal(task.reward(rollouts), torch.from_numpy(problem.grade(*arrays)))
    assert 0 < task.reward(rollouts).mean() < 1


class Stuck:
    """One prompt only, and it does not say so."""

    grid, name = None, "stuck"

    def sample(self, rng, count):
        return np.zeros((count, 3), dtype=np.int64)


def test_a_problem_that_runs_out_of_prompts_says_so():
    held = bool(is_held_out(np.zeros((1, 3), dtype=np.int64))[0])
    assert len(draw(Stuck(), np.random.default_rng(0), 5, held_out=held)) == 5
    with pytest.raises(ValueError, match=r"stuck has too few different prompts: 0 of 5 .* ones found"):
        draw(Stuck(), np.random.default_rng(0), 5, held_out=not held)


def test_bad_arguments_are_refused():
    problem = make_tokens({"kind": "copy"})
    with pytest.raises(ValueError, match="prompts is 0; expected an integer >= 1"):
        TokenTask(problem, 0)
    with pytest.raises(ValueError, match="step is 0; expected an integer >= 1"):
        TokenTask(problem, 3).prompts(0)
    with pytest.raises(ValueError, match="count is 0; expected an integer >= 1"):
        TokenTask(problem, 3).held_out(0)
