"""Several rewards: functions by names, groups, async ones, cut-off responses, parts, and the trust gate around them."""

import math

import pytest
import torch

from pmdkit.envs.reward_functions import FunctionGrader, OwnReward, RewardRow, arguments, takes_gold
from pmdkit.llm.grading import make_rows, needs_gold
from pmdkit.llm.rewards import make_reward_sum, soft_overlong_punishment
from pmdkit.loop import graded
from pmdkit.specs.llm import RewardTable, RewardTerm, RolloutTable
from strict_answers import Item

from .test_task import PROBLEMS, gold, make, rollouts_of

OWN = '''
import asyncio

def by_name(prompt, response, response_ids, cut_off, gold, level="none"):
    assert prompt[-1]["role"] == "user" and len(response_ids) >= len(response)
    return len(response) + (10 if cut_off else 0) + (100 if level == "hard" else 0)

def trl_style(prompts, completions, completion_ids, level, **kwargs):
    """A reward of TRL as it is: the best of the group gets 1, the second no verdict."""
    texts = [completion[0]["content"] for completion in completions]
    assert level == ["hard"] * len(texts) and kwargs["gold"]
    return [None if n == 1 else float(text == max(texts, key=len)) for n, text in enumerate(texts)]

async def slow(response, level):
    await asyncio.sleep(60 if response == "hang" else 0.3)
    if response == "raise":
        raise KeyError("no such thing")
    return -2.5

def two(response, gold):
    return float(response == "yes")
'''


@pytest.fixture(scope="module")
def own_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(OWN)
    return path


def items(texts, cut_off=False, group=0, tokens=20):
    row = RewardRow('[{"role": "user", "content": "1 + 1?"}]', tuple(range(tokens)), '{"level": "hard"}', group)
    return [Item(text, "2", cut_off, None, row) for text in texts]


def test_a_function_gets_what_it_names():
    """Parameters by name, columns included; a pair in any words; a column that is missing is named."""
    message = arguments(items(["text"], cut_off=True)[0])
    assert OwnReward(lambda said, right: said == "text" and right == "2", 1)(message) == {"value": 1.0}
    assert OwnReward(lambda gold, response: (gold, response) == ("2", "text"), 1)({"row": message}) == {"value": 1.0}
    assert OwnReward(lambda cut_off, level: 5 if cut_off and level == "hard" else 0, 1)({"row": message}) == {
        "value": 5
    }
    assert OwnReward(lambda *, response, level: level == "hard", 1)({"row": message}) == {"value": 1.0}
    with pytest.raises(ValueError, match="no column levl; there are level"):
        OwnReward(lambda prompt, levl: 0, 1)({"row": message})
    assert OwnReward(lambda response, *, gold=None: gold is None, 1)({"row": {**message, "gold": None}}) == {
        "value": 1.0
    }
    kinds = [OwnReward(f, 1).takes for f in (lambda a, b: 0, lambda response: 0, lambda completions, **_: 0)]
    assert kinds == ["pair", "row", "rows"]
    assert "0 to 1" in OwnReward(lambda a, b: 2, 1)(message)["error"]
    assert "finite" in OwnReward(lambda response: math.inf, 1)({"row": message})["error"]


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


@pytest.mark.slow
def test_functions_are_judged_in_workers_and_journaled(own_file, tmp_path):
    """By name on cut-off rows too; TRL's form on a group; async ones at the same time, each with its own verdict."""
    with FunctionGrader(f"{own_file}:by_name", journal=tmp_path / "verdicts.jsonl") as grader:
        assert [v.value for v in grader.grade(items(["ab"]) + items(["ab"], cut_off=True))] == [102, 112]
        assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 2
    with FunctionGrader(f"{own_file}:trl_style", journal=tmp_path / "groups.jsonl") as grader:
        verdicts = grader.grade(items(["a", "b", "long"]) + items(["c", "d"], group=1))
        assert [v.value for v in verdicts] == [0.0, None, 1.0, 1.0, None]
        lines = (tmp_path / "groups.jsonl").read_text()
    (tmp_path / "other.py").write_text(OWN)
    with FunctionGrader(f"{own_file}:trl_style", journal=tmp_path / "groups.jsonl") as again:
        again.run_requests = None  # a resumed run reads the verdicts: nobody is asked
        assert again.grade(items(["a", "b", "long"]) + items(["c", "d"], group=1)) == verdicts
    assert (tmp_path / "groups.jsonl").read_text() == lines
    with FunctionGrader(f"{own_file}:slow", seconds=4) as grader:
        verdicts = grader.grade(items(["a", "hang", "raise", "b", "c", "d", "e"]))
    assert [v.value for v in verdicts] == [-2.5, None, None, -2.5, -2.5, -2.5, -2.5], verdicts


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
