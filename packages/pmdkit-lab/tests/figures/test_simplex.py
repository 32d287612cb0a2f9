"""The triangle keeps the geometry of the simplex."""

import numpy as np
from matplotlib.figure import Figure

from pmdkit_lab.figures import simplex


def test_distances_are_those_of_probabilities_up_to_one_factor() -> None:
    """The map is an isometry over sqrt 2, so angles and straight lines on the page are true."""
    p, q = np.random.default_rng(0).dirichlet(np.ones(3), (2, 50))
    page = np.linalg.norm(simplex.to_xy(p) - simplex.to_xy(q), axis=1)
    np.testing.assert_allclose(page * np.sqrt(2), np.linalg.norm(p - q, axis=1), rtol=1e-12)


def test_contours_of_expected_reward_are_straight_and_where_they_should_be() -> None:
    reward = np.array([0.0, 0.7, 1.0])
    ax = Figure().subplots()
    (segments,) = simplex.contour(ax, lambda probs: probs @ reward, [0.4]).allsegs
    points = np.concatenate(segments)
    weights = np.linalg.solve(np.vstack([simplex.CORNERS.T, np.ones(3)]), np.vstack([points.T, np.ones(len(points))]))
    np.testing.assert_allclose(reward @ weights, 0.4, atol=1e-9)
