"""What any objective solves, found from its loss alone: `explain` returns an `Explanation`."""

from pmdkit_lab.explain.dynamics import ExactSteps, exact_steps, sampled_first_step
from pmdkit_lab.explain.explanation import Explanation, explain
from pmdkit_lab.explain.regulariser import RATIOS, regulariser_curve
from pmdkit_lab.explain.solver import StationaryPoint, stationary_point
from pmdkit_lab.explain.tabular import TabularPrompt, population_loss

__all__ = [
    "RATIOS",
    "ExactSteps",
    "Explanation",
    "StationaryPoint",
    "TabularPrompt",
    "exact_steps",
    "explain",
    "population_loss",
    "regulariser_curve",
    "sampled_first_step",
    "stationary_point",
]
