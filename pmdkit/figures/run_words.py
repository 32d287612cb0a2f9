"""The words of a run's picture: title, the sentences under it that say what to see, and alt text. Panels: run_*.py."""

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from pmdkit.envs.scale import reward_scale
from pmdkit.figures.run_axes import Rows, known, numbers
from pmdkit.figures.run_log_ratios import percent, reached
from pmdkit.observe.units import say_tau

if TYPE_CHECKING:
    from pmdkit.training import Run

COLUMNS = 118  # characters of 8 points that the picture is wide


def title(run: "Run") -> str:
    """Environment, objective and temperature, the temperature on both reward scales."""
    spec = run.spec
    tau = say_tau(spec.objective.get("tau"), reward_scale(spec))
    most = max((row.get("staleness") or 0 for row in run.metrics), default=0)  # of ministeps and lag together
    stale = f", staleness {most}" if most else ""
    return f"{spec.tier} {spec.name}, {spec.objective['name']}, {tau}{stale}"


def caption(rows: Rows, gauges: Rows, summary: dict[str, Any] | None) -> str:
    """What to see, in sentences with the run's own numbers, broken into lines."""
    told = [learned(rows, summary), *step_size(rows), *brake_size(rows), *noise(rows)]
    return textwrap.fill("What to see. " + " ".join(told), COLUMNS)


def learned(rows: Rows, summary: dict[str, Any] | None) -> str:
    """From where to where."""
    kind, key = ("pass rate", "pass_rate") if known(rows, "pass_rate") else ("mean reward", "reward")
    if summary is not None and summary[f"{key}_first"] is not None:
        first, last = summary[f"{key}_first"], summary[f"{key}_last"]
        return f"The {kind} of the evaluation goes from {first:.3g} to {last:.3g} in {count(summary['steps'], 'step')}."
    values = numbers(rows, "pass_rate" if key == "pass_rate" else "reward_mean")
    return f"The {kind} of the rollouts is {values[-1]:.3g} in step {rows[-1]['step']}, the last one so far."


def step_size(rows: Rows) -> list[str]:
    """The share of the exact update that a step reaches, and what that means."""
    shares = reached(rows)
    if not shares:
        return []
    if all(abs(share - 1) < 1e-6 for share in shares.values()):
        return ["Each step is the exact update: measured and exact are the same."]
    told = " and ".join(f"{name} responses {percent(share)}" for name, share in shares.items())
    sentence = f"One step takes {told} of the way to the exact update of their prompt alone"
    if min(shares.values()) < 0:
        return [f"{sentence}; a negative share is a step against it, which updates of other prompts can do."]
    if max(shares.values()) > 1.05:
        return [f"{sentence}; above 100 % the optimizer overshoots, or other prompts push along."]
    if max(shares.values()) < 0.5:
        return [f"{sentence}; a small share is usual, that update can be hundreds of nats away."]
    return [f"{sentence}."]


def brake_size(rows: Rows) -> list[str]:
    """How much the chi2 term adds to the temperature."""
    if not (known(rows, "theory_lambda_over_tau") and known(rows, "tau")):
        return []
    extra, tau = (float(np.nanmean(numbers(rows, key))) for key in ("theory_lambda_over_tau", "tau"))
    return [f"The hidden brake adds {extra:.2g} to a temperature of {tau:.2g}, on average."]


def noise(rows: Rows) -> list[str]:
    """The share of groups whose target would be noise under PMD-part."""
    if not known(rows, "noise_share"):
        return []
    share = percent(float(np.nanmean(numbers(rows, "noise_share"))))
    return [f"In {share} of the groups so few draws are right that PMD-part's target is noise."]


def describe(run: "Run", rows: Rows) -> str:
    """Alt text: first and last values of what is drawn."""
    told = [f"Run of {title(run)}; steps {rows[0]['step']} to {rows[-1]['step']}, drawn over the steps."]
    names = {
        "pass_rate": "pass rate of the rollouts",
        "reward_mean": "mean reward of the rollouts",
        "log_ratio_pos": "log-ratio of right responses, nats",
        "theory_log_ratio_pos": "its prediction",
        "log_ratio_neg": "log-ratio of wrong responses, nats",
        "theory_log_ratio_neg": "its prediction",
        "theory_lambda_over_tau": "lambda over tau, reward units",
        "noise_share": "share of groups whose PMD-part target is noise",
        "ess": "effective share of a group",
        "response_length": "mean length of the responses, tokens",
        "mismatch_mean": "difference of engine and trainer, nats per token",
    }
    for key, name in names.items():
        values = [row[key] for row in rows if row.get(key) is not None]
        if values:
            told.append(f"{name[0].upper()}{name[1:]}: first {values[0]:.3g}, last {values[-1]:.3g}.")
    return " ".join(told)


def count(n: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
