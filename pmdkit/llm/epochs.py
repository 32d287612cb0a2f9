"""Prompts in shuffled epochs: the problems of a step, as a function of seed and step alone."""

from collections.abc import Sequence

import numpy as np

from pmdkit.errors import UsageError
from pmdkit.randomness import generator

Numbers = np.ndarray


def apportion(shares: Sequence[float], count: int) -> list[int]:
    """How many of `count` prompts each share gets, by largest remainders; the same in every step.

    Raises:
        UsageError: a share gets no prompt.
    """
    exact = [share * count for share in shares]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda n: counts[n] - exact[n])
    for n in by_remainder[: count - sum(counts)]:
        counts[n] += 1
    if not all(counts):
        raise UsageError(
            f"the shares of env.sources give {counts} of {count} prompts; expected at least one each: raise --prompts"
        )
    return counts


def epoch_sampler(numbers: Numbers, step: int, count: int, seed: int) -> Numbers:
    """[count] problem numbers of a step, from place (step - 1) count on in an endless sequence of shuffled epochs.

    Every epoch has every number once. A step that straddles two epochs has no number twice, unless count is larger
    than n.

    Args:
        numbers: [n] distinct numbers of problems.
        step: from 1.
        count: problems per step, >= 1.
        seed: of the shuffles; epoch e is drawn from (seed, "order", e).
    """
    size = len(numbers)
    first, end = (step - 1) * count, step * count
    epochs = range(first // size, (end - 1) // size + 1)
    row = np.concatenate([epoch_order(size, epoch, count, seed) for epoch in epochs])
    start = first - epochs.start * size
    return numbers[row[start : start + count]]


def epoch_order(size: int, epoch: int, count: int, seed: int) -> Numbers:
    """[size] places in the order of an epoch, a shuffle.

    A step may begin in the epoch before and end in this one; the problems that it has from there do not open this one.
    """
    if count > size:
        return shuffle(size, epoch, seed)
    begin = epoch
    # A new head moves nothing beyond place `count`, so the tail of a long epoch is a plain shuffle. Short epochs are
    # traced back to the last one that begins with a step; there are at most `count` of them.
    while begin * size % count and (size < 2 * count or begin == epoch):
        begin -= 1
    order = shuffle(size, begin, seed)
    for number in range(begin + 1, epoch + 1):
        before = number * size % count  # problems of the straddling step that the previous epoch gave
        shuffled, taken = shuffle(size, number, seed), order[size - before :]
        free = np.flatnonzero(~np.isin(shuffled, taken))[: (count - before) % count]  # `taken` is kept out of the head
        order = np.concatenate([shuffled[free], np.delete(shuffled, free)])
    return order


def shuffle(size: int, epoch: int, seed: int) -> Numbers:
    """[size] the shuffle of an epoch."""
    return generator(seed, "order", epoch).permutation(size)
