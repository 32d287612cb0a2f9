"""One run of a bandit or a toy task in this process, and its pass rates."""

import functools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmdkit import envs, loop
from pmdkit.errors import Diverged
from pmdkit.resolve import build
from pmdkit.specs import Spec, from_record

DEAD = 0.05  # a context of the bandit counts as dead below this pass rate


@dataclass(frozen=True)
class RunCurve:
    """The pass rates of a run.

    Attributes:
        rates: after each step of a bandit, exactly (its mean reward if rewards do not pass or fail); in a toy task
            those of each step's draws, which come from the policy before the step. A run that diverges ends there.
        final: of the policy after the last step; None if the run diverged.
        before: of the policy before the first step, if it is exact.
        dead: share of a bandit's contexts that are hardly ever solved at the end; None in a toy task.
    """

    rates: list[float]
    final: float | None
    before: float | None
    dead: float | None


def local_run(spec: Spec, objective: Any) -> RunCurve:
    """Make one run. Runs of a toy task with the same seed share its warm start, whatever their objective."""
    _, backend = build(spec, objective)
    if backend.warm_start is not None:
        state = backend.learner.state_dict()
        # a warm start depends on these: runs with the same task and seed share it under any objective or schedule
        plain = spec.record() | {"objective": {"name": "pmd-mean", "tau": 1.0}}
        plain |= {"schedule": plain["schedule"] | {"lr": 1e-3, "ministeps": 1}}
        start = warm_weights(json.dumps(plain, sort_keys=True))
        both = {name: start[name.removeprefix("reference.")] for name in state["model"]}  # the reference policy too
        backend.learner.load_state_dict(state | {"model": both})
    problem = envs.make(spec.env) if spec.tier == "bandit" else None
    rates: list[float] = []

    def exact(learner: Any) -> np.ndarray:
        policy = learner.log_policy().numpy()
        passed = problem.pass_rate(policy)  # type: ignore[union-attr]
        return np.asarray(problem.mean_reward(policy) if passed is None else passed)  # type: ignore[union-attr]

    def look(step: int, learner: Any, rollouts: Any, groups: Any, *rest: Any) -> None:
        if problem is not None:
            if bool(learner.log_policy().isnan().any()):
                raise Diverged(f"step {step} left a policy that is not finite")
            rates.append(float(exact(learner).mean()))
            return
        rates.append((groups.reward > 0.5).double().mean().item())
        if not all(bool(weight.isfinite().all()) for weight in learner.model.parameters()):
            raise Diverged(f"step {step} left a weight that is not finite")

    before = None if problem is None else float(exact(backend.learner).mean())
    try:
        loop.run(objective, backend.learner, backend.task, backend.schedule, [look])
    except Diverged:
        return RunCurve(rates, None, before, None if problem is None else 1.0)
    if problem is not None:
        return RunCurve(rates, rates[-1], before, float((exact(backend.learner) < DEAD).mean()))
    return RunCurve(rates, backend.evaluate()["pass_rate"], None, None)


@functools.lru_cache(maxsize=4)
def warm_weights(configuration: str) -> dict[str, Any]:
    """Weights after the warm start. The optimizer of the run starts fresh, as in a normal run."""
    backend = build(from_record(json.loads(configuration)))[1]
    assert backend.warm_start is not None
    backend.warm_start(lambda sentence: None)
    return {name: value.clone() for name, value in backend.learner.state_dict()["model"].items()}
