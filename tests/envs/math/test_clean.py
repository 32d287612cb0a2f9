"""DAPO's damage on real rows: what is certain is repaired, the rest dropped, and nothing sound is touched."""

import json
from pathlib import Path

import pytest

from pmdkit.envs.math.clean import float_rounded, repair
from pmdkit.envs.math.datasets import AIME24, AIME25, DapoMath
from pmdkit.envs.math.problem import leaks
from pmdkit.envs.math.readers import MathFile, read_problems

ROOT = Path(__file__).parents[3]
ODD = ROOT / "tests" / "data" / "math" / "dapo-odd.jsonl"
SAMPLE = ROOT / "envs" / "math" / "dapo-sample.jsonl"


def by_id(problems):
    return {p.id: p for p in map(problems.problem, problems.train)}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_forty_odd_rows(suffix):
    problems = DapoMath(str(ODD.with_suffix(suffix))).build()
    assert problems.counts == {
        "read: rows": 40,
        "repaired: lost backslash": 9,
        "repaired: lost ligature": 5,
        "dropped: control characters of unknown meaning": 7,
        "dropped: answer rounded by a float": 3,
        "dropped: conflicting answers": 6,
    }
    assert len(problems.train) == 40 - 7 - 3 - 6


def test_repairs_and_nothing_else():
    before = {problem.id: problem for problem in read_problems(MathFile(str(ODD)))[0]}
    after = by_id(DapoMath(str(ODD)).build())
    assert r"=\beta$" in after["dapo-14591"].problem
    assert r"\frac{\sqrt{m}}{n}" in after["dapo-14591"].problem
    assert r"-2 \times 3^{n}" in after["dapo-14477"].problem
    assert r"$\nabla ABD" in after["dapo-00175"].problem
    assert r"$\text{tr}(X)$" in after["dapo-14664"].problem
    assert "one possible value of $\\frac{a}{b}$ satisfies" in after["dapo-08426"].problem
    assert "by fitting together" in after["dapo-08489"].problem
    assert "stack of the first way" in after["dapo-08421"].problem
    assert "has a difference that" in after["dapo-08207"].problem
    changed = {id for id in after if after[id].problem != before[id].problem}
    damaged = {id for id in after if any(sign in before[id].problem for sign in "\b\t\v\f")} | {"dapo-00175"}
    assert changed <= damaged
    assert {id: p.answer for id, p in after.items()} == {id: before[id].answer for id in after}


@pytest.mark.parametrize(
    "text",
    [
        "1\tand a tan",
        "Let\nu = 3, and\nequal parts\nof\n\nnot one",
        "\there are tabs\ttoo",
        "a\n\\neq b",
        "f(x) \\frac{1}{2} \\text{if}",
        "\tdot((0,0));\n\tdraw(a--b);",
    ],
)
def test_sound_texts_are_left_alone(text):
    assert repair(text) == (text, [])


@pytest.mark.parametrize(
    ("answer", "rounded"),
    [
        ("105263157894736848", True),
        ("-105263157894736848", True),
        ("105263157894736842", False),
        ("22099999999999998951424", True),
        ("2000000000000000000000", False),
        (str(2**60), False),
        (str(10**22), False),
        (str(2**53), False),
        ("123", False),
        ("3/4", False),
        ("9" * 400, False),
    ],
)
def test_answers_rounded_by_a_float(answer, rounded):
    assert float_rounded(answer) is rounded


def test_the_sample_on_the_shelf_is_clean():
    rows = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 60
    problems = DapoMath(str(SAMPLE), held_out=10).build()
    assert problems.counts == {"read: rows": 60}
    texts = [problems.problem(i).problem for i in range(60)]
    assert texts == [row["problem"] for row in rows]
    contests = [problem for kind in (AIME24(), AIME25()) for problem in map(kind.build().problem, range(30))]
    assert leaks(DapoMath(str(SAMPLE)).build(), contests) == 0
    assert MathFile(str(SAMPLE)).build().counts == {"read: rows": 60}
