"""Paid for the form: among responses that are paid alike, no step changes the odds of the right one."""

import numpy as np

from pmdkit import theory
from pmdkit_lab.ward.replica import Panel, Replica

KINDS = ("right code", "code that parses", "an empty block", "no code")
START = np.array([0.002, 0.149, 0.07, 0.779])  # a policy that writes code of any kind in 0.221 of its responses
PARSES, RIGHT = np.array([1.0, 1.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0, 0.0])
STEPS, TAU, GROUP, PROMPTS = 36, 15.0, 8, 64  # at this tau as many parse after 35 steps as in the log


def course(reward: np.ndarray) -> np.ndarray:
    """[steps, 4] exact steps of PMD-part."""
    policy = [START]
    for _ in range(STEPS - 1):
        policy.append(policy[-1] * np.exp(theory.pmd_part(policy[-1], reward, TAU).log_ratio))
    return np.array(policy)


def informed(chance: float) -> float:
    """Expected groups of a step in which not all or none have what happens with this chance."""
    return PROMPTS * (1 - chance**GROUP - (1 - chance) ** GROUP)


def run() -> Replica:
    """The reward of the run, one that also pays right answers, and what a batch of 512 can see of it."""
    rewards = {"parses": PARSES, "right": RIGHT, "parses, and right": PARSES * RIGHT + PARSES}
    rows, lines = [], {}
    for name, reward in rewards.items():
        found = course(reward)
        parses, right = found @ PARSES, found @ RIGHT
        informative = informed(float(START @ RIGHT)) if name == "right" else informed(float(START @ PARSES))
        rows.append([name, parses[-1], right[-1], right[-1] / parses[-1], informative])
        lines[f"{name}: share right"] = right.tolist()
        lines[f"{name}: share that parses"] = parses.tolist()
    return Replica(
        [
            "paid",
            "parses after 35 steps",
            "right after 35 steps",
            "right among those that parse",
            "groups with a signal",
        ],
        [["at the start", float(START @ PARSES), float(START @ RIGHT), float(START[0] / (START @ PARSES)), ""], *rows],
        "step",
        range(STEPS),
        [Panel("share of the responses", {k: v for k, v in lines.items() if k.startswith("parses:")}, log=True)],
        "Paid for what parses: the share that parses rises to three quarters, and the share that is right rises by the "
        "same factor, from 0.2 to less than 1 percent.",
    )
