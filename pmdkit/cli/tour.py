"""`pmdkit tour`: takes one objective through the three tiers, then shows a picture and a few sentences."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from pmdkit.cli.output import shown
from pmdkit.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pmdkit.run import Run

# name, backend, environment, schedule
WAYS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("exactly", "bandit", "pass-rates", {"steps": 10, "update": "exact"}),
    ("full expectation", "bandit", "pass-rates", {"steps": 10, "update": "regression"}),
    ("from draws", "bandit", "pass-rates", {"steps": 300, "group": 16}),
    ("small transformer", "toy", "modular-sum", {"steps": 100}),
    ("language model", "llm", "starter", {"steps": 30}),
)


def tour(*, objective: str = "pmd-mean", tau: float = 0.05, out: Path | None = None, seed: int = 0) -> None:
    """See both updates end in different places, then take one objective through three tiers, in two minutes.

    The table is made of real pass rates: 64 competition problems, each as hard as it was for a 1.5B model. The
    transformer learns to add two numbers modulo 10 from rewards alone. The language model is a tiny Qwen2 that is built
    and taught on the spot, then trained on sums told as stories with a real verifier.

    Args:
        objective: pmd-mean or pmd-part, whose exact solution is known.
        tau: temperature on rewards {0,1}; twice that on +-1.
        out: folder for the runs and the picture; by default runs/tour-001, or the next number.
        seed: seed of the draws.
    """
    from pmdkit import console
    from pmdkit.envs.kinds import format_tau, make
    from pmdkit.figures.style import save
    from pmdkit.fit import Display
    from pmdkit.observe import run_folder
    from pmdkit.resolve import resolve
    from pmdkit.start import train

    if objective not in ("pmd-mean", "pmd-part"):
        raise UsageError(f"objective is '{objective}'; the tour takes pmd-mean or pmd-part")
    from pmdkit.llm.recipe_checks import check_requirements

    check_requirements()
    options = {"objective.tau": tau}
    for _, backend, env, _ in WAYS:
        resolve(backend, env, {"objective.name": objective, **options, "run.seed": seed})
    screen = Console(highlight=False)
    folder = run_folder.new_folder(out, "tour")
    live = isinstance(console.make_display(), console.LiveDisplay)  # log lines would push the tour off the screen
    screen.print("[bold]One exact step of both updates[/bold] from one policy, tau 0.001: they end in different places")
    for name in ("pmd-part", "pmd-mean"):
        end = train(name, "bandit", "graded", out=folder.path / f"one-step-{name}", steps=1, seed=seed)
        # on the grades 0, 0.1, ..., 1: a bar for each arm, and the mean reward
        shares = [float(end.policy[0][arm]) for arm in np.argsort(make(end.spec.env).reward[0])]
        words = "all on the best arm" if max(shares) > 0.99 else "the arms above average"
        bars, mean = console.sparkline(shares, len(shares)), end.summary["reward_last"]
        screen.print(f"  {name:17} {bars}  mean reward {mean:.3f}: {words}")
    screen.print(f"[bold]{objective} in three tiers[/bold], {format_tau(tau)}; pass rate by batch:")
    runs: dict[str, Run] = {}
    for name, backend, env, how in WAYS:
        place = folder.path / name.replace(" ", "-")
        display = console.make_display() if live else Display()
        run = train(objective, backend, env, out=place, options=options, display=display, seed=seed, **how)
        runs[name] = run
        rates = [*(row["pass_rate"] for row in run.metrics), run.summary["pass_rate_last"]]
        curve = f"{rates[0]:.3f} {console.sparkline(rates, 24)} {rates[-1]:.3f}"
        screen.print(f"  {name:17} {curve}  {len(run.metrics)} batches")
    picture = save(draw(runs), folder.path / "tour")[0]
    for sentence in summary(runs):
        screen.print(sentence)
    screen.print(f"[bold]picture: {shown(picture)}[/bold]", soft_wrap=True)
    screen.print("A real language model: pmdkit llm smollm2 (92 MB, once; 6.4 GiB of memory; 11 minutes on two cores)")
    screen.print("  or without either: lesson 304 of the course reads ten steps of it")
    screen.print("Next: pmdkit bandit needle   pmdkit toy parity   pmdkit theory --p 0.01   pmdkit learn")


def draw(runs: "dict[str, Run]") -> "Figure":
    """Draw the pass rate of one run from draws in each tier, and the bandit's steps beside the exact update."""
    from matplotlib.figure import Figure

    from pmdkit.figures.style import style

    drawn, taught, spoken = (runs[name] for name in ("from draws", "small transformer", "language model"))
    with style():
        figure = Figure(figsize=(10.0, 6.4))
        axes = figure.subplots(2, 2).flat
        for ax, run, panel in zip(
            axes, (drawn, drawn, taught, spoken), (None, "by-pass-rate", None, None), strict=True
        ):
            run.figure(panel, ax=ax)
            ax.set_xlabel(f"{run.spec.tier} {run.spec.name}: {ax.get_xlabel()}")
    figure.set_label(
        "On top the bandit, from draws: its pass rate by step, and by the pass rate of a problem how far a step moves "
        "right and wrong responses, beside the exact update. Below, the pass rate by step of a small transformer and "
        "of a language model."
    )
    return figure


def summary(runs: "dict[str, Run]") -> list[str]:
    """A few sentences in plain words; every number is read from the runs."""
    exact, fitted, drawn, taught, spoken = (runs[name] for name, *_ in WAYS)
    first = exact.metrics[0]["gauge"]
    hard, easy = first[0], first[-2]
    pairs = list(zip(first, fitted.metrics[0]["gauge"], strict=True))
    agree = max(abs(a[key] - b[key]) for a, b in pairs for key in ("log_ratio_neg", "log_ratio_pos"))
    enough = next((row["step"] for row in exact.metrics if row["pass_rate"] > 0.99), None)
    took = f"{enough - 1} updates" if enough else f"more than {len(exact.metrics)} updates"
    late = next((row["step"] for row in drawn.metrics if row["pass_rate"] > 0.9), None)
    end, batches = (0.9, late - 1) if late else (drawn.summary["pass_rate_last"], len(drawn.metrics))
    slow = f"{end:.2g} after {batches} batches"
    share = drawn.metrics[0]["log_ratio_pos"] / exact.metrics[0]["log_ratio_pos"]
    parameters = [sum(weight.numel() for weight in run.policy.parameters()) for run in (taught, spoken)]
    return [
        f"1. Exactly, {took} are enough. A step is gentle where problems are hard: wrong answers lose "
        f"{-hard['log_ratio_neg']:.1f} nats at pass rate {hard['pass_rate']:.2f}, {-easy['log_ratio_neg']:.1f} at "
        f"{easy['pass_rate']:.2f}.",
        f"2. Minimising the loss over all answers is the same step, to {agree:.0e} nats.",
        f"3. From 16 draws per problem it reaches {slow}; one optimizer step covers {share:.0%} of the exact step.",
        f"4. The same objective teaches {parameters[0]:,} weights to add modulo 10 in "
        f"{taught.summary['seconds']:.1f} s and {taught.summary['tokens']:,} tokens.",
        f"5. And a Qwen2 of {parameters[1]:,} weights to reason in words: answers grow from "
        f"{spoken.metrics[0]['response_length']:.0f} to {spoken.metrics[-1]['response_length']:.0f} tokens, see "
        "language-model/rollouts in the folder of the picture.",
    ]
