"""The static picture of "Train one": the band of recorded runs, and the table of one of them; also records the band.

`python docs/generate/explorables/train.py` runs pmdkit on the recipe `modular-sum` for SEEDS, measures the exact pass
rate after each step, and writes docs/explore/train/band.json. The recipe's own settings are the page's.
"""

import json
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from pmdkit.figures.style import BLACK, GREY, style
from pmdkit.loop import run
from pmdkit.resolve import build, resolve
from pmdkit_lab.figures.drawing import Drawing

BAND = Path(__file__).parents[2] / "explore" / "train" / "band.json"
SEEDS = range(80)
STEPS = 100
MODULUS = 10
SHOWN = 25  # steps before the table of the picture


def curve(seed: int, steps: int = STEPS) -> tuple[list[float], np.ndarray]:
    """Exact pass rate before the first and after each step of a run of pmdkit, and its last policy [100, 11]."""
    spec = resolve("toy", "modular-sum", {"run.seed": seed, "schedule.steps": steps})[0]
    objective, backend = build(spec)
    rates = [backend.evaluate()["pass_rate"]]
    observe = lambda *_: rates.append(backend.evaluate()["pass_rate"])  # noqa: E731
    run(objective, backend.learner, backend.task, backend.schedule, [observe])
    asked = torch.cartesian_prod(*2 * [torch.arange(MODULUS)])
    answers = backend.learner.rollout(asked, None, 0)
    order = answers.responses.view(answers.mass.shape)[0].argsort()  # by token, the end token last
    return rates, answers.mass[:, order].numpy()


def write_band() -> None:
    """Lowest, median and highest pass rate of each step over SEEDS, to four digits."""
    curves = np.array([curve(seed)[0] for seed in SEEDS])
    rows = zip(("low", "median", "high"), np.quantile(curves, (0, 0.5, 1), axis=0).round(4).tolist(), strict=True)
    BAND.write_text(json.dumps({"first": SEEDS[0], "runs": len(SEEDS), **dict(rows)}) + "\n", encoding="utf-8")


def draw() -> Drawing:
    """The answers after some steps of a run of seed 0, and the pass rate of all of its steps, over the band."""
    band = json.loads(BAND.read_text(encoding="utf-8"))
    rates = curve(0)[0]
    policy = curve(0, SHOWN)[1]
    best, sure = policy.argmax(1), policy.max(1)
    a, b = np.divmod(np.arange(MODULUS**2), MODULUS)
    right = best == (a + b) % MODULUS
    with style():
        figure = Figure(figsize=(7.2, 3.4))
        table, line = figure.subplots(1, 2, width_ratios=(1, 1.1))
        for is_right, marker, colour in ((True, "o", "#009e73"), (False, "s", "#b3588c")):  # explore.css has the same
            shown = right == is_right
            alpha = (0.15 + 0.6 * sure[shown]).round(2) if shown.any() else None  # matplotlib takes no empty array
            table.scatter(b[shown], a[shown], s=150, marker=marker, color=colour, alpha=alpha, lw=0, clip_on=False)
        for row, column, answer in zip(a, b, best, strict=True):
            table.text(column, row, str(answer) if answer < MODULUS else "·", ha="center", va="center", fontsize=7)
        table.set(
            title=f"after {SHOWN} steps", xlabel="b", ylabel="a", xticks=range(10), yticks=range(10), aspect="equal"
        )
        table.invert_yaxis()
        steps = np.arange(STEPS + 1)
        line.fill_between(steps, band["low"], band["high"], color=GREY, alpha=0.4, lw=0, label=f"{band['runs']} runs")
        line.plot(steps, rates, color=BLACK, label="seed 0")
        line.set(xlabel="step", ylabel="pass rate", ylim=(0, 1), xlim=(0, STEPS))
        line.legend(loc="lower right")
    sentence = (
        f"A recorded run of pmdkit: the likeliest answer to each sum after {SHOWN} steps, {right.sum()} of 100 right, "
        f"and the pass rate, {rates[0]:.2f} at first and {rates[-1]:.2f} in the end, over {band['runs']} runs."
    )
    alt = (
        f"Left, a ten by ten table of sums modulo 10 with the likeliest answer of a transformer after {SHOWN} steps: "
        f"{right.sum()} round cells are right, {100 - right.sum()} square ones wrong. Right, its pass rate by step: "
        f"{rates[0]:.2f} at first, {rates[20]:.2f} at step 20, {rates[40]:.2f} at step 40, over a grey band of runs."
    )
    data = {"step": steps, "pass rate": np.array(rates), "low": np.array(band["low"]), "high": np.array(band["high"])}
    return Drawing(figure, alt, sentence, data)


if __name__ == "__main__":
    write_band()
