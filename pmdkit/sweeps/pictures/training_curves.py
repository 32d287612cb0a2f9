"""Training curves of every method at the same prompts, draws and updates; also drawn for the sequence task."""

from typing import Any

from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import TITLES, look, style
from pmdkit.sweeps.pictures.panels import band, by_setting, curve, differences, listed, say, say_paired, values
from pmdkit.sweeps.statistics import mean_interval


def draw(record: dict[str, Any]) -> Drawing:
    """Pass rate of the rollouts against prompts answered, and the paired differences to PMD-mean.

    Source: arXiv:2602.05933, figure main_result, tables main-results and gspo.
    Differs: a toy task; rewards {0,1}; bands are 95 % intervals over seeds, nothing is smoothed.
    """
    settings = by_setting(record)
    looks = {name: look(name, marker=True) for name in settings}
    data = {}
    with style():
        figure = Figure(figsize=(7.2, 3.5))
        left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
        for name, runs in settings.items():
            x, seeds = curve(runs, "pass_rate")
            data[f"prompts {name}"], data[f"pass rate {name}"] = x, band(left, x, seeds, title(name), **looks[name])
        left.set(xlabel="prompts answered (thousands)", ylabel="pass rate of the rollouts", ylim=(-0.02, 1.02))
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, columnspacing=1.4)
        found = differences(right, settings, "pass_rate_mean", looks)
        right.set_yticks(range(len(found)), [title(name) for name in found])
        right.set_xlabel("mean pass rate over training,\nminus PMD-mean's, paired by seed")
        figure.suptitle(f"toy {record['env']}, {len(settings['pmd-mean'])} seeds, bands and bars: 95 % intervals")
    last = {name: mean_interval(values(runs, "pass_rate_last")) for name, runs in settings.items()}
    sentence = (
        f"Evaluated after training: {listed([f'{title(n)} {say(end)}' for n, end in last.items()])}. Mean pass rate "
        f"over training minus PMD-mean's: {listed([f'{title(n)} {say_paired(v)}' for n, v in found.items()])}."
    )
    alt = (
        f"Left, pass rate against prompts answered on {record['env']} for {', '.join(map(title, settings))}. Right, "
        f"differences to PMD-mean in mean pass rate over training. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)


def title(name: str) -> str:
    """A method as figures call it."""
    return {**TITLES, "rloo": "RLOO, on-policy"}.get(name, name.upper())
