"""A plan as tables for a person: units with names."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def show(told: dict[str, Any]) -> None:
    """Print a report of the planner."""
    console = Console(highlight=False)
    verdict = "fits" if told["fits"] else "does not fit"
    console.print(f"[bold]{told['recipe']}[/bold] on {told['gpus']}: [bold]{verdict}[/bold]")
    console.print(memory(told))
    for title, rows in (("batch", batch(told)), ("time", time(told)), ("assumed", assumed(told))):
        console.print(pairs(title, rows))
    if told["advice"]:
        console.print(pairs("what would fit", {made["words"]: said(made) for made in told["advice"]}))
    elif not told["fits"]:
        console.print("Nothing that was tried fits: take a smaller model, or train adapters ([lora] rank = 8).")
    console.print(
        "Predicted from shapes and data sheets, not measured; the engine is taken to be one like vLLM. "
        "Nothing was started."
    )


def memory(told: dict[str, Any]) -> Table:
    """GiB of one accelerator by part and phase."""
    table = Table(box=box.SIMPLE, pad_edge=False, title="memory of one accelerator, GiB", title_justify="left")
    phases = told["memory_parts_gib"]
    table.add_column("", style="dim")
    for phase in phases:
        table.add_column(phase, justify="right")
    parts = dict.fromkeys(part for held in phases.values() for part in held)
    for part in parts:
        table.add_row(part, *(f"{held[part]:.2f}" if part in held else "" for held in phases.values()))
    table.add_section()
    table.add_row("together", *(f"{value:.2f}" for value in told["memory_gib"].values()))
    table.add_row("limit", *(f"{told['memory_limit_gib']:.2f}" for _ in phases))
    return table


def batch(told: dict[str, Any]) -> dict[str, str]:
    """What a step asks for."""
    b = told["batch"]
    return {
        "responses per step": f"{b['responses_per_step']:,.0f} = {b['prompts_per_step']:,.0f} prompts x "
        f"{b['responses_per_prompt']}",
        "updates per step": f"{b['updates_per_step']}, of {b['responses_per_ministep']:,.6g} responses each",
        "staleness of the last update": f"{told['staleness']} updates",
        "engines": f"{b['engines']}, {b['responses_per_engine']:,.6g} responses each",
        **divided(told),
        "passes of one update on one accelerator": f"{b['visits_per_ministep']}",
    }


def divided(told: dict[str, Any]) -> dict[str, str]:
    """Who generates and who trains, where that is asked for, and what a lag does there."""
    parts, lag = told["division"], told["lag"]
    rows = {}
    if parts["apart"]:
        rows["accelerators"] = f"{parts['generate']} generate, {parts['train']} train"
        if parts["best_serve"] and parts["best_serve"] != parts["generate"]:
            rows["accelerators"] += (
                f"; faster: --serve {parts['best_serve']}, {number(parts['best_seconds_step'])} s per step"
            )
    share = told["assumptions"]["engine_memory_share"]
    if parts["apart"] and share is not None and share < 0.85:
        rows[f"vllm.memory {share:g}"] = "an engine on accelerators of its own may have 0.9 of their memory"
    if parts["overlap"]:
        rows[f"rollout.lag {lag}"] = "generation and update at the same time: a step lasts as long as the slower"
    elif lag:
        rows[f"rollout.lag {lag}"] = (
            "gains nothing where the same accelerators generate and train, and the policy is as stale: --serve divides "
            "them"
        )
    elif parts["apart"]:
        rows["rollout.lag 0"] = "engines and trainer wait for each other; --set rollout.lag=1 overlaps them"
    return rows


def time(told: dict[str, Any]) -> dict[str, str]:
    """Where the time goes."""
    ms, alone, g = told["ms_per_token"], told["on_policy_ms_per_token"], told["generation"]
    rows = {
        "generation": f"{number(told['seconds_generation'])} s per step, {ms['generation']:.4f} ms per token; "
        f"{g['decode_steps']:,.0f} decode steps",
        "update": f"{number(told['seconds_update'])} s per step, {ms['update']:.4f} ms per token",
    }
    if told["update_waits_for"] == "network":
        rows["update"] += "; sending weights and gradients takes longer than computing"
    if told["seconds_scoring"]:
        rows["scoring by the trainer"] = (
            f"{number(told['seconds_scoring'])} s per step, {ms['scoring']:.4f} ms per token"
        )
    if g["waiting_share"]:
        rows["responses that wait for memory"] = f"{100 * g['waiting_share']:.0f} %"
    return rows | {
        "all steps": f"{number(told['hours'])} h, {number(told['gpu_hours'])} accelerator hours, without evaluations",
        "on-policy, each ministep its own rollout": f"generation {alone['generation']:.4f}, update "
        f"{alone['update']:.4f} ms per token",
        "speed-up over on-policy": f"{told['speedup_over_on_policy']:.2f}, of generation and update together",
    }


def assumed(told: dict[str, Any]) -> dict[str, str]:
    """What the times rest on."""
    a = told["assumptions"]
    return {
        "response": f"{a['mean_response_tokens']:,.0f} tokens on average, the longest of a step "
        f"{a['longest_response_tokens']:,.0f}",
        "prompt": f"{a['prompt_tokens']} tokens",
        "reached of the data sheet": f"{100 * a['bandwidth']:.0f} % of bandwidth and {100 * a['products']:.0f} % of "
        f"products while generating, {100 * a['training']:.0f} % of products in updates",
    }


def said(made: dict[str, Any]) -> str:
    """A suggestion's cost."""
    return f"{made['gib']:.1f} GiB, {number(made['seconds'])} s per step"


def number(value: float) -> str:
    """Three digits, or all of a larger number's whole ones."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def pairs(title: str, rows: dict[str, str]) -> Table:
    """Two columns."""
    table = Table(box=box.SIMPLE, pad_edge=False, show_header=False, title=title, title_justify="left")
    table.add_column(style="dim", overflow="fold")
    table.add_column(overflow="fold")
    for row in rows.items():
        table.add_row(*row)
    return table
