"""What any objective solves, found from its loss alone: `explain` returns an `Explanation`."""

from pmdkit_lab.explain.certificate import Certificate
from pmdkit_lab.explain.dynamics import ExactSteps, FirstStep, Force, exact_steps, sampled_first_step
from pmdkit_lab.explain.explanation import Explanation, LengthEffect, TheoryComparison, explain
from pmdkit_lab.explain.regulariser import RATIOS, TERMS, RegulariserCurve, regulariser_curve
from pmdkit_lab.explain.solver import StationaryPoint, stationary_point
from pmdkit_lab.explain.tabular import PopulationLoss, TabularPrompt, population_loss

__all__ = [
    "RATIOS",
    "TERMS",
    "Certificate",
    "ExactSteps",
    "Explanation",
    "FirstStep",
    "Force",
    "LengthEffect",
    "PopulationLoss",
    "RegulariserCurve",
    "StationaryPoint",
    "TabularPrompt",
    "TheoryComparison",
    "exact_steps",
    "explain",
    "population_loss",
    "regulariser_curve",
    "sampled_first_step",
    "stationary_point",
]
