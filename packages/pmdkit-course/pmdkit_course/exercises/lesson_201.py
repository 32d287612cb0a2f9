"""Exercises of lesson 201: from a table to a sequence."""

import numpy as np

from pmdkit_course.exercises import Array, Exercise


def first_order(of_loss: Array, of_logp: Array, lr: float) -> float:
    """Minus the learning rate times the inner product over all weights.

    The product is large where two prompts are alike to the network, and what is alike changes while it learns. The maps
    of the lesson are this product for 100 prompts, up to terms of second order.
    """
    return -lr * product(of_loss, of_logp)


def product(one: Array, other: Array) -> float:
    """Inner product of two sequences of tensors."""
    return sum((a * b).sum().item() for a, b in zip(one, other, strict=True))


def gradients(rng: np.random.Generator) -> list[tuple[Array, Array, float]]:
    """Of matrices, a vector and a number; a single weight; two that share no weight, as prompts of a table."""
    import torch  # here, so that a list of exercises does not wait for it

    def drawn(*shapes: tuple[int, ...]) -> tuple[Array, ...]:
        return tuple(torch.from_numpy(np.asarray(rng.normal(size=shape))) for shape in shapes)

    shapes = (4, 3), (3,), (), (2, 2, 5)
    left, right = torch.tensor([1.0, 0, 2, 0]).double(), torch.tensor([0.0, 3, 0, 1]).double()
    return [
        ((left, right), (left, right + left), 0.2),  # alike
        ((left, right), (-left, left - right), 0.3),  # opposed
        ((right,), (left - right,), 0.5),
        (drawn(*shapes), drawn(*shapes), 1e-4),
        (drawn((6, 2)), drawn((6, 2)), 0.1),
        (drawn(()), drawn(()), 0.5),
        ((left,), (right,), 0.1),
    ]


EXERCISES = (
    Exercise(
        solution=first_order,
        inputs=gradients,
        slips={
            "A product of norms would mean that both gradients point the same way.": lambda of_loss, of_logp, lr: (
                -lr * (product(of_loss, of_loss) * product(of_logp, of_logp)) ** 0.5
            ),
            "That is one matrix alone; every weight moves.": (
                lambda of_loss, of_logp, lr: -lr * (of_loss[0] * of_logp[0]).sum().item(),
                lambda of_loss, of_logp, lr: -lr * (of_loss[-1] * of_logp[-1]).sum().item(),
            ),
            "A cosine compares directions. How long the gradients are counts too.": lambda of_loss, of_logp, lr: (
                -lr * product(of_loss, of_logp) / (product(of_loss, of_loss) * product(of_logp, of_logp)) ** 0.5
            ),
            "Multiply weight by weight and then add, not the other way round.": lambda of_loss, of_logp, lr: (
                -lr * sum((a.sum() * b.sum()).item() for a, b in zip(of_loss, of_logp, strict=True))
            ),
        },
        hints=(
            "Which weights change, and by how much? And how much does the log-probability change with each of them?",
            "The formula above, with a sum over all entries of all tensors: zip(of_loss, of_logp, strict=True).",
        ),
    ),
)
