"""`pmdkit plan RECIPE --gpus 32xH100`: memory, time and staleness of a run on accelerators not rented yet."""

import json as to_json
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from pmdkit.llm.planner.words import Keys


def plan(
    recipe: str,
    /,
    *,
    gpus: str,
    tp: int = 1,
    ep: int = 1,
    lengths: str = "direct",
    mean_length: float | None = None,
    prompt_length: int | None = None,
    as_: Annotated[str | None, Parameter(name="--as")] = None,
    objective: str | None = None,
    steps: int | None = None,
    prompts: int | None = None,
    group: int | None = None,
    ministeps: int | None = None,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Memory by phase, seconds of generation and update, staleness and hours, from the model's configuration alone.

    The engine that generates is taken to be one like vLLM; the trainer is pmdkit's. Nothing is started or downloaded,
    except a configuration that is not shipped. How far off the numbers may be: docs/use/plan.md.

    Args:
        recipe: a recipe on the shelf (qwen2.5-7b, one-gpu) or a .toml file.
        gpus: how many of which, such as 32xH100.
        tp: accelerators that one engine cuts its matrices over.
        ep: accelerators that share one copy of the experts while generating.
        lengths: measured shape of response lengths: direct, or thinking for models that reason at length.
        mean_length: mean tokens of a response; by default the shape's share of the width.
        prompt_length: mean tokens of a prompt.
        as_: print the keys of accelerate, trl or verl for the same batch instead.
        objective: name, or my.py:MyLoss; changes no cost.
        steps: rollout batches in all.
        prompts: per step.
        group: responses to each prompt.
        ministeps: updates per rollout batch.
        set: any other key of the recipe.
        json: print one JSON value.
    """
    from pmdkit.cli.options import RunOptions
    from pmdkit.llm.planner.gpus import cluster
    from pmdkit.llm.planner.lengths import lengths as measured
    from pmdkit.llm.room import check_room

    where = cluster(gpus, tp, ep)
    check_room()
    from pmdkit.llm.planner.predict import Prediction
    from pmdkit.llm.planner.sizes import sizes_of, work_of
    from pmdkit.planning import plan as resolve

    options = RunOptions(objective=objective, steps=steps, prompts=prompts, group=group, ministeps=ministeps, set=set)
    spec, _ = resolve("llm", recipe, options.changes())
    assert spec.rollout is not None
    found = Prediction(
        sizes_of(spec), work_of(spec, prompt_length), measured(lengths, spec.rollout.width, mean_length), where
    )
    if as_ is not None:
        from pmdkit.llm.planner.export import FRAMEWORKS, export

        show_keys(export(as_, spec, found), FRAMEWORKS[as_].version, json)
        return
    from pmdkit.llm.planner.report import report

    if json:
        print(to_json.dumps(report(spec, found)))
        return
    from pmdkit.cli.plan_table import show

    show(report(spec, found))


def show_keys(keys: "Keys", version: str, json: bool) -> None:
    """Keys on stdout, as a file or overrides, with what they count behind a #."""
    from dataclasses import asdict

    from pmdkit.llm.planner.words import lines

    if json:
        print(to_json.dumps(asdict(keys) | {"version": version}))
        return
    print(f"# {version}")
    for line in lines(keys):
        print(line)
