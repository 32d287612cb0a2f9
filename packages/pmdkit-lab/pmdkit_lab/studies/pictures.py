"""Draws a picture of each experiment from its stored record alone. PICTURES, at the end, lists them."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pmdkit.errors import UsageError, unknown
from pmdkit.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, Drawing, look, method_title, style
from pmdkit.observe.run_folder import read_json
from pmdkit.stats import MeanInterval, PairedDifference, interval_text, mean_interval, paired_difference, paired_text
from pmdkit.sweeps.record import Runs, by_setting, curve_values, summary_values
from pmdkit_lab.figures.panels import Array, as_array, band, interval_bar, rows_of_names
from pmdkit_lab.studies.adaptive import FIXED, Row, gains, loses, recommended, tables

Record = dict[str, Any]
METHODS = ("pmd-mean", "pmd-part")
PROMPTS = "prompts answered (thousands)"


def draw(name: str, folder: Path) -> Drawing:
    """Draw one of PICTURES from the records in a folder."""
    if name not in PICTURES:
        raise UsageError(unknown("picture", name, PICTURES))
    function, *records = PICTURES[name]
    drawing: Drawing = function(*(read_json(folder / f"{record}.json") for record in records))
    return drawing


def training_curves(record: Record) -> Drawing:
    """Pass rate of the rollouts against prompts answered, and the paired differences to PMD-mean.

    Every method has the same prompts, draws and updates.

    Source: arXiv:2602.05933, figure main_result, tables main-results and gspo.
    Differs: a toy task; rewards {0,1}; bands are 95 % intervals over seeds, nothing is smoothed.
    """
    settings = by_setting(record)
    data = {}
    with style():
        figure = Figure(figsize=(7.2, 3.5))
        left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
        for name, runs in settings.items():
            x, seeds = curve_values(runs, "pass_rate")
            data[f"prompts {name}"] = x
            data[f"pass rate {name}"] = band(left, x, seeds, method_title(name), **look(name, marker=True))[0]
        left.set(xlabel=PROMPTS, ylabel="pass rate of the rollouts", ylim=(-0.02, 1.02))
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, columnspacing=1.4)
        found = differences_to_first(right, settings, "pass_rate_mean")
        right.set_xlabel("mean pass rate over training,\nminus PMD-mean's, paired by seed")
        figure.suptitle(f"toy {record['env']}, {len(settings['pmd-mean'])} seeds, bands and bars: 95 % intervals")
    last = "; ".join(
        f"{method_title(name)} {interval_text(mean_interval(summary_values(runs, 'pass_rate_last')))}"
        for name, runs in settings.items()
    )
    against = "; ".join(f"{method_title(name)} {paired_text(pair)}" for name, pair in found.items())
    sentence = f"Evaluated after training: {last}. Mean pass rate over training minus PMD-mean's: {against}."
    alt = (
        f"Left, pass rate against prompts answered on {record['env']} for {', '.join(map(method_title, settings))}. "
        f"Right, differences to PMD-mean in mean pass rate over training. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)


def differences_to_first(ax: Axes, settings: dict[str, Runs], metric: str) -> dict[str, PairedDifference]:
    """Draw the paired difference of each method to the first as horizontal bars."""
    first, *others = settings
    base = summary_values(settings[first], metric)
    found = {}
    for row, name in enumerate(others):
        seeds = summary_values(settings[name], metric)
        found[name] = paired_difference(base, seeds)
        ends = as_array(found[name].difference)
        interval_bar(ax, row, seeds - base, ends, sideways=True, **look(name, marker=True))
    ax.axvline(0.0, color="0.4", linewidth=0.8)
    rows_of_names(ax, [method_title(name) for name in others])
    return found


def tau(record: Record) -> Drawing:
    """Pass rate after training, and its mean over training, against tau.

    Source: arXiv:2602.05933, the claim that PMD-part is unstable "even with a much larger tau" (section 6).
    Differs: the paper shows single runs at tau from 0.005 to 0.1 on rewards of +-1, twice the tau on {0,1}.
    """
    xlabel = r"$\tau$ on rewards {0,1} (twice that on ±1)"
    figure, last, mean = against_option(record, "objective.tau", xlabel, "", (1, "lower right"))
    best = max(mean, key=lambda key: mean[key].mean)
    sentence = (
        f"Mean pass rate over training: {listed_ends(mean, '{} at tau {:g}')}. The largest mean is that of "
        f"{method_title(best[0])} at tau = {best[1]:g}."
    )
    after = listed_ends(last, "{} at tau {:g}")
    alt = f"Pass rate against tau for PMD-mean and PMD-part. {sentence} After training: {after}."
    return Drawing(figure, alt, sentence, means_by_method(mean))


def group_size(record: Record) -> Drawing:
    """Pass rate after training, and its mean over training, against the draws per prompt.

    Source: arXiv:2602.05933, section 4.2: PMD-part's target error needs n of the order of 1/p.
    Differs: the paper trains with 16 draws only. Here the draws per update are fixed: more per prompt, fewer prompts.
    """
    xlabel, fixed = "draws per prompt $G$ (512 draws per update)", r" $\tau$ = 0.05 on rewards {0,1},"
    figure, last, mean = against_option(record, "schedule.group", xlabel, fixed, (0, "center right"))
    sentence = f"Evaluated after training: {listed_ends(last, '{} with {} draws')}."
    over = listed_ends(mean, "{} with {} draws")
    alt = f"Pass rate against draws per prompt. {sentence} Mean over training: {over}."
    return Drawing(figure, alt, sentence, means_by_method(last))


Ends = dict[tuple[str, float], MeanInterval]  # by method and value of the option


def against_option(
    record: Record, option: str, xlabel: str, fixed: str, key: tuple[int, Any], methods: tuple[str, str] = METHODS
) -> tuple[Figure, Ends, Ends]:
    """Two methods over a swept option: pass rate after training, and its mean over training.

    Args:
        option: dotted key of the swept option.
        xlabel: label of the option's axis.
        fixed: text that the heading adds.
        key: panel and location of the legend.
        methods: in the order in which they are drawn.
    """
    settings = by_setting(record)
    with style():
        figure = Figure(figsize=(7.0, 3.1))
        left, right = figure.subplots(1, 2, sharey=True)
        last = swept(left, settings, option, "pass_rate_last", methods)
        mean = swept(right, settings, option, "pass_rate_mean", methods)
        for ax, name in ((left, "evaluated after training"), (right, "mean over training")):
            ax.set(xlabel=xlabel, title=name)
        left.set_ylabel("pass rate")
        figure.axes[key[0]].legend(loc=key[1])
        figure.suptitle(f"toy {record['env']},{fixed} dots: seeds, bars: 95 % intervals")
    return figure, last, mean


def swept(ax: Axes, settings: dict[str, Runs], option: str, metric: str, methods: tuple[str, str]) -> Ends:
    """Draw a metric against an option on a logarithmic axis: every seed, and the mean with its interval."""
    found: Ends = {}
    for side, method in zip((0.94, 1.06), methods, strict=True):
        runs = {r[0]["options"][option]: r for r in settings.values() if r[0]["options"]["objective.name"] == method}
        values = sorted(runs)
        shown = look(method, marker=True)
        for value in values:
            found[method, value] = seeds_and_interval(ax, value * side, summary_values(runs[value], metric), **shown)
        means = [found[method, value].mean for value in values]
        ax.plot(np.array(values) * side, means, label=method_title(method), **shown)
    ticks = sorted({value for _, value in found})
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_ylim(-0.02, 1.05)
    return found


def seeds_and_interval(ax: Axes, place: float, seeds: Array, **look: Any) -> MeanInterval:
    """Draw every seed and the mean with its interval; returns the interval."""
    end = mean_interval(seeds)
    interval_bar(ax, place, seeds, as_array(end), **look)
    return end


def means_by_method(found: Ends) -> dict[str, Array]:
    """The means drawn, by method."""
    methods = dict.fromkeys(method for method, _ in found)
    return {method: np.array([end.mean for (name, _), end in found.items() if name == method]) for method in methods}


def listed_ends(found: Ends, name: str) -> str:
    """`PMD-mean at tau 0.05 0.91 [0.88, 0.94]; ...`, the name a format of method and value."""
    return "; ".join(
        f"{name.format(method_title(method), value)} {interval_text(end)}" for (method, value), end in found.items()
    )


def staleness(record: Record) -> Drawing:
    """PMD-mean and GRPO by staleness, the number of updates held fixed.

    Source: arXiv:2602.05933, table main-results (staleness 1 and 16) and section 6.
    Differs: levels 4 and 64; the paper gives GRPO at 16 only and calls RLOO at 1 on-policy. What a token costs is
    the experiment speed.
    Watch: if one rollout batch is a fifth of all prompts, a fifth of the mean over training is at chance.
    """
    xlabel, fixed, methods = "updates per rollout batch", " 320 updates of 512 draws,", ("pmd-mean", "grpo")
    figure, last, mean = against_option(record, "schedule.ministeps", xlabel, fixed, (1, "lower left"), methods)
    sentence = f"Pass rate after 320 updates, by updates per rollout batch: {listed_ends(last, '{} at {}')}."
    measured = (("pass_rate_last", last), ("pass_rate_mean", mean))
    data = {f"{method} {key}": means for key, found in measured for method, means in means_by_method(found).items()}
    return Drawing(figure, f"Pass rate against staleness for PMD-mean and GRPO. {sentence}", sentence, data)


def speed(record: Record) -> Drawing:
    """Bars of CPU time per token.

    Source: arXiv:2602.05933, table efficiency_comparison: 0.0569 ms on-policy, 0.0126 at staleness 16, 4.5 times less.
    Differs: one CPU thread. The paper's gain comes from an engine that a small batch leaves idle; a thread never is.
    """
    runs = record["runs"]
    phases = (("rollout", "generation", ORANGE, ""), ("update", "update", BLUE, "//"))
    levels = sorted({run["staleness"] for run in runs})
    data, words = {}, []
    with style():
        figure = Figure(figsize=(7.0, 3.1))
        envs = list(dict.fromkeys(run["env"] for run in runs))
        for ax, env in zip(figure.subplots(1, len(envs)), envs, strict=True):
            own = [[run for run in runs if (run["env"], run["staleness"]) == (env, level)] for level in levels]
            bottom = np.zeros(len(levels))
            for phase, name, colour, hatch in phases:
                seeds = [np.array([run[f"ms_per_token_{phase}"] for run in group]) for group in own]
                data[f"{env} {name}"] = np.array([each.mean() for each in seeds])
                bars = {"label": name, "color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
                ax.bar(range(len(levels)), data[f"{env} {name}"], 0.6, bottom, **bars)
                bottom = bottom + data[f"{env} {name}"]
            whole = [np.array([r["ms_per_token_rollout"] + r["ms_per_token_update"] for r in group]) for group in own]
            ends = [mean_interval(each) for each in whole]
            half = [0.0 if end.high is None else end.high - end.mean for end in ends]
            ax.errorbar(range(len(levels)), [e.mean for e in ends], half, fmt="none", ecolor="black", capsize=3)
            gain = mean_interval(whole[0] / whole[levels.index(16)])
            share = data[f"{env} generation"][0] / bottom[0]
            words.append(f"{env}: {interval_text(gain)} times, generation being {share:.0%} of the cost on-policy")
            ax.set_xticks(range(len(levels)), [str(level) for level in levels])
            ax.set(xlabel="updates per rollout batch", title=env, ylim=(0, 1.35 * bottom.max()))
            ax.grid(axis="x", visible=False)
        figure.axes[0].set_ylabel("CPU milliseconds per token")
        figure.axes[-1].legend(loc="upper right", ncols=2)
        figure.suptitle("PMD-mean, one thread, 128 draws per update, bars: 95 % intervals over seeds")
    sentence = f"From staleness 1 to 16 a token gets cheaper by: {'; '.join(words)}."
    return Drawing(figure, f"Cost of a token by staleness, generation and update stacked. {sentence}", sentence, data)


def min_ratio(table: Record, sequence: Record) -> Drawing:
    """Minimum of log pi_{t+1}/pi_t over the rows of a step, against prompts answered.

    Source: arXiv:2602.05933, figure min_ratio.
    Differs: over all rows of the step, scored again after its last update; the paper takes the last mini-batch only.

    Args:
        table: record of the experiment tau.
        sequence: record of the experiment sequence, tau = 0.05.
    """
    swept, long = by_setting(table), by_setting(sequence)
    panels = {
        f"{table['env']}, tau {tau:g}": {method: swept[f"{method} tau={tau}"] for method in METHODS}
        for tau in (0.05, 0.5)
    }
    panels[f"{sequence['env']}, tau 0.05"] = {method: long[method] for method in METHODS}
    data, words = {}, []
    with style():
        figure = Figure(figsize=(7.4, 2.9))
        for ax, (heading, methods) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            for method, runs in methods.items():
                x, seeds = curve_values(runs, "log_ratio_min")
                data[f"{heading} {method}"] = band(ax, x, seeds, method_title(method), **look(method, marker=True))[0]
                first, _, last = (mean_interval(third.mean(0)) for third in np.array_split(seeds.T, 3))
                ends = f"{interval_text(first, '.1f')} to {interval_text(last, '.1f')}"
                words.append(f"{heading}, {method_title(method)}: {ends}")
            ax.set(title=heading, xlabel=PROMPTS)
            ax.set_ylim(top=0.4)  # Student's t intervals may extend above 0; a minimum cannot
        figure.axes[0].set_ylabel("smallest log-ratio of the step (nats)")
        figure.axes[0].legend(loc="lower left")
    sentence = (
        f"Smallest log-ratio of a step in nats, mean over the first and the last third of training: {'; '.join(words)}."
    )
    return Drawing(figure, f"Smallest log-ratio over training in three settings. {sentence}", sentence, data)


CONTRAST: tuple[dict[str, Any], dict[str, Any]] = (
    {"color": BLUE, "linestyle": "-", "marker": "o"},
    {"color": ORANGE, "linestyle": (0, (5, 1.6)), "marker": "s"},
)


def contrast(record: Record, names: tuple[str, str], heading: str) -> Drawing:
    """Pass rate of two settings over training, and their mean pass rates seed by seed.

    Args:
        record: record of the experiment; its first two settings are drawn.
        names: labels of the two settings.
        heading: heading of the figure.
    """
    first, second = list(by_setting(record).values())[:2]
    data = {}
    with style():
        figure = Figure(figsize=(7.0, 3.0))
        left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
        for name, runs, looks in zip(names, (first, second), CONTRAST, strict=True):
            x, seeds = curve_values(runs, "pass_rate")
            data[name] = band(left, x, seeds, name, **looks)[0]
        left.set(xlabel=PROMPTS, ylabel="pass rate of the rollouts")
        left.legend()
        pair = [summary_values(runs, "pass_rate_mean") for runs in (first, second)]
        right.plot([0, 1], pair, color="0.7", linestyle="-", linewidth=0.8, zorder=1)
        ends = [
            seeds_and_interval(right, x, seeds, **looks)
            for x, (seeds, looks) in enumerate(zip(pair, CONTRAST, strict=True))
        ]
        right.set_xticks([0, 1], names)
        right.set(xlim=(-0.5, 1.5), ylabel="mean pass rate over training", title="a line for each seed")
        figure.suptitle(f"{heading}, toy {record['env']}; bands and bars: 95 % intervals")
    after = [summary_values(runs, "pass_rate_last") for runs in (first, second)]
    means = [f"{name} {interval_text(end, '.3f')}" for name, end in zip(names, ends, strict=True)]
    during, end = (paired_text(paired_difference(*both), ".3f") for both in (pair, after))
    sentence = (
        f"Mean pass rate over training: {', '.join(means)}; paired difference {during}. After training the difference "
        f"is {end}."
    )
    return Drawing(figure, f"Pass rate over training, {names[0]} and {names[1]}. {sentence}", sentence, data)


def clamp(record: Record) -> Drawing:
    """PMD-part with the exact leave-one-out partition, and with the floor that the authors' code applies to it.

    A success that is the only one in its group has target 1/tau = 200 nats, or 18.42 with the floor.

    Source: OpenKimi `core_algos.py`, estimator `ploo`, against arXiv:2602.05933, eq. loo-s-part.
    """
    return contrast(record, ("exact", "clamped"), r"PMD-part, $\tau$ = 0.005 on rewards {0,1}")


def half(record: Record) -> Drawing:
    """PMD-mean with the factor 1/2 of the main text and the authors' code, and without it as in the appendix.

    The losses differ by a factor of 2, which AdamW cancels, except in gradient-norm clipping.

    Source: arXiv:2602.05933, eq. L_mean against the appendix.
    """
    return contrast(record, ("half", "paper"), r"PMD-mean, $\tau$ = 0.05 on rewards {0,1}")


def baseline(record: Record) -> Drawing:
    """PMD-mean with the response's own reward left out of the baseline (the paper), and kept in (Kimi K1.5).

    With 16 draws, keeping the response's own reward scales every advantage by 15/16.

    Source: arXiv:2602.05933, eq. loo-s-mean; Kimi K1.5, arXiv:2501.12599.
    """
    return contrast(record, ("leave-one-out", "own draw kept"), r"PMD-mean, $\tau$ = 0.05 on rewards {0,1}")


LAWS: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("pmd-mean", "exact update"): ("Theorem 1", {"color": BLUE, "linestyle": "-", "marker": "o"}),
    ("pmd-mean", "length law"): ("length-weighted law", {"color": ORANGE, "linestyle": (0, (5, 1.6)), "marker": "D"}),
    ("pmd-part", "exact update"): (
        "Boltzmann update",
        {"color": VERMILLION, "linestyle": (0, (1, 1.2)), "marker": "s"},
    ),
}
REGIME_PANELS = {
    "full support, pmd-mean none": "PMD-mean, no length rule,\nall responses",
    "full support, pmd-mean length": "PMD-mean, divided by length,\nall responses",
    "full support, pmd-part length": "PMD-part, all responses",
    "draws, pmd-mean length": "PMD-mean, divided by length,\n64 draws per prompt",
    "draws, pmd-part length": "PMD-part,\n64 draws per prompt",
}


def regimes(record: Record) -> Drawing:
    """How close the fitted policy is to each law as the number of passes over one frozen batch grows.

    Relative distance to each law, with one panel per batch and objective, and the pass rate of the fitted policy.

    Source: arXiv:2602.05933, Theorem 1 and its remark that few passes do not reach it; the length-weighted law is ours.
    """
    passes = np.array(record["passes"], dtype=np.float64)
    data, words, alt = {}, [], []
    with style():
        figure = Figure(figsize=(7.4, 5.0))
        grid = figure.subplots(2, 3, sharex=True).ravel()
        for ax, (setting, heading) in zip(grid, REGIME_PANELS.items(), strict=False):
            runs = [run for run in record["runs"] if run["setting"] == setting]
            method = setting.split(", ")[1].split()[0]
            for (objective, law), (name, looks) in LAWS.items():
                if objective != method or law not in runs[0]:
                    continue
                seeds = np.array([run[law] for run in runs])
                data[f"{setting}, {law}"] = band(ax, passes, seeds, name, **looks)[0]
                words.append(f"{setting}: {interval_text(mean_interval(seeds[:, -1]))} from {name}")
                alt.append(f"{setting}, {name}: {seeds[:, 0].mean():.2f} after one pass")
            ax.axhline(1.0, color="0.6", linewidth=0.8)
            ax.set(title=heading, xscale="log", yscale="log", ylim=(2e-3, 10))
        last = grid[len(REGIME_PANELS)]
        for method in METHODS:
            setting, (_, looks) = f"full support, {method} length", LAWS[method, "exact update"]
            rates = np.array([run["pass_rate"] for run in record["runs"] if run["setting"] == setting])
            data[f"pass rate {setting}"] = band(last, passes, rates, method_title(method), **looks)[0]
        last.set(title="pass rate of the fitted policy,\nall responses", xscale="log", ylim=(-0.02, 1.05))
        last.legend(loc="upper left", fontsize=7, handlelength=1.8)
        for ax in grid[3:]:
            ax.set_xlabel("passes over the batch")
        for ax in (grid[0], grid[3]):
            ax.set_ylabel("distance to the law\n(0: the law, 1: where it began)")
        handles = [Line2D([], [], label=name, **looks) for name, looks in LAWS.values()]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        figure.suptitle(r"toy copy, from chance, $\tau$ = 0.05 on rewards {0,1}; bands: 95 % intervals over seeds")
    sentence = (
        f"Distance after {int(passes[-1])} passes: {'; '.join(words)}. On the way, PMD-part's pass rate falls to "
        f"{rates.min(1).mean():.4f} from {1 / 81:.4f} before it rises."
    )
    text = f"Distance of the fitted policy to each law against passes. {sentence} {'; '.join(alt)}."
    return Drawing(figure, text, sentence, data)


def adaptive_tau(*records: Record) -> Drawing:
    """Gain in the area under the curve, mean and 95 % interval over paired seeds.

    Source: arXiv:2602.05933 leaves adaptive temperatures to future work.
    Differs: none of this is in the paper.
    """
    found: dict[str, list[Row]] = {cell: rows for record in records for cell, rows in tables(record["runs"]).items()}
    names = {cell: f"{setting['tier']}: {cell}" for record in records for cell, setting in record["cells"].items()}
    with style():
        figure = Figure(figsize=(7.2, 1.2 + 0.27 * sum(len(rows) + 1.4 for rows in found.values())))
        grid = figure.subplots(len(found), 1, sharex=True, height_ratios=[len(rows) + 0.4 for rows in found.values()])
        for ax, (cell, rows) in zip(np.atleast_1d(grid), found.items(), strict=True):
            cell_panel(ax, rows, names[cell])
        np.atleast_1d(grid)[-1].set_xlabel("gain in mean pass rate over training against the tuned fixed tau")
    sentence = outcome_text(found, {c: s["objective"] for record in records for c, s in record["cells"].items()})
    data = {
        f"{cell} {row['arm']}": np.array([row["auc_gain"][key] for key in ("mean", "low", "high")])
        for cell, rows in found.items()
        for row in rows
        if row["arm"] != FIXED
    }
    return Drawing(figure, f"Intervals per rule and cell. {sentence}", sentence, data)


def cell_panel(ax: Axes, rows: list[Row], title: str) -> None:
    """Draw the panel of one cell."""
    ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=1)
    others = [row for row in rows if row["arm"] != FIXED]
    for place, row in enumerate(others):
        gain = row["auc_gain"]
        colour = GREEN if gains(row) else VERMILLION if loses(row) else GREY
        ax.plot((gain["low"], gain["high"]), (place, place), "-", color=colour, linewidth=2)
        ax.plot(gain["mean"], place, "o", color=colour, markersize=5)
    fixed = rows[0]["auc"]["mean"]
    ax.set_yticks(range(len(others)), [row["arm"] for row in others])
    ax.set_ylim(len(others) - 0.4, -0.6)
    ax.set_title(f"{title} (fixed: {fixed:.3f}, {rows[0]['seeds']} seeds)", loc="left", color=BLACK)


def outcome_text(found: dict[str, list[Row]], objectives: dict[str, str]) -> str:
    """The outcome in words."""
    parts = []
    for cell, rows in found.items():
        better = [row["arm"] for row in rows if gains(row)]
        worse = [row["arm"] for row in rows if loses(row)]
        parts.append(f"{cell}: better {', '.join(better) or 'none'}; worse {', '.join(worse) or 'none'}.")
    passed = recommended(found, objectives) if "pmd-mean" in found else []
    return " ".join([*parts, f"Recommended by the stated rule: {', '.join(passed) or 'none'}."])


def race(record: Record) -> Drawing:
    """What each tuned method gains over PMD-mean, and the share of its settings that do well, on every task.

    Source: arXiv:2602.05933, section 6: PMD-mean is as good as GRPO or better, and more stable.
    Differs: many methods, each tuned with the same budget; tasks small enough for two cores.
    """
    found: dict[str, list[Row]] = record["tables"]
    margin = record["outcome"]["margin"]
    reference, *others = next(iter(found.values()))  # the reference comes first in every task
    places = {task: {row["method"]: row for row in rows} for task, rows in found.items()}
    score = {row["method"]: np.mean([places[task][row["method"]]["gain"]["mean"] for task in found]) for row in others}
    names = sorted(score, key=lambda name: -score[name])
    data: dict[str, Array] = {}
    with style():
        figure = Figure(figsize=(9.0, 7.4))
        axes = figure.subplots(2, len(found), sharey="row", height_ratios=(len(names), len(names) + 1), squeeze=False)
        for (above, below), (task, rows) in zip(axes.T, found.items(), strict=True):
            gain = [places[task][name]["gain"] for name in names]
            for place, (name, each) in enumerate(zip(names, gain, strict=True)):
                ends = np.array([each["mean"], each["low"], each["high"]])
                interval_bar(above, place, np.empty(0), ends, sideways=True, color=race_colour(name), marker="o")
                data[f"gain {task} {name}"] = ends
            above.axvline(0.0, color="0.4", linewidth=0.8)
            above.axvspan(-margin, margin, color="0.92", zorder=0)
            above.locator_params(axis="x", nbins=4)
            below.locator_params(axis="x", nbins=4)
            above.set_title(f"{task}, {rows[0]['seeds']} seeds")
            above.set_xlabel("mean pass rate over training,\nminus PMD-mean's")
            rows_of_names(above, names)
            ordered = [reference["method"], *names]
            for place, name in enumerate(ordered):
                own, all_ = places[task][name]["volume_own"], places[task][name]["volume_all"]
                below.plot([all_, own], [place, place], "-", color=race_colour(name), linewidth=1.2)
                below.plot(own, place, "o", color=race_colour(name), markerfacecolor="white", markersize=5)
                below.plot(all_, place, "o", color=race_colour(name), markersize=5)
                data[f"volume {task} {name}"] = np.array([own, all_])
            below.set(xlabel="share of the settings")
            rows_of_names(below, ordered)
        near = record["outcome"]["near"]
        hollow = Line2D([], [], marker="o", color=GREY, markerfacecolor="white", label=f"within {near} of its own best")
        full = Line2D([], [], marker="o", color=GREY, label=f"within {near} of the best of all")
        figure.legend(handles=[hollow, full], loc="outside lower center", ncols=2)
        figure.suptitle("all tuned with the same budget; bars: 95 % intervals; grey: the margin of no difference")
    sentence = "Beside PMD-mean, " + "; ".join(f"on {task} {race_words(rows)}" for task, rows in found.items()) + "."
    alt = (
        f"Above, mean pass rate over training of {len(names)} tuned methods minus that of PMD-mean on {len(found)} "
        f"tasks; below, the share of settings near the best. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)


def race_colour(name: str) -> str:
    """The colour of a method: the two methods of the paper have their own, the others are grey."""
    return str(look(name)["color"]) if name in METHODS else "0.35"


def race_words(rows: list[Row]) -> str:
    """How many methods have each outcome."""
    others = [row["outcome"] for row in rows if "outcome" in row]
    words = ("better", "no difference", "undecided", "worse")
    return ", ".join(f"{others.count(word)} {word}" for word in words if word in others)


PICTURES: dict[str, tuple[Any, ...]] = {  # picture: (function that draws it, records that it reads)
    "training-curves": (training_curves, "training-curves"),
    "sequence": (training_curves, "sequence"),
    "tau": (tau, "tau"),
    "staleness": (staleness, "staleness"),
    "speed": (speed, "speed"),
    "min-ratio": (min_ratio, "tau", "sequence"),
    "group-size": (group_size, "group-size"),
    "clamp": (clamp, "clamp"),
    "half": (half, "half"),
    "baseline": (baseline, "baseline"),
    "regimes": (regimes, "regimes"),
    "race": (race, "race/race"),
    "adaptive-tau": (adaptive_tau, "adaptive-tau-bandit", "adaptive-tau-toy", "adaptive-tau-starter"),
}
