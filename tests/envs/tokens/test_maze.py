"""Mazes: the walk against a slow one move at a time, distances against a search, and what is drawn."""

from collections import deque

import numpy as np
import pytest

from pmdkit.envs import make_tokens
from pmdkit.envs.tokens import maze

OPTIONS = [{}, {"size": 5, "walls": 8, "moves": 12}, {"door": True, "walls": 1, "moves": 12}, {"size": 2, "walls": 1}]
STEPS = {"^": (-1, 0), "v": (1, 0), "<": (0, -1), ">": (0, 1)}


def stand(lines, moves):
    """Where the moves lead, and whether the key was taken: one cell at a time, on text."""
    (row, column) = next((r, c) for r, line in enumerate(lines) for c, cell in enumerate(line) if cell == "S")
    key = False
    for move in moves:
        r, c = row + STEPS[move][0], column + STEPS[move][1]
        inside = 0 <= r < len(lines) and 0 <= c < len(lines)
        if inside and lines[r][c] != "#" and (lines[r][c] != "D" or key):
            row, column = r, c
        key = key or lines[row][column] == "K"
    return row, column, key


def shortest(lines):
    """Breadth-first over place and key."""
    start = stand(lines, [])
    seen, queue = {start: ()}, deque([start])
    while queue:
        state = queue.popleft()
        if lines[state[0]][state[1]] == "G":
            return len(seen[state])
        for move in STEPS:
            way = (*seen[state], move)
            after = stand(lines, way)
            if after not in seen:
                seen[after] = way
                queue.append(after)
    return None


@pytest.mark.nightly
@pytest.mark.parametrize("options", OPTIONS)
def test_a_response_is_right_if_it_walks_to_the_goal(options):
    """Random moves, a few of them not moves at all."""
    problem = make_tokens({"kind": "maze", **options})
    rng = np.random.default_rng(0)
    prompts = problem.sample(rng, 300)
    first = problem.vocabulary.index("^")
    rewards = []
    for prompt in prompts:
        lines = problem.text(prompt).split("\n")
        taught = problem.answer(prompt, rng)[:-1]
        drawn = (first + rng.integers(4, size=rng.integers(1, problem.moves + 1))).tolist()
        for response in (taught, drawn, [*taught, *drawn][: problem.moves]):
            moves = [problem.vocabulary[token] for token in response]
            row, column, _ = stand(lines, moves)
            assert problem.check(prompt, response) == (lines[row][column] == "G")
            rewards.append(problem.check(prompt, response))
            assert not problem.check(prompt, [first - 1, *response[1:]])  # a cell is no move
    assert 0 < sum(rewards) < len(rewards)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_teacher_takes_a_shortest_way_and_mazes_have_one_within_the_width(options):
    problem = make_tokens({"kind": "maze", **options})
    rng = np.random.default_rng(1)
    for prompt in problem.sample(rng, 150):
        least = shortest(problem.text(prompt).split("\n"))
        assert least <= problem.moves
        assert len(problem.answer(prompt, rng)) == least + 1


def test_the_teacher_takes_every_shortest_way():
    problem = make_tokens({"kind": "maze", "size": 3, "walls": 0, "moves": 4})
    prompt = np.array([2, 0, 0, 0, 0, 0, 0, 0, 3])  # from corner to corner
    rng = np.random.default_rng(0)
    assert len({tuple(problem.answer(prompt, rng)) for _ in range(200)}) == 6  # 4 choose 2


@pytest.mark.parametrize("door", [False, True])
def test_scattered_mazes_hold_what_was_asked_for_and_solvable_ones_are_the_solvable_ones(door):
    rng = np.random.default_rng(2)
    grids = maze.scatter(rng, 400, 4, 2, door)
    counts = np.stack([np.bincount(grid, minlength=6) for grid in grids])
    walls = 2 + 3 * door
    np.testing.assert_array_equal(counts, [[16 - walls - 2 - 2 * door, walls, 1, 1, door, door]] * 400)
    start = (maze.bordered(grids) == maze.START).argmax(axis=1)
    far = maze.distances(grids)[np.arange(400), 0, start]
    letters = np.array(list(".#SGKD"))
    for grid, moves in zip(grids, far, strict=True):
        least = shortest(["".join(row) for row in letters[grid].reshape(4, 4)])
        assert moves == (maze.FAR if least is None else least)
        if door and least is not None:  # the key is needed: with the door walled up there is no way
            shut = np.where(grid == maze.DOOR, maze.WALL, grid)
            assert shortest(["".join(row) for row in letters[shut].reshape(4, 4)]) is None


def test_every_start_and_goal_is_drawn_equally_often():
    grids = maze.scatter(np.random.default_rng(3), 7200, 3, 0, False)
    pairs = (grids == maze.START).argmax(1) * 9 + (grids == maze.GOAL).argmax(1)
    counts = np.bincount(pairs, minlength=81)
    assert (counts > 0).sum() == 72
    assert (np.abs(counts[counts > 0] - 100) < 4.5 * 10).all()  # 72 cells, Poisson
