"""`pmdkit plan RECIPE --scale`: a table of simulated designs on more and more accelerators, and their figure."""

import json as to_json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pmdkit.llm.planner.predict import Prediction
    from pmdkit.spec import Spec

BOUNDS = {
    "longest": "engines wait until the longest response ends",
    "room": "responses wait for memory of keys and values",
    "decoding": "decode steps of responses side by side take the time",
    "network": "trainers wait for weights and gradients",
    "rows": "a ministep has too few responses to fill the trainers",
    "products": "trainers compute",
}


def show_scaling(spec: "Spec", prediction: "Prediction", out: Path | None, json: bool) -> None:
    """Simulate and print; with a folder, draw as well."""
    from pmdkit.errors import UsageError
    from pmdkit.llm.planner.scale_report import scale_report
    from pmdkit.llm.planner.scaling import scaling
    from pmdkit.observe.folder import make

    if out is not None:
        if out.exists() and not out.is_dir():
            raise UsageError(f"output {out} is a file; expected a folder: give another --out")
        make(out)
    print("pmdkit: simulating ...", file=sys.stderr, flush=True)
    told = scale_report(spec.name, prediction, scaling(prediction))
    if out is not None:
        from pmdkit.figures.scaling import draw

        drawing = draw(told)
        told |= {"files": [str(path) for path in drawing.save(out / f"scaling-{spec.name}")], "see": drawing.sentence}
    print(to_json.dumps(told)) if json else show(told)


def show(told: dict[str, Any]) -> None:
    """The table for a person."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"[bold]{told['recipe']}[/bold], simulated on more and more {told['gpus'].split('x', 1)[1]}")
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("GPUs", "design", "split", "s/step", "tokens/s", "write", "train", "stale", "bound"):
        table.add_column(name, justify="left" if name in ("design", "bound") else "right", no_wrap=True)
    before = None
    for point in told["points"]:
        if before is not None and point["gpus"] != before:
            table.add_section()
        table.add_row(*row(point, point["gpus"] != before))
        before = point["gpus"]
    console.print(table)
    for design, gpus in told["stops_scaling_at"].items():
        end = (
            f"twice {gpus} give less than {told['worth']:g} times as much" if gpus else "scales to the end of the table"
        )
        console.print(f"[dim]{design}:[/dim] {end}")
    seen = dict.fromkeys(point["bound"] for point in told["points"])
    console.print("\n" + "\n".join(f"[dim]{name}:[/dim] {BOUNDS[name]}" for name in seen))
    if any(not point["fits"] for point in told["points"]):
        console.print("[dim]!:[/dim] does not fit the memory")
    console.print(
        "\nsplit: accelerators that write + those that train. write, train: share of time that these work at it. "
        "stale: updates between the policy that wrote a response and the last one that learns from it. unscored: in "
        "turns, with pi_old from the engine, as every lag needs it. larger batch: in turns, with a rollout batch that "
        "grows with the accelerators and ministeps that do not."
    )
    console.print(
        f"Simulated from drawn lengths ({told['mean_response_tokens']:,.0f} tokens on average), shapes and data "
        "sheets; nothing was measured or started."
    )
    if "files" in told:
        console.print(told["see"] + "\n" + "  ".join(told["files"]), soft_wrap=True)


def row(point: dict[str, Any], first: bool) -> list[str]:
    """A line of the table."""
    apart = point["generate"] + point["train"] == point["gpus"] and point["train"] != point["gpus"]
    return [
        str(point["gpus"]) if first else "",
        point["design"] + ("" if point["fits"] else " !"),
        f"{point['generate']}+{point['train']}" if apart else "all",
        f"{point['seconds_step']:.0f}" if point["seconds_step"] >= 10 else f"{point['seconds_step']:.3g}",
        f"{point['tokens_per_second']:,.0f}",
        f"{100 * point['share_generating']:.0f}%",
        f"{100 * point['share_training']:.0f}%",
        str(point["staleness"]),
        point["bound"],
    ]
