"""Exercises of lesson 204: a missing verdict."""

import numpy as np

from pmdkit_course.exercises import Array, Exercise


def advantages(reward: Array, scored: Array) -> Array:
    """The mean of the other scored ones, as (their sum without its own reward) / (their number less one).

    The advantages of the scored ones add up to 0, as in a group with every verdict. Booked as 0 all of them add up to 0
    as well, so no sum gives the mistake away: a part of the push down has gone to an answer that nobody found wrong.
    """
    count = scored.sum()
    if count < 2:
        return np.zeros(len(reward))
    others = (reward[scored].sum() - reward) / (count - 1)
    return np.where(scored, reward - others, 0.0)


def of_others(reward: Array) -> Array:
    """Reward minus the mean of the others, of all responses."""
    return (reward - reward.mean()) * len(reward) / (len(reward) - 1)


def moved_all(reward: Array, scored: Array) -> Array:
    """The unscored ones get an advantage too."""
    others = (reward[scored].sum() - reward * scored) / max(scored.sum() - 1, 1)
    return (reward - others) * (scored.sum() > 1)


def no_peers(reward: Array, scored: Array) -> Array:
    """Right but for a group with one verdict: its baseline is 0 instead of none."""
    others = (reward[scored].sum() - reward) / max(scored.sum() - 1, 1)
    return np.where(scored, reward - others, 0.0)


def groups(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Random groups with missing verdicts; one, two or no verdicts; rewards without a verdict are junk."""
    reward, scored = np.array([1.0, 0, 1, 0, 0, 0]), np.array([True, True, True, False, True, False])
    pair = (np.array([0.3, 0.9, 0.5]), np.array([True, False, True]))
    found = [(reward, scored), pair, (rng.uniform(size=8), rng.permutation(np.arange(8) < 5))]
    return [*found, (np.array([1.0, 0, 0]), np.array([True, False, False])), (np.zeros(3), np.zeros(3, bool))]


def turning_point(quick: float, slow: float) -> float:
    """With a share s unjudged, slow answers earn 1 - s and the mean is quick + slow (1 - s): the two meet at this s."""
    return 1 - quick / (1 - slow)


EXERCISES = (
    Exercise(
        solution=advantages,
        inputs=groups,
        slips={
            "That books a missing verdict as 0. An unscored response is not a peer.": lambda reward, scored: of_others(
                reward * scored
            ),
            "The unscored ones get 0, but they still pull the others' baseline down.": lambda reward, scored: np.where(
                scored, of_others(reward * scored), 0.0
            ),
            "The verdicts are not looked at: unscored responses count as the others do.": lambda reward, scored: (
                of_others(reward)
            ),
            "The unscored ones get 0, but their rewards, which mean nothing, are in the baseline.": (
                lambda reward, scored: np.where(scored, of_others(reward), 0.0)
            ),
            "The sum is over the scored ones. How many of them are others?": (
                lambda reward, scored: (
                    np.where(scored, reward - (reward[scored].sum() - reward) / (len(reward) - 1), 0.0)
                    * (scored.sum() > 1)
                ),
                lambda reward, scored: (
                    np.where(scored, reward - (reward[scored].sum() - reward) / max(scored.sum(), 1), 0.0)
                    * (scored.sum() > 1)
                ),
            ),
            "That is right for the unscored ones: the mask is upside down.": lambda reward, scored: advantages(
                reward, ~scored
            ),
            "A response's own reward is in its baseline. Leave it out.": lambda reward, scored: np.where(
                scored, reward - reward[scored].sum() / max(scored.sum(), 1), 0.0
            ),
            "The scored ones are right. An unscored response is not moved: 0.": moved_all,
            "Right but for a group with one verdict: it has no peers to be compared with.": no_peers,
        },
        hints=(
            "Do it for the scored ones alone first, as if there were no others: reward[scored].",
            "The sum over the others is the sum over all scored ones minus its own reward. Divide by how many?",
            "np.where(scored, ..., 0.0) sets the unscored ones; a group with fewer than two scored ones returns early.",
        ),
    ),
    Exercise(
        solution=turning_point,
        inputs=lambda rng: [
            (0.25, 0.25),
            *((a, b) for a, b, _ in rng.dirichlet(np.ones(3), size=3)),
            (0.001, 0.2),
            (0.25, 0.74),
        ],
        slips={
            "That compares with the mean of a group with every "
            "verdict; a missing one lowers the mean too.": lambda quick, slow: 1 - quick - slow,
            "Missing verdicts are compared with wrong answers. Compare what a slow answer earns with the mean.": (
                lambda quick, slow: (1 - quick - slow) / (quick + slow),
                lambda quick, slow: 1 - quick / (1 - quick - slow),
            ),
            "That is a share of the right answers. What do wrong ones add to the mean reward?": (
                lambda quick, slow: quick / (quick + slow),
                lambda quick, slow: slow / (quick + slow),
            ),
            "That is the share of answers that are not slow. What do all earn on average?": (
                lambda quick, slow: 1 - slow
            ),
            "That compares slow answers with what quick ones add "
            "to the mean; slow ones add something themselves.": lambda quick, slow: 1 - quick,
        },
        hints=(
            "With a share s of them without a verdict, what does a slow right answer earn on average?",
            "And what is the mean reward of all answers, quick, slow and wrong? Set the two equal.",
        ),
    ),
)
