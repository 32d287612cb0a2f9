"""Whatever an answer returns, raises or prints, it has a verdict, and costs no other answer its own."""

import contextlib
import functools
import itertools
import json

import numpy as np
import pytest

from pmdkit_course import AnswerVerdict, cli, exercise, grading, ids, worker
from pmdkit_course.answers import Code
from pmdkit_course.reference_cases import SEED, reference_cases
from pmdkit_course.sandbox import judge_replies, question

SAMPLE = ("100.2", "201.0", "202.0", "202.1", "302.2", "304.3", "401.1")
"Exercises whose right answers are pairs, arrays, numbers, counts and words; quick to judge."
HELPERS = """
import itertools, math, sys
import numpy as np
import torch
def refuse(self, *more, **named):
    raise RuntimeError("no")
NAMES = ("__eq__", "__array__", "__len__", "__repr__", "__iter__", "__float__", "__bool__", "__getattr__", "__str__")
Rude = type("Rude", (), {"__hash__": None} | dict.fromkeys(NAMES, refuse))
RudeList = type("RudeList", (list,), dict.fromkeys(("__iter__", "__getitem__", "__len__", "__repr__"), refuse))
RudeText = type("RudeText", (str,), dict.fromkeys(("__str__", "__repr__", "__len__"), refuse))
RudeFloat = type("RudeFloat", (float,), dict.fromkeys(("__float__", "__repr__", "__eq__"), refuse))
RudeError = type("RudeError", (Exception,), dict.fromkeys(("__str__", "__repr__"), refuse))
def throw(error):
    raise error
def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found
"""
FIXED = (  # expressions; `a` is the list of arguments, `n` the number of the call
    "None", "...", "NotImplemented", "True", "'word'", "''", "b'bytes'", "{}", "{'a': 1}", "{1, 2}", "[]", "()",
    "[[]]", "[None]", "[[1.0], [1.0, 2.0]]", "(1.0,)", "(1, 2, 3, 4, 5)", "(None, None)", "('a', 1.0)", "['a', 'b']",
    "math.nan", "math.inf", "-math.inf", "10**400", "-(2**63)", "1j", "1e308", "5e-324", "-0.0", "range(5)",
    "iter([1])",
    "(x for x in [1, 2])", "(yield)", "lambda: 1", "object", "sys", "np.float16(1)", "np.array(None)", "np.ma.masked",
    "np.array(['a'])", "np.array([1, None], object)", "np.datetime64('2020')", "np.zeros(0)", "np.zeros((0, 3))",
    "np.zeros((1,) * 30)", "np.full((3, 3), np.nan)", "np.zeros(3, dtype=[('x', float)])", "np.ones(10**6)",
    "torch.zeros(2, 3, requires_grad=True)", "torch.tensor(math.nan)", "torch.zeros(2, dtype=torch.complex64)",
    "torch.zeros(2).to_sparse()", "torch.zeros(3, dtype=torch.bfloat16)", "torch.zeros(2, device='meta')",
    "Rude()", "[Rude()]", "(Rude(), Rude())", "RudeList([1])", "RudeText('a')", "RudeFloat(1.0)", "nested(3000)",
    "[[1.0] * 900] * 900", "'x' * 10**6", "print('x' * 10**6)", "a", "a[0]", "[a] * 2", "tuple(a) * 2",
    "throw(RudeError())", "throw(ValueError('x' * 10**6))", "throw(KeyboardInterrupt())", "throw(SystemExit(0))",
    "throw(StopIteration())", "throw(GeneratorExit())", "throw(MemoryError())", "throw(RecursionError())",
    "throw(OSError(2, 'x\x1b[2J'))", "throw(BaseExceptionGroup('g', [KeyboardInterrupt()]))",
    "None if n else 1.0", "[1.0, 'a', None][n % 3]", "np.zeros(n)", "1 / 0", "a[99]", "own(*a)",
)  # fmt: skip
CHANGED = (  # what may be made of a right answer `r`
    "[r]", "[r, r]", "(r,)", "(r, r)", "{0: r}", "str(r)", "np.array([r], object)", "lambda: r", "[[r]]",
    "r if n else None",
    "(r[0], [r[1]])", "(np.zeros(3), r[1])", "(r[0], np.stack([np.asarray(r[1])] * 3))", "r[::-1]", "r[:-1]",
    "np.asarray(r, float)[..., None]", "np.outer(r, np.ones(5))", "np.asarray(r) * np.nan", "np.asarray(r) + 1j",
    "np.stack([np.asarray(r, float)] * 2)", "np.asarray(r, float)[..., None] + np.zeros(4)", "np.float16(r)",
    "torch.as_tensor(np.asarray(r, float)).unsqueeze(0)", "[np.asarray(x, float) + np.zeros((2, 3)) for x in r]",
    "np.asarray(r, float).ravel()[0]", "np.asarray(r, float).sum()", "np.asarray(r).astype(str)", "np.asarray(r) > 0",
    "np.broadcast_to(np.asarray(r, float), (3, *np.shape(r)))", "np.asarray(r, np.float32) * 1.001", "10**30 * r",
)  # fmt: skip
CELLS = (
    "{0} = 1", "def {0}(): return 1", "class {0}: pass", "import {0}", "def {0}(*a): return {0}(*a)", "{0} = print",
    "def {0}(", "", "raise SystemExit", "async def {0}(*a): return 1", "{0} = np", "del {0}", "x = 1",
)  # fmt: skip


def cells_for(asked, rng, count):
    """Code of so many wrong answers to an exercise, by a seed."""
    head = f"def {asked.name}(*a):\n    n = next(count)\n    own = {asked.name}\n"
    whole = [cell.format(asked.name) for cell in CELLS]
    whole += [f"{head}    return {value}" for value in FIXED]
    whole += [f"{head}    r = right[n]\n    return {value}" for value in CHANGED]
    shapes = [tuple(int(k) for k in rng.integers(0, 6, size=rng.integers(0, 4))) for _ in range(12)]
    whole += [f"{head}    return np.ones({shape})" for shape in shapes]
    whole += [f"{head}    return [np.ones({one}), np.ones({other})]" for one, other in itertools.pairwise(shapes)]
    return [whole[i] for i in rng.permutation(len(whole))[:count]]


def verdict_on(asked, cell):
    """The verdict on code, which runs here as it does in its own process, but for the limits."""
    about = reference_cases(asked, SEED)
    global right, count
    right, count = list(about.wanted), itertools.count()
    request = question(asked, Code((HELPERS, f"from {__name__} import right, count"), cell))
    with contextlib.redirect_stdout(None):
        replies = [json.loads(json.dumps(reply)) for reply in worker.replies_to(request, about.cases)]
    return judge_replies(asked, itertools.chain(replies, itertools.repeat({"failed": "It ended."})))


def check(which, count):
    asked = exercise(which)
    for cell in cells_for(asked, np.random.default_rng(SEED), count):
        verdict = verdict_on(asked, cell)
        assert isinstance(verdict.right, bool), (which, cell)
        assert verdict.says.isprintable(), (which, cell)
        assert len(verdict.says) < 2000, (which, cell)


@pytest.mark.parametrize("which", SAMPLE)
def test_any_answer_has_a_verdict(which):
    check(which, 12)


@pytest.mark.nightly
@pytest.mark.parametrize("which", ids())
def test_any_answer_to_any_exercise_has_a_verdict(which):
    check(which, 999)


@pytest.mark.parametrize("stage", ["judge", "answer_to", "exercises_in"])
def test_a_fault_of_ours_costs_one_answer_alone(stage, tmp_path, call, capsys, monkeypatch):
    """Whatever fails for ada, bob has his points, and hers are unknown and not 0."""
    for student in ("ada", "bob"):
        code = f"name = '{student}'\ndef {exercise('100.1').name}(pi, reward):\n    return name\n"
        (tmp_path / f"{student}.py").write_text(code)

    def fails(function, *arguments, **more):
        if "ada" in repr(arguments):
            raise ZeroDivisionError("two\nlines" + "x" * 1000)
        return function(*arguments, **more)

    def judge(asked, code, **more):
        return fails(lambda asked, code: AnswerVerdict(True, "Right."), asked, code)

    if stage != "judge":
        monkeypatch.setattr(grading, stage, functools.partial(fails, getattr(grading, stage)))
    monkeypatch.setattr(cli.sandbox, "judge_code", judge)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert call("learn", "grade", tmp_path, "--only", "100.1", "--unsafe", "--json") == grading.NotJudged.exit_code
    said = capsys.readouterr()
    rows = json.loads(said.out)
    (lost,) = [row for row in rows if row["right"] is None]
    assert (lost["student"], [row["student"] for row in rows if row["right"]]) == ("ada", ["bob"])
    assert "ZeroDivisionError, two (test_any_answer.py:" in lost["verdict"]
    assert "1 not judged" in said.err or "files not read" in said.err
    assert "ada" in said.err.splitlines()[-1]
