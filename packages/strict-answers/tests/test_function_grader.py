"""A reward function of your own as a grader: by names, on groups, async; each failure costs its own response."""

import math

import pytest

from strict_answers import FunctionGrader, Item
from strict_answers.function_grader import OwnReward, RewardRow, arguments

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
    for given, said in (("10", "str"), ({"0": 3, "1": 4}, "dict"), ({0.0, 1.0}, "set")):
        reply = OwnReward(lambda completions, given=given, **_: given, 1)({"rows": [message, message]})
        assert reply == {"error": f"the function returned {said}; expected 2 numbers"}


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
