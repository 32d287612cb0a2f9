"""Backend 1: a table of logits. Exact expectation or draws; the oracle for the other tiers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pmdkit.objectives import Objective
    from pmdkit.session import Setup
    from pmdkit.spec import Spec


def setup(spec: "Spec", objective: "Objective") -> "Setup":
    """Learner, task and measurements of a bandit run."""
    import torch

    from pmdkit.bandit.learner import BanditLearner
    from pmdkit.bandit.measure import Meter, evaluate
    from pmdkit.envs import BanditTask, make
    from pmdkit.loop import Schedule
    from pmdkit.recording.recorder import Remarks
    from pmdkit.session import Setup

    schedule = spec.schedule
    assert schedule.update != "auto", "the spec is resolved before a backend sees it"
    problem = make(spec.env)
    learner = BanditLearner(
        torch.tensor(problem.log_policy),
        None if problem.features is None else torch.tensor(problem.features),
        update=schedule.update,
        lr=schedule.lr,
        optimizer=schedule.optimizer,
        passes=schedule.passes,
    )
    passed = None if problem.success is None or problem.values is None else sum(problem.values) / 2
    return Setup(
        learner=learner,
        task=BanditTask(problem, prompts=schedule.prompts, seed=spec.run.seed),
        schedule=Schedule(schedule.steps, schedule.group, schedule.ministeps, spec.run.seed),
        meter=lambda: Meter(problem, objective, learner).row,
        evaluate=lambda: evaluate(problem, learner),
        policy=lambda: learner.log_policy().exp().numpy(),
        # a table is scored for nothing; the meter looks at whole policies and scores no rows
        remarks=lambda rollouts: Remarks({"passed": passed}, {"logp_after": learner.logp(rollouts).detach()}),
    )


def resolve(spec: "Spec", objective: "Objective") -> "Spec":
    """The spec with `update` decided and impossible combinations refused."""
    from pmdkit.envs import make
    from pmdkit.errors import UsageError
    from pmdkit.objectives.traits import traits
    from pmdkit.population import known

    schedule = spec.schedule
    problem = make(spec.env)
    prompts = schedule.prompts or len(problem.reward)
    if schedule.ministeps > prompts:
        raise UsageError(
            f"schedule.ministeps is {schedule.ministeps} for {prompts} prompts per step; expected at most {prompts}: "
            "each ministep needs a prompt of its own, raise --prompts"
        )
    if schedule.group == 1 and traits(objective).needs_peers:
        raise UsageError(
            "schedule.group is 1 with a baseline that leaves the own response out; expected at least 2: raise --group, "
            "or leave it out to use the full support"
        )
    exact = known(objective) and problem.features is None
    update = schedule.update
    if update == "auto":
        update = "exact" if schedule.group is None and exact else "gradient"
        if schedule.group is None and problem.features is not None and known(objective):
            update = "regression"
    if schedule.group is not None and update != "gradient":
        raise UsageError(f"schedule.update is '{update}' with drawn arms; it needs the full support: leave --group out")
    if update == "exact" and not exact:
        why = "a log-linear policy cannot hold it" if known(objective) else "this objective has none in closed form"
        raise UsageError(f"schedule.update is 'exact': {why}; use update=regression or update=gradient")
    if update == "regression" and traits(objective).whole_groups:
        raise UsageError(
            "schedule.update is 'regression' with an objective that couples the responses of a group; "
            "use update=exact or update=gradient"
        )
    return spec.model_copy(update={"schedule": schedule.model_copy(update={"update": update})})
