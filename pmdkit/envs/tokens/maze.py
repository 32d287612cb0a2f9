"""A maze, answered by a sequence of moves: many paths reach the goal, and each is checked by walking it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from pmdkit.envs.bandit import Indices
from pmdkit.envs.build import Kind
from pmdkit.envs.tokens.problem import EOS, BatchedProblem, Flags
from pmdkit.options import Range

FLOOR, WALL, START, GOAL = range(4)
CELLS = (".", "#", "S", "G")  # the index is the token id
MOVES = ("^", "v", "<", ">")
FAR = 10**4  # longer than any path, and fits into 16 bits
ROUNDS = 1000  # batches drawn before such mazes count as impossible


@dataclass(frozen=True)
class Maze(Kind, BatchedProblem):
    """A square of cells, answered by moves; right if they end on the goal.

    A move into a wall changes nothing. Mazes are drawn uniformly from those with a path of at most `moves` moves.

    Good values: size 3 with 2 walls and 4 moves is learned from scratch; larger ones need a warm start.
    """

    name: ClassVar[str] = "maze"

    size: Annotated[int, Range(2, 16)] = 4
    "Cells along one edge."
    walls: int = 4
    "Cells that are wall."
    moves: Annotated[int, Range(1, 256)] = 8
    "Maximum number of moves in a response; the shortest path is no longer."

    def __post_init__(self) -> None:
        super().__post_init__()
        Range(0, self.size**2 - 2).check("env.walls", self.walls, whole=True)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The kinds of cell, the moves, `<eos>`."""
        return (*CELLS, *MOVES, EOS)

    @property
    def prompt_length(self) -> int:
        """L: one token for each cell, row by row."""
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
            places = rng.permuted(np.tile(np.arange(self.size**2), (2 * missing + 16, 1)), axis=1)
            grids = np.full(places.shape, FLOOR)
            for kind, stop in ((WALL, self.walls + 2), (GOAL, 2), (START, 1)):  # later ones overwrite earlier ones
                np.put_along_axis(grids, places[:, :stop], kind, axis=1)
            far = distances(grids)
            start = (bordered(grids) == START).argmax(axis=1)
            grids = grids[far[np.arange(len(far)), start] <= self.moves][:missing]
            kept.append(grids)
            missing -= len(grids)
            if not missing:
                return np.concatenate(kept)
        raise ValueError("mazes almost never have a path of env.moves; lower env.walls or raise env.moves")

    def right(self, prompts: Indices, responses: Indices, length: Indices) -> Flags:
        """[N] which responses consist of moves only and end on the goal."""
        moves = responses - self.vocabulary.index(MOVES[0])
        inside = np.arange(self.width) < length[:, None]
        proper = ((moves >= 0) & (moves < len(MOVES))) | ~inside
        cells, step, rows = bordered(prompts), np.append(offsets(self.size), 0), np.arange(len(prompts))
        place, goal = (cells == START).argmax(axis=1), (cells == GOAL).argmax(axis=1)
        for move in np.where(inside & proper, moves, -1).T:  # -1 stays where it is
            ahead = place + step[move]
            place = np.where(cells[rows, ahead] == WALL, place, ahead)
        return proper.all(axis=1) & (place == goal)

    def answers(self, prompts: Indices, rng: np.random.Generator) -> tuple[Indices, Flags]:
        """[N, T] shortest paths and their masks: each move goes to a cell that is one step nearer to the goal."""
        far, step = distances(prompts), offsets(self.size)
        cells, rows = bordered(prompts), np.arange(len(prompts))
        place = (cells == START).argmax(axis=1)
        tokens = np.full((len(prompts), self.width), self.eos)
        for turn in range(self.moves):
            here = far[rows, place]
            going = rows[here > 0]
            ahead = far[going[:, None], place[going, None] + step]
            move = np.where(ahead < here[going, None], rng.random(ahead.shape), -1).argmax(axis=1)
            place[going] += step[move]
            tokens[going, turn] = self.vocabulary.index(MOVES[0]) + move
        return tokens, np.arange(self.width) <= (tokens != self.eos).sum(axis=1)[:, None]

    def text(self, ids: Sequence[int] | Indices) -> str:
        """A maze as a square of characters, moves on one line."""
        words = super().text(ids).split(" ")
        if len(ids) < self.prompt_length or words[0] not in CELLS:
            return " ".join(words)
        lines = (words[i : i + self.size] for i in range(0, self.prompt_length, self.size))
        return "\n".join("".join(line) for line in lines)


# Mazes by the thousand in NumPy. A maze is a square of cells, flattened row by row; in a border of walls the four moves
# are four offsets.


def bordered(grids: Indices) -> Indices:
    """[N, (size + 2)**2] the cells of mazes [N, size**2] with a wall around them."""
    size = side(grids)
    square = np.pad(grids.reshape(-1, size, size), ((0, 0), (1, 1), (1, 1)), constant_values=WALL)
    return square.reshape(len(grids), -1)


def offsets(size: int) -> Indices:
    """[4] change of place by each move, in a maze with its border."""
    return np.array([-size - 2, size + 2, -1, 1])


def distances(grids: Indices) -> np.ndarray:
    """[N, (size + 2)**2] moves to the goal from each cell, FAR where there is no path."""
    cells, step = bordered(grids), offsets(side(grids))
    first, end = step[1] + 1, cells.shape[1] - step[1] - 1  # the first cell inside the border, and one past the last
    far = np.where(cells == GOAL, 0, np.full(cells.shape, FAR, dtype=np.int16))
    while True:
        nearer = far.copy()
        for offset in step:
            inside = nearer[:, first:end]
            np.minimum(inside, far[:, first + offset : end + offset] + 1, out=inside)
        nearer[cells == WALL] = FAR
        if (nearer == far).all():
            return far
        far = nearer


def side(grids: Indices) -> int:
    """Cells along one edge."""
    return round(grids.shape[1] ** 0.5)
