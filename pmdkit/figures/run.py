"""The picture of a run: its panels, title, sentences and alt text."""

import textwrap
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, SymmetricalLogLocator

from pmdkit.envs.kinds import format_tau, reward_scale
from pmdkit.errors import UsageError, unknown
from pmdkit.figures.style import BLACK, BLUE, ORANGE, RIGHT, VERMILLION, WRONG, style
from pmdkit.observe import gauge
from pmdkit.observe.run_folder import RunFolder
from pmdkit.specs.spec import Spec

Rows = list[dict[str, Any]]  # lines of metrics.jsonl, or merged buckets of the gauge
Panel = Callable[[Axes], None]
WIDTH, PANEL, KEY, LINE = 7.8, 2.7, 0.3, 0.165  # inches: picture, height of a panel, of the key, of a line of words
COLUMNS = 118  # width of the picture in characters of 8 points
MARKERS = 25  # upper limit along a line; more would hide the line
SMALL = 7.0  # points, of the sentence under a heading
EVALUATED: dict[str, Any] = {"color": ORANGE, "markersize": 6, "markeredgecolor": "white", "zorder": 3}
DASHED = (0, (5, 1.5))
SIDES = (("pos", "right", RIGHT, "^"), ("neg", "wrong", WRONG, "v"))
EXACT: dict[str, Any] = {"color": BLACK, "linestyle": (0, (4, 2)), "lw": 1.0, "zorder": 3, "mfc": "none", "ms": 9}
SOLVED, FALL, SPAN = 0.95, 0.04, 10  # a run that comes undone: pass rates, and steps over which they are averaged
LABEL = r"$\log\,\pi_{new}/\pi_{old}$ (nats)"


def run_figure(folder: RunFolder, spec: Spec) -> Figure:
    """Draw whether the run learns, how far a step moves compared with the exact update, and on which prompts.

    Panels without any numbers are left out. If their number is odd, the first one gets the full width. A run that is
    not finished is drawn as far as it went.
    """
    rows, summary, known_panels = run_panels(folder)
    panels = [panel for panel in known_panels.values() if panel is not None]
    with style():
        words = caption(rows, summary, spec.schedule.prompts, spec.objective["name"] == "pmd-part")
        figure, key = placed(panels, words)
        figure.suptitle(title(spec, rows), fontsize=10)
        key_to_sides(key, rows)
    steps = f"steps {rows[0]['step']} to {rows[-1]['step']}"
    figure.set_label(f"Run of {title(spec, rows)}; {steps}. {' '.join(words.split())}")  # the alt text
    return figure


def panel_figure(folder: RunFolder, name: str, ax: Axes | None = None) -> Figure:
    """Draw one panel of a run's picture, on a given axis or in its own figure; `name` is a key of `run_panels`."""
    rows, _, panels = run_panels(folder)
    if name not in panels:
        raise UsageError(unknown("panel", name, panels))
    panel = panels[name]
    if panel is None:
        there = ", ".join(known for known, drawn in panels.items() if drawn is not None)
        raise UsageError(f"{folder.path} has no numbers for the panel '{name}'; it has them for {there}")
    with style():
        figure = Figure(figsize=(WIDTH / 2, PANEL)) if ax is None else ax.figure
        place = figure.add_subplot() if ax is None else ax
        panel(place)
        if name in ("log-ratios", "by-pass-rate"):
            scale = place.yaxis.get_transform()
            low, high = scale.transform(np.array(place.get_ylim()))
            place.set_ylim(top=float(scale.inverted().transform(high + 0.4 * (high - low))))  # room for the key
            key_to_sides(place, rows, loc="upper right", ncols=1)
    return figure  # type: ignore[return-value]  # for an axis in a SubFigure, that SubFigure


def run_panels(folder: RunFolder) -> tuple[Rows, dict[str, Any] | None, dict[str, Panel | None]]:
    """The rows of metrics, the summary of a finished run, and the panels by name in reading order, each None where the
    run has no numbers for it."""
    rows, summary = folder.read_metrics(), folder.read_summary() if folder.finished else None
    if not rows:
        raise ValueError(f"{folder.path} has no finished step; expected at least one line in metrics.jsonl")
    gauges = gauge.merge(row["gauge"] for row in rows if row["gauge"])
    own = [key for key in rows[-1] if key.startswith(gauge.OWN) and known(rows, key)]
    lengthy = len({row["response_length"] for row in rows if row.get("response_length") is not None}) > 1
    return (
        rows,
        summary,
        {
            "progress": lambda ax: progress(ax, rows, summary, folder.read_restarts()),
            "log-ratios": lambda ax: log_ratios(ax, rows),
            "by-pass-rate": (lambda ax: by_pass_rate(ax, gauges)) if gauges else None,
            "brake": (lambda ax: brake(ax, rows, gauges)) if known(rows, "theory_lambda_over_tau") else None,
            "belief": (lambda ax: belief(ax, gauges)) if gauges else None,
            "movement": lambda ax: movement(ax, rows),
            "lengths": (lambda ax: lengths(ax, rows)) if lengthy else None,
            "mismatch": (lambda ax: mismatch(ax, rows)) if known(rows, "mismatch_mean") else None,
            "own": (lambda ax: own_columns(ax, rows, own)) if own else None,
        },
    )


def placed(panels: list[Panel], words: str) -> tuple[Figure, Axes]:
    """Place the panels in two columns in reading order, text below; returns the figure and a strip for a legend."""
    wide = len(panels) % 2
    lines = (len(panels) + wide) // 2
    heights = [KEY, *[PANEL] * lines, LINE * (words.count("\n") + 2)]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.3))
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    for place, panel in enumerate(panels):
        # a wide first panel fills its line, so the others begin on the next one
        row, column = divmod(place + wide if place else 0, 2)
        panel(figure.add_subplot(grid[row + 1, :] if wide and place == 0 else grid[row + 1, column]))
    key, strip = figure.add_subplot(grid[0, :]), figure.add_subplot(grid[-1, :])
    for ax in (key, strip):
        ax.axis("off")
    strip.text(0, 1, words, va="top", fontsize=8, linespacing=1.35, in_layout=False)
    return figure, key


def progress(ax: Axes, rows: Rows, summary: dict[str, Any] | None, restarts: Sequence[int]) -> None:
    """Draw the rollout scores of each step, the evaluation before the first and after the last step, and restarts."""
    rated = known(rows, "pass_rate")
    line(ax, rows, "pass_rate" if rated else "reward_mean", color=BLACK, marker="o", label="this step's rollouts")
    if summary is not None:
        kind = "pass_rate" if rated else "reward"
        ends = [numbers([summary], f"{kind}_{end}")[0] for end in ("first", "last")]
        ax.plot((0, summary["steps"]), ends, "D", label="evaluation", **EVALUATED)
    what = "share of right responses" if rated else "mean reward"
    unit = "pass rate" if rated else "reward (reward units)"
    heading(ax, "Does it learn?", f"{what} in each step and in a fixed evaluation", unit)
    if rated:
        ax.set_ylim(-0.03, 1.03)
    for number, step in enumerate(restarts):  # the run was stopped, and went on from the checkpoint of this step
        looks: dict[str, Any] = {"color": "0.45", "linestyle": (0, (4, 2)), "linewidth": 1.0, "zorder": 1}
        ax.axvline(step + 1, label="" if number else "restart", **looks)
    steps_axis(ax)
    ax.legend(handlelength=1.6)


def movement(ax: Axes, rows: Rows) -> None:
    """Draw how far each step moved the policy, and how much entropy is left."""
    line(ax, rows, "kl", color=BLUE, marker="o", label=r"KL($\pi_{new}$ || $\pi_{old}$)")
    line(ax, rows, "entropy", color=ORANGE, marker="D", linestyle=DASHED, label="entropy")
    nats_axis(ax)
    ax.set_ylim(bottom=0)
    far = any(gauge.largest_share(row) > 0.5 for row in rows)
    distance = "one far response makes its peaks" if far else "distance of a step"
    reading = f"KL: {distance}. Entropy: spread that is left to explore"
    heading(ax, "How much does the policy change?", reading, "nats")
    steps_axis(ax)
    ax.legend()


def lengths(ax: Axes, rows: Rows) -> None:
    """Draw the mean response length, and how many responses the budget cut off."""
    line(ax, rows, "response_length", color=BLUE, marker="o", label="mean length")
    heading(ax, "How long are the responses?", "mean over the responses of each step", "tokens")
    if known(rows, "cut_off") and any(row.get("cut_off") for row in rows):
        line(ax, rows, "cut_off", color=ORANGE, marker="D", linestyle=DASHED, label="cut off (number)")
        ax.legend(loc="center right")
    ax.set_ylim(bottom=0)
    steps_axis(ax)


def mismatch(ax: Axes, rows: Rows) -> None:
    """Draw how far engine and trainer differ on the same tokens under the same weights."""
    line(ax, rows, "mismatch_mean", color=BLUE, marker="o", label="mean per token")
    line(ax, rows, "mismatch_max", color=BLUE, marker="^", linestyle=":", label="largest per token")
    line(ax, rows, "mismatch_response", color=ORANGE, marker="D", linestyle=DASHED, label="mean per response")
    reading = "log-probabilities of the same tokens under the same weights"
    heading(ax, "Do engine and trainer agree?", reading, "difference (nats)")
    if ax.dataLim.y1 > 0:  # there may be no difference at all
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        ax.set_ylim(low, 30 * high)  # room for the legend
    ax.legend(loc="upper right")
    steps_axis(ax)


def log_ratios(ax: Axes, rows: Rows) -> None:
    """Draw each step's mean log-ratio of right and wrong responses beside the exact update's, or else the extremes."""
    for key, _, colour, marker in SIDES:
        line(ax, rows, f"log_ratio_{key}", color=colour, marker=marker)
        line(ax, rows, f"theory_log_ratio_{key}", marker=marker if len(rows) == 1 else "", **EXACT)
    if not any(known(rows, f"log_ratio_{key}") for key, *_ in SIDES):
        line(ax, rows, "log_ratio_max", color=RIGHT, marker="^", label="largest")
        line(ax, rows, "log_ratio_min", color=WRONG, marker="v", label="smallest")
        ax.legend()
    nats_axis(ax)
    shares = reached(rows)
    reading = "how much likelier it made a response (+1 nat: 2.7 times)"
    if shares:
        words = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
        reading += f"\nmeasured / exact: {words} of the way"
    heading(ax, "How far does one step go?", reading, LABEL)
    steps_axis(ax)


def by_pass_rate(ax: Axes, gauges: Rows) -> None:
    """Draw the gauge: log-ratios by bucket, each prompt in the bucket of its pass rate before the step."""
    for key, _, colour, marker in SIDES:
        for name, looks in ((f"log_ratio_{key}", {"color": colour, "ms": 6}), (f"theory_log_ratio_{key}", EXACT)):
            places, heights = numbers(gauges, "bucket"), numbers(gauges, name)
            ax.plot(places, heights, **looks | {"marker": marker, "linestyle": "none"})
    nats_axis(ax)
    heading(ax, "Which prompts move?", "hard prompts left, easy ones right; means over all steps", LABEL)
    pass_rate_axis(ax)


def key_to_sides(ax: Axes, rows: Rows, loc: Literal["center", "upper right"] = "center", ncols: int = 3) -> None:
    """Draw one legend for the log-ratio panels."""
    sides = [side for side in SIDES if known(rows, f"log_ratio_{side[0]}")]
    handles = [Line2D([], [], color=c, marker=m, label=f"{name} responses, measured") for _, name, c, m in sides]
    if any(known(rows, f"theory_log_ratio_{key}") for key, *_ in SIDES):
        handles.append(Line2D([], [], marker="^", label="exact update of each prompt alone", **EXACT))
    if handles:
        ax.legend(handles=handles, loc=loc, ncols=ncols)


def reached(rows: Rows) -> dict[str, float]:
    """The share of the predicted log-ratio that the steps reached on average; omitted where the prediction is 0."""
    shares = {}
    for key, name, *_ in SIDES:
        measured, predicted = numbers(rows, f"log_ratio_{key}"), numbers(rows, f"theory_log_ratio_{key}")
        both = ~np.isnan(measured) & ~np.isnan(predicted)
        target = float(predicted[both].sum())
        if abs(target) > 1e-9:
            shares[name] = float(measured[both].sum()) / target
    return shares


def percent(share: float) -> str:
    """A share as a percentage with two digits."""
    number = f"{100 * share:.2g}" if abs(share) < 0.995 else f"{100 * share:.0f}"
    return f"{number}\N{NO-BREAK SPACE}%".replace("-", "\N{MINUS SIGN}")


def brake(ax: Axes, rows: Rows, gauges: Rows) -> None:
    """Draw lambda/tau, by which the chi2 term raises the temperature near pi_old, beside tau itself; over the steps if
    rewards are real, so that there are no buckets."""
    if gauges:
        places = numbers(gauges, "bucket")
        ax.bar(places, numbers(gauges, "theory_lambda_over_tau"), 0.5, color=BLUE, label=r"$\lambda/\tau$, exact")
        looks: dict[str, Any] = {"color": ORANGE, "marker": "_", "ms": 20, "mew": 2.5, "linestyle": "none"}
        ax.plot(places, numbers(gauges, "tau"), label=r"$\tau$", **looks)
        pass_rate_axis(ax)
        ax.set_ylim(top=1.25 * ax.get_ylim()[1])  # room for the legend
        ax.legend(handlelength=1.6, markerscale=0.75, loc="upper center", ncols=2)
    else:
        line(ax, rows, "theory_lambda_over_tau", color=BLUE, marker="o", label=r"$\lambda/\tau$, exact")
        line(ax, rows, "tau", color=ORANGE, linestyle=DASHED, label=r"$\tau$")
        steps_axis(ax)
        ax.legend()
    reading = r"the loss acts as if $\tau$ were larger by $\lambda/\tau$, where steps are small"
    heading(ax, "How strong is the hidden brake?", reading, "reward units")
    ax.set_ylim(bottom=0)


def belief(ax: Axes, gauges: Rows) -> None:
    """Draw the share of prompts per bucket, a group's effective share, and how often log Z is noise."""
    places, prompts = numbers(gauges, "bucket"), numbers(gauges, "prompts")
    ax.bar(places, prompts / prompts.sum(), 0.86, color="0.87", label="share of all prompts")
    question, reading = "How much of the old policy still counts?", r"effective: $1/(1+\chi^2)$ of the step"
    if known(gauges, "noise_share"):
        ax.bar(places, numbers(gauges, "noise_share"), 0.36, color=VERMILLION, label="too few right draws")
        question = "Which groups can be believed?"
        reading = r"too few right draws: $\log Z$ of a group is over a nat off"
    if known(gauges, "theory_noise_share"):
        heights = numbers(gauges, "theory_noise_share")
        ax.plot(places, heights, "s", color=BLACK, ms=6, mfc="none", label="the same, expected")
    ax.plot(places, numbers(gauges, "ess"), "o", color=BLUE, label="effective after the step")
    heading(ax, question, reading, "share")
    ax.set(ylim=(0, 1.45), yticks=np.linspace(0, 1, 6))
    pass_rate_axis(ax)
    ax.legend(handlelength=1.2, fontsize=7, loc="upper center", ncols=2)  # in the space above 1


def own_columns(ax: Axes, rows: Rows, keys: Sequence[str]) -> None:
    """Draw the columns that the objective adds to the metrics."""
    for key, marker in zip(keys, "os^vDX" * len(keys), strict=False):
        line(ax, rows, key, marker, label=key.removeprefix(gauge.OWN))
    heading(ax, "What does the objective say of itself?", "its own columns, before the step", "")
    steps_axis(ax)
    ax.legend(fontsize=7)


# Title, and the sentences under the picture.


def title(spec: Spec, rows: Rows) -> str:
    """Environment, objective and temperature, the latter on both reward scales."""
    tau = format_tau(spec.objective.get("tau"), reward_scale(spec))
    most = max((row.get("staleness") or 0 for row in rows), default=0)  # from ministeps and lag together
    stale = f", staleness {most:g}" if most else ""
    return f"{spec.tier} {spec.name}, {spec.objective['name']}, {tau}{stale}"


def caption(rows: Rows, summary: dict[str, Any] | None, prompts: int | None, part: bool) -> str:
    """The caption: sentences with the run's own numbers, in lines. A step draws `prompts`; `part` says PMD-part."""
    words = [learned(rows, summary), *([came_undone(rows, prompts)] if prompts else [])]
    if shares := reached(rows):
        parts = " and ".join(f"{name} responses {percent(share)}" for name, share in shares.items())
        words.append(f"One step takes {parts} of the way to the exact update of their prompt alone.")
    if known(rows, "theory_lambda_over_tau"):
        extra, tau = (float(np.nanmean(numbers(rows, key))) for key in ("theory_lambda_over_tau", "tau"))
        words.append(f"The hidden brake adds {extra:.2g} to a temperature of {tau:.2g}, on average.")
    if part and known(rows, "noise_share"):
        share = percent(float(np.nanmean(numbers(rows, "noise_share"))))
        words.append(f"In {share} of the groups so few draws are right that PMD-part's target is noise.")
    push = float(np.nanmean(numbers(rows, "anchor"))) if part and known(rows, "anchor") else 0.0
    if push > 1 and max(row.get("staleness") or 0 for row in rows) > 0:
        words.append(
            f"Under PMD-part the push away from the old policy is {push:.2g} times the pull back, so what the reward "
            "says nothing about grows in each stale ministep; raise tau."
        )
    return textwrap.fill("What to see. " + " ".join(filter(None, words)), COLUMNS)


def learned(rows: Rows, summary: dict[str, Any] | None) -> str:
    """One sentence on the scores before and after training, or on the latest rollouts of an unfinished run."""
    kind, key = ("pass rate", "pass_rate") if known(rows, "pass_rate") else ("mean reward", "reward")
    if summary is not None and summary[f"{key}_first"] is not None:
        first, last = summary[f"{key}_first"], summary[f"{key}_last"]
        steps = f"{summary['steps']:,} step" + ("" if summary["steps"] == 1 else "s")
        return f"The {kind} of the evaluation goes from {first:.3g} to {last:.3g} in {steps}."
    values = numbers(rows, "pass_rate" if key == "pass_rate" else "reward_mean")
    return f"The {kind} of the rollouts is {values[-1]:.3g} in step {rows[-1]['step']}, the last one so far."


def came_undone(rows: Rows, prompts: int) -> str:
    """A sentence on a solved run that then gets worse, with the cause if the metrics show it; else "".

    Means over SPAN steps are compared. A fall is FALL or more, and six standard errors of a mean in which each prompt
    is either right or wrong, at the rate halfway down: draws alone give about four in a run of hundreds of steps.
    """
    rate, silent, norm = (numbers(rows, key) for key in ("pass_rate", "zero_variance_groups", "grad_norm"))
    if len(rate) < 2 * SPAN or np.isnan(rate).any():
        return ""
    means = np.convolve(rate, np.full(SPAN, 1 / SPAN), "valid")  # [i] of rows i to i + SPAN - 1
    bottom = int(np.argmax(np.maximum.accumulate(means) - means))
    top = int(np.argmax(means[: bottom + 1]))
    high, low = float(means[top]), float(means[bottom])
    middle = (high + low) / 2
    if high < SOLVED or high - low < max(FALL, 6 * (middle * (1 - middle) / (prompts * SPAN)) ** 0.5):
        return ""
    before, fall = slice(top, top + SPAN), slice(top + SPAN, bottom + SPAN)
    steps = [rows[place]["step"] for place in (before.stop - 1, fall.stop - 1)]
    sentence = (
        f"Once solved it comes undone: its rollouts pass {high:.3g} up to step {steps[0]}, {low:.3g} by {steps[1]}."
    )
    share, usual, largest = silent[before].mean() / prompts, np.median(norm[before]), norm[fall].max()
    if share >= 0.9 and largest >= 5 * usual:
        sentence += (
            f" Before, rewards were all equal in {percent(share)} of the groups, so a few wrong draws decided each "
            f"step; the gradient norm then grew from {usual:.2g} to {largest:.2g}. In toy runs such steps overshoot: "
            "stop earlier; a lower lr puts it off."
        )
    return sentence


# Axes, headings, and lines that leave gaps.


def heading(ax: Axes, title: str, reading: str, unit: str) -> None:
    """Set a panel's title, a question, below it in small print how to read the panel, and the unit of its y axis."""
    ax.set_ylabel(unit)
    lines = reading.count("\n") + 1
    ax.set_title(title, loc="left", fontweight="bold", pad=5 + 1.3 * SMALL * lines)
    # not in the layout: the padding of the title makes room, and a long sentence must not make its panel narrow
    looks: dict[str, Any] = {"fontsize": SMALL, "linespacing": 1.3, "color": "0.3", "in_layout": False}
    ax.annotate(reading, (0, 1), xytext=(0, 4), xycoords="axes fraction", textcoords="offset points", **looks)


def line(ax: Axes, rows: Rows, key: str, marker: str = "", **look: Any) -> None:
    """Draw a metric over the steps, with a few markers; null leaves a gap."""
    every = -(-len(rows) // MARKERS)
    ax.plot(numbers(rows, "step"), numbers(rows, key), **({"linestyle": "-"} | look), marker=marker, markevery=every)


def numbers(rows: Rows, key: str) -> np.ndarray:
    """The values of a key, NaN where it is null or missing: some tiers lack some keys."""
    return np.array([np.nan if row.get(key) is None else row[key] for row in rows], dtype=np.float64)


def known(rows: Rows, key: str) -> bool:
    """Whether a metric has any number at all."""
    return any(row.get(key) is not None for row in rows)


def steps_axis(ax: Axes) -> None:
    """Label the x axis in whole steps."""
    ax.set_xlabel("step")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def pass_rate_axis(ax: Axes) -> None:
    """Give every bucket of the gauge its own tick: on a linear axis the hard prompts would overlap."""
    count = len(gauge.EDGES) - 1
    names = [f"{100 * low:g}\N{EN DASH}{100 * high:g}" for low, high in pairwise(gauge.EDGES)]
    ax.set_xticks(range(count), names, fontsize=7.5)
    ax.set(xlim=(-0.6, count - 0.4), xlabel="prompts by pass rate before the step (%)")
    ax.grid(axis="x", visible=False)


def nats_axis(ax: Axes) -> None:
    """Draw a zero line, and make the axis logarithmic away from 0 if one line would flatten the others.

    Targets can be hundreds of nats while a step moves a hundredth of a nat, which a linear axis would hide.
    """
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=1)
    drawn = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.get_lines()]
    values = [y[~np.isnan(y)] for y in drawn]
    sizes = [size for y in values if (size := float(np.abs(y).max(initial=0.0))) > 1e-6]
    if sizes and max(sizes) > 10 * min(sizes):
        linear = 10.0 ** max(np.floor(np.log10(min(sizes))), np.floor(np.log10(max(sizes))) - 4)
        ax.set_yscale("symlog", linthresh=linear, linscale=0.7)
        ax.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=linear))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))
        below, above = (max(((sign * y).max() for y in values if y.size), default=0.0) for sign in (-1, 1))
        ax.set_ylim(-2.5 * max(below, linear), 2.5 * max(above, linear))
