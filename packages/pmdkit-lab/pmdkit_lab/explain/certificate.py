"""Why an answer of the solver holds, in numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """Why an answer holds, in numbers that can be checked without the search.

    Attributes:
        proof: of "smallest" and "the only one": "convex in pi", "multiplier" (at one multiplier no ratio of any
            response is better), "enumeration" (the lowest of all resting points), "tail" (one loss falls forever
            as its ratio goes to 0), "convex in log pi", "restarts", "ray" or "no gradient"; "" if not settled.
        residual: distance from stationarity, per unit of the old probability: of the multiplier from the slopes on
            either side of a kink (a subgradient inclusion), or of the gradient from 0.
        normalisation: |sum pi - 1|.
        margin: the lowest of h - multiplier z over all ratios tried, minus that of the solution; never much below 0.
        curvature: smallest second derivative along the simplex among the responses that are not at a kink.
        kinks: responses that rest at a kink.
        convex: whether the problem was found to be convex in pi.
        rivals: other resting points, with a higher loss; None if not all were searched for.
        why: what was not settled, as a few words.
    """

    proof: str
    residual: float
    normalisation: float
    margin: float
    curvature: float
    kinks: tuple[int, ...]
    convex: bool
    rivals: int | None
    why: str = ""
