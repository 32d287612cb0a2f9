"""What `pmdkit llm --dry-run` shows: batch, staleness and files of a recipe. Nothing is built."""

from pmdkit.specs import LLMSpec


def batch(spec: LLMSpec) -> dict[str, float]:
    """Prompts, responses, updates and staleness."""
    schedule, rollout = spec.schedule, spec.rollout
    assert rollout is not None
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


def files(spec: LLMSpec) -> dict[str, str]:
    """What the run folder will hold."""
    assert spec.rollout is not None
    assert spec.evaluation is not None
    run = spec.run
    table = {
        "config.json, env.json": "before the first step",
        "metrics.jsonl": f"a line per step, {spec.schedule.steps} in all",
        "checkpoints/step-N/": f"{run.keep} kept, every {run.checkpoint_every} steps",
        "evaluations/": "every response before the first and after the last update"
        + (f", and every {spec.evaluation.every} steps" if spec.evaluation.every else ""),
        "data.json, audit.json": "what was dropped or repaired on reading, and the verifier's first decisions",
        "verdicts.jsonl": "verdicts that needed a worker process",
        "summary.json": "at the end",
    }
    if spec.rollout.record_every:
        table["rollouts/step-N.jsonl"] = f"responses as text, every {spec.rollout.record_every} steps"
    if spec.run.record:
        table["rollouts/step-N.safetensors"] = f"what `pmdkit replay` needs, every {spec.run.record} steps"
    return table
