"""Exercises of lesson 302: what a real run costs."""

import math
from collections.abc import Callable

import numpy as np

from pmdkit_course.exercises import Array, Exercise

GIB = 2**30


def read_trl(per_device: int, accumulation: int, steps_per_generation: int, num_generations: int, gpus: int) -> Array:
    """Every pass takes per_device responses on every GPU; accumulation passes make an update."""
    responses = per_device * steps_per_generation * gpus
    return responses // num_generations, steps_per_generation // accumulation - 1


def fewest_gpus(weights: float, gpu_gib: float, one_pass: float) -> int:
    """What is cut into shares, over what is left on each GPU beside that which is not."""
    return least(16 * weights / GIB, 0.9 * gpu_gib - one_pass)


def least(shared: float, room: float) -> int:
    """GPUs for so many GiB in shares, with so many GiB of room on each."""
    return math.ceil(shared / room) if room > 0 else 0


def models(rng: np.random.Generator) -> list[tuple[float, float, float]]:
    """The 7B model on 80 GiB and on 40; larger ones; a GPU that one pass alone fills."""
    drawn = [(rng.uniform(30e9, 500e9), rng.choice([80.0, 141.0]), rng.uniform(5, 25)) for _ in range(3)]
    return [
        (7.6e9, 80.0, 20.0),
        (7.6e9, 40.0, 20.0),
        (8.0 * GIB, 80.0, 8.0),  # 128 GiB in shares of exactly 64
        (8e12, 80.0, 40.0),
        (4e13, 80.0, 30.0),
        *drawn,
        (7.6e9, 24.0, 22.0),
    ]


def best_serve(work: float, floor: float, update: float, gpus: int) -> int:
    """The slower side counts, and only the work of generation is spread; pmdkit plan does this with its own times."""

    def step(serve: int) -> float:
        return max(floor + work / serve, update / (gpus - serve))

    return min(range(1, gpus), key=step)


def shortest(step: Callable[[float, float, float, int, int], float]) -> Callable[..., int]:
    """The division for which a wrong idea of a step is shortest."""
    return lambda work, floor, update, gpus: min(range(1, gpus), key=lambda n: step(work, floor, update, gpus, n))


EXERCISES = (
    Exercise(
        solution=read_trl,
        inputs=lambda rng: [
            (2, 8, 128, 16, 32),
            (4, 3, 6, 8, 2),
            (8, int(a := rng.integers(2, 5)), int(a) * 4, 4, 16),
            (16, 2, 2, 16, 1),
            (6, 5, 20, 3, 7),
        ],
        slips={
            "Passes are not updates: some of them make one.": lambda p, a, s, n, g: (p * s * g / n, s - 1),
            "The passes of an update are counted. How many updates does a rollout batch last?": (
                lambda p, a, s, n, g: (p * s * g / n, a - 1),
                lambda p, a, s, n, g: (p * s * g / n, s * a - 1),
                lambda p, a, s, n, g: (p * s * g / n, s - a),
            ),
            "With several updates on one batch, the last one is stale.": lambda p, a, s, n, g: (p * s * g / n, 0),
        },
        hints=(
            "How many responses do all GPUs together take in one pass? In all passes of a rollout batch?",
            "Each prompt has num_generations of them. Updates per batch are passes over accumulation.",
        ),
        exact=True,
    ),
    Exercise(
        solution=fewest_gpus,
        inputs=models,
        slips={
            "2 bytes are the weights of an engine. Training keeps more: which four numbers?": lambda w, gib, one: least(
                2 * w / GIB, 0.9 * gib - one
            ),
            "12 bytes are the weight and its two moments; the gradient is missing.": lambda w, gib, one: least(
                12 * w / GIB, 0.9 * gib - one
            ),
            "More GPUs do not make a pass smaller: it is needed on each of them.": lambda w, gib, one: math.ceil(
                (16 * w / GIB + one) / (0.9 * gib)
            ),
            "The tenth is of the GPU, and not of what the pass leaves.": lambda w, gib, one: least(
                16 * w / GIB, 0.9 * (gib - one)
            ),
            "No power of two is asked for: any number of GPUs will do.": lambda w, gib, one: (
                2 ** math.ceil(math.log2(fewest_gpus(w, gib, one))) if fewest_gpus(w, gib, one) else 0
            ),
            "A GiB is 2^30 bytes; 10^9 is a GB.": lambda w, gib, one: least(16 * w / 1e9, 0.9 * gib - one),
        },
        hints=(
            "How many GiB are there in all shares together? How much room for them has one GPU?",
            "The room is 0.9 * gpu_gib - one_pass. If there is none, no number of GPUs helps.",
            "math.ceil(16 * weights / 2**30 / room), where room is positive.",
        ),
        exact=True,
    ),
    Exercise(
        solution=best_serve,
        inputs=lambda rng: [
            (1000.0, 46.0, 4000.0, 64),
            (3000.0, 10.0, 1000.0, 32),
            (500.0, 80.0, 9000.0, 128),
            (rng.uniform(500, 900), 30.0, rng.uniform(2000, 3000), 48),
            (100.0, 10.0, 100.0, 2),
            (5000.0, 10.0, 1.0, 8),  # all but one
            (1.0, 10.0, 5000.0, 16),  # one
            (900.0, 15.0, 600.0, 24),
        ],
        slips={
            "With a lag the slower side counts, not the sum.": shortest(lambda w, f, u, g, n: f + w / n + u / (g - n)),
            "The longest response takes its time on any number of GPUs, after the work that is spread.": (
                shortest(lambda w, f, u, g, n: max(w / n, u / (g - n))),
                shortest(lambda w, f, u, g, n: max(w / n, f, u / (g - n))),
            ),
            "The longest response cannot be spread over GPUs.": shortest(
                lambda w, f, u, g, n: max((f + w) / n, u / (g - n))
            ),
            "Shares in proportion to the work would do if all of it could be spread, and if GPUs could be split.": (
                lambda w, f, u, g: min(max(round(g * (w + f) / (w + f + u)), 1), g - 1),
            ),
            "The longest response belongs to generation, and not to the update.": shortest(
                lambda w, f, u, g, n: max(w / n, f + u / (g - n))
            ),
            "Those are the seconds of the shortest step. Which division has it?": lambda w, f, u, g: min(
                max(f + w / n, u / (g - n)) for n in range(1, g)
            ),
            "That is the division with the longest step. The shortest is asked for.": lambda w, f, u, g: max(
                range(1, g), key=lambda n: max(f + w / n, u / (g - n))
            ),
            "Those are the ones that train.": lambda w, f, u, g: g - best_serve(w, f, u, g),
        },
        hints=(
            "Write the seconds of generation and of the update for a given serve. Which of them is the step?",
            "Try every serve from 1 to gpus - 1: min(range(1, gpus), key=step).",
        ),
        exact=True,
    ),
)
