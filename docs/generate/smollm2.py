"""Chart and tables of three objectives on SmolLM2, from their stored records, for docs/use/smollm2.md."""

from pathlib import Path
from typing import Any

import numpy as np
from generate.adaptive_tau import save_svg
from matplotlib.figure import Figure

from pmdkit.figures.style import style
from pmdkit.observe.run_folder import read_json
from pmdkit.stats import mean_interval
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import look

NAMES = {"pmd-mean": "PMD-mean", "pmd-part": "PMD-part", "grpo": "GRPO"}
SPAN = 5  # steps of a running mean: the problems of single steps differ more than objectives do
GRID = ["objective", "tau", "lr", "steps 1 to 6", "steps 1 to 12"]


def write_smollm2(page: Path, results: Path) -> int:
    """Write what the page includes, `.smollm2.md` beside it, and the chart; returns the number of runs.

    Args:
        page: docs/use/smollm2.md.
        results: folder of the records.
    """
    record = read_json(results / "smollm2-objectives.json")
    marks = "<!-- --8<-- [{}:{}] -->\n"
    parts = {
        "chart": save_svg(chart(record), page),
        "matched": tables(record, ["matched"]),
        "tuned": tables(record, ["tuned", "tuned, long"]),
        "grid": table(GRID, grid(record)),
        "stale": stale(read_json(results / "smollm2-stale.json")),
    }
    text = "".join(f"{marks.format('start', name)}{part}{marks.format('end', name)}" for name, part in parts.items())
    page.with_name(f".{page.name}").write_text(text, encoding="utf-8")
    return len(record["runs"])


def tables(record: dict[str, Any], halves: list[str]) -> str:
    """The rates of the objectives at one setting each and their differences, over one number of steps or more."""
    found = [record["halves"][half] for half in halves]
    head = ["objective", "tau", "lr", *(f"steps 1 to {half['steps']} [95 %]" for half in found), "last five"]
    rows = []
    for name, first in found[0]["objectives"].items():
        each = [half["objectives"][name] for half in found]
        rates = [interval(row["mean"], ".2f") for row in each]
        rows.append([NAMES[name], first["tau"] or "none", first["lr"], *rates, f"{each[-1]['end']:.2f}"])
    pairs = []
    for same in zip(*(half["comparisons"] for half in found), strict=True):
        outcomes = [f"{interval(row['difference'], '+.3f')}, {row['verdict']}" for row in same]
        pairs.append([f"{NAMES[same[0]['of']]} minus {NAMES[same[0]['than']]}", *outcomes])
    spans = [f"steps 1 to {half['steps']} [99.2 %]" for half in found]
    return f"{table(head, rows)}\n{table(['difference', *spans], pairs)}"


def interval(values: list[float], form: str) -> str:
    """A mean with its interval."""
    return "{} [{}, {}]".format(*(format(value, form) for value in values))


def grid(record: dict[str, Any]) -> list[list[str]]:
    """The rows of the grid: the pass rates by which each objective's best setting was chosen."""
    rows = []
    for key, rates in record["grid"].items():
        name, lr, tau = key.split("/")
        cells = [f"{rate:.3f}" for rate in rates] + [""] * (2 - len(rates))
        rows.append([NAMES[name], "none" if tau == "None" else tau, lr, *cells])
    return rows


def stale(record: dict[str, Any]) -> str:
    """How high and how steadily each objective ends with 16 updates from each batch, and the differences."""
    names = NAMES | {"pmd-part at 0.5": "PMD-part at tau 0.5"}
    head = ["objective", "final rate [95 %]", "fall [95 %]", "runs that fell"]
    rows = [
        [
            names[name],
            *(interval(arm[key], ".2f") for key in ("final", "fall")),
            f"{arm['fell']} of {len(record['seeds'])}",
        ]
        for name, arm in record["arms"].items()
    ]
    pairs = [
        [
            f"{names[row['of']]} minus {names[row['than']]}",
            *(f"{interval(row[key]['difference'], '+.2f')}, {row[key]['verdict']}" for key in ("final", "fall")),
            row["verdict"],
        ]
        for row in record["comparisons"]
    ]
    spans = ["difference", "final rate [99.4 %]", "fall [99.4 %]", "the first is"]
    return f"{table(head, rows)}\n{table(spans, pairs)}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def columns(record: dict[str, Any], half: str, objective: str, column: str) -> np.ndarray[Any, Any]:
    """[seeds, steps] of one objective in one half."""
    found = record["halves"][half]
    cell = (objective, *(found["objectives"][objective][key] for key in ("lr", "tau")))
    runs = [r for r in record["runs"] if (r["objective"], r["lr"], r["tau"]) == cell and r["seed"] in record["seeds"]]
    return np.array([run[column][: found["steps"]] for run in sorted(runs, key=lambda run: run["seed"])], dtype=float)


def chart(record: dict[str, Any]) -> Drawing:
    """Pass rate by step, running means over SPAN steps, with 95 % t intervals over the seeds.

    At equal settings, and thinner where an objective's best setting is another.
    """
    data, ends = {}, []
    settings = {half: record["halves"][half]["objectives"] for half in ("matched", "tuned, long")}
    lines = [("matched", name, title, {}) for name, title in NAMES.items()]
    for name, title in NAMES.items():
        if settings["tuned, long"][name]["lr"] != settings["matched"][name]["lr"]:
            label = f"{title} at lr {settings['tuned, long'][name]['lr']}"
            lines.append(("tuned, long", name, label, {"linestyle": (0, (1, 1.2)), "linewidth": 1.6}))
    with style():
        figure = Figure(figsize=(6.4, 3.4))
        ax = figure.subplots()
        for half, name, label, others in lines:
            rates = columns(record, half, name, "pass_rate")
            smooth = np.array([np.convolve(rate, np.full(SPAN, 1 / SPAN), "valid") for rate in rates])
            band = [mean_interval(values) for values in smooth.T]
            steps = np.arange(SPAN, rates.shape[1] + 1)
            curve = data[label] = np.array([(each.mean, each.low, each.high) for each in band])
            ax.plot(steps, curve[:, 0], label=label, **look(name) | others)
            if half == "matched":  # a fourth band would hide the others
                ax.fill_between(steps, curve[:, 1], curve[:, 2], color=look(name)["color"], alpha=0.12, linewidth=0)
            ends.append(f"{label} from {curve[0, 0]:.2f} to {curve[-1, 0]:.2f}")
        ax.set(xlabel="step", ylabel=f"pass rate, mean of {SPAN} steps", ylim=(0, 0.85), xlim=(SPAN, steps[-1]))
        ax.legend(loc="lower right")
    sentence = f"Pass rates of the rollouts rise: {', '.join(ends)}."
    return Drawing(
        figure, f"Pass rate by step for three objectives with bands over five seeds. {sentence}", sentence, data
    )
