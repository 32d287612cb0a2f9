"""`pmdkit eval RUN`: avg@k, pass@k and maj@k of a trained policy, with intervals."""

import json as to_json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

DATA = ("held-out",)
MEANING = {
    "avg_at_k": ("avg@{k}", "share of right draws"),
    "pass_at_k": ("pass@{k}", "at least one of {k} draws is right"),
    "maj_at_k": ("maj@{k}", "the most frequent answer of {k} draws is right"),
}


def eval(  # the verb's name
    run: Path,
    /,
    *,
    k: int = 32,
    data: str = "held-out",
    problems: int | None = None,
    seed: int = 0,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Draw from the policy of a run and grade: avg@k, pass@k and maj@k with 95 % intervals.

    The newest checkpoint is read; nothing in the run folder changes. Problems are those of the run's own evaluation:
    held out from training, or all of them where there are few; on a bandit every context.

    Args:
        run: folder of a run of pmdkit bandit or pmdkit toy.
        k: draws that count as one attempt.
        data: the problems, held-out.
        problems: how many at most; by default 256, and every context of a bandit.
        seed: of the draws.
        json: print one JSON value.
    """
    from dataclasses import asdict

    import torch

    from pmdkit.errors import UsageError
    from pmdkit.evaluation.drawing import draw, load
    from pmdkit.evaluation.statistics import evaluate
    from pmdkit.nearest import unknown
    from pmdkit.randomness import generator

    if data not in DATA:
        raise UsageError(unknown("data", data, DATA))
    spec, setup, step, warnings = load(run)
    for warning in warnings:
        print(f"pmdkit: warning: {warning}", file=sys.stderr)
    torch.set_num_threads(spec.run.threads)
    draws = draw(spec, setup, k, problems, seed)
    estimates = evaluate(draws, k, generator(seed, "eval", "bootstrap"))
    count, given = draws.right.shape
    over = "draws" if draws.exhaustive else "problems"
    if json:
        about = {"problems": count, "k": k, "draws": given, "interval_over": over, "step": step, "data": data}
        print(to_json.dumps({name: asdict(e) for name, e in estimates.items()} | about))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("", "value", "95 % interval", "meaning"):
        table.add_column(title, justify="left" if title in ("", "meaning") else "right")
    for name, e in estimates.items():
        short, long = (text.format(k=k) for text in MEANING[name])
        table.add_row(short, f"{e.value:.4f}", f"{e.low:.4f} to {e.high:.4f}", long)
    console = Console(highlight=False)
    console.print(f"[bold]{spec.tier} {spec.name}[/bold], {spec.objective['name']}, step {step}")
    console.print(table)
    what = "all problems" if draws.exhaustive else "held-out problems"
    console.print(f"{count} {what}, {given} draws on each; intervals by drawing {over} again", soft_wrap=True)
