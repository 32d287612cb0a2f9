"""Backend 2: a small transformer on token tasks, written to be read. Draws responses, or enumerates them where few."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pmdkit.objectives import Objective
    from pmdkit.session import Setup
    from pmdkit.spec import Spec

EVALUATION = 256  # held-out prompts, four draws each: a standard error of about 0.02 on the pass rate
DRAWS = 4


def setup(spec: "Spec", objective: "Objective") -> "Setup":
    """Learner, task and measurements of a toy run."""
    import torch

    from pmdkit.envs.tokens import TokenTask, make_tokens
    from pmdkit.loop import Schedule
    from pmdkit.objectives.traits import traits
    from pmdkit.observe.meter import Meter
    from pmdkit.randomness import derive
    from pmdkit.recording.recorder import Remarks
    from pmdkit.session import Setup
    from pmdkit.tables import ModelTable
    from pmdkit.toy.build import build_model
    from pmdkit.toy.evaluate import Evaluation
    from pmdkit.toy.learner import ToyLearner
    from pmdkit.toy.warm_start import warm_start

    schedule, seed, warm = spec.schedule, spec.run.seed, spec.warm_start
    assert isinstance(spec.model, ModelTable)
    assert warm is not None
    problem = make_tokens(spec.env)
    task = TokenTask(problem, schedule.prompts or 128, seed)
    space = problem.responses()
    learner = ToyLearner(
        build_model(spec.model, problem, derive(seed, "model")),
        problem.vocabulary,
        problem.eos,
        problem.width,
        None if space is None else (torch.from_numpy(space[0]), torch.from_numpy(space[1])),
        lr=schedule.lr,
        optimizer=schedule.optimizer,
        passes=schedule.passes,
        reference=traits(objective).uses_reference,
    )
    evaluation = Evaluation(problem, task.held_out(EVALUATION), DRAWS, derive(seed, "evaluation"))

    def prepare(note: "Callable[[str], None]") -> None:
        warm_start(learner.model, problem, warm, seed, lambda: evaluation.pass_rate(learner), note)
        if learner.reference is not None:
            learner.reference.load_state_dict(learner.model.state_dict())

    return Setup(
        learner=learner,
        task=task,
        schedule=Schedule(schedule.steps, schedule.group, schedule.ministeps, seed),
        meter=lambda: Meter(objective).row,
        evaluate=lambda: evaluation(learner),
        policy=lambda: learner.model,
        remarks=lambda rollouts: Remarks({"passed": 0.5, "vocabulary": list(problem.vocabulary)}),
        prepare=prepare if warm.pass_rate > 0 else None,
    )


def resolve(spec: "Spec", objective: "Objective") -> "Spec":
    """The spec with its defaults written out and impossible combinations refused."""
    from pmdkit.envs.tokens import make_tokens
    from pmdkit.errors import UsageError
    from pmdkit.objectives.traits import traits
    from pmdkit.tables import ModelTable

    schedule = spec.schedule
    problem = make_tokens(spec.env)
    assert isinstance(spec.model, ModelTable)
    if spec.model.path is None and spec.model.dimension % (2 * spec.model.heads):
        raise UsageError(
            f"model.dimension is {spec.model.dimension} with {spec.model.heads} heads; expected a multiple of "
            f"{2 * spec.model.heads}: each head turns its coordinates in pairs"
        )
    prompts = schedule.prompts or 128
    if schedule.ministeps > prompts:
        raise UsageError(
            f"schedule.ministeps is {schedule.ministeps} for {prompts} prompts per step; expected at most {prompts}: "
            "each ministep needs a prompt of its own, raise --prompts"
        )
    if schedule.update not in ("auto", "gradient"):
        raise UsageError(f"schedule.update is '{schedule.update}'; a transformer is fitted by 'gradient' only")
    if schedule.group == 1 and traits(objective).needs_peers:
        raise UsageError(
            "schedule.group is 1 with a baseline that leaves the own response out; expected at least 2: raise --group"
        )
    if schedule.group is None and problem.responses() is None:
        raise UsageError(
            f"schedule.group is not set and {spec.name} has too many responses to enumerate; give --group, such as 16"
        )
    return spec.model_copy(update={"schedule": schedule.model_copy(update={"update": "gradient", "prompts": prompts})})
