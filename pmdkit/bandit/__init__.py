"""Backend 1: a table of logits. Exact expectation or draws; the oracle for the other tiers."""

import torch

from pmdkit.bandit.learner import BanditLearner
from pmdkit.bandit.metrics import ExactStepMetrics, evaluate
from pmdkit.envs import BanditTask, make
from pmdkit.errors import UsageError
from pmdkit.fit import Backend, TrainerCallback
from pmdkit.loop import Schedule
from pmdkit.objectives import Objective, traits
from pmdkit.population_solution import has_solution
from pmdkit.specs import BanditSpec


def make_backend(spec: BanditSpec, objective: Objective) -> Backend:
    """Learner, task and measurements of a bandit run."""
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
    metrics = ExactStepMetrics(problem, objective, learner)
    callbacks: list[TrainerCallback] = [metrics]
    if spec.run.record:
        from pmdkit.recording import Recorder, StepExtras

        passed = None if problem.success is None or problem.values is None else sum(problem.values) / 2

        callbacks.append(Recorder(spec.run.record, lambda result: StepExtras({"passed": passed})))
    return Backend(
        learner=learner,
        task=BanditTask(problem, prompts=schedule.prompts, seed=spec.run.seed),
        schedule=Schedule(schedule.steps, schedule.group, schedule.ministeps, spec.run.seed),
        metrics=metrics.measure,
        evaluate=lambda: evaluate(problem, learner),
        policy=lambda: learner.log_policy().exp().numpy(),
        callbacks=callbacks,
    )


def resolve_config(spec: BanditSpec, objective: Objective) -> BanditSpec:
    """The spec with `update` decided and impossible combinations refused."""
    schedule = spec.schedule
    problem = make(spec.env)
    prompts = schedule.prompts or len(problem.reward)
    schedule.check_batch(prompts, traits(objective).needs_peers, full_support=True)
    if schedule.optimizer == "muon":
        raise UsageError("schedule.optimizer is 'muon'; a table of logits has no hidden matrix: use adam or sgd")
    exact = has_solution(objective) and problem.features is None
    update = schedule.update
    if update == "auto":
        update = "exact" if schedule.group is None and exact else "gradient"
        if schedule.group is None and problem.features is not None and has_solution(objective):
            update = "regression"
    if schedule.group is not None and update != "gradient":
        raise UsageError(f"schedule.update is '{update}' with drawn arms; it needs the full support: leave --group out")
    if update != "gradient" and getattr(objective, "ess_step", False):
        raise UsageError(
            f"objective.ess_step is given with schedule.update '{update}', which has no learning rate; use gradient"
        )
    if update == "exact" and not exact:
        solved = has_solution(objective)
        why = "a log-linear policy cannot hold it" if solved else "this objective has none in closed form"
        raise UsageError(f"schedule.update is 'exact': {why}; use update=regression or update=gradient")
    if update == "regression" and traits(objective).whole_groups:
        why = "an objective that couples the responses of a group"
        raise UsageError(f"schedule.update is 'regression' with {why}; use update=exact or update=gradient")
    return spec.model_copy(update={"schedule": schedule.model_copy(update={"update": update})})
