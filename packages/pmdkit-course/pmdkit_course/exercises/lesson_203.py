"""Exercises of lesson 203: what staleness costs, and what it buys."""

from pmdkit_course.exercises import Exercise


def speedup(fixed: float, each: float, update: float, ministeps: int) -> float:
    """Per update; what is paid once per batch is divided among its ministeps.

    With 0.048 paid once, 0.0032 per ministep and 0.0057 per update, the paper's times in ms per token, it is 4.8 for
    16 ministeps, and no staleness brings more than 6.4: each and update remain.
    """
    return (fixed + each + update) / (fixed / ministeps + each + update)


EXERCISES = (
    Exercise(
        solution=speedup,
        inputs=lambda rng: [
            (0.048, 0.0032, 0.0057, 16),
            *((*rng.uniform(0.1, 2, size=3), m) for m in (2, 5)),
            (0.0, 1.0, 2.0, 8),
            (3.0, 1.0, 2.0, 1),
        ],
        slips={
            "That is the speedup of generation alone. Updates take time too.": lambda f, e, u, m: (f + e) / (f / m + e),
            "The update is paid per ministep, not once per batch.": lambda f, e, u, m: (
                (f + e + u) / (f / m + e + u / m)
            ),
            "M would need all the time to go into what is paid once per batch.": lambda f, e, u, m: m,
        },
        hints=(
            "Write the time of one batch, and how many updates it makes.",
            "Divide the time of a batch by its ministeps, for M and for 1, and compare.",
        ),
    ),
)
