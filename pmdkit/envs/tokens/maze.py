"""A maze, answered by a sequence of moves: many paths reach the goal, and each is checked by walking it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pmdkit.envs.bandit import Indices
from pmdkit.envs.build import check_flag, check_whole
from pmdkit.envs.tokens.problem import EOS, Flags, TokenProblem

FLOOR, WALL, START, GOAL, KEY, DOOR = range(6)
CELLS = (".", "#", "S", "G", "K", "D")  # in that order
MOVES = ("^", "v", "<", ">")
FAR = 10**4  # longer than any path, and fits into 16 bits
ROUNDS = 1000  # batches drawn before such mazes count as impossible


@dataclass(frozen=True)
class Maze(TokenProblem):
    """A square of cells, answered by moves; right if they end on the goal.

    A move into a wall changes nothing. With `door`, a wall with a door separates start and key from the goal, and the
    door opens once the key has been stepped on. Mazes are drawn uniformly from those with a path of at most `moves`
    moves.

    Good values: size 3 with 2 walls and 4 moves is learned from scratch; larger ones and doors need a warm start.
    """

    name: ClassVar[str] = "maze"

    size: int = 4
    "Cells along one edge."
    walls: int = 4
    "Cells that are wall, not counting the wall with the door."
    moves: int = 8
    "Maximum number of moves in a response; the shortest path is no longer."
    door: bool = False
    "Add a key and a door."

    def __post_init__(self) -> None:
        check_flag("door", self.door)
        check_whole("size", self.size, 3 if self.door else 2, 16)
        most = self.size**2 - 2 - (self.size + 1 if self.door else 0)
        check_whole("walls", self.walls, 0, most)
        check_whole("moves", self.moves, 4 if self.door else 1, 256)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The kinds of cell, the moves, `<eos>`."""
        return (*CELLS[: 6 if self.door else 4], *MOVES, EOS)

    @property
    def prompt_length(self) -> int:
        """The cells, row by row."""
        return self.size**2

    @property
    def width(self) -> int:
        """T: the moves and `<eos>`."""
        return self.moves + 1

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] solvable mazes, by rejection sampling."""
        kept: list[Indices] = []
        missing = count
        for _ in range(ROUNDS):
            grids = scatter(rng, 2 * missing + 16, self.size, self.walls, self.door)
            far = distances(grids)[:, 0]
            start = (bordered(grids) == START).argmax(axis=1)
            grids = grids[far[np.arange(len(far)), start] <= self.moves][:missing]
            kept.append(grids)
            missing -= len(grids)
            if not missing:
                return np.concatenate(kept)
        raise ValueError(
            f"mazes of env.size {self.size} with env.walls {self.walls} almost never have a path of at most env.moves "
            f"{self.moves} moves; lower env.walls or raise env.moves"
        )

    def right(self, prompts: Indices, responses: Indices, length: Indices) -> Flags:
        """[N] which responses consist of moves only and end on the goal."""
        moves = responses - self.vocabulary.index(MOVES[0])
        inside = np.arange(self.width) < length[:, None]
        proper = ((moves >= 0) & (moves < len(MOVES))) | ~inside
        *_, (place, _) = walk(prompts, np.where(inside & proper, moves, -1))
        goal = (bordered(prompts) == GOAL).argmax(axis=1)
        return proper.all(axis=1) & (place == goal)

    def check(self, prompt: Indices, response: list[int]) -> bool:
        """Whether a response ends on the goal."""
        row = np.full((1, self.width), self.eos)
        row[0, : len(response)] = response
        return bool(self.right(prompt[None], row, np.array([len(response)]))[0])

    def answer(self, prompt: Indices, rng: np.random.Generator) -> list[int]:
        """A shortest path, chosen at random at each fork."""
        tokens, mask = self.answers(prompt[None], rng)
        answer: list[int] = tokens[mask].tolist()
        return answer

    def answers(self, prompts: Indices, rng: np.random.Generator) -> tuple[Indices, Flags]:
        """[N, T] shortest paths and their masks: each move goes to a cell that is one step nearer to the goal."""
        far, step = distances(prompts), offsets(self.size)
        cells, rows = bordered(prompts), np.arange(len(prompts))
        place, key = (cells == START).argmax(axis=1), np.zeros(len(prompts), dtype=np.int64)
        tokens = np.full((len(prompts), self.width), self.eos)
        for turn in range(self.moves):
            here = far[rows, key, place]
            going = rows[here > 0]
            ahead = far[going[:, None], key[going, None], place[going, None] + step]
            move = np.where(ahead < here[going, None], rng.random(ahead.shape), -1).argmax(axis=1)
            place[going] += step[move]
            key[going] |= cells[going, place[going]] == KEY
            tokens[going, turn] = self.vocabulary.index(MOVES[0]) + move
        return tokens, np.arange(self.width) <= (tokens != self.eos).sum(axis=1)[:, None]

    def text(self, ids: Sequence[int] | Indices) -> str:
        """A maze as a square of characters, moves on one line."""
        words = super().text(ids).split(" ")
        if len(ids) < self.prompt_length or words[0] not in CELLS:
            return " ".join(words)
        lines = (words[i : i + self.size] for i in range(0, self.prompt_length, self.size))
        return "\n".join("".join(line) for line in lines)


# Mazes by the thousand in NumPy: drawing them, walking through them, and finding shortest paths.
# A maze is a square of cells, flattened row by row. With a border of walls the four moves are four offsets.


def bordered(grids: Indices) -> Indices:
    """[N, (size + 2)**2] the cells of mazes [N, size**2] with a wall around them."""
    size = side(grids)
    return np.pad(grids.reshape(-1, size, size), ((0, 0), (1, 1), (1, 1)), constant_values=WALL).reshape(len(grids), -1)


def offsets(size: int) -> Indices:
    """[4] what up, down, left and right add to a place in a bordered maze."""
    return np.array([-(size + 2), size + 2, -1, 1])


def walk(grids: Indices, moves: Indices) -> Iterator[tuple[Indices, Flags]]:
    """Yield place [N] and key [N] before the first and after each of the moves [N, T]; -1 means no move.

    A move into a wall, or into a door without the key, changes nothing.
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


def distances(grids: Indices) -> np.ndarray:
    """[N, 2, (size + 2)**2] moves to the goal from each cell without and with the key, FAR where there is no path."""
    cells, step = bordered(grids), offsets(side(grids))
    first, end = step[1] + 1, cells.shape[1] - step[1] - 1  # the first cell inside the border, and one past the last
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

    With a door, a column of wall with one door in it divides the maze; start and key are on one side, the goal on the
    other.
    """
    order = rng.permuted(np.tile(np.arange(size**2), (count, 1)), axis=1)
    grids = np.full((count, size**2), FLOOR)
    rows = np.arange(count)
    if not door:
        for kind, stop in ((WALL, walls + 2), (GOAL, 2), (START, 1)):  # later ones overwrite earlier ones
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
    """The n-th marked place of each row."""
    return where & (where.cumsum(axis=1) == n)


def side(grids: Indices) -> int:
    """Cells along one edge."""
    return round(grids.shape[1] ** 0.5)
