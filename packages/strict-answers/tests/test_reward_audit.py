"""The audit of a reward: labels that hold, faults that are known to be there, and functions that raise or hang."""

import json
import subprocess
import sys

import pytest

from strict_answers.process import CannotLoad
from strict_answers.reward_audit import Asked, audit_reward, report, shown
from strict_answers.reward_cases import HEDGES, LAYOUTS, Case, cases

REWARDS = r"""
import math, re, time
from strict_answers import Grader, Item
grader = Grader()

def strict(response, answer):
    return grader.grade([Item(response, answer)])[0].value

def substring(completions, answer, **columns):
    return [float(gold in chat[0]["content"]) for chat, gold in zip(completions, answer)]

def text(completions, target):
    return [float(f"Answer: {gold}" in said) for said, gold in zip(completions, target)]

def verl(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"#### (.*)", solution_str)
    return {"score": 1.0 if found and found[-1] == ground_truth else 0.1 if found else 0.0}

def eight_bits(response, answer):
    said = response.partition("Answer: ")[2]
    if "or" in said:
        time.sleep(60)
    if "nan" in said:
        return math.nan
    if "inf" in said:
        raise ZeroDivisionError
    return said == answer

def format_only(completions, **columns):
    return [1.0 if "boxed" in chat[0]["content"] else 0.0 for chat in completions]

async def later(completions, solution, **columns):
    return [float(f"<answer>\n{gold}\n</answer>" in chat[0]["content"]) for chat, gold in zip(completions, solution)]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rewards") / "mine.py"
    path.write_text(REWARDS)
    return path


def test_every_label_is_the_verdict_of_this_library(file):
    found = audit_reward(f"{file}:strict", seconds=100, each=20)  # a busy machine is slow
    assert (found["setting"]["answers"], found["left"], found["asked"]) == ("Answer:", 0, 127)  # README.md says 127
    assert (found["paid"], found["refused"], found["no_value"]) == ({}, {}, {})


def test_a_substring_is_paid_whatever_stands_around_it(file):
    found = audit_reward(f"{file}:substring")
    assert {kind for kind, form in HEDGES.items() if "{gold}" in form} <= set(found["paid"])
    assert "the right answer, then another" in found["paid"]
    assert {"fractions", "roots and powers"} <= set(found["refused"])
    assert len(found["worst"]) == 5
    assert not any(one["right"] for one in found["worst"])


@pytest.mark.parametrize(
    ("name", "framework", "layout", "chat"),
    [("text", "TRL", "Answer:", False), ("verl", "verl", "####", False), ("later", "TRL", "<answer>", True)],
)
def test_a_reward_is_called_as_its_framework_calls_it(file, name, framework, layout, chat):
    found = audit_reward(f"{file}:{name}")
    assert found["framework"] == framework
    assert found["setting"] == {"answers": layout, "golds": "34", "conversations": chat}
    assert "as it is" not in found["refused"]


def test_a_case_that_hangs_raises_or_has_no_number_costs_itself_alone(file):
    found = audit_reward(f"{file}:eight_bits", seconds=60, each=1.0)
    assert {why.partition(":")[0]: times for why, times in found["no_value"].items()} == {
        "two answers": 3,
        "not a number": 3,
        "infinity": 3,
    }
    assert "not a number: the reward is nan" in found["no_value"]
    assert found["left"] == 0
    assert found["refused"]["fractions"] == 4


def test_a_reward_that_reads_no_answer_is_told_so(file):
    found = audit_reward(f"{file}:format_only")
    assert found["setting"] is None
    assert "learns nothing about answers" in report(found)
    assert found["wrong_at_most"] == 1  # the format is paid, whatever the answer


def test_escapes_leave_the_end_of_a_response_with_its_answer():
    for many in ("\0" * 1000, "\U0010ffff" * 1000):
        case = Case("any", "34", f"{many} Answer: 34", True)
        assert shown(Asked(case, 1.0))["response"].endswith(" Answer: 34")


def test_the_time_limit_leaves_cases_and_says_so(file):
    found = audit_reward(f"{file}:verl", seconds=0)
    assert (found["asked"], found["left"]) == (0, len(list(cases(LAYOUTS["####"]))))
    assert f"{found['left']} were left" in report(found)


def test_the_command_ends_with_1_where_a_wrong_answer_is_paid_and_2_where_nothing_loads(file):
    command = [sys.executable, "-m", "strict_answers", "audit"]
    done = subprocess.run([*command, f"{file}:verl", "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0  # it refuses other forms, and pays nothing wrong
    assert json.loads(done.stdout)["refused"]["fractions"] == 4
    assert subprocess.run([*command, f"{file}:substring"], capture_output=True, check=False).returncode == 1
    done = subprocess.run([*command, f"{file}:none"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "none" in done.stderr
    with pytest.raises(CannotLoad):
        audit_reward(f"{file.parent}/missing.py:reward")
