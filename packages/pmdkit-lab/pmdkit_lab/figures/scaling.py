"""Draw how a run scales past one cluster, by the planner: throughput, busy time and staleness."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmdkit.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Drawing, style

LOOKS: dict[str, tuple[str, Any, str]] = {
    "in turns": (BLUE, "-", "o"),
    "unscored": (SKY, (0, (4, 1, 1, 1)), "v"),
    "lag 1": (VERMILLION, (0, (5, 1.6)), "s"),
    "lag 2": (ORANGE, (0, (1, 1.2)), "^"),
    "lag 4": (PURPLE, (0, (6, 1.5, 1, 1.5)), "D"),
    "larger batch": (GREEN, (0, (3, 1, 1, 1, 1, 1)), "P"),
}


def draw(report: dict[str, Any]) -> Drawing:
    """Draw three panels against the number of accelerators.

    Args:
        report: what `pmdkit_lab.planner.scaling` returns; plans that do not fit are left out.
    """
    points = [point for point in report["points"] if point["fits"]]
    data: dict[str, np.ndarray] = {}
    for design in LOOKS:
        mine = [point for point in points if point["design"] == design]
        for key in ("gpus", "tokens_per_second", "share_generating", "share_training", "staleness"):
            data[f"{key} {design}"] = np.array([point[key] for point in mine], float)
    counts = sorted({point["gpus"] for point in points})
    with style():
        figure = Figure(figsize=(10.0, 3.9))
        left, middle, right = figure.subplots(1, 3)
        throughput(left, data, counts)
        shares(middle, data)
        lines(right, data, "staleness")
        right.set(yscale="log", ylabel="staleness of the last update (updates)")
        stale = sorted({point["staleness"] for point in points})
        right.set_yticks(stale, [str(value) for value in stale])
        for ax in (left, middle, right):
            ax.set(xscale="log", xlabel="accelerators")
            ax.set_xticks(counts, [str(count) for count in counts])
            ax.minorticks_off()
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=7)
    return Drawing(figure, alt(report, data), sentence(report), data)


def lines(ax: Axes, data: dict[str, np.ndarray], key: str) -> None:
    """Draw one line per design."""
    for design, (colour, dash, marker) in LOOKS.items():
        if len(data[f"gpus {design}"]):
            values = data[f"{key} {design}"]
            ax.plot(data[f"gpus {design}"], values, color=colour, linestyle=dash, marker=marker, label=design)


def throughput(ax: Axes, data: dict[str, np.ndarray], counts: list[int]) -> None:
    """Draw tokens per second, with the ideal line along which additional accelerators lose nothing."""
    lines(ax, data, "tokens_per_second")
    each = [rate / gpus for rate, gpus in reached(data)]
    ideal = max(each, default=1.0) * np.array(counts, float)
    ax.plot(counts, ideal, color=GREY, linestyle=":", label="nothing lost")
    ax.set(yscale="log", ylabel="tokens of responses per second")
    ticks = [digit * 10**power for power in range(10) for digit in (1, 2, 5)]
    shown = [tick for tick in ticks if each and min(rate for rate, _ in reached(data)) / 2 <= tick <= ideal[-1] * 2]
    ax.set_yticks(shown, [f"{tick:,}" for tick in shown])


def reached(data: dict[str, np.ndarray]) -> list[tuple[float, float]]:
    """Tokens per second and accelerators of every point."""
    return [
        pair
        for design in LOOKS
        for pair in zip(data[f"tokens_per_second {design}"], data[f"gpus {design}"], strict=True)
    ]


def shares(ax: Axes, data: dict[str, np.ndarray]) -> None:
    """Draw the share of time that accelerators are busy: filled markers for generation, open ones for training."""
    for design in ("in turns", "lag 1"):
        colour, dash, marker = LOOKS[design]
        gpus = data[f"gpus {design}"]
        if len(gpus):
            ax.plot(gpus, data[f"share_generating {design}"], color=colour, linestyle=dash, marker=marker)
            train = data[f"share_training {design}"]
            ax.plot(gpus, train, color=colour, linestyle=dash, marker=marker, markerfacecolor="white")
    ax.plot([], [], marker="o", linestyle="none", color=BLACK, label="generating")
    ax.plot([], [], marker="o", linestyle="none", color=BLACK, markerfacecolor="white", label="training")
    ax.set(ylim=(0, 1.03), ylabel="share of time at work")
    ax.legend(loc="lower left")


def sentence(report: dict[str, Any]) -> str:
    """What to see, in a few sentences."""
    ends = report["stops_scaling_at"]
    named = [f"{design} at {gpus}" for design, gpus in ends.items() if gpus and design in ("in turns", "lag 1")]
    end = f"Twice as many accelerators give less than {report['worth']:g} times as much from: {', '.join(named)}. "
    return (
        (end if named else "")
        + "A fixed rollout batch that is spread over more engines leaves each with few responses, and the longest one "
        "takes as long as ever. A lag hides the update behind it, at the price of one batch of updates each; a lag "
        "above 1 hides nothing more. A larger rollout batch fills the engines again, and its staleness grows with it."
    )


def alt(report: dict[str, Any], data: dict[str, np.ndarray]) -> str:
    """The alt text: the picture in words."""
    words = []
    for design in LOOKS:
        gpus, tokens, stale = (data[f"{key} {design}"] for key in ("gpus", "tokens_per_second", "staleness"))
        if len(gpus):
            words.append(
                f"{design}, {tokens[0]:,.0f} tokens per second on {gpus[0]:.0f} to {tokens[-1]:,.0f} on "
                f"{gpus[-1]:.0f}, staleness {stale[0]:.0f} to {stale[-1]:.0f}"
            )
    return (
        f"Three panels against the number of accelerators for {report['recipe']}: throughput, share of time that "
        f"accelerators generate and train, and staleness. {'; '.join(words)}."
    )
