"""Counterexamples with sliders for every row of the ledger where the paper is contradicted or misprinted.

Each has sliders, rows of numbers and a text that says what to see; `compute` makes the numbers with pmdkit itself. The
page shows those at the first setting to readers without JavaScript; docs/explore/math/counterexamples.js computes the
same numbers while a slider moves, and a test compares the two.
"""

import html
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from pmdkit import theory
from pmdkit.objectives import Groups, PMDMean, PMDPart, credit
from pmdkit_lab import finite_samples
from pmdkit_lab.figures.scores import grpo
from pmdkit_lab.figures.tables import GAINS, SCORES

Numbers = dict[str, float]


@dataclass(frozen=True)
class CounterexampleSlider:
    """A slider.

    Attributes:
        key: argument of `compute`.
        label: with symbol and unit.
        min, max, value: its ends and its first value.
        log: even steps in the logarithm.
        whole: whole numbers only.
    """

    key: str
    label: str
    min: float
    max: float
    value: float
    log: bool = True
    whole: bool = False


@dataclass(frozen=True)
class Counterexample:
    """One disagreement that a reader can move.

    Attributes:
        sees: what to do and what to see, in words.
        sliders: at least one.
        rows: key of a number -> its label.
        compute: values of the sliders -> the numbers, with pmdkit.
        constants: what the script needs in addition to the sliders.
    """

    sees: str
    sliders: tuple[CounterexampleSlider, ...]
    rows: Mapping[str, str]
    compute: Callable[..., Numbers]
    constants: Mapping[str, Any] = field(default_factory=dict)

    @property
    def start(self) -> Numbers:
        """The first values of the sliders."""
        return {each.key: each.value for each in self.sliders}


PASS_RATE = "pass rate p"
TAU = "temperature τ (reward units)"
DRAWS, CAP = 16, 18.42  # of the authors' code: -log 1e-8
ADVANTAGE = 1.0
ONE_SUCCESS = {
    "rate": "pass rate, p = 2δ/n",
    "chance": "probability of one success, above δ",
    "distance": "its distance from p, below ε",
    "limit": "ε",
    "error": "squared error of its targets (nats²)",
    "bound": "the bound as printed (nats²)",
    "ratio": "error over bound",
}
SIZES = (
    CounterexampleSlider("n", "draws n", 100, 1_000_000, 100_000, whole=True),
    CounterexampleSlider("delta", "failure probability δ", 1e-4, 0.1, 1e-3),
)


def exponents(p: float, tau: float) -> Numbers:
    """What is left of the gap after an exact step, and both readings of the rate."""
    mean, part = (float((1 - p) * np.exp(theory.binary(p, tau, name).log_ratio_neg)) for name in theory.METHODS)
    rates = {f"mean {word}": float(np.exp(sign * p / tau)) for word, sign in (("meant", -1), ("stated", 1))}
    rates |= {f"part {word}": float(np.exp(sign / tau)) for word, sign in (("meant", -1), ("stated", 1))}
    return {"mean": mean, "part": part, **rates}


def one_success(n: float, delta: float, tau: float) -> Numbers:
    """A group of n with one success at p = 2 delta / n: its error, and bound (a)."""
    p = 2 * delta / n
    best = theory.binary(p, tau, "pmd-mean")
    right, wrong = 1 / tau - best.log_ratio_pos, -1 / (n - 1) / tau - best.log_ratio_neg
    error = float((right**2 + (n - 1) * wrong**2) / n)
    bound = float(finite_samples.mean_bound_as_stated(p, n, tau, delta))
    return {
        "rate": p,
        "chance": float(n * p * np.exp((n - 1) * np.log1p(-p))),
        "distance": 1 / (n - 1) - p,
        "limit": float(theory.epsilon(p, n, delta)),
        "error": error,
        "bound": bound,
        "ratio": error / bound,
    }


def gains(row: float) -> Numbers:
    """Gains of a row of table main-results over GRPO, and those of the text for its model."""
    of = GAINED[int(row) - 1]
    first, second = (own - base for own, base in zip(of["own"], of["base"], strict=True))
    return {"gain24": first, "stated24": of["stated"][0], "gain25": second, "stated25": of["stated"][1]}


def clamp(successes: float, tau: float) -> Numbers:
    """The advantage of a right response by the formula, and with the floor under the partition."""
    right = int(successes)
    reward = torch.tensor([right * [1.0] + (DRAWS - right) * [-1.0]], dtype=torch.float64)
    groups = Groups(reward, torch.full_like(reward, 1 / DRAWS))
    formula, floored = (PMDPart(tau=tau, target_cap=cap).advantage(groups)[0, 0].item() for cap in (None, CAP))
    return {"formula": formula, "floored": floored, "ratio": formula / floored}


def factor_half(change: float, tau: float, length: float) -> Numbers:
    """Loss of one response, and its slope in the log-ratio: main text times tau over length, and the appendix."""
    found: Numbers = {}
    for scale, loss, slope in (("half", "main", "slope"), ("paper", "appendix", "slope appendix")):
        objective = PMDMean(tau=tau, scale=scale)  # type: ignore[arg-type]
        log_ratio = torch.tensor(change, dtype=torch.float64, requires_grad=True)
        mask = torch.ones(2, int(length), dtype=torch.bool)
        old = torch.zeros(2, int(length), dtype=torch.float64)
        reward = torch.tensor([[ADVANTAGE, 0.0]], dtype=torch.float64)  # the other one is the baseline
        batch = credit(objective, Groups(reward, torch.full_like(reward, 0.5)), old, mask, width=int(length))
        rows = objective.loss(replace_logp(batch, old + log_ratio / int(length)))
        value = rows[0] / int(length)  # what norm "length" divides by
        (gradient,) = torch.autograd.grad(value, log_ratio)
        found |= {loss: value.item(), slope: gradient.item()}
    return {**found, "twice": 2 * found["main"]}


def replace_logp(batch: Any, logp: torch.Tensor) -> Any:
    """A batch under a policy that has moved."""
    return type(batch)(**{**vars(batch), "logp": logp})


GAINED = [
    {"own": score.pair, "base": grpo(score.model).pair, "stated": GAINS[score.model], "name": score.name}
    for score in SCORES
    if score.method == "PMD-mean"
]
NAMES = ", ".join(f"{k}: {of['name']}" for k, of in enumerate(GAINED, 1))

COUNTEREXAMPLES = {
    "remark:exponents": Counterexample(
        "Lower the temperature. What is left of the gap falls, as $e^{-p/\\tau}$ and $e^{-1/\\tau}$ do; the rates with "
        "the sign that is printed grow.",
        (
            CounterexampleSlider("tau", TAU, 0.02, 1.0, 0.05),
            CounterexampleSlider("p", PASS_RATE, 0.01, 0.9, 0.2),
        ),
        {
            "mean": "PMD-mean: share of the gap left, 1 − p ρ₊",
            "mean meant": "exp(−p/τ)",
            "mean stated": "exp(p/τ), as printed",
            "part": "PMD-part: share of the gap left, 1 − p ρ₊",
            "part meant": "exp(−1/τ)",
            "part stated": "exp(1/τ), as printed",
        },
        exponents,
    ),
    "prop:tgt_err_clean:a": Counterexample(
        "One success in the group, at a pass rate so small that it is rare and yet likelier than $\\delta$. Lower "
        "$\\delta$: the group stays inside the event, and its error leaves the bound behind.",
        (*SIZES, CounterexampleSlider("tau", TAU, 0.001, 0.5, 0.002)),
        ONE_SUCCESS,
        one_success,
    ),
    "eq:tgt_err_mean_clean": Counterexample(
        "The same with $\\tau$ far below the pass rate, where the proposition is meant to be sharp. The constant in "
        "$\\lesssim$ would have to be larger than every ratio that you find here.",
        (*SIZES, CounterexampleSlider("share", "τ as a share of p", 0.01, 1.0, 0.1)),
        ONE_SUCCESS,
        lambda n, delta, share: one_success(n, delta, share * 2 * delta / n),
    ),
    "text:gains": Counterexample(
        f"Each row of PMD-mean in Table 1 ({NAMES}) minus GRPO of its model. The text speaks of the first and of the "
        "last row. No row of the 30B model gives its two numbers.",
        (
            CounterexampleSlider(
                "row", "row of PMD-mean in Table 1", 1, len(GAINED), len(GAINED), log=False, whole=True
            ),
        ),
        {
            "gain24": "gain on AIME 24 by the table (points)",
            "stated24": "gain on AIME 24 by the text",
            "gain25": "gain on AIME 25 by the table (points)",
            "stated25": "gain on AIME 25 by the text",
        },
        gains,
        {"scores": GAINED},
    ),
    "app:factor_half": Counterexample(
        "One response of advantage 1. However far it has moved, the loss of the appendix is twice that of the main "
        "text times $\\tau/\\lvert y\\rvert$, and so is its slope.",
        (
            CounterexampleSlider("change", "log-ratio of the response (nats)", -5.0, 25.0, 1.0, log=False),
            CounterexampleSlider("tau", TAU, 0.005, 2.0, 0.05),
            CounterexampleSlider("length", "length of the response (tokens)", 1, 1000, 10, whole=True),
        ),
        {
            "main": "main text, times τ/length (reward units)",
            "twice": "twice that",
            "appendix": "appendix (reward units)",
            "slope": "slope, main text",
            "slope appendix": "slope, appendix",
        },
        factor_half,
        {"advantage": ADVANTAGE},
    ),
    "code:target_clamp": Counterexample(
        f"{DRAWS} responses with rewards of ±1. With one success the floor takes nearly all of its advantage at a "
        "small $\\tau$; with two or more, or a larger $\\tau$, it changes nothing.",
        (
            CounterexampleSlider("tau", "temperature τ (reward units, rewards of ±1)", 0.002, 1.0, 0.005),
            CounterexampleSlider("successes", f"right responses of {DRAWS}", 1, DRAWS - 1, 1, log=False, whole=True),
        ),
        {
            "formula": "advantage of a right response by the formula",
            "floored": "the same with the floor",
            "ratio": "formula over floor",
        },
        clamp,
        {"cap": CAP, "draws": DRAWS},
    ),
}


def explorable(claim: str) -> str:
    """The HTML of a counterexample: its numbers at the first setting, which the script replaces with sliders.

    It uses spans, since the content of a fold becomes a paragraph.
    """
    example = COUNTEREXAMPLES[claim]
    numbers = example.compute(**example.start)
    at = ", ".join(f"{each.label} = {each.value:g}" for each in example.sliders)
    rows = "; ".join(f"{words}: {numbers[key]:.3g}" for key, words in example.rows.items())
    given = {
        "id": claim,
        "sliders": [asdict(each) for each in example.sliders],
        "rows": list(example.rows.items()),
        "constants": dict(example.constants),
    }
    return (
        f'<span class="explore" data-explore="{slug(claim)}" data-counterexample="{html.escape(json.dumps(given))}">'
        f'<span class="explore-static">{html.escape(f"At {at}: {rows}.")}</span></span>'
    )


def slug(claim: str) -> str:
    """The id of a claim as the name of an element."""
    return "counter-" + claim.replace(":", "-").replace("_", "-")
