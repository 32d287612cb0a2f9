"""Every claim has a line of code and a test that exist, and a verdict that is one of ours."""

import ast
from pathlib import Path

import pytest

from pmdkit.ledger import FIELDS, KINDS, VERDICTS, claims

ROOT = Path(__file__).parents[1]


def names(path: Path) -> set[str]:
    """Functions and classes a file defines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim["id"])
def test_a_claim_stands_on_code_and_a_test(claim):
    assert tuple(claim) == FIELDS
    assert claim["kind"] in KINDS
    assert claim["verdict"] in VERDICTS
    file, name = claim["code"].split(":")
    assert name in names(ROOT / file), f"{file} does not define {name}"
    file, name = claim["test"].split("::")
    assert name in names(ROOT / file), f"{file} does not define {name}"
    assert all(claim[field] for field in FIELDS)


def test_ids_are_unique_and_disagreements_are_kept():
    ids = [claim["id"] for claim in claims()]
    assert len(ids) == len(set(ids))
    assert {claim["verdict"] for claim in claims()} >= {"holds", "holds-loosely", "disagrees"}
