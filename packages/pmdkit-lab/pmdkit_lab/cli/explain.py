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
    from pmdkit_lab.explain.entropy import EntropyCost, SamplerEffect


def explain(
    name: str | None = None,
    *,
    tau: float | None = None,
    set: Texts = None,
    sampler: str | None = None,
    entropy: Flag = False,
    json: Flag = False,
) -> None:
    """Find out what an objective solves, from its loss alone: exact expectations over a table of responses.

    Args:
        name: an objective (see pmdkit objectives) or my.py:MyLoss; without one, a line for each objective.
        tau: temperature in reward units; rewards are graded from 0 to 1.
        set: any other option of the objective, such as norm=none.
        sampler: a sampler that the loss does not know of, as top_p=0.9,temperature=0.8: what it does to the first step.
        entropy: nats of entropy lost for the reward gained, on the graded problem.
        json: print one JSON value.
    """
    from dataclasses import asdict

    from pmdkit.objectives import OBJECTIVES, load_objective
    from pmdkit_lab.explain import explain as ask
    from pmdkit_lab.explain.entropy import entropy_cost, sampler_effect
    from pmdkit_lab.explain.report import to_json
    from pmdkit_lab.json_values import plain

    options = {key.removeprefix("objective."): value for key, value in assignments(set or []).items()}
    if tau is not None:
        options["tau"] = tau
    if name is None and (options or sampler):
        raise UsageError("--tau, --set and --sampler need the name of an objective: pmdkit explain pmd-mean --tau 0.1")
    drawing = sampler_options(sampler) if sampler else {}
    found: list[Explanation] = []
    more: list[dict[str, Any]] = []
    for key in list(OBJECTIVES) if name is None else [name]:
        if name is None:
            print(f"asking {key}", file=sys.stderr, flush=True)
        found.append(ask(key, **options))
        objective = load_objective(key, **options)
        effect = {"sampler": sampler_effect(objective, **drawing)} if sampler else {}
        cost = {"entropy": entropy_cost(objective, found[-1].rests["graded rewards"])} if entropy else {}
        more.append(effect | cost)
    if json:
        told = [
            to_json(each) | {key: plain(asdict(value)) for key, value in extra.items()}
            for each, extra in zip(found, more, strict=True)
        ]
        print_json(told if name is None else told[0], allow_nan=False)
    elif name is None and entropy:
        frontier([(each.name, extra["entropy"]) for each, extra in zip(found, more, strict=True)])
    elif name is None:
        overview(found)
    else:
        show(found[0])
        if sampler:
            print(sampler_sentences(more[0]["sampler"]))
        if entropy:
            frontier([(found[0].name, more[0]["entropy"])])


def sampler_options(text: str) -> dict[str, float]:
    """`top_p=0.9,temperature=0.8` as numbers."""
    pairs = text.split(",")
    given = assignments(pairs) if all("=" in pair for pair in pairs) else {"": text}
    if not given.keys() <= {"top_p", "temperature"} or not all(type(value) in (int, float) for value in given.values()):
        raise UsageError(f"--sampler got '{text[:80]}'; expected numbers for top_p and temperature: top_p=0.9")
    return {key: float(value) for key, value in given.items()}


def sampler_sentences(effect: "SamplerEffect") -> str:
    """What the sampler does to the first step."""
    rates = ", ".join(f"{0.0 if abs(c) < 1e-12 else c:.3g} at p = {p:g}" for p, c in effect.by_pass_rate)
    first = f"Drawn at top_p {effect.top_p:g} and temperature {effect.temperature:g}, which the loss does not apply: "
    first += f"of the graded problem {effect.drawn:.3g} of the probability can be drawn, and the rest is not corrected."
    if abs(effect.c) < 1e-12:
        push = (
            "Its advantages average to zero under the sampler (c = 0), so where rewards say nothing it moves nothing."
        )
    else:
        way = "raises" if effect.entropy > 0 else "lowers" if effect.entropy < 0 else "leaves"
        push = (
            f"Its first step has a push c (pi - q) with c = {effect.c:.3g}, whatever the rewards say. Here it {way} "
            f"the entropy by {abs(effect.entropy):.2g} nats per unit of step size."
        )
    return f"{first}\n{push}\nc by the pass rate of what is drawn, rewards {{0,1}}: {rates}."


def frontier(rows: "list[tuple[str, EntropyCost]]") -> None:
    """Print entropy against reward, a row for each objective."""
    columns = ("first step, nats/reward", "reward gained at rest", "nats lost there", "on-policy", "tilt")
    table = simple_table("graded problem", *columns)
    for name, cost in rows:
        numbers = (cost.first_step, cost.gain, cost.at_rest, cost.on_policy, cost.tilt)
        table.add_row(name, *("-" if math.isnan(value) else f"{value:.3g}" for value in numbers))
    console = Console()
    console.print(table)
    console.print(
        "On-policy and tilt lose so many nats for the same reward: small policy-gradient steps, each from a new batch, "
        "and the policy nearest to pi_old in KL. Negative: entropy is won.",
        markup=False,
        highlight=False,
    )


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
