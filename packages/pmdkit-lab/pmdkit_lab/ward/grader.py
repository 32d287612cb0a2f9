"""A grader that cannot read a form of answer: the policy has one pass rate, and two graders give two."""

import ast

import numpy as np

from pmdkit import theory
from pmdkit_lab.ward.replica import Lines, Replica, Rows

ANSWERS = {
    "fenced, parses": "Here it is:\n```python\ndef add(a, b):\n    return a + b\n```\n",
    "fenced, does not parse": "```python\ndef add(a, b)\n    return a + b\n```\n",
    "bare, parses": "def add(a, b):\n    return a + b\n",
    "bare, does not parse": "def add(a, b)\n    return a + b\n",
}
POLICY = np.array([0.0, 0.0, 0.968, 0.032])  # a model that answers without fences
STEPS = 10


def parses(code: str) -> float:
    """1 if Python can parse the code, else 0; nothing runs."""
    try:
        return float(bool(ast.parse(code)))
    except SyntaxError:
        return 0.0


def graded(answer: str, bare: bool) -> float:
    """Whether the code in a fence parses; where there is no fence, 0, or whether the answer parses as it is."""
    if "```" in answer:
        return parses(answer.split("```")[1].removeprefix("python"))
    return parses(answer) if bare else 0.0


def run() -> Replica:
    """One policy before any step, two graders; then ten exact steps with each."""
    rows, lines = Rows(), Lines()
    seen = POLICY > 0  # a form that is never written is never tried
    for name, bare in (("needs a fence", False), ("reads both", True)):
        reward, policy = np.array([graded(text, bare) for text in ANSWERS.values()])[seen], POLICY[seen]
        passed = [float(policy @ reward)]
        for _ in range(STEPS):
            policy = policy * np.exp(theory.pmd_mean(policy, reward, 2.0).log_ratio)
            passed.append(float(policy @ reward))
        rows[name] = [passed[0], passed[-1], float(np.abs(policy - POLICY[seen]).max())]
        lines[name] = passed
    return Replica(
        ["grader", "pass rate before any step", "after ten steps", "largest change of the policy"],
        rows,
        {"pass rate": lines},
    )
