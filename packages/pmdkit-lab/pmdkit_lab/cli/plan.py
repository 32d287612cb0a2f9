"""`pmdkit plan RECIPE --gpus 32xH100`: predicts memory, time and staleness of a run without the accelerators."""

from dataclasses import replace
from typing import Any

from rich.console import Console

from pmdkit.cli.options import Flag, RecipeName, RunOptions, Texts, Whole
from pmdkit.cli.output import pair_table, print_json, shown, simple_table


def plan(
    recipe: RecipeName,
    /,
    *,
    gpus: str | None = None,
    tp: Whole | None = None,
    serve: Whole | None = None,
    lengths: str = "direct",
    mean_length: float | None = None,
    prompt_length: Whole | None = None,
    steps: Whole | None = None,
    prompts: Whole | None = None,
    group: Whole | None = None,
    ministeps: Whole | None = None,
    set: Texts = None,
    json: Flag = False,
) -> None:
    """Memory by phase, seconds of generation and update, staleness and hours, from the model's configuration alone.

    The engine that generates is taken to be one like vLLM; the trainer is pmdkit's. Nothing is started or downloaded,
    except a configuration that is not shipped. How far off the numbers may be: docs/use/plan.md.

    Args:
        recipe: a recipe on the shelf (qwen2.5-7b, one-gpu) or a .toml file.
        gpus: number and kind, such as 32xH100; by default an H100 of 80 GB for each of parallel.processes.
        tp: accelerators that one engine cuts its matrices over; by default vllm.tensor_parallel.
        serve: accelerators that only generate while the others train; by default as many as [vllm] asks for where
            rollout.engine is vllm-server, else none.
        lengths: measured shape of response lengths: direct, or thinking for models that reason at length.
        mean_length: mean tokens of a response; by default the shape's share of the width.
        prompt_length: mean tokens of a prompt.
        steps: rollout batches in all.
        prompts: per step.
        group: responses to each prompt.
        ministeps: updates per rollout batch.
        set: any other key of the recipe.
        json: print one JSON value.
    """
    from pmdkit.llm.recipe_checks import check_requirements
    from pmdkit_lab.planner import cluster, workload

    if gpus is not None:
        cluster.cluster(gpus, tp or 1)
    check_requirements()
    from pmdkit.resolve import resolve
    from pmdkit_lab.planner import predict
    from pmdkit_lab.planner.checkpointing import must_recompute
    from pmdkit_lab.rehearsal.accepted import counts_of

    options = RunOptions(steps=steps, prompts=prompts, group=group, ministeps=ministeps, set=set)
    spec, _ = resolve("llm", recipe, options.changes())
    tensor, asked = workload.serving(spec)
    gpus = gpus or f"{spec.parallel.processes}xH100"
    where = cluster.cluster(gpus, tp or tensor)
    apart = cluster.divided(where, serve if serve is not None else asked) if serve is not None or asked else 0
    work = workload.work_of(spec, prompt_length)
    found = predict.Prediction(
        workload.sizes_of(spec),
        replace(work, sleeps=work.sleeps and not apart),
        workload.lengths(lengths, spec.rollout.width, mean_length),
        where,
        serve=apart,
        counts=counts_of(recipe, options.changes()),
    )
    decisions = []
    if spec.model.checkpointing == "auto":
        on, why = must_recompute(found)
        found, decisions = replace(found, work=replace(found.work, checkpointing=on)), [why]
    told = {**predict.report(spec, found), "decisions": decisions}
    print_json(told) if json else show_plan_tables(told)


def show_plan_tables(told: dict[str, Any]) -> None:
    """Print a report of the planner."""
    console = Console(highlight=False)
    verdict = "fits" if told["fits"] else "does not fit"
    console.print(f"[bold]{shown(told['recipe'])}[/bold] on {told['gpus']}: [bold]{verdict}[/bold]")
    phases = told["memory_parts_gib"]
    titles = ("", *(f">{phase}" for phase in phases))
    table = simple_table(*titles, title="memory of one accelerator, GiB", title_justify="left")
    table.columns[0].style = "dim"
    for part in dict.fromkeys(part for held in phases.values() for part in held):
        table.add_row(part, *(f"{held[part]:.2f}" if part in held else "" for held in phases.values()))
    table.add_section()
    table.add_row("together", *(f"{value:.2f}" for value in told["memory_gib"].values()))
    table.add_row("limit", *(f"{told['memory_limit_gib']:.2f}" for _ in phases))
    console.print(table)
    for why in told["decisions"]:
        console.print(why)
    b, a = told["batch"], told["assumptions"]
    rows = {
        "responses per step": f"{b['responses_per_step']:,.0f} = {b['prompts_per_step']:,.0f} prompts x "
        f"{b['responses_per_prompt']}",
        "updates per step": f"{b['updates_per_step']}, of {b['responses_per_ministep']:,.6g} responses each",
        "staleness of the last update": f"{told['staleness']:.3g} updates",
        "engines": f"{b['engines']}, {b['responses_per_engine']:,.6g} responses each",
        **divided(told),
        "passes of one update on one accelerator": f"{b['visits_per_ministep']}",
    }
    console.print(pair_table(rows, title="batch"))
    console.print(pair_table(time(told), title="time"))
    rows = {
        "response": f"{a['mean_response_tokens']:,.0f} tokens on average, the longest of a step "
        f"{a['longest_response_tokens']:,.0f}",
        "prompt": f"{a['prompt_tokens']} tokens",
        "share of the data sheet's peak": f"{100 * a['bandwidth']:.0f} % of bandwidth and {100 * a['products']:.0f} % "
        f"of products while generating, {100 * a['training']:.0f} % of products in updates",
    }
    console.print(pair_table(rows, title="assumed"))
    if told["advice"]:
        costs = {it["words"]: f"{it['gib']:.1f} GiB, {number(it['seconds'])} s per step" for it in told["advice"]}
        console.print(pair_table(costs, title="what would fit"))
    elif not told["fits"]:
        console.print("No variant that was tried fits: use a smaller model, or train adapters ([lora] rank = 8).")
    console.print(
        "Predicted from shapes and data sheets, not measured; an engine like vLLM is assumed. Nothing was started."
    )


def divided(told: dict[str, Any]) -> dict[str, str]:
    """Which accelerators generate and which train, if they are divided, and the effect of a lag."""
    parts, lag, rows = told["division"], told["lag"], {}
    if parts["apart"]:
        rows["accelerators"] = f"{parts['generate']} generate, {parts['train']} train"
        if parts["best_serve"] not in (None, parts["generate"]):
            faster = f"--serve {parts['best_serve']}, {number(parts['best_seconds_step'])} s per step"
            rows["accelerators"] += f"; faster: {faster}"
    if lag and parts["apart"]:
        rows[f"rollout.lag {lag}"] = "generation and update overlap: a step takes as long as the slower of the two"
    elif lag:
        rows[f"rollout.lag {lag}"] = "gains nothing on the same accelerators: --serve divides them"
    elif parts["apart"]:
        rows["rollout.lag 0"] = "engines and trainer wait for each other; --set rollout.lag=1 overlaps them"
    if lag:
        rows["weights on the host of each engine"] = f"up to {told['host_gib_for_lag']:.1f} GiB, for the lag"
    return rows


def time(told: dict[str, Any]) -> dict[str, str]:
    """Where the time goes."""
    ms, alone, g = told["ms_per_token"], told["on_policy_ms_per_token"], told["generation"]
    rows = {
        "generation": f"{number(told['seconds_generation'])} s per step, {ms['generation']:.4f} ms per token; "
        f"{g['steps']:,.0f} decode steps",
        "update": f"{number(told['seconds_update'])} s per step, {ms['update']:.4f} ms per token",
    }
    if told["seconds_update_at_least"]:
        low, high = told["update_bound_of_measured"]
        rows["update, at least"] = (
            f"{number(told['seconds_update_at_least'])} s per step, by the accepted rehearsal: the steps that were "
            f"measured took {1 / high:.2g} to {1 / low:.2g} times as long"
        )
    if told["update_waits_for"] == "network":
        rows["update"] += "; sending weights and gradients takes longer than computing"
    if told["seconds_scoring"]:
        seconds = f"{number(told['seconds_scoring'])} s per step"
        rows["scoring by the trainer"] = f"{seconds}, {ms['scoring']:.4f} ms per token"
    seconds = f"{told['evaluations']}, {number(told['seconds_evaluation'])} s each"
    rows["evaluations"] = f"{seconds}: {told['responses_evaluation']:,} responses"
    if g["queue"]:
        rows["responses that wait for memory"] = f"{100 * g['queue']:.0f} %"
    return rows | {
        "all steps": f"{number(told['hours'])} h, {number(told['gpu_hours'])} accelerator hours, evaluations included",
        "on-policy, each ministep its own rollout": f"generation {alone['generation']:.4f}, update "
        f"{alone['update']:.4f} ms per token",
        "speed-up over on-policy": f"{told['speedup_over_on_policy']:.2f}, of generation and update together",
    }


def number(value: float) -> str:
    """Three significant digits, or a whole number from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
