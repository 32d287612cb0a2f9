"""One run of the study of adaptive temperatures, and what is kept of it. Which runs there are: protocol.py."""

import functools
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs import make
from pmdkit.loop import run
from pmdkit.planning import build, plan
from pmdkit.spec import Spec
from pmdkit.sweeps.adaptive.protocol import Cell, Tau

DEAD = 0.05  # pass rate of a context of the bandit below which it counts as given up
LAST = 5  # the last fifth of the steps tells which prompts of the other tiers are dead

Outcome = dict[str, Any]


def play(cell: Cell, tau: Tau, seed: int, folder: Path) -> Outcome:
    """Area under the curve, final pass rate, worst drop, dead prompts and the curve of one run.

    Args:
        cell: the setting.
        tau: a number or the table of a rule.
        seed: of prompts, draws and weights; in the bandit also of the problem.
        folder: of a language model's run, which goes on there when it was interrupted; the others take seconds and are
            not written.
    """
    torch.set_num_threads(1)
    options = {**cell.options, "objective.name": cell.objective, "objective.tau": tau, "run.seed": seed}
    if cell.tier == "llm":
        return in_folder(cell, options, folder)
    if cell.tier == "bandit":
        options["env.seed"] = seed
    spec, objective = plan(cell.tier, cell.env, options)
    return exact(spec, objective) if cell.tier == "bandit" else drawn(spec, objective, cell.block)


def exact(spec: Spec, objective: Any) -> Outcome:
    """A bandit: true pass rates of all contexts after every step."""
    _, setup = build(spec, objective)
    learner, problem = setup.learner, make(spec.env)
    assert isinstance(learner, BanditLearner)
    curves = [problem.pass_rate(learner.log_policy().numpy())]

    def look(*step: Any) -> None:
        curves.append(problem.pass_rate(learner.log_policy().numpy()))

    run(objective, learner, setup.task, setup.schedule, [look])
    rates = np.array(curves)
    curve = rates.mean(1)
    return outcome(curve[1:], float(curve[-1]), float((rates[-1] < DEAD).mean()), 1, float(curve[0]))


def drawn(spec: Spec, objective: Any, block: int) -> Outcome:
    """A toy task: pass rates of each step's own draws, which are of the policy before the step."""
    _, setup = build(spec, objective)
    setup.learner.load_state_dict(
        deepcopy(warm(spec.model_copy(update={"objective": {"name": "pmd-mean", "tau": 1.0}})))
    )
    rates: list[float] = []
    wrong: list[float] = []

    def look(step: int, learner: Any, rollouts: Any, groups: Any, *rest: Any) -> None:
        right = groups.reward > 0.5
        rates.append(right.double().mean().item())
        wrong.append((~right.any(1)).double().mean().item())

    run(objective, setup.learner, setup.task, setup.schedule, [look])
    final = setup.evaluate()["pass_rate"]
    assert final is not None
    return outcome(np.array(rates), final, float(np.mean(wrong[-len(wrong) // LAST :])), block)


@functools.lru_cache(maxsize=4)
def warm_state(record: str) -> dict[str, Any]:
    """State of a warm-started learner; the runs of a task and seed share it, whatever their objective."""
    spec = Spec(**json.loads(record))
    setup = build(spec)[1]
    if setup.prepare is not None:
        setup.prepare(lambda sentence: None)
    return setup.learner.state_dict()


def warm(spec: Spec) -> dict[str, Any]:
    """The same by its configuration."""
    return warm_state(json.dumps(spec.record(), sort_keys=True))


def in_folder(cell: Cell, options: dict[str, Any], folder: Path) -> Outcome:
    """A language model: a run folder, resumed where it stopped."""
    from pmdkit.training import train

    finished = train(cell.objective, cell.tier, cell.env, out=folder, resume=True, options=options)
    rows = finished.metrics
    gauges = [bucket for row in rows[-len(rows) // LAST :] for bucket in row["gauge"] or []]
    prompts = sum(bucket["prompts"] for bucket in gauges)
    # the lowest bucket holds pass rates below 0.02: with 16 draws, groups without a right response
    wrong = sum(bucket["prompts"] for bucket in gauges if bucket["bucket"] == 0) / prompts
    rates = np.array([row["pass_rate"] for row in rows])
    return outcome(rates, finished.summary["pass_rate_last"], wrong, cell.block)


def outcome(curve: np.ndarray, final: float, dead: float, block: int, before: float | None = None) -> Outcome:
    """What is kept.

    Args:
        curve: [steps] pass rates.
        final: of the policy after the last step.
        dead: share of prompts.
        block: steps averaged before a drop is looked for.
        before: pass rate before the first step, where it is exact.
    """
    means = curve[: len(curve) // block * block].reshape(-1, block).mean(1)
    means = means if before is None else np.concatenate([[before], means])
    return {
        "auc": float(curve.mean()),
        "final": final,
        "drop": float(max(0.0, (means[:-1] - means[1:]).max())),
        "dead": dead,
        "curve": [round(float(x), 4) for x in means],
    }
