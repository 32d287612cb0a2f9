"""`explain`: what an objective solves, as data. report.py puts it into words."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from pmdkit.errors import UsageError
from pmdkit.objectives import Objective, load_objective, objective_name, traits
from pmdkit.population_solution import PopulationSolution, has_solution, solve
from pmdkit.randomness import generator
from pmdkit.testing.objectives import CHECKS
from pmdkit_lab.explain import tabular
from pmdkit_lab.explain.dynamics import ExactSteps, FirstStep, Force, exact_steps, first_step, force
from pmdkit_lab.explain.regulariser import RATIOS, RegulariserCurve, regulariser_curve
from pmdkit_lab.explain.solver import StationaryPoint, stationary_point

RATES = np.array([0.01, 0.1, 0.5, 0.9])
SAME = 1e-6  # share of the largest f': curves closer than this are the same


@dataclass(frozen=True)
class LengthEffect:
    """The resting point of a problem where responses of lengths 1 and 4 have equal rewards.

    Attributes:
        short_over_long: ratio of the best short response over that of the best long one; 1 if length has no effect.
        short, long: weights of f' as read off with a response of length 1 and 4; {} if no mix of terms fits.
        error: largest distance to the theory's solution with lengths, nats; NaN where there is none.
    """

    short_over_long: float
    short: dict[str, float]
    long: dict[str, float]
    error: float


@dataclass(frozen=True)
class TheoryComparison:
    """What the theory says about one graded problem, and how far the search is from it.

    Attributes:
        solution: "pmd_mean" or "pmd_part", the function of `pmdkit.theory`.
        lam: lambda of the theory, reward units squared; NaN for "pmd_part".
        recovered: lambda as the product of the fitted KL and chi2 weights; NaN where there is none.
        error: largest distance of the log ratios, nats.
    """

    solution: str
    lam: float
    recovered: float
    error: float


@dataclass(frozen=True)
class Explanation:
    """What an objective solves.

    Attributes:
        name: as in OBJECTIVES, or the class's name.
        options: its fields; those that are not numbers are text.
        tau: temperature in reward units; NaN without one or with a rule.
        level: "token" where the loss is one number per token, "response" where it is one per response.
        integrable: whether its gradient is that of its loss; if not, all of this is about what the gradient descends.
        whole_batch: whether its advantage depends on the other prompts of a batch; here each prompt is its own batch.
        reference: whether it uses a reference policy; here pi_ref = pi_old.
        rests: graded problem to where it rests.
        curves: graded problem to its f'; only where the objective has a minimiser.
        theory: graded problem to the comparison with the theory, if there is one.
        lengths: the effect of lengths, or None without a minimiser.
        force: the push on a response as a function of its ratio.
        first: the first step.
        steps: one exact step at p = 0.01, 0.1, 0.5, 0.9, rewards {0, 1}.
    """

    name: str
    options: dict[str, Any]
    tau: float
    level: str
    integrable: bool
    whole_batch: bool
    reference: bool
    rests: dict[str, StationaryPoint]
    curves: dict[str, RegulariserCurve]
    theory: dict[str, TheoryComparison]
    lengths: LengthEffect | None
    force: Force
    first: FirstStep
    steps: ExactSteps

    @property
    def kind(self) -> str:
        """A kind of `StationaryPoint`; "depends" if the graded problems differ, "not settled" if one is not."""
        kinds = {rest.kind for rest in self.rests.values()}
        if "not settled" in kinds:
            return "not settled"
        return kinds.pop() if len(kinds) == 1 else "depends"

    @property
    def unique(self) -> bool | None:
        """Whether the best policy, or the limit, is the only one at every graded problem; None if not settled."""
        return None if self.kind == "not settled" else all(rest.unique for rest in self.rests.values())

    @property
    def reward_effect(self) -> str:
        """ "raises", "lowers", "leaves" or "depends": what happens to the expected reward.

        At the best policy if there is one, otherwise after the first step.
        """
        if self.kind in ("minimiser", "boundary"):
            gains = [rest.reward for rest in self.rests.values()]
        elif self.kind == "constant":
            gains = [0.0]
        else:
            gains = [self.first.factor]
        small = 1e-6
        if all(abs(gain) <= small for gain in gains):
            return "leaves"
        return "raises" if min(gains) > small else "lowers" if max(gains) < -small else "depends"

    @property
    def direction(self) -> int:
        """1 if every f' rises with the ratio (a penalty on what is gained), -1 if every f' falls, else 0."""
        turns = {np.sign(np.diff(curve.slope)).tobytes() for curve in self.curves.values() if curve.defined}
        signs = {1: np.ones(len(RATIOS) - 1).tobytes(), -1: (-np.ones(len(RATIOS) - 1)).tobytes()}
        return next((sign for sign, each in signs.items() if turns == {each}), 0)

    @property
    def spread(self) -> float:
        """Largest difference of f' between the problems, as a share of it; NaN without curves."""
        if len(self.curves) < 2 or not all(curve.defined for curve in self.curves.values()):
            return np.nan
        slopes = np.stack([curve.slope for curve in self.curves.values()])
        return float((slopes.max(0) - slopes.min(0)).max() / np.abs(slopes).max())

    @property
    def ratio_only(self) -> bool:
        """Whether one f' serves all problems: the objective solves a fixed f-divergence problem."""
        return bool(self.spread < SAME)

    @property
    def regulariser(self) -> str | None:
        """The terms of f', such as "kl" or "kl + chi2"; "other" if no mix fits, None without a minimiser."""
        if not self.curves:
            return None
        found = {" + ".join(curve.weights) for curve in self.curves.values()}
        return "other" if "" in found or len(found) > 1 else found.pop()


def explain(objective: Objective | str, **options: Any) -> Explanation:
    r"""What any objective secretly solves, found from its loss alone.

    $$ \pi_{t+1} = \arg\max_\pi\; E_\pi[r] - \sum_y \pi_{old}(y)\, f\big(\tfrac{\pi}{\pi_{old}}(y)\big)
       \quad\Longleftrightarrow\quad r(y) = f'\big(\tfrac{\pi_{t+1}}{\pi_{old}}(y)\big) + \text{const} $$

    Source: the argument of arXiv:2602.05933, Proposition mixed_subproblem, turned into a procedure: find where the
    population loss rests, and read f' off the rewards.

    Args:
        objective: an instance, a name of OBJECTIVES, or "my.py:MyLoss".
        options: fields of the objective, such as tau, in reward units; rewards are graded in [0, 1].

    Returns:
        Explanation. f' is 0 at ratio 1, and NaN where no reward comes to rest; log ratios in nats.

    Raises:
        UsageError: an unknown option, a loss of the wrong shape or with NaN, prompts that are not independent.

    Watch: policies are tables and expectations exact. Draws, shared weights and a few gradient steps do less.
    """
    chosen = load_objective(objective, **options) if isinstance(objective, str) else replace(objective, **options)  # type: ignore[type-var]
    check_explainable(chosen)
    rests = {name: stationary_point(chosen, at) for name, at in tabular.GRADED_PROMPTS.items()}
    curves = {
        name: regulariser_curve(chosen, tabular.GRADED_PROMPTS[name], at.log_ratio)
        for name, at in rests.items()
        if at.kind == "minimiser" and not at.certificate.kinks
    }
    theory = {}
    for name, read in curves.items():
        if (exact := known_solution(chosen, tabular.GRADED_PROMPTS[name])) is not None:
            recovered = read.weights["kl"] * read.weights["chi2"] if {"kl", "chi2"} <= read.weights.keys() else np.nan
            error = float(np.abs(exact.log_ratio[0] - rests[name].log_ratio).max())
            theory[name] = TheoryComparison(str(traits(chosen).population), float(exact.lam[0]), recovered, error)
    known = traits(chosen)
    fixed = getattr(chosen, "tau", None)
    values = {f.name: getattr(chosen, f.name) for f in fields(chosen)}  # type: ignore[arg-type]
    return Explanation(
        name=objective_name(chosen),
        options={k: v if isinstance(v, int | float | str | None) else str(v) for k, v in values.items()},
        tau=float(fixed) if isinstance(fixed, (int, float)) else np.nan,
        level=known.level,
        integrable=all(rest.descends == "loss" for rest in rests.values()),
        whole_batch=known.whole_batch,
        reference=known.uses_reference,
        rests=rests,
        curves=curves,
        theory=theory,
        lengths=length_effect(chosen) if len(curves) == len(rests) else None,
        force=force(chosen),
        first=first_step(chosen),
        steps=exact_steps(chosen, RATES),
    )


def known_solution(objective: Objective, problem: tabular.TabularPrompt) -> PopulationSolution | None:
    """The theory's solution of one problem; None if there is none, or no temperature to compare at."""
    if not (has_solution(objective) and hasattr(objective, "tau")):
        return None
    log_pi = torch.from_numpy(np.log(problem.pi))[None]
    tau = tabular.with_fixed_tau(objective, problem).tau  # type: ignore[attr-defined]
    return solve(
        objective,
        log_pi,
        log_pi,
        torch.from_numpy(problem.reward)[None],
        torch.tensor([float(tau)], dtype=torch.float64),
        torch.from_numpy(problem.length)[None],
    )


def length_effect(objective: Objective) -> LengthEffect | None:
    """The resting point with responses of 1 and of 4 tokens; None if there is none."""
    found = stationary_point(objective, tabular.PROMPT_WITH_LENGTHS)
    if found.kind != "minimiser" or found.certificate.kinks:
        return None
    u = found.log_ratio
    short, long = (
        regulariser_curve(objective, tabular.PROMPT_WITH_LENGTHS, u, length).weights for length in (1, tabular.LONG)
    )
    exact = known_solution(objective, tabular.PROMPT_WITH_LENGTHS)
    error = np.nan if exact is None else float(np.abs(exact.log_ratio[0] - u).max())
    return LengthEffect(float(np.exp(u[-2] - u[-1])), short, long, error)


# Whether an objective can be explained at all: shapes, finite numbers, independent prompts.


def check_explainable(objective: Objective) -> None:
    """Raise a UsageError that says what is wrong, if anything is.

    Raises:
        UsageError: a wrong shape, a NaN, an exception in the user's own code, or prompts that are not independent.
    """
    name = objective_name(objective)
    try:
        for contract in ("kind", "prompts", "micro-batches"):  # explain takes one prompt or response alone
            CHECKS[contract](objective, 0)
        noise = generator(0, "explain", "check").normal(size=(2, 8))
        for policies in (0 * noise, noise):  # loss and gradient are finite at pi_old and near it
            batch, whole = tabular.batch_at(objective, tabular.PROMPT_WITH_LENGTHS, policies)
            loss = objective.loss(batch)
            kept = loss if loss.ndim == 1 else loss[batch.mask]
            (slope,) = torch.autograd.grad(kept.sum(), whole)
            if not bool(torch.isfinite(kept).all() and torch.isfinite(slope).all()):
                raise UsageError(
                    f"the loss of {name} or its gradient is NaN or infinite within two nats of pi_old; look for a log, "
                    "a division by 0, and a torch.where without a harmless value inside"
                )
    except UsageError:
        raise
    except AssertionError as error:
        raise UsageError(f"{name} cannot be explained: {error}") from error
    except Exception as error:  # the user's code may raise anything; the message says what
        raise UsageError(
            f"{name} raised {type(error).__name__} on one prompt with eight responses: {error}; "
            "python -m pmdkit.testing my.py:MyLoss finds the line"
        ) from error
