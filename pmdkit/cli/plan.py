"""`pmdkit plan RECIPE --gpus 32xH100`: memory, time and staleness of a run on accelerators not rented yet."""

import json as to_json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pmdkit.cli.options import Number, Whole

if TYPE_CHECKING:
    from pmdkit.llm.planner.words import Keys


def plan(
    recipe: str,
    /,
    *,
    gpus: str,
    tp: Whole | None = None,
    ep: Whole = 1,
    serve: Whole | None = None,
    lengths: str = "direct",
    mean_length: Number | None = None,
    prompt_length: Whole | None = None,
    as_: Annotated[str | None, Parameter(name="--as")] = None,
    scale: Annotated[bool, Parameter(negative="")] = False,
    out: Path | None = None,
    objective: str | None = None,
    steps: Whole | None = None,
    prompts: Whole | None = None,
    group: Whole | None = None,
    ministeps: Whole | None = None,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Memory by phase, seconds of generation and update, staleness and hours, from the model's configuration alone.

    The engine that generates is taken to be one like vLLM; the trainer is pmdkit's. Nothing is started or downloaded,
    except a configuration that is not shipped. How far off the numbers may be: docs/use/plan.md.

    Args:
        recipe: a recipe on the shelf (qwen2.5-7b, one-gpu) or a .toml file.
        gpus: how many of which, such as 32xH100.
        tp: accelerators that one engine cuts its matrices over; by default vllm.tensor_parallel.
        ep: accelerators that share one copy of the experts while generating.
        serve: accelerators that only generate while the others train; by default as many as [vllm] asks for where
            rollout.engine is vllm-server, else none.
        lengths: measured shape of response lengths: direct, or thinking for models that reason at length.
        mean_length: mean tokens of a response; by default the shape's share of the width.
        prompt_length: mean tokens of a prompt.
        as_: print the keys of accelerate, trl or verl for the same batch instead.
        scale: simulate the recipe on a quarter to sixteen times the accelerators, in turns and with a lag.
        out: folder for the figure of --scale.
        objective: name, or my.py:MyLoss; changes no cost.
        steps: rollout batches in all.
        prompts: per step.
        group: responses to each prompt.
        ministeps: updates per rollout batch.
        set: any other key of the recipe.
        json: print one JSON value.
    """
    from pmdkit.cli.options import RunOptions
    from pmdkit.errors import UsageError
    from pmdkit.llm.planner.gpus import cluster, divided
    from pmdkit.llm.planner.lengths import lengths as measured
    from pmdkit.llm.room import check_room

    where = cluster(gpus, tp or 1, ep)
    if out is not None and not scale:
        raise UsageError("--out is the folder of the figure that --scale draws; give both")
    if scale and as_ is not None:
        raise UsageError("--scale simulates and --as translates; give one of them")
    check_room()
    from pmdkit.llm.planner.predict import Prediction
    from pmdkit.llm.planner.sizes import serving, sizes_of, work_of
    from pmdkit.planning import plan as resolve

    options = RunOptions(objective=objective, steps=steps, prompts=prompts, group=group, ministeps=ministeps, set=set)
    spec, _ = resolve("llm", recipe, options.changes())
    assert spec.rollout is not None
    tensor, asked = serving(spec)
    where = cluster(gpus, tp or tensor, ep)
    apart = divided(where, serve if serve is not None else asked) if serve is not None or asked else 0
    work = work_of(spec, prompt_length)
    found = Prediction(
        sizes_of(spec),
        replace(work, sleeps=work.sleeps and not apart),
        measured(lengths, spec.rollout.width, mean_length),
        where,
        serve=apart,
    )
    if scale:
        from pmdkit.cli.plan_scale import show_scaling

        show_scaling(spec, found, out, json)
        return
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
