"""What `pmdkit llm --dry-run` shows, and what --fit measures before a run."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pmdkit.cli.options import RunOptions

if TYPE_CHECKING:
    from pmdkit.spec import Spec


def show_plan(recipe: str, options: RunOptions) -> None:
    """Print the plan of a recipe; with --json, the resolved configuration and the plan as one value."""
    from pmdkit.llm.plan import plan as plan_of
    from pmdkit.planning import plan

    spec, _ = plan("llm", recipe, options.changes())
    told = plan_of(spec)
    if options.json:
        print(json.dumps({"config": spec.record(), "plan": asdict(told)}))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from pmdkit.envs.scale import reward_scale
    from pmdkit.observe.units import say_tau

    console = Console(highlight=False)
    console.print(f"[bold]llm {spec.name}[/bold], {spec.objective['name']}")
    console.print(say_tau(spec.objective.get("tau"), reward_scale(spec)))
    for title, rows in (
        ("model", {name: value if isinstance(value, str) else f"{value:,}" for name, value in told.model.items()}),
        ("batch", {name: f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}" for name, value in told.batch.items()}),
        (per_process(spec), {name: f"{value:.3g}" for name, value in told.memory.items()}),
        ("files", told.files),
    ):
        table = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
        console.print(f"[italic]{title}[/italic]")
        table.add_column(style="dim", overflow="fold")
        table.add_column(overflow="fold")
        for row in rows.items():
            table.add_row(*row)
        console.print(table)
    console.print(
        "Memory counts tensors by their shapes; libraries and the allocator come on top. Nothing was started."
    )


def per_process(spec: "Spec") -> str:
    """The title of the memory table."""
    table = spec.parallel
    if table is None or table.processes == 1:
        return "memory, GiB"
    return f"memory of each of {table.processes} processes, GiB ({table.strategy})"


def measured(recipe: str, options: RunOptions) -> dict[str, Any]:
    """The token budget that fits, as a change of the spec."""
    import sys

    from pmdkit.llm.fit import fit
    from pmdkit.planning import plan

    spec, objective = plan("llm", recipe, options.changes())
    budget, tried = fit(spec, objective)
    for tokens, gib in tried:
        print(f"pmdkit: {tokens:,} tokens at once: {gib:.2f} GiB", file=sys.stderr)
    print(f"pmdkit: update.token_budget is {budget:,}", file=sys.stderr)
    return {"update.token_budget": budget}
