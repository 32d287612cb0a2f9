"""Real runs of seconds: every objective on a bandit from draws, and PMD-mean teaching a small transformer."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import GREY, look, style
from pmdkit.reproducing.part import Bench
from pmdkit.reproducing.pieces import Piece, Sheet, keep
from pmdkit.sweeps.pictures.panels import band, say, say_paired
from pmdkit.sweeps.pictures.training_curves import title
from pmdkit.sweeps.statistics import mean_interval, paired
from pmdkit.training import Run, train

SEEDS = (0, 1, 2)
TOLD = f"{len(SEEDS)} seeds, {SEEDS[0]} to {SEEDS[-1]}"
BANDIT: dict[str, Any] = {"steps": 100, "group": 16, "ministeps": 4}
TOY: dict[str, Any] = {"steps": 100}
COLUMNS = 4  # of the small pictures


def run(bench: Bench, objective: str, tier: str, env: str, seed: int, schedule: dict[str, Any]) -> Run:
    """A run in the folder of the reproduction; one that is there already is not done again."""
    place = bench.runs / f"{tier}-{env}-{objective}-{seed}"
    rare = {"run.checkpoint_every": schedule["steps"], "run.keep": 1}
    return train(objective, tier, env, out=place, resume=True, options=rare, seed=seed, **schedule)


def bandit(bench: Bench) -> list[Piece]:
    """Every objective on 64 problems as hard as real ones, the same draws of prompts, 16 responses each."""
    from pmdkit.objectives import OBJECTIVES

    curves, last = {}, {}
    for name in OBJECTIVES:
        bench.say(f"{name} on the bandit")
        runs = [run(bench, name, "bandit", "pass-rates", seed, BANDIT) for seed in SEEDS]
        curves[name] = np.array([[row["pass_rate"] for row in each.metrics] for each in runs])
        last[name] = np.array([each.summary["pass_rate_last"] for each in runs])
        first = runs[0].summary["pass_rate_first"]
    base = curves["pmd-mean"].mean(1)
    rows = []
    for name, seeds in curves.items():
        against = "-" if name == "pmd-mean" else say_paired(paired(base, seeds.mean(1)), 3)
        rows.append([name, say(mean_interval(last[name]), 3), say(mean_interval(seeds.mean(1)), 3), against])
    see = (
        f"64 problems with real pass rates, {first:.2f} on average before training; {BANDIT['steps']} batches of "
        f"{BANDIT['group']} draws a problem, {BANDIT['ministeps']} updates each. Every objective has its default "
        "options, so a difference may be one of temperature or length rule rather than of kind. Brackets: 95 % "
        "intervals over seeds."
    )
    heads = ["objective", "pass rate after", "mean over training", "minus PMD-mean, paired by seed"]
    drawing = multiples(curves, see)
    about = "Every objective from draws on the bandit pass-rates"
    return [
        keep(drawing, bench.folder, "bandit-curves", about, "toy", TOLD),
        Sheet("bandit-runs", "The same runs in numbers", "toy", TOLD, heads, rows, see),
    ]


def multiples(curves: dict[str, Any], see: str) -> Drawing:
    """A small picture for each objective, the others in grey behind it."""
    lines = -(-len(curves) // COLUMNS)
    steps = np.arange(1, next(iter(curves.values())).shape[1] + 1)
    data = {"step": steps.astype(float)}
    with style():
        figure = Figure(figsize=(7.4, 1.7 * lines))
        grid = np.atleast_1d(figure.subplots(lines, COLUMNS, sharex=True, sharey=True)).ravel()
        for ax, (name, seeds) in zip(grid, curves.items(), strict=False):
            behind(ax, steps, [other.mean(0) for label, other in curves.items() if label != name])
            data[name] = band(ax, steps, seeds, name, color=look(name)["color"], linestyle="-")
            ax.set(title=title(name) if name.startswith("pmd") else name, ylim=(0.0, 1.03))
        for ax in grid[len(curves) :]:
            ax.remove()
        figure.supxlabel("batch", fontsize=9)
        figure.supylabel("pass rate of the rollouts", fontsize=9)
    ends = "; ".join(f"{name} {seeds[:, -1].mean():.2f}" for name, seeds in curves.items())
    sentence = f"Pass rate of the last batch: {ends}. In each panel one objective in colour, all others in grey."
    alt = f"{len(curves)} small panels, one for each objective: pass rate against batches on the bandit. {sentence}"
    return Drawing(figure, alt, sentence, data)


def behind(ax: Axes, x: Any, others: list[Any]) -> None:
    """Other curves, thin and grey, to compare with."""
    for other in others:
        ax.plot(x, other, color=GREY, alpha=0.3, linewidth=0.7, linestyle="-")


def toy(bench: Bench) -> list[Piece]:
    """PMD-mean teaches a small transformer to add modulo 10; what one seed's run looks like against the theory."""
    from pmdkit.observe import gauge

    runs = []
    for seed in SEEDS:
        bench.say(f"toy modular-sum, seed {seed}")
        runs.append(run(bench, "pmd-mean", "toy", "modular-sum", seed, TOY))
    ends = {
        end: mean_interval(np.array([each.summary[f"pass_rate_{end}"] for each in runs])) for end in ("first", "last")
    }
    picture = runs[0].figure()
    sentence = (
        f"Seed {SEEDS[0]} of a transformer that learns from rewards alone, log-ratios measured after each step beside "
        "those of the exact update at the same pass rate. An optimizer step goes a part of that way. Evaluated over "
        f"{TOLD}: {say(ends['first'], 3)} before, {say(ends['last'], 3)} after {TOY['steps']} batches."
    )
    drawing = Drawing(picture, f"{picture.get_label()} {sentence}", sentence, {})
    rows = []
    for bucket in gauge.merge(row["gauge"] for each in runs for row in each.metrics if row["gauge"]):
        cells = [gauge.label(bucket["bucket"]), str(bucket["prompts"])]
        for kind in ("neg", "pos"):
            measured, predicted = bucket[f"log_ratio_{kind}"], bucket[f"theory_log_ratio_{kind}"]
            cells += [digits(measured), digits(predicted), reached(measured, predicted)]
        rows.append(cells)
    heads = ["pass rate", "prompt steps", "wrong (nats)", "theory", "reached", "right (nats)", "theory", "reached"]
    see = (
        "Mean log-ratio of wrong and of right responses after a step, by the pass rate before it, beside the exact "
        "update; reached is the one over the other."
    )
    return [
        keep(drawing, bench.folder, "toy-run", "One run read against the theory", "toy", TOLD),
        Sheet("toy-gauge", "Log-ratios of these runs by pass rate", "toy", TOLD, heads, rows, see),
    ]


def digits(value: float | None) -> str:
    """Three digits, or a dash where there is none."""
    return "-" if value is None else f"{value:.3g}"


def reached(measured: float | None, predicted: float | None) -> str:
    """The share of the exact way that was gone."""
    if measured is None or predicted is None or abs(predicted) < 1e-12:
        return "-"
    return f"{100 * measured / predicted:.2g} %"
