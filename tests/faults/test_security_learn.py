"""Between the grader and the process that runs a learner's code go JSON alone, exact types, and no terminal command."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pmdkit.learn import exercise, ids
from pmdkit.learn.judging import Failed
from pmdkit.learn.sandbox import Remote, sandboxed_grader
from pmdkit.learn.serialization import decode, pack, unpack
from pmdkit.learn.source import solution_source
from pmdkit.learn.submission import Code


def same(one, other):
    """Equal in value and in exact type, parts included."""
    assert type(one) is type(other)
    if isinstance(one, tuple | list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize("which", ids())
def test_the_arguments_of_every_exercise_arrive_as_they_are(which):
    for case in exercise(which).inputs(np.random.default_rng(0)):
        same(unpack(json.loads(json.dumps(pack(case), allow_nan=False))), tuple(case))


def test_what_json_has_no_word_for():
    case = (float("inf"), -0.0, np.float64("nan"), np.bool_(True), (), [[]], None, True, 2**40, "tau", torch.ones(2, 1))
    there = unpack(json.loads(json.dumps(pack(case), allow_nan=False)))
    assert np.isnan(there[2])
    assert type(there[2]) is np.float64
    same(there[:2] + there[3:], case[:2] + case[3:])
    assert np.copysign(1.0, there[1]) == -1.0
    with pytest.raises(TypeError, match="an argument is a object"):
        pack((object(),))


def test_a_number_of_numpy_divides_as_numpy_does():
    """In a notebook 1 / np.float64(0) is inf; of a plain float it would be an exception."""
    with np.errstate(divide="ignore"):
        assert 1 / unpack(pack((np.float64(0.0),)))[0] == float("inf")


def test_an_answer_does_not_steer_the_terminal():
    """Neither by what it raises, nor by what it returns, nor by what it writes to the pipe itself."""
    says = []
    with sandboxed_grader(seconds=20.0, memory_mb=512) as judging:
        for line in (
            "raise ValueError('\\x1b]0;owned\\x07\\x9b2J\\u202e')",
            "return type('T\\x1b[2J', (), {'__repr__': lambda self: '\\x1b[2J'})()",
            "return '\\x1b[2J'",
        ):
            cell = f"def find_lambda(pi, reward, tau):\n    {line}\n"
            verdict = judging.judge(exercise("103.2"), Code((), cell))
            assert not verdict.right
            says.append(verdict.says)
        assert judging.judge(exercise("103.2"), Code((), solution_source(exercise("103.2")))).right
    assert "\\x1b]0;owned" in says[0]
    assert all(char.isprintable() for said in says for char in said), says
    forged = decode({"is": "other", "text": "\x1b[2J"})  # a process that was taken over writes what it likes
    assert repr(forged) == "\\x1b[2J"


def test_a_forged_reply_does_not_steer_the_terminal():
    """What a process that was taken over says of a failure, instead of our own sentence."""
    runner = SimpleNamespace(ask=lambda message, seconds: {"failed": "\x1b[2J gone"})
    with pytest.raises(Failed, match=r"^\\x1b\[2J gone$"):
        Remote(runner, 1.0)(np.ones(2))
