"""Which problems a step asks: shuffled epochs, as a function of the step alone, so a run resumes exactly anywhere."""

import numpy as np
from numpy.typing import NDArray

from pmdkit.randomness import generator

Numbers = NDArray[np.int64]


def step_numbers(numbers: Numbers, step: int, count: int, seed: int) -> Numbers:
    """[count] numbers that step `step` asks: places (step - 1) count onwards of an endless row of shuffled epochs.

    Every epoch has every number once. A step that lies across two epochs has no number twice, unless count is larger
    than there are numbers.

    Args:
        numbers: [n] distinct numbers of problems.
        step: from 1.
        count: problems per step, >= 1.
        seed: of the shuffles; epoch e is drawn from (seed, "order", e).

    Raises:
        ValueError: no numbers, or a step or count below 1.
    """
    if numbers.ndim != 1 or len(numbers) == 0:
        raise ValueError(f"numbers has shape {list(numbers.shape)}; expected [n] with n >= 1, one per problem")
    if step < 1:
        raise ValueError(f"step is {step}; expected an integer >= 1, steps count from 1")
    if count < 1:
        raise ValueError(f"count is {count}; expected an integer >= 1, problems per step")
    size = len(numbers)
    first, end = (step - 1) * count, step * count
    epochs = range(first // size, (end - 1) // size + 1)
    row = np.concatenate([epoch_order(size, epoch, count, seed) for epoch in epochs])
    start = first - epochs.start * size
    return numbers[row[start : start + count]]


def epoch_order(size: int, epoch: int, count: int, seed: int) -> Numbers:
    """[size] places in the order of an epoch: a shuffle, its head mended where a step began in the epoch before."""
    if count > size:
        return shuffle(size, epoch, seed)
    begin = epoch
    # Mending moves nothing beyond place `count`, so of long epochs the tail before is a plain shuffle. Short ones are
    # followed back to the last epoch that begins with a step; there are at most `count` of them.
    while begin * size % count and (size < 2 * count or begin == epoch):
        begin -= 1
    order = shuffle(size, begin, seed)
    for number in range(begin + 1, epoch + 1):
        before = number * size % count  # problems of the straddling step that the epoch before gave
        order = mended(shuffle(size, number, seed), order[size - before :], (count - before) % count)
    return order


def shuffle(size: int, epoch: int, seed: int) -> Numbers:
    """[size] the shuffle of an epoch."""
    return generator(seed, "order", epoch).permutation(size)


def mended(order: Numbers, taken: Numbers, head: int) -> Numbers:
    """The order with `taken` kept out of its first `head` places; else as it was."""
    free = np.flatnonzero(~np.isin(order, taken))[:head]
    return np.concatenate([order[free], np.delete(order, free)])
