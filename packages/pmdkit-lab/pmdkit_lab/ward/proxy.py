"""Paid for the form: among responses that are paid alike, no step changes the odds of the right one."""

import numpy as np

from pmdkit import theory
from pmdkit_lab.ward.replica import Replica, Rows

START = np.array([0.002, 0.149, 0.07, 0.779])  # right code, wrong code that parses, an empty block, no code
PARSES, RIGHT = np.array([1.0, 1.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0, 0.0])
STEPS, TAU, GROUP, PROMPTS = 36, 15.0, 8, 64  # at this tau as many parse after 35 steps as in the log


def course(reward: np.ndarray) -> np.ndarray:
    """[steps, 4] exact steps of PMD-part."""
    policy = [START]
    for _ in range(STEPS - 1):
        policy.append(policy[-1] * np.exp(theory.pmd_part(policy[-1], reward, TAU).log_ratio))
    return np.array(policy)


def informed(chance: float) -> float:
    """Expected number of groups of a step in which an event of this chance happens in some draws but not in all."""
    return PROMPTS * (1 - chance**GROUP - (1 - chance) ** GROUP)


def run() -> Replica:
    """The reward of the run, two that also pay right answers, and how many groups of a batch of 512 tell anything."""
    courses = {"parses": course(PARSES), "right": course(RIGHT), "parses, and right": course(PARSES + RIGHT)}
    rows: Rows = {"at the start": [START @ PARSES, START @ RIGHT, START @ RIGHT / (START @ PARSES), ""]}
    for name, found in courses.items():
        parses, right = found[-1] @ PARSES, found[-1] @ RIGHT
        rows[name] = [parses, right, right / parses, informed(START @ (RIGHT if name == "right" else PARSES))]
    return Replica(
        ["paid", "parses after 35 steps", "right", "right among those that parse", "groups with a signal"],
        rows,
        {"share of the responses": {"parses": courses["parses"] @ PARSES, "right": courses["parses"] @ RIGHT}},
        log=True,
    )
