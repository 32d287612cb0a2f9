"""From a recipe to one that can run: defaults written out, impossible combinations refused before a model is loaded."""

from pmdkit.errors import UsageError
from pmdkit.objectives import Objective
from pmdkit.objectives.traits import traits
from pmdkit.spec import Spec

PROMPTS = 64  # per step, where a recipe does not say


def settle(spec: Spec, objective: Objective) -> Spec:
    """The spec with its defaults written out."""
    schedule, model, warm = spec.schedule, spec.model, spec.warm_start
    assert model is not None
    assert warm is not None
    if (model.path is None) == (getattr(model, "build", None) is None):
        raise UsageError(
            f"model.path is {model.path!r} and model.build {getattr(model, 'build', None)!r}; expected one of them: "
            "the folder of a model, or the starter to build"
        )
    if warm.pass_rate > 0 and model.path is not None:
        raise UsageError(
            "warm_start.pass_rate is set for a model from a folder; phase 0 teaches starter "
            "models only: --set warm_start.pass_rate=0"
        )
    prompts = schedule.prompts or PROMPTS
    if schedule.ministeps > prompts:
        raise UsageError(
            f"schedule.ministeps is {schedule.ministeps} for {prompts} prompts per step; expected at most {prompts}: "
            "each ministep needs a prompt of its own, raise --prompts"
        )
    if schedule.update not in ("auto", "gradient"):
        raise UsageError(f"schedule.update is '{schedule.update}'; a language model is fitted by 'gradient' only")
    if schedule.group is None:
        raise UsageError("schedule.group is not set; a language model draws its responses: give --group, such as 16")
    if schedule.group == 1 and traits(objective).needs_peers:
        raise UsageError(
            "schedule.group is 1 with a baseline that leaves the own response out; expected at least 2: raise --group"
        )
    settled = schedule.model_copy(update={"update": "gradient", "prompts": prompts})
    return spec.model_copy(update={"schedule": settled})
