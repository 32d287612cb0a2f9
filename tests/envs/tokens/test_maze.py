"""Mazes: the walk against a slow one move at a time, distances against a search, and what is drawn."""

from collections import deque

import numpy as np
import pytest

from pmdkit.envs import make_tokens
from pmdkit.envs.tokens import maze

OPTIONS = [{}, {"size": 5, "walls": 8, "moves": 12}, {"size": 2, "walls": 1}]
STEPS = {"^": (-1, 0), "v": (1, 0), "<": (0, -1), ">": (0, 1)}


def stand(lines, moves):
    """Where the moves lead: one cell at a time, on text."""
    (row, column) = next((r, c) for r, line in enumerate(lines) for c, cell in enumerate(line) if cell == "S")
    for move in moves:
        r, c = row + STEPS[move][0], column + STEPS[move][1]
        if 0 <= r < len(lines) and 0 <= c < len(lines) and lines[r][c] != "#":
            row, column = r, c
    return row, column


def shortest(lines):
    """Breadth-first over places."""
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
            row, column = stand(lines, moves)
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


def test_distances_are_those_of_a_search_and_mazes_hold_what_was_asked_for():
    problem = make_tokens({"kind": "maze", "size": 4, "walls": 5, "moves": 15})
    grids = problem.sample(np.random.default_rng(2), 300)
    np.testing.assert_array_equal([np.bincount(grid, minlength=4) for grid in grids], [[9, 5, 1, 1]] * 300)
    start = (maze.bordered(grids) == maze.START).argmax(axis=1)
    far = maze.distances(grids)[np.arange(300), start]
    assert far.tolist() == [shortest(problem.text(grid).split("\n")) for grid in grids]
    shut = np.array([[maze.START, maze.WALL, maze.WALL, maze.GOAL]])
    assert maze.distances(shut)[0, 5] == maze.FAR


def test_mazes_that_are_hardly_ever_drawn_are_refused(monkeypatch):
    monkeypatch.setattr(maze, "ROUNDS", 1)
    with pytest.raises(ValueError, match="almost never"):
        make_tokens({"kind": "maze", "size": 16, "walls": 0, "moves": 1})
