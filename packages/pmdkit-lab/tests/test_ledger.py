"""Every item of the paper has a row; every row has code and a test that collect, a quote, evidence and a verdict."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from pmdkit_lab import ledger
from pmdkit_lab.ledger import EVIDENCE, FIELDS, KINDS, OURS, VERDICTS, claims, items, of_item

ROOT = Path(__file__).parents[3]


@cache
def names(path: Path) -> set[str]:
    """Functions and classes a file defines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim["id"])
@pytest.mark.slow
def test_a_claim_stands_on_code_and_a_test(claim):
    assert tuple(claim) == FIELDS
    assert claim["kind"] in KINDS
    assert claim["verdict"] in VERDICTS
    file, name = claim["code"].split(":")
    assert name in names(ROOT / file), f"{file} does not define {name}"
    file, *path = claim["test"].split("::")
    assert set(path) <= names(ROOT / file), f"{file} does not define {path}"
    assert path[-1].startswith(("test_", "Test")), "what pytest does not take is no test"
    assert claim["oracle"] != claim["test"]
    assert all(claim[field] for field in FIELDS if field not in ("oracle", "label", "lines", "quote"))
    ours = ("pmdkit/", "packages/pmdkit-lab/pmdkit_lab/", "packages/strict-answers/strict_answers/")
    assert claim["code"].startswith(ours), "the code of a claim is a package's, not a test's"


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim["id"])
def test_a_verdict_rests_on_evidence_and_on_the_words_of_the_paper(claim):
    """A finding of our own has no quote. Nobody is contradicted by a few runs of training at the size of a laptop."""
    assert claim["evidence"] in EVIDENCE
    assert claim["verdict"] not in ("disagrees", "misprint") or claim["evidence"] in (
        "proof",
        "arithmetic",
        "computation",
    )
    assert claim["verdict"] not in ("reproduced-small", "undecided") or claim["evidence"] == "training"
    if claim["title"].startswith(OURS):
        assert claim["label"] == claim["lines"] == claim["quote"] == ""
        return
    words = re.sub(r"\$[^$]*\$", "formula", claim["quote"].replace("[...]", " ")).split()  # a formula counts as one
    assert 2 <= len(words) <= 40, "long enough to find, short enough to quote"
    assert claim["quote"].count("$") % 2 == 0, "every formula ends"
    assert claim["quote"] == " ".join(claim["quote"].split())
    first, last = map(int, re.fullmatch(r"(\d+)-(\d+)", claim["lines"]).groups())
    assert first <= last <= first + 15
    assert re.fullmatch(r"(sec|eq|thm|prop|lem|cor|asm|fig|tab):[\w-]+", claim["label"])


def test_a_row_that_is_a_label_of_the_paper_is_quoted_under_it():
    ours = ("app:", "remark:")  # what has no label there
    labels = {item["id"] for item in items() if not item["id"].startswith(ours)}
    for claim in claims():
        if claim["id"] in labels:
            assert claim["label"] == claim["id"]


def test_every_labelled_equation_is_stored_in_the_form_of_the_paper():
    stored = [row["id"] for row in ledger.equations()]
    assert len(stored) == len(set(stored))
    assert {item["id"] for item in items() if item["id"].startswith("eq:")} <= set(stored)
    for row in ledger.equations():
        assert set(row) == {"id", "lines", "tex"}
        assert row["tex"].count("{") == row["tex"].count("}")
        assert not re.search(r"\\(begin|end)\{align|\\label", row["tex"])


def test_the_items_are_those_of_the_paper():
    """Counted in its source: environments by kind, labels by prefix, no label twice; each has a row in the ledger."""
    for item in items():
        assert set(item) == {"id", "kind", "title"}
        assert item["kind"] in KINDS
        assert of_item(item["id"]), f"{item['kind']} {item['id']} has no row"
    found = [item["id"] for item in items()]
    assert len(found) == len(set(found)) == 84
    prefixes = Counter(re.split(":", name)[0] for name in found)
    assert prefixes == {
        "eq": 46, "thm": 2, "cor": 1, "prop": 7, "lem": 5, "asm": 4, "fig": 8, "tab": 4, "remark": 2, "app": 5,
    }  # fmt: skip


def test_ids_are_unique_and_disagreements_are_kept():
    ids = [claim["id"] for claim in claims()]
    assert len(ids) == len(set(ids))
    assert {claim["verdict"] for claim in claims()} == set(VERDICTS)
