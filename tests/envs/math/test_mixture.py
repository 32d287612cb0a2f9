"""Several sources: shares of every step, no text twice, the same order after a resume."""

import json

import numpy as np
import pytest

from pmdkit.envs.math import make_math
from pmdkit.errors import UsageError
from pmdkit.llm.epochs import apportion
from pmdkit.llm.task import MathTask
from pmdkit.plugins import code_inputs
from strict_answers import Grader


@pytest.fixture
def table(tmp_path):
    for name, first, count in (("a", 0, 30), ("b", 25, 50)):
        rows = [{"q": f"What is {n} + 1?", "answer": str(n + 1), "level": name} for n in range(first, first + count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "kind": "mixture",
        "sources": [
            {"kind": "file", "path": str(tmp_path / "a.jsonl"), "problem": "q", "share": 3, "held_out": 4},
            {"kind": "file", "path": str(tmp_path / "b.jsonl"), "problem": "q", "share": 1},
        ],
    }


def test_every_step_has_its_shares_and_every_problem_its_turn(table):
    problems = make_math(table)
    assert len(problems.train) == 26 + 45
    assert problems.counts["merged: in an earlier source"] == 5
    texts = [problems.problem(n).problem for n in (*problems.train, *problems.held_out)]
    assert len(set(texts)) == len(texts)
    with Grader() as grader:
        task = MathTask(problems, 8, 3, grader, str, [0])
        steps = [task.prompts(step).tolist() for step in range(1, 31)]
        assert MathTask(problems, 8, 3, grader, str, [0]).prompts(17).tolist() == steps[16]
    for asked in steps:
        levels = [problems.problem(n).columns["level"] for n in asked]
        assert (levels.count("a"), levels.count("b")) == (6, 2)
    of_b = np.concatenate([[n for n in asked if problems.problem(n).columns["level"] == "b"] for asked in steps])
    assert len(set(of_b[:45].tolist())) == 45  # an epoch of the source, each problem once


def test_shares_are_whole_prompts():
    assert apportion([0.5, 0.3, 0.2], 16) == [8, 5, 3]
    with pytest.raises(UsageError, match=r"give \[4, 0\] of 4 prompts"):
        apportion([0.9, 0.1], 4)


def test_the_files_of_a_mixture_are_inputs_of_the_run(table):
    assert sum(name.startswith("file ") for name in code_inputs({"env": table})) == 2
