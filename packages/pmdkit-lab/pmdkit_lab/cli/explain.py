"""`pmdkit explain`: what an objective secretly solves, on one screen or as JSON."""

import math
import sys
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console

from pmdkit.cli.options import Flag, Texts, assignments
from pmdkit.cli.output import print_json, simple_table
from pmdkit.errors import UsageError

if TYPE_CHECKING:
    from pmdkit_lab.explain import Explanation


def explain(
    name: str | None = None,
    *,
    tau: float | None = None,
    set: Texts = None,
    json: Flag = False,
) -> None:
    """Find out what an objective solves, from its loss alone: exact expectations over a table of responses.

    Args:
        name: an objective (see pmdkit objectives) or my.py:MyLoss; without one, a line for each objective.
        tau: temperature in reward units; rewards are graded from 0 to 1.
        set: any other option of the objective, such as norm=none.
        json: print one JSON value.
    """
    from pmdkit.objectives import OBJECTIVES
    from pmdkit_lab.explain import explain as ask
    from pmdkit_lab.explain.report import to_json

    options = {key.removeprefix("objective."): value for key, value in assignments(set or []).items()}
    if tau is not None:
        options["tau"] = tau
    if name is None and options:
        raise UsageError("--tau and --set need the name of an objective: pmdkit explain pmd-mean --tau 0.1")
    found: list[Explanation] = []
    for key in list(OBJECTIVES) if name is None else [name]:
        if name is None:
            print(f"asking {key}", file=sys.stderr, flush=True)
        found.append(ask(key, **options))
    if json:
        told = [to_json(each) for each in found]
        print_json(told if name is None else told[0], allow_nan=False)
    elif name is None:
        overview(found)
    else:
        show(found[0])


def overview(found: "list[Explanation]") -> None:
    """Print one row for each objective."""
    from pmdkit_lab.explain.report import certificate, headline

    table = simple_table("objective", "what it solves (rewards graded in [0, 1], default options), and its certificate")
    for each in found:
        table.add_row(each.name, f"{headline(each)}\n{certificate(each)}".replace("[", r"\["))
    console = Console()
    console.print(table)
    console.print("pmdkit explain NAME says why, and what follows from it.")


def show(e: "Explanation") -> None:
    """Print the screen of one objective."""
    from pmdkit_lab.explain.report import caveats, certificate, facts, headline, solves

    console = Console()

    def write(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False)

    write(f"{e.name}  " + " ".join(f"{key}={value}" for key, value in e.options.items()), "bold")
    write(headline(e))
    write(certificate(e), "dim")
    for sentence in solves(e):
        write(sentence)
    console.print(step_table(e))
    for sentence in facts(e):
        write(f"- {sentence}")
    for sentence in caveats(e):
        write(f"! {sentence}")
    write("--json gives every number", "dim")


def step_table(e: "Explanation") -> Any:
    """One exact step, by pass rate."""
    from pmdkit_lab.explain.report import share

    steps = e.steps
    rates = (f">{p:g}" for p in steps.p)
    table = simple_table("one exact step, rewards {0,1}: p =", *rates, box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_row("first step, times the policy gradient", *(f"{factor:.3g}" for _, factor in e.first.by_pass_rate))
    table.add_row("net pull back to pi_old (-: a push away)", *(f"{pull:.3g}" for _, pull in e.first.pull_back))
    columns = []
    for k, p in enumerate(steps.p):
        right, wrong = math.e ** steps.log_ratio_right[k], math.e ** steps.log_ratio_wrong[k]
        rest = (share(float(steps.eta[k])), f"{1 - p:.3g} -> {(1 - p) * wrong:.2g}", f"{right:.4g}, {wrong:.2g}")
        columns.append(rest if steps.rests[k] else ("never rests", "-> 0", "-"))
    titles = ("eta, share of the gap to 1 closed", "error rate before -> after", "ratio of right, of wrong")
    for title, *cells in zip(titles, *columns, strict=True):
        table.add_row(title, *cells)
    return table
