"""A setting of the batch planner as a recipe of pmdkit, and what pmdkit predicts of it: what the page must show."""

from functools import cache

import numpy as np

from pmdkit.resolve import resolve
from pmdkit_lab.planner.cluster import cluster
from pmdkit_lab.planner.predict import Prediction, best
from pmdkit_lab.planner.workload import lengths, sizes_of, work_of

TOLERANCE = 1e-9  # relative: both sum up to 32,768 terms in float64, in another order

PAPER = {
    "model": "Qwen/Qwen2.5-7B", "gpu": "H100", "gpus": 32, "tp": 1, "serve": 0, "shape": "direct", "mean": None,
    "prompts": 512, "group": 16, "ministeps": 16, "passes": 1, "lag": 0, "width": 8192, "max_prompt": 2048,
    "prompt": 170, "token_budget": 20480, "checkpointing": True, "fsdp2": True, "recompute": True,
    "share": 0.7, "sleeps": True,
}  # fmt: skip


@cache
def tables():
    """What the page reads, made as the build makes it."""
    from generate.explore_static import planner_tables

    return planner_tables()


def resolved(setting):
    """The same setting as a recipe of pmdkit."""
    changes = {
        "model.path": setting["model"], "model.checkpointing": setting["checkpointing"],
        "parallel.strategy": "fsdp2" if setting["fsdp2"] else "ddp", "schedule.prompts": setting["prompts"],
        "schedule.group": setting["group"], "schedule.ministeps": setting["ministeps"],
        "schedule.passes": setting["passes"], "rollout.width": setting["width"],
        "rollout.max_prompt": setting["max_prompt"], "rollout.lag": setting["lag"],
        "rollout.old": "recompute" if setting["recompute"] else "rollout",
        "update.token_budget": setting["token_budget"],
    }  # fmt: skip
    return resolve("llm", "qwen2.5-7b", changes)[0]


def predicted(setting):
    """What pmdkit's planner says of the setting, and the recipe."""
    spec = resolved(setting)
    shape = lengths(setting["shape"], setting["width"], setting["mean"])
    place = cluster(f"{setting['gpus']}x{setting['gpu']}", setting["tp"])
    work = work_of(spec, setting["prompt"])
    return spec, Prediction(sizes_of(spec), work, shape, place, serve=setting["serve"])


def best_of(setting):
    """The accelerators that generate in the planner's best division, or None where none fits."""
    division = best(predicted(setting)[1])
    return division and division.serve


def assert_close(told, wanted, where=""):
    """Every number equal to TOLERANCE, every word and verdict equal."""
    if isinstance(wanted, dict):
        assert set(told) == set(wanted), where
        for key, value in wanted.items():
            assert_close(told[key], value, f"{where}/{key}")
    elif isinstance(wanted, bool | str):
        assert told == wanted, where
    else:
        np.testing.assert_allclose(told, wanted, rtol=TOLERANCE, atol=1e-12, err_msg=where)
