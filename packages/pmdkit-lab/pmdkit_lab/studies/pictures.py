"""Draws a picture of each experiment from its stored record alone. PICTURES, at the end, lists them."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.style import BLACK, GREEN, GREY, VERMILLION, style
from pmdkit.observe.run_folder import read_json
from pmdkit.stats import interval_text, mean_interval
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import look
from pmdkit_lab.figures.panels import Array, as_array, interval_bar, rows_of_names
from pmdkit_lab.studies.adaptive import FIXED, Row, gains, loses, recommended, tables
from pmdkit_lab.studies.experiments import EXPERIMENTS
from pmdkit_lab.studies.outcomes import BELOW_MARGIN, PAIR
from pmdkit_lab.studies.settings import by_setting, summary_values

Record = dict[str, Any]
MEASURES = {"pass_rate_mean": "mean over training", "pass_rate_last": "after training"}


def draw(name: str, folder: Path) -> Drawing:
    """Draw one of PICTURES from the records in a folder."""
    function, *records = PICTURES[name]
    drawing: Drawing = function(*(read_json(folder / f"{record}.json") for record in records))
    return drawing


def experiment(record: Record) -> Drawing:
    """Pass rate of every setting of an experiment: its mean over training, and evaluated afterwards.

    Source: arXiv:2602.05933, section 6 and its figures and tables; each experiment says which claim it examines.
    Differs: a toy task; rewards {0,1}; a mean over seeds with its 95 % interval where the paper has one run.
    """
    settings = by_setting(record)
    seeds = len(next(iter(settings.values())))
    data: dict[str, Array] = {}
    words = []
    with style():
        figure = Figure(figsize=(7.2, 1.4 + 0.3 * len(settings)))
        for ax, (metric, title) in zip(figure.subplots(1, 2, sharey=True), MEASURES.items(), strict=True):
            for place, (name, runs) in enumerate(settings.items()):
                values = summary_values(runs, metric)
                data[f"{name}, {title}"] = as_array(mean_interval(values))
                shown = look(runs[0]["options"]["objective.name"], marker=True)
                interval_bar(ax, place, values, data[f"{name}, {title}"], **shown)
            ax.set(xlabel=f"pass rate, {title}", xlim=(-0.02, 1.02))
            rows_of_names(ax, list(settings))
            listed = (f"{name} {interval_text(data[f'{name}, {title}'])}" for name in settings)
            words.append(f"{title}: {'; '.join(listed)}")
        figure.suptitle(f"toy {record['env']}, dots: {seeds} seeds, bars: 95 % intervals", fontsize=9)
    sentence = f"Pass rate {'. Pass rate '.join(words)}."
    return Drawing(figure, f"A row for each setting of {record['about']} {sentence}", sentence, data)


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
            ax.set_title(f"{names[cell]} (fixed: {fixed:.3f}, {rows[0]['seeds']} seeds)", loc="left", color=BLACK)
        np.atleast_1d(grid)[-1].set_xlabel("gain in mean pass rate over training against the tuned fixed tau")
    parts = []
    for cell, rows in found.items():
        better, worse = (", ".join(row["arm"] for row in rows if kind(row)) or "none" for kind in (gains, loses))
        parts.append(f"{cell}: better {better}; worse {worse}.")
    objectives = {cell: setting["objective"] for record in records for cell, setting in record["cells"].items()}
    passed = recommended(found, objectives) if "pmd-mean" in found else []
    sentence = " ".join([*parts, f"Recommended by the stated rule: {', '.join(passed) or 'none'}."])
    data = {
        f"{cell} {row['arm']}": np.array([row["auc_gain"][key] for key in ("mean", "low", "high")])
        for cell, rows in found.items()
        for row in rows
        if row["arm"] != FIXED
    }
    return Drawing(figure, f"Intervals per rule and cell. {sentence}", sentence, data)


def race_matched(record: Record) -> Drawing:
    """PMD-mean minus PMD-part at the same settings and seeds, for each task of the race and each tau.

    Source: arXiv:2602.05933, section 6: PMD-mean and PMD-part at equal temperature and learning rate.
    Differs: four small tasks; every setting of the tuning grid in place of one.
    """
    rows: list[Row] = record["matched"]
    places = np.cumsum([1.0 if row["tau"] is not None else 1.6 for row in rows]) - 1.6
    data: dict[str, Array] = {}
    with style():
        figure = Figure(figsize=(5.2, 0.9 + 0.24 * float(places[-1])))
        ax = figure.subplots()
        ax.axvline(0.0, color="0.4", linewidth=0.8)
        right = max(row["gap"]["high"] for row in rows)
        for place, row in zip(places, rows, strict=True):
            ends = np.array([row["gap"][key] for key in ("mean", "low", "high")])
            looks = {**look(PAIR[0], marker=True), "alpha": 1.0 if row["tau"] is None else 0.5}
            interval_bar(ax, place, np.empty(0), ends, **looks)
            ax.text(1.06 * right, place, f"{row['wins']:.0%} of {row['pairs']}", va="center", fontsize=8)
            data[f"{row['task']} {'all' if row['tau'] is None else row['tau']}"] = ends
        ax.text(1.06 * right, -0.9, "ahead in", va="center", fontsize=8)
        names = [row["task"] if row["tau"] is None else f"tau {row['tau']}" for row in rows]
        ax.set_yticks(places, names)
        ax.set_ylim(places[-1] + 0.7, -1.3)
        ax.grid(axis="y", visible=False)
        ax.set_xlabel("mean pass rate over training, PMD-mean minus PMD-part")
        ax.set_title("at the same learning rate, tau, updates and seed", loc="left", fontsize=9)
    words = [f"on {row['task']} in {row['wins']:.0%} of {row['pairs']} pairs" for row in rows if row["tau"] is None]
    sentence = f"At equal settings PMD-mean is ahead of PMD-part {', '.join(words)}."
    return Drawing(figure, f"Gaps with their spread over the settings, by task and tau. {sentence}", sentence, data)


def race(record: Record) -> Drawing:
    """The gain of each tuned method over PMD-mean on every task.

    Source: arXiv:2602.05933, section 6: PMD-mean is as good as GRPO or better.
    Differs: many methods, each tuned with the same budget; tasks small enough for two cores.
    """
    found: dict[str, list[Row]] = record["tables"]
    margin = record["outcome"]["margin"]
    places = {task: {row["method"]: row for row in rows if "gain" in row} for task, rows in found.items()}
    mean = {
        name: np.mean([each[name]["gain"]["mean"] for each in places.values()]) for name in next(iter(places.values()))
    }
    names = sorted(mean, key=lambda name: -mean[name])
    data: dict[str, Array] = {}
    with style():
        figure = Figure(figsize=(6.2, 0.9 + 0.2 * len(names) * -(-len(found) // 2)))
        grid = figure.subplots(-(-len(found) // 2), min(2, len(found)), sharey=True, squeeze=False)
        for ax, (task, rows) in zip(grid.flat, found.items(), strict=False):
            ax.axvline(0.0, color="0.4", linewidth=0.8)
            ax.axvspan(-margin, margin, color="0.92", zorder=0)
            for place, name in enumerate(names):
                row = places[task][name]
                ends = np.array([row["gain"][key] for key in ("mean", "low", "high")])
                interval_bar(ax, place, np.empty(0), ends, color=race_colour(name), marker="o")
                if wider := row["gain_with_tuning"]:
                    ax.plot((wider["low"], wider["high"]), (place, place), "-", color=race_colour(name), linewidth=0.6)
                data[f"gain {task} {name}"] = ends
            ax.set_title(f"{task}, {rows[0]['seeds']} seeds")
            ax.locator_params(axis="x", nbins=4)
            rows_of_names(ax, names)
        for ax in grid[-1]:
            ax.set_xlabel("mean pass rate over training,\nminus PMD-mean's")
        figure.suptitle("thick: 95 % over seeds; thin: with the luck of tuning; grey: the margin", fontsize=9)
    words = []
    for task, each in places.items():
        outcomes = [row["outcome"] for row in each.values()]
        kinds = ("better", "no difference", BELOW_MARGIN, "undecided", "worse")
        counts = (f"{outcomes.count(kind)} {kind}" for kind in kinds if kind in outcomes)
        words.append(f"on {task} {', '.join(counts)}")
    sentence = f"Beside PMD-mean, {'; '.join(words)}."
    alt = (
        f"Mean pass rate over training of {len(names)} tuned methods minus that of PMD-mean on {len(found)} tasks. "
        f"{sentence}"
    )
    return Drawing(figure, alt, sentence, data)


def race_colour(name: str) -> str:
    """The colour of a method: the two methods of the paper have their own, the others are grey."""
    return str(look(name)["color"]) if name in PAIR else "0.35"


PICTURES: dict[str, tuple[Any, ...]] = {  # picture: (function that draws it, records that it reads)
    **{name: (experiment, name) for name in EXPERIMENTS},
    "race": (race, "race/race"),
    "race-matched": (race_matched, "race/race"),
    "adaptive-tau": (adaptive_tau, "adaptive-tau-bandit", "adaptive-tau-toy", "adaptive-tau-starter"),
}
