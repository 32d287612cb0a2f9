"""`explain`: ask an objective what it solves. Every part of the answer has its own file."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from pmdkit import population, theory
from pmdkit.errors import UsageError
from pmdkit.explaining.checking import check
from pmdkit.explaining.contraction import CURVE, Contraction, contraction
from pmdkit.explaining.explanation import Explanation, Lengths, Theory, Wander
from pmdkit.explaining.forces import first_step, force
from pmdkit.explaining.landscape import Problem, pinned, view
from pmdkit.explaining.problems import LONG, PROBLEMS, WITH_LENGTHS
from pmdkit.explaining.regulariser import Curve, curve
from pmdkit.explaining.solving import Rest, drift, normal, rest
from pmdkit.objectives import Objective, load_objective, objective_name, traits
from pmdkit.randomness import generator

RATES = np.array([0.01, 0.1, 0.5, 0.9])
WANDER = 256


def explain(objective: Objective | str, tau: float | None = None, **options: Any) -> Explanation:
    r"""What any objective secretly solves, found from its loss alone.

    $$ \pi_{t+1} = \arg\max_\pi\; E_\pi[r] - \sum_y \pi_{old}(y)\, f\big(\tfrac{\pi}{\pi_{old}}(y)\big)
       \quad\Longleftrightarrow\quad r(y) = f'\big(\tfrac{\pi_{t+1}}{\pi_{old}}(y)\big) + \text{const} $$

    Source: the argument of arXiv:2602.05933, Proposition mixed_subproblem, turned into a procedure: find where the
    population loss rests, and read f' off the rewards.

    Args:
        objective: an instance, a name of OBJECTIVES, or "my.py:MyLoss".
        tau: temperature in reward units; rewards are graded in [0, 1].
        options: other fields of the objective, with a name only.

    Returns:
        Explanation. f' is NaN-free and 0 at ratio 1; log ratios in nats.

    Raises:
        UsageError: an unknown option, a loss of a wrong shape or with NaN, prompts that are not independent.

    Watch: policies are tables and expectations exact. Draws, shared weights and a few gradient steps do less.
    """
    asked = prepared(objective, tau, options)
    smooth = check(asked)
    rests = {name: rest(asked, at, smooth, starts=4 if k == 0 else 2) for k, (name, at) in enumerate(PROBLEMS.items())}
    curves = {name: curve(asked, PROBLEMS[name], at.log_ratio) for name, at in rests.items() if at.kind == "minimiser"}
    steps = contraction(asked, RATES)
    known = traits(asked)
    fixed = getattr(asked, "tau", None)
    return Explanation(
        name=objective_name(asked),
        options={f.name: shown(getattr(asked, f.name)) for f in fields(asked)},  # type: ignore[arg-type]
        tau=float(fixed) if isinstance(fixed, (int, float)) else np.nan,
        integrable=smooth,
        whole_groups=known.whole_groups,
        reference=known.uses_reference,
        rests=rests,
        curves=curves,
        theory={
            name: compare(asked, PROBLEMS[name], rests[name], c) for name, c in curves.items() if has_theory(asked)
        },
        lengths=with_lengths(asked, smooth) if len(curves) == len(rests) else None,
        wander=None if len(curves) == len(rests) else wander(asked, rests),
        force=force(asked),
        first=first_step(asked),
        steps=steps,
        steps_error=steps_error(asked, steps),
        curve=contraction(asked, CURVE),
        by_tau=by_tau(asked, steps),
        by_length=by_length(asked, steps),
    )


def prepared(objective: Objective | str, tau: float | None, options: dict[str, Any]) -> Objective:
    """The objective with its options set."""
    given = options if tau is None else {"tau": tau, **options}
    if isinstance(objective, str):
        return load_objective(objective, **given)
    if not given:
        return objective
    known = [field.name for field in fields(objective)]  # type: ignore[arg-type]
    for option in given:
        if option not in known:
            raise UsageError(f"{objective_name(objective)} has no option {option}; it has {', '.join(known)}")
    changed: Objective = replace(objective, **given)  # type: ignore[type-var]
    return changed


def has_theory(objective: Objective) -> bool:
    """A known solution, and a temperature to compare at."""
    return population.known(objective) and hasattr(objective, "tau")


def known_log_ratio(objective: Objective, problem: Problem) -> population.Solution:
    """The theory's solution of one problem."""
    log_pi = torch.from_numpy(np.log(problem.pi))[None]
    return population.solve(
        objective,
        log_pi,
        log_pi,
        torch.from_numpy(problem.reward)[None],
        torch.tensor([tau_at(objective, problem)], dtype=torch.float64),
        torch.from_numpy(problem.length)[None],
    )


def tau_at(objective: Objective, problem: Problem) -> float:
    """The temperature of one prompt."""
    return float(pinned(objective, problem).tau)  # type: ignore[attr-defined]


def compare(objective: Objective, problem: Problem, found: Rest, read: Curve) -> Theory:
    """The theory beside the search."""
    solution = known_log_ratio(objective, problem)
    recovered = read.weights["kl"] * read.weights["chi2"] if {"kl", "chi2"} <= read.weights.keys() else np.nan
    error = float(np.abs(solution.log_ratio[0] - found.log_ratio).max())
    return Theory(str(traits(objective).population), float(solution.lam[0]), recovered, error)


def with_lengths(objective: Objective, smooth: bool) -> Lengths | None:
    """The resting point with responses of 1 and of 4 tokens; None where there is none."""
    found = rest(objective, WITH_LENGTHS, smooth, starts=2)
    if found.kind != "minimiser":
        return None
    u = found.log_ratio
    short, long = (curve(objective, WITH_LENGTHS, u, length).weights for length in (1, LONG))
    error = np.nan
    if has_theory(objective):
        error = float(np.abs(known_log_ratio(objective, WITH_LENGTHS).log_ratio[0] - u).max())
    return Lengths(float(np.exp(u[-2] - u[-1])), short, long, u, error)


def wander(objective: Objective, rests: dict[str, Rest]) -> Wander:
    """The gradient at random policies, and where many small steps end."""
    problem = PROBLEMS["graded rewards"]
    draws = generator(0, "explain", "wander")
    u = normal(problem.pi, draws.normal(size=(WANDER, len(problem.pi))) * draws.uniform(0.1, 3, size=(WANDER, 1)))
    gradient = view(objective, problem, u).logits
    silent = int((np.abs(gradient).max(1) == 0).sum())
    left = drift(objective, problem)[1] if rests["graded rewards"].kind == "boundary" else None
    return Wander(WANDER, silent, int((gradient @ problem.advantage < 0).sum()), left)


def steps_error(objective: Objective, steps: Contraction) -> float:
    """Largest distance of the exact steps to the theory's, nats."""
    if not has_theory(objective):
        return np.nan
    method = str(traits(objective).population).replace("_", "-")
    tau = [tau_at(objective, Problem.of([p, 1 - p], [1.0, 0.0])) for p in steps.p]
    exact = theory.binary(steps.p, tau, method)
    right = np.abs(exact.log_ratio_pos - steps.log_ratio_right)
    return float(np.maximum(right, np.abs(exact.log_ratio_neg - steps.log_ratio_wrong)).max())


def by_tau(objective: Objective, steps: Contraction) -> tuple[tuple[float, float], ...]:
    """eta at p = 0.1 for a fifth of tau, tau and five times tau; empty without a number."""
    tau = getattr(objective, "tau", None)
    if not isinstance(tau, (int, float)):
        return ()
    low, high = (eta_at(replace(objective, tau=t)) for t in (tau / 5, 5 * tau))  # type: ignore[type-var]
    return (tau / 5, low), (tau, float(steps.eta[1])), (5 * tau, high)


def by_length(objective: Objective, steps: Contraction) -> tuple[tuple[int, int, float], ...]:
    """eta at p = 0.1 where right or wrong responses are longer."""
    long_right, long_wrong = (eta_at(objective, lengths) for lengths in ((LONG, 1), (1, LONG)))
    return (1, 1, float(steps.eta[1])), (LONG, 1, long_right), (1, LONG, long_wrong)


def eta_at(objective: Objective, length: tuple[int, int] = (1, 1)) -> float:
    """eta of one exact step at p = 0.1."""
    return float(contraction(objective, RATES[1:2], length).eta[0])


def shown(value: Any) -> Any:
    """A field as a number or as text."""
    return value if isinstance(value, (int, float, str)) or value is None else str(value)
