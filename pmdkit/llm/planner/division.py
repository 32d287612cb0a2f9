"""How to divide accelerators between engines and trainer: the division whose step is shortest, of those that fit."""

from collections.abc import Iterator
from dataclasses import replace

from pmdkit.llm.planner.gpus import NODE
from pmdkit.llm.planner.predict import Prediction


def divisions(prediction: Prediction) -> Iterator[Prediction]:
    """The same with other numbers of accelerators that only generate; whole machines where there are several."""
    whole = prediction.cluster
    unit = max(whole.tensor, whole.expert)
    if whole.count > 2 * NODE and NODE % unit == 0:
        unit = NODE
    for serve in range(unit, whole.count, unit):
        yield replace(prediction, serve=serve)


def best(prediction: Prediction) -> Prediction | None:
    """The fastest division that fits; with rollout.lag = 0 the two wait for each other in any.

    With a lag this is the balanced one, since a step lasts as long as the slower side.
    """
    fitting = [one for one in divisions(prediction) if one.memory.fits]
    # where one side does not get faster, the other takes what it has no use for
    return min(fitting, key=lambda d: (d.seconds, d.generation.seconds + d.update.seconds), default=None)
