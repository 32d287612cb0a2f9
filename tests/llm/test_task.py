"""Problems with a verifier as a task: order, rewards on both scales, and what happens without a verdict."""

import numpy as np
import pytest
import torch

from pmdkit.envs.math.arithmetic import Arithmetic
from pmdkit.envs.math_answers import Grader, Verdict
from pmdkit.errors import ComponentDied
from pmdkit.learner import Rollouts
from pmdkit.llm.task import MathTask
from pmdkit.loop import graded, without_equal_groups
from pmdkit.objectives import OBJECTIVES, credit, total
from pmdkit.testing import check_task

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


def test_what_was_cut_off_is_wrong_though_it_reads_right():
    task = make()
    assert task.reward(rollouts_of(task, [[f"Answer: {gold(task, 0)}"] * 2], ends=False)).tolist() == [[0.0, 0.0]]


def test_every_training_problem_is_asked_once_per_epoch():
    task = MathTask(PROBLEMS, 20, 5, Grader(), read, [END])
    steps = len(PROBLEMS.train) // 20
    asked = torch.cat([task.prompts(step) for step in range(1, steps + 1)]).numpy()
    assert len(set(asked.tolist())) == len(asked) == steps * 20
    assert np.isin(asked, PROBLEMS.train).all()


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


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_a_group_without_peers_teaches_nothing(name):
    """One verdict left of three, and none at all: finite loss, no weight where a peer is needed."""
    task = make(grader=Silent({0, 1, 3, 4, 5}), most_unscored=0.9)
    rollouts = rollouts_of(task, [["Answer: 1", "Answer: 2", "Answer: 3"]] * 3)
    groups = graded(task.reward(rollouts), rollouts)
    batch = credit(OBJECTIVES[name](), groups, rollouts.logp_old, rollouts.mask, rollouts.logp_old, rollouts.width)
    assert batch.weight[3:6].tolist() == [0.0] * 3
    assert torch.isfinite(total(OBJECTIVES[name](), batch))


def test_one_without_verdict_never_stops_a_run_and_many_do():
    task = make(grader=Silent({2}))
    task.reward(rollouts_of(task, [["Answer: 1"] * 3]))
    task = make(grader=Silent({0, 2}))
    with pytest.raises(ComponentDied, match="no verdict on 2 of 3 responses \\(too slow\\)"):
        task.reward(rollouts_of(task, [["Answer: 1"] * 3]))


def test_equal_groups_stay_unless_they_are_dropped():
    """PMD-mean pulls an all-right group back to pi_old; dropping it gives the group no weight and leaves the others."""
    task = make()
    texts = [[f"Answer: {gold(task, 0)}"] * 2, [f"Answer: {gold(task, 1)}", "Answer: 999"]]
    rollouts = rollouts_of(task, texts)
    groups = graded(task.reward(rollouts), rollouts)
    batch = credit(OBJECTIVES["pmd-mean"](), groups, rollouts.logp_old, rollouts.mask)
    assert (batch.weight > 0).all()
    dropped = without_equal_groups(batch, groups)
    assert dropped.weight.tolist() == [0.0, 0.0, *batch.weight[2:].tolist()]


def test_it_keeps_the_contract_of_the_loop():
    task = make()

    def rollout(prompts, group, seed):
        texts = [[f"Answer: {(seed + int(p) + k) % 19}" for k in range(group)] for p in prompts]
        from dataclasses import replace

        return replace(rollouts_of(task, texts), prompts=prompts, seed=seed)

    check_task(task, rollout)
