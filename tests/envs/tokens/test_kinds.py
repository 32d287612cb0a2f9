"""From an [env] table to a problem: options, the user's own tasks, and one sentence for every slip."""

import numpy as np
import pytest

from pmdkit.envs import make_tokens
from pmdkit.envs.tokens import KINDS

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

@dataclass(frozen=True)
class Unfinished(TokenProblem):
    vocabulary = ("a", "b", "<eos>")

@dataclass(frozen=True)
class Wrong:
    def build(self):
        return 3

@dataclass(frozen=True)
class NoBuild:
    pass

class Plain:
    pass
"""


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "my.py"
    file.write_text(OWN, encoding="utf-8")
    return file


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_builds_the_same_problem_twice(kind):
    one, two = make_tokens({"kind": kind}), make_tokens({"kind": kind})
    assert one == two
    assert one.name == kind
    np.testing.assert_array_equal(one.sample(np.random.default_rng(0), 9), two.sample(np.random.default_rng(0), 9))


def test_a_task_of_ones_own_is_taken_by_path_with_its_options(own):
    problem = make_tokens({"kind": f"{own}:Same", "room": 4})
    assert (problem.name, problem.width, problem.eos) == ("own", 4, 2)
    rows = np.array([[0, 2], [1, 2]])
    np.testing.assert_array_equal(problem.grade(np.array([[0]]), rows, rows >= 0), [[1, 0]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "the .env. table has no kind; expected one of modular-sum"),
        ({"kind": 3}, "env.kind is 3; expected a name"),
        ({"kind": "modular_sums"}, "unknown env.kind 'modular_sums'; did you mean 'modular-sum'"),
        ({"kind": "copy", "lenght": 5}, "unknown option of copy 'env.lenght'; did you mean 'env.length'"),
        ({"kind": "modular-sum", "modulus": 1}, "env.modulus is 1; expected an integer from 2 to 1000"),
        ({"kind": "copy", "symbols": 1}, "env.symbols is 1; expected an integer from 2"),
        ({"kind": "reverse", "length": 0}, "env.length is 0; expected an integer from 1"),
        ({"kind": "sort", "length": 2.5}, "env.length is 2.5; expected an integer"),
        ({"kind": "parity", "thoughts": 1}, "env.thoughts is 1; expected true or false"),
        ({"kind": "addition", "digits": 0}, "env.digits is 0; expected an integer"),
        ({"kind": "addition", "base": 1}, "env.base is 1; expected an integer"),
        ({"kind": "maze", "walls": 15}, "env.walls is 15; expected an integer from 0 to 14"),
    ],
)
def test_a_slip_is_answered_with_what_was_got_and_wanted(table, message):
    with pytest.raises(ValueError, match=message):
        make_tokens(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": ["a", "b"]}, "the vocabulary of own has no '<eos>'; add it"),
        ({"words": ["a", "a", "<eos>"]}, "the vocabulary of own has 'a' twice"),
        ({"words": ["a", "<eos>"]}, "the vocabulary of own has 2 tokens; expected at least 2 beside '<eos>'"),
        ({"length": 0}, "prompt_length of own is 0; expected an integer >= 1"),
        ({"room": 1}, "width of own is 1; expected at least 2: room for an answer and '<eos>'"),
        ({"count": 2}, r"sample of own gave \[16, 2\] int64; expected \[16, 1\] int64"),
        ({"said": [7, 2]}, "sample of own gave ids from 7 to 7; expected ids of its vocabulary, 0 to 2"),
        ({"said": [0, 0, 2]}, "answer of own to 'a' is 'a a', 3 tokens; expected at most its width, 2"),
        ({"said": [0]}, "answer of own to 'a' is 'a' without '<eos>'"),
        ({"said": [1, 2]}, "answer of own to 'b' is 'b', and check says that is wrong"),
    ],
)
def test_a_task_of_ones_own_that_contradicts_itself_is_refused(own, options, message):
    with pytest.raises(ValueError, match=message):
        make_tokens({"kind": f"{own}:Same", **options})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Sane", "did you mean 'Same'"),
        ("Unfinished", "lacks answer, check, prompt_length, sample, width; a pmdkit.envs.TokenProblem needs them"),
        ("Wrong", r"build\(\) of .* returned a int; expected a pmdkit.envs.TokenProblem"),
        ("NoBuild", r"has no build\(\)"),
        ("Plain", "is not a dataclass"),
    ],
)
def test_a_class_that_is_no_task_is_refused(own, name, message):
    with pytest.raises(ValueError, match=message):
        make_tokens({"kind": f"{own}:{name}"})
