"""What `pmdkit llm --dry-run` shows: batch and staleness of a recipe. Nothing is built."""

from pmdkit.specs import LLMSpec


def batch(spec: LLMSpec) -> dict[str, float]:
    """Prompts, responses, updates and staleness."""
    schedule, rollout = spec.schedule, spec.rollout
    assert schedule.prompts is not None
    assert schedule.group is not None
    responses = schedule.prompts * schedule.group
    return {
        "steps": schedule.steps,
        "prompts per step": schedule.prompts,
        "responses per prompt": schedule.group,
        "responses per step": responses,
        "tokens per response, at most": rollout.width,
        "tokens per step, at most": responses * rollout.width,
        "ministeps per step": schedule.ministeps,
        "prompts per ministep": schedule.prompts / schedule.ministeps,
        "responses per ministep": responses / schedule.ministeps,
        "optimizer steps": schedule.steps * schedule.ministeps * schedule.passes,
        "staleness of the last ministep, updates": spec.staleness,
    }
