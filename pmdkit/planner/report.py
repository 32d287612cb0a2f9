"""The plan as one JSON value, with the assumptions that it rests on."""

from dataclasses import asdict
from typing import Any

from pmdkit.config import Spec
from pmdkit.planner.advice import advice
from pmdkit.planner.predict import Prediction, best


def report(spec: Spec, prediction: Prediction) -> dict[str, Any]:
    """What `pmdkit plan --json` prints. Memory is of one accelerator; seconds and ms/token are of the whole cluster."""
    memory, work, cluster = prediction.memory, prediction.work, prediction.cluster
    engines = prediction.generators.engines
    return {
        "recipe": spec.name,
        "gpus": f"{cluster.count}x{cluster.gpu.name}",
        "fits": memory.fits,
        "memory_gib": memory.totals,
        "memory_parts_gib": memory.phases,
        "memory_limit_gib": memory.limit,
        "seconds_generation": prediction.generation.seconds,
        "seconds_scoring": prediction.scoring,
        "seconds_update": prediction.update.seconds,
        "update_waits_for": "network" if prediction.update.wire > prediction.update.compute else "products",
        "seconds_step": prediction.seconds,
        "hours": spec.schedule.steps * prediction.seconds / 3600,
        "gpu_hours": cluster.count * spec.schedule.steps * prediction.seconds / 3600,
        "lag": work.lag,
        "staleness": prediction.staleness,
        "division": division(prediction),
        "ms_per_token": prediction.ms_per_token,
        "on_policy_ms_per_token": prediction.on_policy.ms_per_token,
        "speedup_over_on_policy": prediction.speedup,
        "batch": {
            "prompts_per_step": work.prompts,
            "responses_per_prompt": work.group,
            "responses_per_step": work.rows,
            "responses_per_ministep": work.rows / work.ministeps,
            "updates_per_step": work.ministeps * work.passes,
            "visits_per_ministep": prediction.update.visits,
            "engines": engines,
            "responses_per_engine": work.rows / min(engines, max(1.0, work.rows)),
        },
        "generation": {
            "decode_steps": prediction.generation.steps,
            "decode_seconds": prediction.generation.decode,
            "prefill_seconds": prediction.generation.prefill,
            "sync_seconds": prediction.generation.sync,
            "waiting_share": prediction.generation.queue,
        },
        "assumptions": {
            "mean_response_tokens": prediction.lengths.mean,
            "longest_response_tokens": prediction.lengths.longest(work.rows),
            "prompt_tokens": work.prompt,
            "engine_memory_share": work.share,
            **asdict(prediction.efficiency),
        },
        "advice": [asdict(made) for made in advice(prediction)],
    }


def division(prediction: Prediction) -> dict[str, Any]:
    """Who generates and who trains, and the division whose step is shortest."""
    faster = best(prediction) if prediction.serve else None
    return {
        "generate": prediction.generators.count,
        "train": prediction.trainers.count,
        "apart": prediction.serve > 0,
        "overlap": prediction.overlaps,
        "best_serve": faster.serve if faster else None,
        "best_seconds_step": faster.seconds if faster else None,
    }
