"""What the study of adaptive temperatures compares, written down before any of its runs: arms, cells, seeds, the rule.

Every arm gets the same number of values to be tuned over, on the same seeds, by the area under the curve. Then each
runs at its best value on fresh seeds, paired with the tuned fixed tau.
"""

from dataclasses import dataclass, field
from typing import Any

Tau = float | dict[str, Any]
Options = dict[str, Any]

FIXED = "fixed"
"The arm that the others are compared with."
TUNING = 1000
"First seed of the tuning runs; those of the comparison count from 0."


def rule(name: str, key: str, values: tuple[float, ...], **more: Any) -> tuple[Tau, ...]:
    """One rule at several values of one option."""
    return tuple({"rule": name, key: value, **more} for value in values)


SCALES = (0.05, 0.15, 0.5, 1.5)  # tau of FIXED_TAUS at a pass rate of 0.2
FIXED_TAUS: tuple[Tau, ...] = (0.01, 0.03, 0.1, 0.3)
SUGGESTED: tuple[Tau, ...] = rule("pass-rate", "scale", (0.14,), floor=0.1)
ARMS: dict[str, tuple[Tau, ...]] = {
    FIXED: FIXED_TAUS,
    "pass-rate": rule("pass-rate", "scale", SCALES, floor=0.1),
    "pass-rate, pooled": rule("pass-rate", "scale", SCALES, floor=0.01, estimate="pool"),
    "contraction": rule("contraction", "eta", (0.9999, 0.99, 0.9, 0.6)),
    "kl-budget": rule("kl-budget", "budget", (6.0, 4.0, 2.0, 0.7)),
    "chi2-budget": rule("chi2-budget", "budget", (100.0, 30.0, 10.0, 3.0)),
    "pass-rate 0.14, untuned": SUGGESTED,
}
# moved after a first comparison, which had most arms of pmd-part and of the toy tasks at the end of the grids above
GENTLER: dict[str, tuple[Tau, ...]] = {
    FIXED: (0.1, 0.3, 1.0, 3.0),
    "pass-rate": rule("pass-rate", "scale", (0.5, 1.5, 5.0, 15.0), floor=0.1),
    "pass-rate, pooled": rule("pass-rate", "scale", (0.5, 1.5, 5.0, 15.0), floor=0.01, estimate="pool"),
    "contraction": rule("contraction", "eta", (0.9, 0.6, 0.3, 0.1)),
    "kl-budget": rule("kl-budget", "budget", (2.0, 0.7, 0.25, 0.08)),
    "chi2-budget": rule("chi2-budget", "budget", (10.0, 3.0, 1.0, 0.3)),
    "pass-rate 0.14, untuned": SUGGESTED,
}


@dataclass(frozen=True)
class Cell:
    """One setting in which all arms are compared.

    Attributes:
        tier, env: as on the command line.
        objective: "pmd-mean" or "pmd-part".
        options: of all runs.
        seeds: of the comparison.
        tuning: seeds of the tuning.
        arms: name to the values it is tuned over.
        block: steps that are averaged before a drop is looked for; 1 where pass rates are exact.
    """

    tier: str
    env: str
    objective: str
    options: Options
    seeds: int
    tuning: int
    arms: dict[str, tuple[Tau, ...]] = field(default_factory=lambda: ARMS)
    block: int = 1


POOL: Options = {
    # 16 prompts of pass rates 0.7 to 0.005 under one log-linear policy of 128 weights, without traps
    "env.arms": 400,
    "env.dim": 128,
    "env.traps": 0,
    "env.easy": 0.7,
    "env.hard": 0.005,
    "schedule.steps": 12,
    "schedule.group": 16,
    "schedule.passes": 50,  # towards the minimum of each step's loss: tau acts far from pi_old
    "schedule.lr": 0.05,
}
NOISE: Options = {"env.false_positive": 0.05, "env.false_negative": 0.05}
TOY: Options = {
    "model.dimension": 64,
    "model.heads": 2,
    "schedule.steps": 60,
    "schedule.prompts": 64,
    "schedule.group": 16,
    "schedule.ministeps": 16,  # as in the paper
    "schedule.lr": 1e-4,
}
STARTER: Options = {"schedule.steps": 40, "schedule.ministeps": 8, "run.checkpoint_every": 20, "run.keep": 1}
# in the toy tier runs take longer: without the variant of one rule and the twin of another
FEWER = {arm: values for arm, values in GENTLER.items() if arm not in ("pass-rate, pooled", "chi2-budget")}
THREE: dict[str, tuple[Tau, ...]] = {
    FIXED: (0.02, 0.1, 0.5),
    "pass-rate": rule("pass-rate", "scale", (0.1, 0.5, 2.5), floor=0.1),
    "contraction": rule("contraction", "eta", (0.99, 0.9, 0.5)),
}

CELLS: dict[str, dict[str, Cell]] = {
    "bandit": {
        f"{objective}{', 5 % verifier errors' if noise else ''}": Cell(
            "bandit", "shared-features", objective, POOL | noise, 30, 5, arms
        )
        for objective, arms in (("pmd-mean", ARMS), ("pmd-part", GENTLER))
        for noise in ({}, NOISE)
    },
    "toy": {
        f"{task}, pmd-mean": Cell("toy", task, "pmd-mean", TOY, 10, 2, arms=FEWER, block=5) for task in ("sort", "maze")
    },
    "starter": {
        "starter, pmd-mean": Cell("llm", "starter", "pmd-mean", STARTER, 3, 1, arms=THREE, block=5),
    },
}
ABOUT = (
    "Adaptive tau against a fixed one. Primary: area under the curve of the pass rate, paired by seed with the tuned "
    "fixed tau; intervals at 95 %, p-values by Holm over the arms of a cell. Secondary: final pass rate, worst drop "
    "from one step (bandit) or block of five steps (toy, starter) to the next, dead prompts: in the bandit those that "
    "end below a pass rate of 0.05, elsewhere those without a right response in the last fifth of the steps. The grids "
    "of pmd-part and of the toy tasks were moved to gentler steps after a first comparison ended at their edge. A rule "
    "is recommended only if it gains under pmd-mean in the bandit without errors and in one more cell of pmd-mean, and "
    "loses in none of them."
)
