"""Mazes by the thousand: drawing them, walking through them, and the way out, all in NumPy. No tokens of moves here.

A maze is a square of cells, flattened row by row. With a border of walls the four moves are four offsets.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pmdkit.envs.problem import Indices
from pmdkit.envs.tokens.problem import Flags

FLOOR, WALL, START, GOAL, KEY, DOOR = range(6)
FAR = 10**4  # longer than any way, and fits 16 bits


def bordered(grids: Indices) -> Indices:
    """[N, (size + 2)**2] the cells of mazes [N, size**2] with a wall around."""
    size = side(grids)
    return np.pad(grids.reshape(-1, size, size), ((0, 0), (1, 1), (1, 1)), constant_values=WALL).reshape(len(grids), -1)


def offsets(size: int) -> Indices:
    """[4] what up, down, left and right add to a place in a bordered maze."""
    return np.array([-(size + 2), size + 2, -1, 1])


def walk(grids: Indices, moves: Indices) -> Iterator[tuple[Indices, Flags]]:
    """Place [N] and key [N] before the first and after each of the moves [N, T]; a move of -1 stands still.

    A wall, and a door without the key, leaves one where one is.
    """
    cells, step = bordered(grids), np.append(offsets(side(grids)), 0)
    rows = np.arange(len(cells))
    place = (cells == START).argmax(axis=1)
    key = np.zeros(len(cells), dtype=np.bool_)
    yield place, key
    for move in moves.T:
        ahead = place + step[move]
        cell = cells[rows, ahead]
        place = np.where((cell == WALL) | ((cell == DOOR) & ~key), place, ahead)
        key = key | (cells[rows, place] == KEY)
        yield place, key


def distances(grids: Indices) -> NDArray[np.int16]:
    """[N, 2, (size + 2)**2] moves to the goal from each cell without and with the key, FAR where there is no way."""
    cells, step = bordered(grids), offsets(side(grids))
    first, end = step[1] + 1, cells.shape[1] - step[1] - 1  # the first cell inside the border, and behind the last
    free = np.stack([(cells != WALL) & (cells != DOOR), cells != WALL], axis=1)
    keys = cells == KEY
    far = np.where((cells == GOAL)[:, None], 0, np.full(free.shape, FAR, dtype=np.int16))
    while True:
        nearer = far.copy()
        for offset in step:
            inside = nearer[:, :, first:end]
            np.minimum(inside, far[:, :, first + offset : end + offset] + 1, out=inside)
        nearer[~free] = FAR
        np.minimum(nearer[:, 0], nearer[:, 1], out=nearer[:, 0], where=keys)
        if (nearer == far).all():
            return far
        far = nearer


def scatter(rng: np.random.Generator, count: int, size: int, walls: int, door: bool) -> Indices:
    """[count, size**2] start, goal and walls at random places, solvable or not.

    With a door, a column of wall with one door in it parts the maze; start and key are on one side, the goal on the
    other.
    """
    order = rng.permuted(np.tile(np.arange(size**2), (count, 1)), axis=1)
    grids = np.full((count, size**2), FLOOR)
    rows = np.arange(count)
    if not door:
        for kind, stop in ((WALL, walls + 2), (GOAL, 2), (START, 1)):  # the later overwrite the earlier
            np.put_along_axis(grids, order[:, :stop], kind, axis=1)
        return grids
    column = rng.integers(1, size - 1, size=(count, 1))
    here, barrier = order % size < column, order % size == column
    swap = rng.random((count, 1)) < 0.5
    near, far = np.where(swap, ~here & ~barrier, here), np.where(swap, here, ~here & ~barrier)
    start, key, goal, gap = nth(near, 1), nth(near, 2), nth(far, 1), nth(barrier, 1)
    rest = ~(barrier | start | key | goal)
    for kind, where in (
        (WALL, barrier | (rest & (rest.cumsum(axis=1) <= walls))),
        (START, start),
        (KEY, key),
        (GOAL, goal),
        (DOOR, gap),
    ):
        chosen = np.nonzero(where)
        grids[rows[chosen[0]], order[chosen]] = kind
    return grids


def nth(where: Flags, n: int) -> Flags:
    """The n-th place of each row that is marked."""
    return where & (where.cumsum(axis=1) == n)


def side(grids: Indices) -> int:
    """Cells along one edge."""
    return round(grids.shape[1] ** 0.5)
