"""Figures 4, 5, 7 and 8 of the paper in miniature: training curves of toy and tiny language models.

stored/toy.json has five seeds per setting, from the records in benchmarks/results and, for entropy and majority votes,
from a repetition of the same runs; stored/starter.json has three. They were written by
benchmarks/figures_toy.py and figures_starter.py. Every figure can be drawn from other runs in this form.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmdkit import theory
from pmdkit.figures.style import GREY, style
from pmdkit.stats import interval_text, mean_interval
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import COLOURS, TITLES, look, shades
from pmdkit_lab.figures.panels import Array, as_array, band, interval_bar, rows_of_names

STORED = Path(__file__).parent / "stored"
TASKS = {"modular-sum": "modular sum, 1 token", "parity": "parity, up to 15 tokens"}
BOTH = ("pmd-mean", "pmd-part")
METHODS = ("pmd-mean", "grpo", "gspo", "rloo")  # the methods of figure 7
STARTER_METHODS = ("pmd-mean", "pmd-part", "grpo")
UNITS = {"Avg@32": "draws", "Pass@32": "problems", "Maj@32": "problems"}
RATE = "pass rate of\nthe rollouts"
LENGTH = "response length\n(tokens)"
LOWEST = "smallest log-ratio\nof a step (nats)"
PROMPTS = "prompts answered (thousands)"

Runs = Mapping[str, Any]  # experiment: {"settings": {label: a list per seed of each key}}


class MethodRuns(NamedTuple):
    """The runs of one method or setting, and how they are drawn.

    Attributes:
        key: used in the names of the numbers drawn.
        label: used in titles and legends.
        runs: lists per seed: prompts, seeds, last, and a curve for each metric.
        look: keywords for `plot`.
    """

    key: str
    label: str
    runs: dict[str, Any]
    look: dict[str, Any]


@cache
def stored(scale: str = "toy") -> dict[str, Any]:
    """The stored runs at "toy" or "starter" scale: experiments, their settings, and lists per seed."""
    found: dict[str, Any] = json.loads((STORED / f"{scale}.json").read_text(encoding="utf-8"))
    return found


def setting(experiment: str, label: str, runs: Runs | None = None) -> dict[str, Any]:
    """One setting of an experiment, from the stored runs or from `runs`."""
    source = stored("starter" if experiment == "starter" else "toy") if runs is None else runs
    found: dict[str, Any] = source[experiment]["settings"][label]
    return found


def main_result(runs: Runs | None = None) -> Drawing:
    """Pass rate of the rollouts against prompts answered, and the pass rate evaluated after training.

    PMD-mean is above and PMD-part below, each at four temperatures beside the stale and the on-policy baseline.

    Source: arXiv:2602.05933, figure main_result.
    Differs: a toy task; four temperatures for both methods; no smoothing; one evaluation, after training.
    """
    taus = ("0.005", "0.05", "0.5", "2.0")  # on rewards {0,1}
    data: dict[str, Array] = {}
    baselines = [method_runs(name, "training-curves", name, runs) for name in ("grpo", "rloo")]
    with style():
        figure = Figure(figsize=(7.4, 5.2))
        grid = figure.subplots(2, 2, width_ratios=(1.5, 1), sharex="col", sharey="col")
        for (left, right), name in zip(grid, BOTH, strict=True):
            methods = []
            for tau, colour, marker in zip(taus, shades(len(taus)), ("o", "v", "^", "D"), strict=True):
                own = {"color": colour, "linestyle": "-", "marker": marker}
                label = rf"$\tau$ = {float(tau):g}"
                found = setting("tau", f"{name} tau={tau}", runs)
                methods.append(MethodRuns(f"{name} tau = {float(tau):g}", label, found, own))
            methods += [baseline._replace(key=baseline.label) for baseline in baselines]
            for method in methods:
                data[f"{name} panel, {method.key}"] = curve(left, method, "pass_rate")
            after_training(right, methods, f"{name} panel, {{}}, after", data)
            left.set(ylabel="pass rate of the rollouts", ylim=(-0.03, 1.03), title=method_title(name))
            right.set(xlim=(-0.03, 1.06), title=f"{method_title(name)}, evaluated after")
        grid[1][0].set_xlabel(PROMPTS)
        grid[1][1].set_xlabel("pass rate after training")
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=6, columnspacing=1.2)
        figure.suptitle(f"{TASKS['modular-sum']}; {toy_scale(baselines)}", fontsize=9)

    def after(name: str, tau: str) -> str:
        return interval_text(data[f"{name} panel, {name} tau = {tau}, after"])

    sentence = (
        "At toy scale, staleness 16, tau on rewards {0,1}. After training PMD-mean is at "
        f"{after('pmd-mean', '0.05')} with tau = 0.05 and PMD-part at {after('pmd-part', '0.05')}: it stays at chance "
        f"at the smaller temperatures. It does not at larger ones ({after('pmd-part', '0.5')} at 0.5, "
        f"{after('pmd-part', '2')} at 2), so here a larger tau is a cure. One learning rate, tuned for no method."
    )
    alt = (
        "Two rows of two panels. Left, pass rate against thousands of prompts answered for four temperatures, with "
        "GRPO and on-policy RLOO as baselines; right, the pass rate after training with seeds as dots. Upper row "
        f"PMD-mean, lower row PMD-part. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)


def min_ratio(runs: Runs | None = None) -> Drawing:
    """Above, the smallest log pi_{t+1}/pi_t of each step; below, the same by pass rate, with the exact update.

    Source: arXiv:2602.05933, figure min_ratio and section on log-ratio bounds.
    Differs: a toy task; the minimum is over all rows of the step, in the paper over the last mini-batch; the exact
    log-ratios are added.
    """
    panels = (
        ("tau", "{} tau=0.05", 0.05, "modular-sum"),
        ("tau", "{} tau=0.5", 0.5, "modular-sum"),
        ("sequence", "{}", 0.05, "parity"),
    )
    p = np.linspace(0.01, 0.99, 99)
    data: dict[str, Array] = {"p": p}
    with style():
        figure = Figure(figsize=(7.6, 5.0))
        grid = figure.subplots(2, 3)
        for (upper, lower), (experiment, label, tau, task) in zip(grid.T, panels, strict=True):
            where = f"{task} tau {tau:g}"
            methods = [method_runs(name, experiment, label.format(name), runs) for name in BOTH]
            for method in methods:
                data[f"{where} {method.key}"] = curve(upper, method, "log_ratio_min")
                exact = data[f"exact {where} {method.key}"] = theory.binary(p, tau, method.key).log_ratio_neg
                rates, lows = (np.array(method.runs[key]).ravel() for key in ("pass_rate", "log_ratio_min"))
                lower.plot(rates, lows, ".", color=COLOURS[method.key], markersize=2.5, alpha=0.4)
                lower.plot(p, exact, **look(method.key))
            upper.set(title=f"{TASKS[task].split(',')[0]}, " + rf"$\tau$ = {tau:g}", xlabel=PROMPTS)
            upper.set_ylim(top=0.4)  # a Student's t interval may reach above 0, a minimum does not
            lower.set(xlabel="mean pass rate of the step", xlim=(0, 1))
        grid[0][0].set_ylabel(LOWEST)
        grid[1][0].set_ylabel("log-ratio (nats)")
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(
            f"{toy_scale(methods)}\nbelow: points are steps, lines the exact log-ratio of a wrong answer", fontsize=9
        )
    first, last = (
        {name: data[f"modular-sum tau 0.05 {name}"][1, which].mean() for name in BOTH}
        for which in (slice(None, 3), slice(-3, None))
    )
    sentence = (
        f"Modular sum, tau = 0.05: in the first three steps the smallest log-ratio is {first['pmd-part']:.1f} nats for "
        f"PMD-part and {first['pmd-mean']:.1f} for PMD-mean; in the last three {last['pmd-part']:.1f} and "
        f"{last['pmd-mean']:.1f}. PMD-mean's decrease grows while accuracy improves, as the exact update's does; that "
        "PMD-part is the stronger holds while it still learns. Training covers a small part of the exact way where "
        "tau is small (points far above the lines); at tau = 0.5 it covers most of it, and the smallest of thousands "
        "of responses lies below what one wrong answer loses."
    )
    alt = (
        "Three columns: modular sum at tau 0.05 and 0.5, parity at 0.05. Above, smallest log-ratio of each step "
        "against thousands of prompts, PMD-mean and PMD-part with 95 % bands. Below, the same numbers as points "
        f"against the pass rate of the step, with the exact log-ratio of a wrong answer as lines. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)


def results_7b(runs: Runs | None = None) -> Drawing:
    """Pass rate, response length and entropy over training, and Avg@32, Pass@32 and Maj@32 after it, on parity.

    Source: arXiv:2602.05933, figure results-7B.
    Differs: a toy task with a chain of thought; rewards {0,1}; no smoothing; one evaluation, after training.
    Entropy is in nats per response, summed over its tokens.
    """
    data: dict[str, Array] = {}
    methods = [method_runs(name, "sequence", name, runs) for name in METHODS]
    with style():
        figure = Figure(figsize=(7.6, 7.2))
        keys = {"pass_rate": RATE, "response_length": LENGTH, "entropy": "entropy of a\nresponse (nats)"}
        grid, lower = column_for_each(figure, methods, keys, 1.75, data)
        for line, key in zip(grid, keys, strict=True):
            line[0].set_ylim(0.0, 1.03 if key == "pass_rate" else None)  # a Student's t interval may reach past 1
        for ax, (which, (measure, unit)) in zip(lower.subplots(1, 3), enumerate(UNITS.items()), strict=True):
            after_training(ax, methods, f"{measure} {{}}", data, measure=which)
            ax.set(xlim=(0.28, 1.04), title=f"{measure} after training", xlabel=f"share of {unit}")
        figure.suptitle(f"{TASKS['parity']}, staleness 4; {toy_scale(methods)}", fontsize=9)
    average = listed(methods, "Avg@32 {}", data)
    majority = listed(methods, "Maj@32 {}", data)
    low, high = (np.array([data[f"Avg@32 {name}"][side] for name in METHODS]) for side in (1, 2))
    ranking = "the intervals overlap: nothing here ranks these methods."
    if low.max() >= high.min():
        ranking = "some of the intervals do not overlap."
    sentence = (
        "Parity has two answers: guessing has a pass rate of 0.5 and nearly every problem falls to the best of 32. "
        f"Avg@32 after training: {average}. Maj@32: {majority}. With {seeds_of(methods)} seeds {ranking}"
    )
    alt = (
        "A column of three panels for each method, the others in grey: pass rate, response length in tokens and "
        "entropy in nats against thousands of prompts. Below, Avg@32, Pass@32 and Maj@32 after training with seeds as "
        f"dots; {', '.join(method.label for method in methods)}. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)


def results_30b(runs: Runs | None = None) -> Drawing:
    """GRPO and PMD-mean at two temperatures a factor of ten apart, as for the 30B model, on modular sum.

    Source: arXiv:2602.05933, figure results-30B.
    Differs: a dense toy transformer; tau 0.005 and 0.05 on {0,1} are the paper's 0.01 and 0.1 on rewards of +-1. A
    response is one token, so there is no length to show. For a mixture of experts, run the recipe starter-moe.
    """
    data: dict[str, Array] = {}
    methods = [
        MethodRuns(
            f"pmd-mean {tau}",
            rf"PMD-mean, $\tau$ = {tau}",
            setting("tau", f"pmd-mean tau={tau}", runs),
            {"color": colour, "linestyle": "-", "marker": marker},
        )
        for tau, colour, marker in zip(("0.005", "0.05"), shades(2), ("o", "v"), strict=True)
    ]
    methods.append(method_runs("grpo", "training-curves", "grpo", runs))
    with style():
        figure = Figure(figsize=(7.6, 5.2))
        grid, lower = column_for_each(figure, methods, {"pass_rate": RATE, "log_ratio_min": LOWEST}, 2.6, data)
        grid[0][0].set(ylim=(-0.03, 1.03))
        grid[1][0].set(ylim=(None, 0.4))
        after = lower.subplots()
        after_training(after, methods, "after {}", data)
        after.set(xlabel="pass rate after training (share of draws)")
        figure.suptitle(f"{TASKS['modular-sum']}, staleness 16; {toy_scale(methods)}", fontsize=9)
    final = listed(methods, "after {}", data, ".3f").replace("$", "").replace("\\", "")
    sentence = (
        f"A dense toy transformer, not a mixture of experts. After training: {final}. Both temperatures learn, and "
        "GRPO with them; a factor of ten in tau hardly matters here, as in the paper's table."
    )
    alt = (
        "A column of two panels for each of PMD-mean at two temperatures and GRPO, the others in grey: pass rate and "
        "smallest log-ratio in nats against thousands of prompts. Below, the pass rate after training with seeds as "
        f"dots. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)


def starter(runs: Runs | None = None) -> Drawing:
    """Pass rate and response length over training, and the held-out pass rate afterwards, one column per method.

    Source: arXiv:2602.05933, figures main_result and results-7B.
    Differs: a Qwen2 of 259 thousand weights on word problems with sums, built and trained on the spot; two updates per
    batch; rewards {0,1}; tau 0.05 for both PMD methods; no smoothing.
    """
    data: dict[str, Array] = {}
    methods = [method_runs(name, "starter", name, runs) for name in STARTER_METHODS]
    with style():
        figure = Figure(figsize=(7.4, 5.4))
        grid, lower = column_for_each(figure, methods, {"pass_rate": RATE, "response_length": LENGTH}, 2.6, data)
        grid[0][0].set_ylim(0.0, 1.03)
        after = lower.subplots()
        after_training(after, methods, "after {}", data)
        after.set(xlabel="held-out pass rate after training (share of draws)")
        figure.suptitle(
            f"starter scale: a Qwen2 of 259 thousand weights, {seeds_of(methods)} seeds, bands and bars: 95 % "
            "intervals over seeds",
            fontsize=9,
        )
    sentence = (
        f"Held-out pass rate after training: {listed(methods, 'after {}', data, '.3f')}. This is the size of a "
        "demonstration: the recipe, its learning rate and its temperature were set for time, not for ranks, and "
        f"{seeds_of(methods)} seeds part only large differences."
    )
    alt = (
        "A column of two panels for each method, the others in grey: pass rate and response length in tokens against "
        f"thousands of prompts. Below, the held-out pass rate after training with seeds as dots. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)


def method_runs(name: str, experiment: str, label: str, runs: Runs | None) -> MethodRuns:
    """One setting of an experiment, with its method's usual look."""
    return MethodRuns(name, method_title(name), setting(experiment, label, runs), look(name, marker=True))


def column_for_each(
    figure: Figure, methods: Sequence[MethodRuns], keys: Mapping[str, str], height: float, data: dict[str, Array]
) -> tuple[Any, Any]:
    """Draw a column of panels per method and a row per metric, with the means of the other methods in grey behind.

    Each method has its own panel, because four bands in one panel cannot be told apart.

    Args:
        keys: maps a metric to the label of its axis.
        height: height of the panels divided by that of the part below them.
        data: receives what is drawn, by metric and key of the method.

    Returns:
        The panels [keys, methods], and the empty part below.
    """
    parts: Any = figure.subfigures(2, 1, height_ratios=(height, 1))
    upper, lower = parts
    grid = upper.subplots(len(keys), len(methods), sharex=True, sharey="row")
    for line, (key, label) in zip(grid, keys.items(), strict=True):
        for ax, method in zip(line, methods, strict=True):
            for other in methods:
                if other is not method:
                    x, mean = thousands(other), np.mean(other.runs[key], 0)
                    ax.plot(x, mean, "-", color=GREY, alpha=0.45, linewidth=0.9)
            data[f"{key} {method.key}"] = curve(ax, method, key)
        line[0].set_ylabel(label)
    for ax, method in zip(grid[0], methods, strict=True):
        ax.set_title(method.label)
    upper.supxlabel(PROMPTS, fontsize=9)
    return grid, lower


def curve(ax: Axes, method: MethodRuns, key: str) -> Array:
    """Draw a metric with its band against prompts answered; returns [4, K]: prompts in thousands, mean, low, high."""
    x = thousands(method)
    return np.stack([x, *band(ax, x, np.array(method.runs[key]), method.label, **method.look)])


def thousands(method: MethodRuns) -> Array:
    """[K] prompts answered, in thousands."""
    return np.array(method.runs["prompts"]) / 1000


def after_training(
    ax: Axes, methods: Sequence[MethodRuns], name: str, data: dict[str, Array], measure: int | None = None
) -> None:
    """Draw a row per method: the mean after training with its interval, clipped to [0, 1], and the seeds below it.

    `data` receives mean, low, high under `name`, with the method's key for {}. `measure` is an index among the Avg,
    Pass and Maj measures; only the first of these panels labels its rows.
    """
    for place, method in enumerate(methods):
        seeds = np.array(method.runs["last"]) if measure is None else np.array(method.runs["measured"])[:, measure]
        ends = data[name.format(method.key)] = as_array(mean_interval(seeds)).clip(0.0, 1.0)
        interval_bar(ax, place, seeds, ends, aside=0.2, **method.look)
    rows_of_names(ax, [method.label if not measure else "" for method in methods])


def listed(methods: Sequence[MethodRuns], name: str, data: Mapping[str, Array], form: str = ".2f") -> str:
    """Means and intervals in words: `GRPO 0.91 [0.88, 0.94]; ...`. `name` is a key of `data`, {} for a method's key."""
    return "; ".join(f"{method.label} {interval_text(data[name.format(method.key)], form)}" for method in methods)


def seeds_of(methods: Sequence[MethodRuns]) -> int:
    """How many seeds each method has."""
    return len(methods[0].runs["seeds"])


def toy_scale(methods: Sequence[MethodRuns]) -> str:
    """The heading of a figure of toy runs."""
    return f"toy transformer, {seeds_of(methods)} seeds, bands and bars: 95 % intervals over seeds"


def method_title(method: str) -> str:
    """The name of a method in titles and legends."""
    return {**TITLES, "rloo": "RLOO, on-policy"}.get(method, method.upper())
