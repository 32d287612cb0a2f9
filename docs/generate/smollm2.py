"""Chart and tables of three objectives on SmolLM2, from their stored record, for docs/use/smollm2.md."""

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
OBJECTIVES = (
    "| objective | tau | lr | all steps [95 %] | last five | tokens of a response, first and last five |\n"
    + "|---" * 6
    + "|\n"
)
PAIRS = "| difference, all steps | mean [99.2 %] | outcome |\n|---|---|---|\n"


def write_smollm2(page: Path, results: Path) -> int:
    """Write what the page includes, `.smollm2.md` beside it, and the chart; returns the number of runs.

    Args:
        page: docs/use/smollm2.md.
        results: folder of the records.
    """
    record = read_json(results / "smollm2-objectives.json")
    half = record["halves"]["matched"]
    tables = OBJECTIVES
    for name, row in half["objectives"].items():
        mean, low, high = row["mean"]
        length = columns(record, name, "response_length").mean(0)
        cells = [
            NAMES[name],
            row["tau"] or "none",
            row["lr"],
            f"{mean:.2f} [{low:.2f}, {high:.2f}]",
            f"{row['end']:.2f}",
        ]
        cells.append(f"{length[:SPAN].mean():.0f}, {length[-SPAN:].mean():.0f}")
        tables += f"| {' | '.join(cells)} |\n"
    tables += f"\n{PAIRS}"
    for row in half["comparisons"]:
        mean, low, high = row["difference"]
        cells = [
            f"{NAMES[row['of']]} minus {NAMES[row['than']]}",
            f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]",
            row["verdict"],
        ]
        tables += f"| {' | '.join(cells)} |\n"
    marks = "<!-- --8<-- [{}:{}] -->\n"
    parts = {"chart": save_svg(chart(record), page), "tables": tables}
    text = "".join(f"{marks.format('start', name)}{part}{marks.format('end', name)}" for name, part in parts.items())
    page.with_name(f".{page.name}").write_text(text, encoding="utf-8")
    return len(record["runs"])


def columns(record: dict[str, Any], objective: str, column: str) -> np.ndarray[Any, Any]:
    """[seeds, steps] of one objective at the matched setting."""
    setting = record["halves"]["matched"]["objectives"][objective]
    runs = [
        r for r in record["runs"] if (r["objective"], r["lr"], r["tau"]) == (objective, setting["lr"], setting["tau"])
    ]
    return np.array([run[column] for run in sorted(runs, key=lambda run: run["seed"])], dtype=float)


def chart(record: dict[str, Any]) -> Drawing:
    """Pass rate by step, running means over SPAN steps, with 95 % t intervals over the seeds."""
    data, ends = {}, []
    with style():
        figure = Figure(figsize=(6.4, 3.4))
        ax = figure.subplots()
        for name, title in NAMES.items():
            rates = columns(record, name, "pass_rate")
            smooth = np.array([np.convolve(rate, np.full(SPAN, 1 / SPAN), "valid") for rate in rates])
            band = [mean_interval(values) for values in smooth.T]
            steps = np.arange(SPAN, rates.shape[1] + 1)
            data[name] = np.array([(each.mean, each.low, each.high) for each in band])
            ax.plot(steps, data[name][:, 0], label=title, **look(name))
            ax.fill_between(
                steps, data[name][:, 1], data[name][:, 2], color=look(name)["color"], alpha=0.12, linewidth=0
            )
            ends.append(f"{title} from {data[name][0, 0]:.2f} to {data[name][-1, 0]:.2f}")
        ax.set(xlabel="step", ylabel=f"pass rate, mean of {SPAN} steps", ylim=(0, 0.85), xlim=(SPAN, steps[-1]))
        ax.legend(loc="lower right")
    sentence = f"Pass rates of the rollouts rise: {', '.join(ends)}."
    return Drawing(
        figure, f"Pass rate by step for three objectives with bands over five seeds. {sentence}", sentence, data
    )
