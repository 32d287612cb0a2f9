"""From an [env] table to a problem: options, the user's own tasks, and one sentence for every slip."""

import numpy as np
import pytest

from pmdkit.envs import make_tokens

OWN = """
from dataclasses import dataclass
import numpy as np
from pmdkit.envs import TokenProblem

@dataclass(frozen=True)
class Same(TokenProblem):
    words: tuple = ("a", "b", "<eos>")
    length: int = 1
    room: int = 2
    said: tuple = (0, 2)
    count: int = 1
    vocabulary = property(lambda self: tuple(self.words))
    prompt_length = property(lambda self: self.length)
    width = property(lambda self: self.room)
    def sample(self, rng, count):
        return np.full((count, self.count), self.said[0])
    def check(self, prompt, response):
        return response == [0]
    def answer(self, prompt, rng):
        return list(self.said)
"""


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "my.py"
    file.write_text(OWN, encoding="utf-8")
    return file


def test_a_task_of_ones_own_is_taken_by_path_with_its_options(own):
    problem = make_tokens({"kind": f"{own}:Same", "room": 4})
    assert (problem.name, problem.width, problem.eos) == ("own", 4, 2)
    rows = np.array([[0, 2], [1, 2]])
    np.testing.assert_array_equal(problem.grade(np.array([[0]]), rows, rows >= 0), [[1, 0]])


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"kind": "modular_sums"}, "'modular-sum'"),
        ({"kind": "copy", "lenght": 5}, "'env.length'"),
        ({"kind": "maze", "walls": 15}, "env.walls is 15; expected an integer from 0 to 14"),
    ],
)
def test_a_slip_is_answered_with_the_option_and_what_was_wanted(table, word):
    with pytest.raises(ValueError, match=word):
        make_tokens(table)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"words": ["a", "b"]}, "vocabulary"),
        ({"words": ["a", "a", "<eos>"]}, "vocabulary"),
        ({"words": ["a", "<eos>"]}, "vocabulary"),
        ({"length": 0}, "prompt_length"),
        ({"room": 1}, "width"),
        ({"count": 2}, "sample of own gave"),
        ({"said": [7, 2]}, "sample of own gave ids"),
        ({"said": [0, 0, 2]}, "3 tokens"),
        ({"said": [0]}, "without '<eos>'"),
        ({"said": [1, 2]}, "wrong"),
    ],
)
def test_a_task_of_ones_own_that_contradicts_itself_is_refused(own, options, word):
    with pytest.raises(ValueError, match=word):
        make_tokens({"kind": f"{own}:Same", **options})
