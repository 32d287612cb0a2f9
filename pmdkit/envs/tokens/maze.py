"""A maze, answered by a row of moves: many ways lead out, and each is checked by walking it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pmdkit.envs.kinds.options import check_flag, check_whole
from pmdkit.envs.problem import Indices
from pmdkit.envs.tokens import maze_grid
from pmdkit.envs.tokens.problem import EOS, Flags, TokenProblem

CELLS = (".", "#", "S", "G", "K", "D")  # in the order of maze_grid: floor, wall, start, goal, key, door
MOVES = ("^", "v", "<", ">")
ROUNDS = 1000  # batches drawn before a maze counts as impossible


@dataclass(frozen=True)
class Maze(TokenProblem):
    """A square of cells, answered by moves; right if they end on the goal.

    A wall leaves one where one is. With `door`, a wall with a door parts start and key from the goal, and the door
    opens to whoever has stepped on the key. Mazes are drawn uniformly among those with a way of at most `moves` moves.

    Good values: size 3 with 2 walls and 4 moves is learned from chance; larger ones and doors need a warm start.
    """

    name: ClassVar[str] = "maze"

    size: int = 4
    "Cells along one edge."
    walls: int = 4
    "Cells that are wall, besides the one with the door."
    moves: int = 8
    "Moves that a response may have; the shortest way is no longer."
    door: bool = False
    "Key and door."

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
        """[count, L] mazes that can be solved, by rejection."""
        kept: list[Indices] = []
        missing = count
        for _ in range(ROUNDS):
            grids = maze_grid.scatter(rng, 2 * missing + 16, self.size, self.walls, self.door)
            far = maze_grid.distances(grids)[:, 0]
            start = (maze_grid.bordered(grids) == maze_grid.START).argmax(axis=1)
            grids = grids[far[np.arange(len(far)), start] <= self.moves][:missing]
            kept.append(grids)
            missing -= len(grids)
            if not missing:
                return np.concatenate(kept)
        raise ValueError(
            f"mazes of env.size {self.size} with env.walls {self.walls} almost never have a way of at most env.moves "
            f"{self.moves} moves; lower env.walls or raise env.moves"
        )

    def right(self, prompts: Indices, responses: Indices, length: Indices) -> Flags:
        """[N] which responses are moves only, and end on the goal."""
        moves = responses - self.vocabulary.index(MOVES[0])
        inside = np.arange(self.width) < length[:, None]
        proper = ((moves >= 0) & (moves < len(MOVES))) | ~inside
        *_, (place, _) = maze_grid.walk(prompts, np.where(inside & proper, moves, -1))
        goal = (maze_grid.bordered(prompts) == maze_grid.GOAL).argmax(axis=1)
        return proper.all(axis=1) & (place == goal)

    def check(self, prompt: Indices, response: list[int]) -> bool:
        """Whether a response ends on the goal."""
        row = np.full((1, self.width), self.eos)
        row[0, : len(response)] = response
        return bool(self.right(prompt[None], row, np.array([len(response)]))[0])

    def answer(self, prompt: Indices, rng: np.random.Generator) -> list[int]:
        """A shortest way; any of them, by a coin at each fork."""
        tokens, mask = self.answers(prompt[None], rng)
        answer: list[int] = tokens[mask].tolist()
        return answer

    def answers(self, prompts: Indices, rng: np.random.Generator) -> tuple[Indices, Flags]:
        """[N, T] shortest ways and their masks: in every step a move to a cell that is one nearer to the goal."""
        far, step = maze_grid.distances(prompts), maze_grid.offsets(self.size)
        cells, rows = maze_grid.bordered(prompts), np.arange(len(prompts))
        place, key = (cells == maze_grid.START).argmax(axis=1), np.zeros(len(prompts), dtype=np.int64)
        tokens = np.full((len(prompts), self.width), self.eos)
        for turn in range(self.moves):
            here = far[rows, key, place]
            going = rows[here > 0]
            ahead = far[going[:, None], key[going, None], place[going, None] + step]
            move = np.where(ahead < here[going, None], rng.random(ahead.shape), -1).argmax(axis=1)
            place[going] += step[move]
            key[going] |= cells[going, place[going]] == maze_grid.KEY
            tokens[going, turn] = self.vocabulary.index(MOVES[0]) + move
        return tokens, np.arange(self.width) <= (tokens != self.eos).sum(axis=1)[:, None]

    def text(self, ids: Sequence[int] | Indices) -> str:
        """A maze as a square, moves in a row."""
        words = super().text(ids).split(" ")
        if len(ids) < self.prompt_length or words[0] not in CELLS:
            return " ".join(words)
        lines = (words[i : i + self.size] for i in range(0, self.prompt_length, self.size))
        return "\n".join("".join(line) for line in lines)
