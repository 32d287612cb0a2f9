"""Problems with a verifier as a task: order, rewards on both scales, and what happens without a verdict."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.envs.math.synthetic import Arithmetic
from pmdkit.errors import ComponentDied
from pmdkit.llm.epochs import epoch_order, epoch_sampler
from pmdkit.llm.task import MathTask
from pmdkit.loop import Rollouts, graded
from pmdkit.objectives import OBJECTIVES, credit, total
from pmdkit.testing import check_task
from strict_answers import Grader, Verdict

PROBLEMS = Arithmetic(numbers=2, problems=200).build()
END = 0


def read(tokens):
    """Letters by number; the end token is nothing."""
    return "".join(chr(token) for token in tokens if token != END)


def rollouts_of(task, texts, ends=True):
    """Responses given as text, one group per prompt."""
    size = len(texts[0])
    rows = [[*map(ord, text), *([END] if ends else [])] for group in texts for text in group]
    width = max(map(len, rows))
    responses = torch.tensor([row + [END] * (width - len(row)) for row in rows])
    mask = torch.tensor([[t < len(row) for t in range(width)] for row in rows])
    logp = torch.where(mask, -0.5, 0.0)
    prompts = task.prompts(1)[: len(texts)]
    mass = torch.full((len(texts), size), 1 / size, dtype=torch.float64)
    return Rollouts(prompts, responses, logp, mask, mass, True, seed=1, version=0, width=width)


def make(scale="zero-one", grader=None, **options):
    return MathTask(PROBLEMS, 3, 5, grader or Grader(), read, [END], scale, **options)


def gold(task, n):
    return PROBLEMS.problem(int(task.prompts(1)[n])).answer


@pytest.mark.parametrize(("scale", "low", "high"), [("zero-one", 0.0, 1.0), ("plus-minus-one", -1.0, 1.0)])
def test_rewards_are_right_and_wrong_on_the_named_scale(scale, low, high):
    task = make(scale)
    right, wrong = f"Answer: {gold(task, 0)}", "Answer: 1000"
    reward = task.reward(rollouts_of(task, [[right, wrong, "no idea"]]))
    assert reward.tolist() == [[high, low, low]]


class Silent(Grader):
    """No verdict on some rows."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def grade(self, items):
        verdicts = super().grade(items)
        return [Verdict(None, None, "timeout", "too slow") if n in self.rows else v for n, v in enumerate(verdicts)]


def test_a_response_without_verdict_is_in_no_baseline():
    """The step is that of the group without it: same advantages, its own weight 0."""
    task = make(grader=Silent({1}))
    texts = [[f"Answer: {gold(task, 0)}", "Answer: 7000", "Answer: 8000", f"Answer: {gold(task, 0)}"]]
    rollouts = rollouts_of(task, texts)
    groups = graded(task.reward(rollouts), rollouts)
    assert groups.mass.tolist() == [[pytest.approx(1 / 3), 0.0, pytest.approx(1 / 3), pytest.approx(1 / 3)]]
    objective = OBJECTIVES["pmd-mean"](tau=0.1)
    batch = credit(objective, groups, rollouts.logp_old, rollouts.mask)
    assert batch.advantage.tolist() == pytest.approx([0.5, 0.0, -1.0, 0.5])
    assert batch.weight[1] == 0
    smaller = rollouts_of(make(), [[texts[0][n] for n in (0, 2, 3)]])
    other = credit(objective, graded(make().reward(smaller), smaller), smaller.logp_old, smaller.mask)
    assert total(objective, batch).item() == pytest.approx(total(objective, other).item(), abs=1e-12)


def test_one_without_verdict_never_stops_a_run_and_many_do():
    task = make(grader=Silent({2}))
    task.reward(rollouts_of(task, [["Answer: 1"] * 3]))
    task = make(grader=Silent({0, 2}))
    with pytest.raises(ComponentDied, match="no verdict on 2 of 3 responses \\(too slow\\)"):
        task.reward(rollouts_of(task, [["Answer: 1"] * 3]))


def test_it_keeps_the_contract_of_the_loop():
    task = make()

    def rollout(prompts, group, seed):
        texts = [[f"Answer: {(seed + int(p) + k) % 19}" for k in range(group)] for p in prompts]
        from dataclasses import replace

        return replace(rollouts_of(task, texts), prompts=prompts, seed=seed)

    check_task(task, rollout)


sizes, counts, seeds = st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**31)


def row(size, count, seed, steps):
    numbers = 100 + 3 * np.arange(size)
    return numbers, np.concatenate([epoch_sampler(numbers, step, count, seed) for step in range(1, steps + 1)])


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(sizes, counts, seeds)
def test_every_number_once_per_epoch(size, count, seed):
    numbers, asked = row(size, count, seed, steps=max(3, 5 * size // count))
    for begin in range(0, len(asked) - size + 1, size):
        assert sorted(asked[begin : begin + size]) == list(numbers)


@settings(max_examples=300, deadline=None)
@given(sizes, counts, seeds, st.integers(1, 500))
def test_no_number_twice_in_a_step(size, count, seed, step):
    asked = epoch_sampler(np.arange(size), step, count, seed)
    assert asked.shape == (count,)
    if count <= size:
        assert len(set(asked)) == count
    else:
        assert max(np.bincount(asked)) <= count // size + 2  # a part of an epoch at either end


@pytest.mark.parametrize(("size", "count"), [(7, 3), (6, 3), (5, 8), (4, 4)])
def test_steps_are_cut_from_the_epochs_in_a_row(size, count):
    numbers = 10 * np.arange(size)
    row = np.concatenate([epoch_order(size, epoch, count, 3) for epoch in range(20)])
    for step in range(1, 10):
        wanted = numbers[row[(step - 1) * count : step * count]]
        np.testing.assert_array_equal(epoch_sampler(numbers, step, count, 3), wanted)


@pytest.mark.slow
def test_first_places_are_fair():
    """In each of the first places of a straddled epoch every number is equally likely: chi-square within 5 sd."""
    size, count, draws = 10, 7, 4000
    for step in (1, 2, 5):
        places = np.stack([epoch_sampler(np.arange(size), step, count, seed) for seed in range(draws)])
        expected = draws / size
        for place in places.T:
            chi2 = ((np.bincount(place, minlength=size) - expected) ** 2 / expected).sum()
            assert chi2 < (size - 1) + 5 * np.sqrt(2 * (size - 1))
