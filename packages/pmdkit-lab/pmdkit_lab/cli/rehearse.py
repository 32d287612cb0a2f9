"""`pmdkit llm RECIPE --rehearse`: go through a recipe at full size, and print what was found."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from pmdkit.cli.output import print_json, shown, simple_table
from pmdkit.errors import CheckFailed

MOST = 8  # lines of allocation and of waits


def rehearse(recipe: str, changes: Mapping[str, Any], gpus: str | None, trust: Sequence[str], json: bool) -> None:
    """Print what a rehearsal found; exit 4 if the recipe does not fit, or has a mistake."""
    from pmdkit_lab.rehearsal.rehearse import rehearse

    report = rehearse(recipe, changes, gpus, trust)
    print_json(report) if json else show_rehearsal(report)
    if not report["fits"]:
        raise CheckFailed(report["verdict"])


def show_rehearsal(report: Mapping[str, Any]) -> None:
    """Print a report of the rehearsal."""
    console = Console(highlight=False)
    how = "rehearsed" if report["rehearsed"] else "rehearsed in part"
    ranks = ", ".join(map(str, report["ranks"]))
    ranks += "".join(f"; {rank} has shards like those of {other}" for rank, other in report["alike"].items())
    console.print(f"[bold]llm {shown(report['recipe'])}[/bold] on {report['gpus']}, {how}: ranks {ranks}")
    table = simple_table("phase", ">GiB", ">TFLOP", "products in", ">GiB sent", "kernels in", ">waits", ">s at least")
    for name, phase in report["phases"].items():
        kinds = phase["kernels"]
        table.add_row(
            name,
            f"{phase['peak_gib']:.2f}" if phase["peak_gib"] else "-",
            f"{sum(phase['products_tflop'].values()):,.0f}",
            " ".join(phase["products_tflop"]),
            f"{sum(phase['traffic_gib'].values()):,.1f}",
            " ".join(f"{kind} {count}" for kind, count in kinds.items() if kind != "integer"),
            str(sum(phase["waits"].values())),
            f"{phase['seconds']:.3f}",
        )
    table.caption = (
        "one step of two micro-batches; memory at the fullest moment of each phase; seconds from the data sheet, "
        "a bound: an H200 took 1.3 to 2 times as long for updates"
    )
    console.print(table)
    if step := report["step_seconds"]:
        words = f"at least {step['update']:.3g} s, planned {step['planned']:.3g} s"
        console.print(f"updates of a whole step: {step['passes']} passes, {words}")
    lines = simple_table(">ms", ">calls", ">TFLOP", ">GB", ">ms saved", "the costliest operators")
    for one in report["costliest"]:
        numbers = 1e3 * one["seconds"], one["calls"], one["tflop"], one["gb"], 1e3 * one["fusing_saves"]
        lines.add_row(*(f"{number:,.4g}" for number in numbers), shown(one["where"]))
    lines.caption = "saved: at most, if one kernel did it together with what its function did before"
    console.print(lines)
    fullest = max(report["phases"], key=lambda name: report["phases"][name]["peak_gib"], default=None)
    for name in dict.fromkeys(filter(None, (fullest, "update"))):
        phase = report["phases"].get(name, {"sites_gib": {}, "waits": {}})
        lines = simple_table(">GiB", f"held at the peak of {name} since")
        for site, size in list(phase["sites_gib"].items())[:MOST]:
            lines.add_row(f"{size:.2f}", shown(site))
        console.print(lines)
    waits = {where: n for phase in report["phases"].values() for where, n in phase["waits"].items()}
    lines = simple_table(">times", "the host waits for")
    for where, count in sorted(waits.items(), key=lambda pair: -pair[1])[:MOST]:
        lines.add_row(str(count), shown(where))
    console.print(lines)
    if report["accepted"]:
        console.print(f"compared with the rehearsal that was accepted {report['accepted']}", soft_wrap=True)
        for words in report["deviations"] or ["no number deviates by more than 1 %"]:
            console.print(f"  {shown(words)}", soft_wrap=True)
        if report["deviations"]:
            console.print("if that is meant, remove the record there to accept it", soft_wrap=True)
    for part in report["skipped"]:
        console.print(f"skipped: {shown(part)}", soft_wrap=True)
    console.print(shown(report["verdict"]), soft_wrap=True)
