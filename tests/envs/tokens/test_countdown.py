"""Countdown against plain Python, one expression at a time."""

from itertools import permutations, product

import numpy as np
import pytest

from pmdkit.envs import make_tokens


def value(words):
    """From left to right."""
    total = int(words[0])
    for sign, number in zip(words[1::2], words[2::2], strict=True):
        total = {"+": total + int(number), "-": total - int(number), "*": total * int(number)}[sign]
    return total


@pytest.mark.parametrize("options", [{}, {"numbers": 2, "largest": 9, "target": 81}])
def test_right_are_the_expressions_of_all_numbers_with_that_value(options):
    problem = make_tokens({"kind": "countdown", **options})
    token = {word: i for i, word in enumerate(problem.vocabulary)}
    rng, seen = np.random.default_rng(0), set()
    for prompt in problem.sample(rng, 30):
        *numbers, target = prompt.tolist()
        assert all(1 <= number <= problem.largest for number in numbers)
        assert 0 <= target <= problem.target
        right = set()
        for order in permutations(map(str, numbers)):
            for signs in product("+-*", repeat=len(numbers) - 1):
                words = [order[0], *(word for pair in zip(signs, order[1:], strict=True) for word in pair)]
                response = [token[word] for word in words]
                assert problem.check(prompt, response) == (value(words) == target)
                assert not problem.check(prompt, response[:-1])
                if value(words) == target:
                    right.add((*response, problem.eos))
        taught = {tuple(problem.answer(prompt, rng)) for _ in range(200)}
        assert taught == right  # each of them, and nothing else
        seen.add(len(right))
    assert max(seen) > 1


def test_other_numbers_and_no_numbers_are_wrong():
    problem = make_tokens({"kind": "countdown"})
    token = {word: i for i, word in enumerate(problem.vocabulary)}
    prompt = np.array([2, 3, 4, 20])
    assert problem.check(prompt, [token[word] for word in ["2", "+", "3", "*", "4"]])
    for text in ("4 * 5 * 1", "2 3 + 4 *", "4 + 2 * 4", "2 + 3", "+ 2 * 3 4", "4 * 2 + 3", "4 * 5"):
        assert not problem.check(prompt, [token[word] for word in text.split()])
