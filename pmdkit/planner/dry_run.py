"""The plan behind `pmdkit llm --dry-run`: batch, staleness, memory by phase and files of a recipe."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pmdkit.config import Spec
from pmdkit.llm.recipe import check_lora_tables
from pmdkit.planner import model_size, workload
from pmdkit.planner.memory import process_memory

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class RecipePlan:
    """The plan of a recipe, as named quantities.

    Attributes:
        batch: prompts, responses and updates of a step.
        memory: GiB that a process holds, by phase.
        model: its size.
        files: what the run folder will hold.
    """

    batch: dict[str, float]
    memory: dict[str, float]
    model: dict[str, Any]
    files: dict[str, str]


def plan_recipe(spec: Spec) -> RecipePlan:
    """The plan of a resolved recipe."""
    check_lora_tables(spec)
    config = model_size.shape_of(spec)
    weights, active = model_size.count(config)
    sizes = workload.sizes_of(spec, config)
    model = about(spec, config, weights, active)
    if sizes.trained < weights:
        model["weights that are trained"] = sizes.trained
    memory = process_memory(spec, sizes, workload.work_of(spec))
    return RecipePlan(batch(spec), memory, model, files(spec, memory["checkpoint on disk"]))


def batch(spec: Spec) -> dict[str, float]:
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
        "staleness of the last ministep, updates": schedule.ministeps * schedule.passes * (1 + rollout.lag) - 1,
    }


def about(spec: Spec, config: "model_size.ModelShape | PretrainedConfig", weights: int, active: int) -> dict[str, Any]:
    """The model's origin, architecture and size."""
    model = spec.model
    return {
        "from": getattr(model, "path", None) or f"{getattr(model, 'build', None)}, built here",
        "architecture": config.model_type,
        "weights": weights,
        "weights per token": active,
        "layers": config.num_hidden_layers,
        "dimension": config.hidden_size,
        "vocabulary": config.vocab_size,
        "computes in": getattr(model, "dtype", "float32"),
    }


def files(spec: Spec, checkpoint: float) -> dict[str, str]:
    """What the run folder will hold; `checkpoint` is the size of one checkpoint in GiB."""
    assert spec.rollout is not None
    assert spec.evaluation is not None
    run = spec.run
    table = {
        "config.json, env.json": "before the first step",
        "metrics.jsonl": f"a line per step, {spec.schedule.steps} in all",
        "checkpoints/step-N/": f"{checkpoint:.2f} GiB each, {run.keep} kept, every {run.checkpoint_every} steps",
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
