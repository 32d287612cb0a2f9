"""A grader that cannot read a form of answer: the policy has one pass rate, and two graders give two."""

import ast
from math import log10

import numpy as np

from pmdkit import theory
from pmdkit_lab.ward.replica import Panel, Replica

ANSWERS = {
    "fenced, parses": "Here it is:\n```python\ndef add(a, b):\n    return a + b\n```\n",
    "fenced, does not parse": "```python\ndef add(a, b)\n    return a + b\n```\n",
    "bare, parses": "def add(a, b):\n    return a + b\n",
    "bare, does not parse": "def add(a, b)\n    return a + b\n",
}
POLICY = np.array([0.0, 0.0, 0.968, 0.032])  # a model that answers without fences
DRAWS, STEPS = 512, 10


def parses(code: str) -> float:
    """1 if Python reads it."""
    try:
        ast.parse(code)
    except SyntaxError:
        return 0.0
    return 1.0


def needs_a_fence(answer: str) -> float:
    """Whether the code in a fence parses; 0 where there is no fence."""
    return parses(answer.split("```")[1].removeprefix("python")) if "```" in answer else 0.0


def reads_both(answer: str) -> float:
    """Whether the code parses, in a fence or bare."""
    return needs_a_fence(answer) if "```" in answer else parses(answer)


def run() -> Replica:
    """One policy before any step, two graders; then ten exact steps with each."""
    rows, lines = [], {}
    for name, grade in (("needs a fence", needs_a_fence), ("reads both", reads_both)):
        reward, policy, course = np.array([grade(text) for text in ANSWERS.values()]), POLICY, []
        with np.errstate(divide="ignore"):
            for _ in range(STEPS):
                course.append(float(policy @ reward))
                seen = policy > 0  # a form that is never written is never tried
                moved = np.zeros(4)
                moved[seen] = policy[seen] * np.exp(theory.pmd_mean(policy[seen], reward[seen], 2.0).log_ratio)
                policy = moved
        rows.append([name, course[0], course[-1], float(np.abs(policy - POLICY).max())])
        lines[name] = course
    none = DRAWS * log10(1 - POLICY @ np.array([reads_both(text) for text in ANSWERS.values()]))
    return Replica(
        ["grader", "pass rate before any step", "after ten steps", "largest change of the policy"],
        [*rows, ["log10 of the chance of no pass in 512 draws", none, "", ""]],
        "step",
        range(STEPS),
        [Panel("pass rate", lines)],
        "Pass rate by step under two graders: exactly 0 with the grader that needs a fence, 0.97 and rising with the "
        "other.",
    )
