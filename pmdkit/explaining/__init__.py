"""Room: what any objective secretly solves, found from its loss alone. `explain` asks, `Explanation` answers."""

from pmdkit.explaining.asking import explain
from pmdkit.explaining.contraction import Contraction, contraction
from pmdkit.explaining.explanation import Explanation, Lengths, Theory, Wander
from pmdkit.explaining.forces import FirstStep, Force
from pmdkit.explaining.landscape import Problem, View, view
from pmdkit.explaining.regulariser import RATIOS, TERMS, Curve, curve
from pmdkit.explaining.solving import Rest, rest

__all__ = [
    "RATIOS",
    "TERMS",
    "Contraction",
    "Curve",
    "Explanation",
    "FirstStep",
    "Force",
    "Lengths",
    "Problem",
    "Rest",
    "Theory",
    "View",
    "Wander",
    "contraction",
    "curve",
    "explain",
    "rest",
    "view",
]
