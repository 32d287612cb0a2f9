"""Several rewards: their parts, the penalty of length, and the trust gate around a function of your own."""

import pytest
import torch

from pmdkit.envs.reward_functions import takes_gold
from pmdkit.llm.grading import make_rows, needs_gold
from pmdkit.llm.rewards import make_reward_sum, soft_overlong_punishment
from pmdkit.loop import graded
from pmdkit.specs.llm import RewardTable, RewardTerm, RolloutTable

from .test_task import PROBLEMS, gold, make, rollouts_of

OWN = """
def trl_style(prompts, completions, level, **kwargs):
    texts = [completion[0]["content"] for completion in completions]
    assert level == ["hard"] * len(texts) and kwargs["gold"]
    return [None if n == 1 else float(text == max(texts, key=len)) for n, text in enumerate(texts)]
"""


@pytest.fixture(scope="module")
def own_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(OWN)
    return path


def test_which_rewards_need_gold_answers_is_known_without_running_their_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "raise RuntimeError\n"
        "def pair(response, right: Nothing) -> Nothing: ...\n"
        "@nothing\ndef by_name(response, gold, cut_off=nothing): ...\n"
        "def optional(response, *, gold=None): ...\n"
        "def column(prompt, response): ...\n"
        "def anything(completions, **more): ...\n"
        "async def later(response): ...\n"
        "made = pair\n"
    )
    taking = {"pair", "by_name", "made", "absent"}
    for name in ("pair", "by_name", "optional", "column", "anything", "later", "made", "absent"):
        assert takes_gold(f"{file}:{name}") == (name in taking), name
    table = RewardTable(grade=f"{file}:column", others=[{"grade": f"{file}:later"}])
    assert not needs_gold(table)
    assert needs_gold(table.model_copy(update={"others": [RewardTerm(grade="math")]}))


def test_the_overlong_penalty_is_that_of_dapo():
    """DAPO's equation 13: 0 up to L_max - L_cache, then a straight line to -1 at L_max."""
    length = torch.tensor([1, 60, 70, 80, 100])
    assert soft_overlong_punishment(length, 100, 40).tolist() == [0, 0, -0.25, -0.5, -1]


def make_sum(task, own_file, cut_off="wrong", **first):
    table = RewardTable(
        **first,
        others=[
            {"grade": f"{own_file}:trl_style", "weight": 0.5},
            {"grade": "soft-overlong-punishment", "soft_punish_cache": 4, "weight": 2.0},
        ],
    )
    rewards = make_reward_sum(table, RolloutTable(width=64, cut_off=cut_off))
    task.rewards, task.rows = rewards, make_rows(lambda asked: [{"role": "user", "content": asked.problem}])
    return table, rewards


def test_parts_add_up_and_no_verdict_stays_a_third_value(own_file, monkeypatch):
    """weight * value of each part; a part without a verdict leaves the response out, not its part."""
    task = make("plus-minus-one")
    monkeypatch.setattr(
        task, "problems", PROBLEMS.__class__("p", lambda n: with_columns(PROBLEMS.problem(n)), PROBLEMS.train, [])
    )
    rewards = make_sum(task, own_file, weight=3.0, most_unscored=0.5)[1]
    right = f"Answer: {gold(task, 0)}"
    rollouts = rollouts_of(task, [[right, "no", "Answer: 1000 it is"]])
    reward = task.reward(rollouts)
    lengths = rollouts.mask.sum(1)
    overlong = soft_overlong_punishment(lengths, rollouts.width, 4)
    assert reward[0, 0] == 3.0 + 2.0 * overlong[0]
    assert reward[0, 1].isnan()
    assert reward[0, 2] == -3.0 + 0.5 + 2.0 * overlong[2]
    assert graded(reward, rollouts).mass.tolist() == [[0.5, 0.0, 0.5]]
    answers = task.graded(rollouts)
    found = rewards.columns(answers.verdicts, answers.parts)
    assert found["pass_rate"] == 1 / 3
    assert found["rewards/trl_style/mean"] == 0.5
    assert answers.parts["trl_style"][1].isnan()
    for grader in task.graders:
        grader.close()


def with_columns(problem):
    from dataclasses import replace

    return replace(problem, columns={"level": "hard"})


def test_masked_cut_off_responses_count_for_nothing():
    """mass 0, as a response without a verdict: the group is the group without it."""
    task = make()
    task.rewards = make_reward_sum(RewardTable(), RolloutTable(cut_off="mask"))
    rollouts = rollouts_of(task, [[f"Answer: {gold(task, 0)}", "Answer: 7000"]], ends=False)
    assert task.reward(rollouts).isnan().all()
