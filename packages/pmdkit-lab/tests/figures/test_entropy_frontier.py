"""The picture of entropy against reward shows what its sentence says."""

import numpy as np

from pmdkit.objectives import load_objective
from pmdkit_lab.explain.entropy import entropy_cost
from pmdkit_lab.explain.solver import stationary_point
from pmdkit_lab.explain.tabular import GRADED_PROMPTS
from pmdkit_lab.figures.entropy_frontier import draw_entropy_frontier


def test_no_rest_is_below_the_tilt_and_pmd_part_is_on_it() -> None:
    drawing = draw_entropy_frontier()
    rests, gains = drawing.data["rests"], drawing.data["gains"]
    tilt = np.interp(rests[:, 0], gains, drawing.data["tilt, nearest in KL"])
    assert (rests[:, 1] > tilt - 0.01).all()  # the curve is drawn through 60 points
    for name in ("pmd-part", "pmd-mean"):
        objective = load_objective(name)
        cost = entropy_cost(objective, stationary_point(objective, GRADED_PROMPTS["graded rewards"]))
        assert [cost.gain, cost.at_rest] in rests.tolist()
        assert (abs(cost.at_rest - cost.tilt) < 1e-9) == (name == "pmd-part")
    assert len(drawing.figure.axes[0].lines) < len(rests) + 3  # rests at one place share a mark
