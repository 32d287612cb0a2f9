"""The static picture of the biography of a prompt: how the share of right responses moves, prompt by prompt."""

import json
from pathlib import Path

import numpy as np
from generate.explore_static import Explorable, objective_tables
from matplotlib.figure import Figure

from pmdkit.figures.style import style

RUN = Path(__file__).parents[2] / "explore" / "biography" / "biography.json"


def draw() -> Explorable:
    """One line for each prompt of the shipped run."""
    run = json.loads(RUN.read_text(encoding="utf-8"))
    data: dict[str, np.ndarray] = {}
    with style():
        figure = Figure(figsize=(6.0, 3.8))
        axes = figure.subplots()
        for n, prompt in enumerate(run["prompts"], 1):
            steps = np.array([group["step"] for group in prompt["groups"]])
            right = np.array([share_right(group, run["passed"]) for group in prompt["groups"]])
            data |= {f"prompt {n} steps": steps, f"prompt {n} right": right}
            axes.plot(steps, right, marker="o", ms=3, label=prompt["name"])
        axes.set(xlabel="step", ylabel="share of right responses", ylim=(-0.03, 1.03))
        axes.legend(loc="center right")
    ends = [(data[f"prompt {n} right"][0], data[f"prompt {n} right"][-1]) for n in range(1, len(run["prompts"]) + 1)]
    names = [prompt["name"] for prompt in run["prompts"]]
    told = "; ".join(f"{name} from {first:.0%} to {last:.0%}" for name, (first, last) in zip(names, ends, strict=True))
    size, last_step = len(run["prompts"][0]["groups"][0]["text"]), int(data["prompt 1 steps"][-1])
    sentence = (
        f"A recorded run of SmolLM2-135M-Instruct: four prompts, {size} responses to each in every step, {last_step} "
        f"steps of PMD-mean. Share of right responses, first and last step: {told}."
    )
    alt = f"Lines of the share of right responses against the step, one for each of four prompts: {told}."
    return Explorable(figure, alt, sentence, data, objective_tables())


def share_right(group: dict, passed: float) -> float:
    """Of the responses with a verdict, those that are right."""
    known = [reward for reward in group["reward"] if reward is not None]
    return sum(reward > passed for reward in known) / max(len(known), 1)
