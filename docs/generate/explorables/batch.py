"""The static picture of the batch planner: the paper's 7B run in time, policy age by ministep, memory of one GPU."""

import numpy as np
from generate.explore_static import Explorable, planner_tables
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmdkit.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, style
from pmdkit.resolve import resolve
from pmdkit_lab.figures.looks import shades
from pmdkit_lab.planner.cluster import cluster
from pmdkit_lab.planner.predict import Prediction
from pmdkit_lab.planner.workload import lengths, sizes_of, work_of

PARTS = {
    "weights": BLUE,
    "optimizer": SKY,
    "engine weights": ORANGE,
    "KV cache": VERMILLION,
    "gradients": GREEN,
    "gathered weights": PURPLE,
    "activations": GREY,
}
OTHER = "logits, head's gradient"
GPUS = "32xH100"
LEGEND = {"ncols": 2, "handlelength": 1.2, "columnspacing": 1.2, "frameon": False}  # as narrow as a phone's panel


def draw() -> Explorable:
    """Two steps of the run along time, and the memory of its phases."""
    spec, _ = resolve("llm", "qwen2.5-7b", {})
    assert spec.rollout is not None
    paper = Prediction(sizes_of(spec), work_of(spec), lengths("direct", spec.rollout.width), cluster(GPUS))
    with style():
        figure = Figure(figsize=(6.4, 4.2))
        time, held = figure.subplots(2, 1, height_ratios=(1, 1.5))
        steps(time, paper)
        memory(held, paper)
    work, place = paper.work, paper.cluster
    sentence = (
        f"A step of the paper's 7B run on {place.count} {place.gpu.name}: {work.prompts:g} prompts, {work.group} "
        f"responses each, {work.ministeps} ministeps. Generation takes {paper.generation.seconds:.0f} s, scoring "
        f"{paper.scoring:.0f} s and the update {paper.update.seconds:.0f} s; the last ministep learns from responses "
        f"that a policy {paper.staleness} updates older has written. A prediction, not a measurement."
    )
    alt = (
        "Above, two steps along time: generation, scoring, then 16 ministeps that grow darker with the age of the "
        "policy that wrote their responses, 0 to 15 updates. Below, a bar of GiB on one GPU for each phase, "
        f"{', '.join(paper.memory.phases)}, by what holds them, all below the limit of {paper.memory.limit:.0f}."
    )
    data = {"seconds": np.array([paper.generation.seconds, paper.scoring, paper.update.seconds])}
    return Explorable(figure, alt, sentence, data, planner_tables())


def steps(axes: Axes, one: Prediction) -> None:
    """Two consecutive steps, with ministeps coloured by policy age."""
    updates = one.work.ministeps * one.work.passes
    colours = shades(updates)[::-1]
    for step in range(2):
        start = step * one.seconds
        axes.barh(0, one.generation.seconds, left=start, color=VERMILLION, edgecolor="white", label="generation")
        start += one.generation.seconds
        axes.barh(0, one.scoring, left=start, color=GREY, edgecolor="white", label="scoring")
        start += one.scoring
        for age in range(updates):
            width = one.update.seconds / updates
            label = f"ministeps, age 0 to {updates - 1}" if age == updates - 1 else None
            axes.barh(0, width, left=start + age * width, color=colours[age], edgecolor="white", lw=0.5, label=label)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[:3], labels[:3], loc="lower center", bbox_to_anchor=(0.5, 1.0), **LEGEND)
    axes.set(yticks=[], xlabel="time (s)", xlim=(0, 2 * one.seconds))
    axes.grid(visible=False, axis="y")


def memory(axes: Axes, one: Prediction) -> None:
    """GiB of one accelerator in each phase."""
    for place, (_, parts) in enumerate(one.memory.phases.items()):
        left, other = 0.0, 0.0
        for name, gib in parts.items():
            if name in PARTS:
                axes.barh(place, gib, left=left, color=PARTS[name], edgecolor="white", label=name)
                left += gib
            else:
                other += gib
        axes.barh(place, other, left=left, color="0.55", edgecolor="white", label=OTHER)
    axes.axvline(one.memory.limit, color="black", lw=1.2)
    axes.annotate(f"limit {one.memory.limit:.0f}", (one.memory.limit, 1), xytext=(-4, 0), textcoords="offset points",
                  ha="right", va="center")  # fmt: skip
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    order = [*PARTS, OTHER]
    axes.legend([unique[name] for name in order], order, loc="upper center", bbox_to_anchor=(0.5, -0.32), **LEGEND)
    axes.set(
        yticks=range(len(one.memory.phases)), yticklabels=list(one.memory.phases), xlabel="memory of one GPU (GiB)"
    )
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
