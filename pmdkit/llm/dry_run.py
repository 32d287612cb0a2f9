"""What `pmdkit llm --dry-run` shows: batch and staleness of a recipe. Nothing is built."""

from pmdkit.specs import LLMSpec


def batch(spec: LLMSpec) -> dict[str, float]:
    """Prompts, responses, updates and staleness."""
    schedule, rollout = spec.schedule, spec.rollout
    prompts, group = schedule.prompts or 0, schedule.group or 0  # a resolved recipe has both
    responses = prompts * group
    return {
        "steps": schedule.steps,
        "prompts per step": prompts,
        "responses per prompt": group,
        "responses per step": responses,
        "tokens per response, at most": rollout.width,
        "tokens per step, at most": responses * rollout.width,
        "ministeps per step": schedule.ministeps,
        "prompts per ministep": prompts / schedule.ministeps,
        "responses per ministep": responses / schedule.ministeps,
        "optimizer steps": schedule.steps * schedule.ministeps * schedule.passes,
        "staleness of the last ministep, updates": spec.staleness,
    }
