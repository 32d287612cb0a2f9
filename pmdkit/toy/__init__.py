"""Backend 2: a small transformer on token tasks. Draws responses, or enumerates them if there are few.

It is written to be read.
"""

from collections.abc import Callable
from functools import partial

import torch

from pmdkit.envs.tokens import TokenTask, make_tokens
from pmdkit.errors import UsageError
from pmdkit.fit import Backend, TrainerCallback
from pmdkit.loop import Schedule
from pmdkit.objectives import Objective, traits
from pmdkit.observe.metrics import StepMetrics
from pmdkit.randomness import derive
from pmdkit.specs import ToySpec
from pmdkit.toy.learner import ToyLearner, build_model, held_out_pass_rate, warm_start
from pmdkit.toy.model import check_heads

EVALUATION = 256  # held-out prompts, four draws each: a standard error of about 0.02 on the pass rate
DRAWS = 4


def make_backend(spec: ToySpec, objective: Objective) -> Backend:
    """Learner, task and measurements of a toy run."""
    schedule, seed, warm = spec.schedule, spec.run.seed, spec.warm_start
    problem = make_tokens(spec.env)
    task = TokenTask(problem, schedule.prompts or 128, seed)
    space = problem.responses()
    learner = ToyLearner(
        build_model(spec.model, problem, derive(seed, "model")),
        problem.eos,
        problem.width,
        None if space is None else (torch.from_numpy(space[0]), torch.from_numpy(space[1])),
        lr=schedule.lr,
        optimizer=schedule.optimizer,
        passes=schedule.passes,
        reference=traits(objective).uses_reference,
    )
    asked = task.held_out(EVALUATION)
    rate = partial(held_out_pass_rate, learner, problem, asked, DRAWS, derive(seed, "evaluation"))

    callbacks: list[TrainerCallback] = []
    if spec.run.record:
        from pmdkit.recording import Recorder, StepExtras

        facts = {"passed": 0.5, "vocabulary": list(problem.vocabulary)}
        callbacks.append(Recorder(spec.run.record, lambda result: StepExtras(facts)))

    def prepare(note: Callable[[str], None]) -> None:
        warm_start(learner.model, problem, warm, seed, rate, note)
        if learner.reference is not None:
            learner.reference.load_state_dict(learner.model.state_dict())

    return Backend(
        learner=learner,
        task=task,
        schedule=Schedule(schedule.steps, schedule.group, schedule.ministeps, seed),
        metrics=StepMetrics(objective).measure,
        # rewards are 0 and 1, so that both are the same number
        evaluate=lambda: dict.fromkeys(("pass_rate", "reward"), rate()),
        policy=lambda: learner.model,
        warm_start=prepare if warm.pass_rate > 0 else None,
        callbacks=callbacks,
    )


def resolve_config(spec: ToySpec, objective: Objective) -> ToySpec:
    """The spec with its defaults written out and impossible combinations refused."""
    schedule = spec.schedule
    problem = make_tokens(spec.env)
    if spec.model.path is None:
        check_heads(spec.model.dimension, spec.model.heads)
    prompts = schedule.prompts or 128
    schedule.check_batch(prompts, traits(objective).needs_peers)
    if schedule.update not in ("auto", "gradient"):
        raise UsageError(f"schedule.update is '{schedule.update}'; a transformer is fitted by 'gradient' only")
    if schedule.group is None and problem.responses() is None:
        raise UsageError(f"schedule.group is not set and {spec.name} has too many responses to enumerate; give --group")
    return spec.model_copy(update={"schedule": schedule.model_copy(update={"update": "gradient", "prompts": prompts})})
