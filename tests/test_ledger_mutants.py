"""The mutants of the ledger: slips of every kind, whole files that parse, and a test that notices them."""

import ast
import shutil
import sys
from pathlib import Path

import pytest

from pmdkit_lab.ledger import claims

sys.path.insert(0, str(Path(__file__).parent))  # the tool lies beside the tests, it is no package
import ledger_mutants
from ledger_mutants import FEWEST, halving, mutants, proved, report, run_tests

SOURCE = '''
"""A file."""
LIMIT = 3


def entry(x: int = 2) -> float:
    """Doc 1 + 1."""
    return inner(x)


def inner(x):
    if x > 99:
        raise ValueError(f"x is {x + 1}")
    x = abs(x) if x < 0 else x
    return -half(x) + 2.5 * max(x, LIMIT) ** 2


def half(x):
    # é: offsets are bytes, not letters
    return x / 2 - pow(x, LIMIT)


def other(x):
    return x * 7
'''


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "code.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def test_slips_are_of_every_kind_and_nothing_else_changes(tree):
    found = mutants("code.py", "inner", 100, tree)
    changes = {(each.kind, each.before, each.after) for each in found}
    assert {
        ("sign", "-half(x)", "(half(x))"),
        ("sign", "-half(x) + 2.5 * max(x, LIMIT) ** 2", "(-half(x) - (2.5 * max(x, LIMIT) ** 2))"),
        ("dropped term", "-half(x) + 2.5 * max(x, LIMIT) ** 2", "(2.5 * max(x, LIMIT) ** 2)"),
        ("factor", "2.5", "5.0"),
        ("factor", "max(x, LIMIT) ** 2", "(max(x, LIMIT))"),
        ("off by one", "2", "3"),
        ("comparison", "x < 0", "(x >= 0)"),
        ("function", "max(x, LIMIT)", "min(x, LIMIT)"),
        ("swap", "pow(x, LIMIT)", "pow(LIMIT, x)"),
        ("sign", "x / 2 - pow(x, LIMIT)", "(x / 2 + (pow(x, LIMIT)))"),
    } <= changes
    assert ("swap", "max(x, LIMIT)", "max(LIMIT, x)") not in changes, "the same by another name"
    for each in found:
        ast.parse(each.source)
        assert "x is {x + 1}" in each.source, "no slip in an error"
        assert "return x * 7" in each.source, "no slip in what the row does not use"
        assert sum(a != b for a, b in zip(each.source.split("\n"), SOURCE.split("\n"), strict=True)) == 1
    assert len({each.source for each in found}) == len(found)
    assert ("guard", "x > 99", "(x <= 99)") in changes
    assert {each.kind for each in mutants("code.py", "inner", FEWEST, tree)} >= {"sign", "factor", "dropped term"}


def test_code_that_passes_its_arguments_on_is_broken_where_it_leads(tree):
    found = mutants("code.py", "entry", FEWEST, tree)
    assert len(found) == FEWEST
    assert all("Doc 1 + 1." in each.source for each in found)
    assert len({each.kind for each in found}) >= 3, "what computes comes before guards"
    assert all("x: int = 2" in each.source for each in mutants("code.py", "entry", 100, tree)), "no slip in a default"
    assert mutants("code.py", "entry", FEWEST, tree) == found, "the same slips every time"


def test_places_are_far_apart():
    assert halving(5) == [0, 4, 2, 1, 3]
    assert [halving(0), halving(1), halving(2)] == [[], [0], [0, 1]]


@pytest.mark.slow
def test_every_row_of_the_ledger_has_enough_mutants():
    places = {claim["code"] for claim in claims()}
    assert [place for place in sorted(places) if len(mutants(*place.split(":"))) < FEWEST] == []


def test_a_survivor_needs_a_proof(monkeypatch, tree):
    claim = {"id": "a", "code": "code.py:inner"}
    tried = [(each, "failed") for each in mutants("code.py", "inner", FEWEST, tree)]
    assert report([(claim, tried)])[1] is True
    alive = [(tried[0][0], "passed"), *tried[1:]]
    text, good = report([(claim, alive)])
    assert (good, "SURVIVES" in text) == (False, True)
    monkeypatch.setattr(ledger_mutants, "proved", lambda: {("a", alive[0][0].text): "x is never negative"})
    text, good = report([(claim, alive)])
    assert (good, "x is never negative" in text) == (True, True)
    assert report([(claim, tried[:2])])[1] is False, "too few mutants prove nothing"


def test_the_list_of_survivors_is_of_mutants_that_exist():
    codes = {claim["id"]: claim["code"] for claim in claims()}
    for (row, text), because in proved().items():
        assert text in [each.text for each in mutants(*codes[row].split(":"))]
        assert len(because.split()) > 5


@pytest.mark.nightly
@pytest.mark.parametrize("row", ["text:kl_below_chi2", "app:reward_scale"])
def test_two_rows_are_broken_and_their_tests_are_asked(row, tmp_path):
    """Only what theory needs is copied; the checkout itself stays as it is."""
    claim = next(claim for claim in claims() if claim["id"] == row)
    for name in ("pmdkit", "tests/theory"):
        shutil.copytree(
            ledger_mutants.ROOT / name, tmp_path / "copy" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("tests/conftest.py", "pyproject.toml"):
        shutil.copy(ledger_mutants.ROOT / name, tmp_path / "copy" / name)
    before = (ledger_mutants.ROOT / claim["code"].split(":")[0]).read_bytes()
    journal, done = tmp_path / "runs.jsonl", {}
    tried = ledger_mutants.try_row(claim, tmp_path / "copy", done, journal)
    assert len(tried) == FEWEST
    assert {said for _, said in tried} <= {"failed", "error", "late", "passed"}
    assert "failed" in [said for _, said in tried]
    assert ledger_mutants.read_journal(journal) == done
    again = ledger_mutants.try_row(claim, tmp_path / "nowhere", done, journal)
    assert again == tried, "from the journal, nothing is run"
    assert (ledger_mutants.ROOT / claim["code"].split(":")[0]).read_bytes() == before
    assert run_tests(tmp_path / "copy", [claim["test"]]) == "passed", "the copy is mended after each"
