"""The solutions of lesson 106 against exact trajectories and against the law of hard prompts."""

import numpy as np

from pmdkit import theory
from pmdkit_course.exercises import lesson_106 as lesson


def test_closed_steps_are_those_of_the_trajectory():
    """The trajectory divides by Z in every step; the solution never does."""
    rng = np.random.default_rng(0)
    for _ in range(12):
        p0, tau, goal = 10 ** rng.uniform(-6, -0.4), rng.uniform(0.02, 4), rng.uniform(0.5, 0.999)
        path = theory.trajectory(p0, tau, 100, "pmd-part")
        assert lesson.solved_part_steps(p0, tau, goal) == np.argmax(path >= goal)


def test_a_solved_prompt_needs_no_step():
    assert lesson.solved_part_steps(0.95, 0.5, 0.9) == 0


def test_the_formula_is_off_by_the_share_there_and_by_less_below():
    for p, share in ((1e-4, 0.01), (0.03, 0.05), (0.5, 0.01)):
        tau = lesson.solved_holds_below(p, share)
        error = (
            1
            - theory.binary_small_tau(p, np.array([0.5, 0.9, 1, 1.1]) * tau).eta
            / theory.binary(p, np.array([0.5, 0.9, 1, 1.1]) * tau).eta
        )
        assert error[0] < error[1] < share < error[3]
        np.testing.assert_allclose(error[2], share, rtol=1e-6)


def test_on_hard_prompts_it_is_one_ratio_of_p_and_tau():
    """From the law y (1 - e^-y) = p/tau the formula is 1 % off at one p/tau; the lesson says 2.2 to 2.8."""
    p = 1e-6
    tau = lesson.solved_holds_below(p, 0.01)
    law = theory.hard_prompt(p, tau)
    np.testing.assert_allclose(1 - -np.expm1(-p / tau) / law.eta, 0.01, rtol=0.01)
    assert all(2.2 < p / lesson.solved_holds_below(p, 0.01) < 2.9 for p in (1e-3, 1e-2, 0.1))
