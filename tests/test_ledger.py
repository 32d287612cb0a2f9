"""Every item of the paper has a row, every row code and a test that exist and collect, and one of our verdicts."""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pmdkit.ledger import FIELDS, KINDS, VERDICTS, claims, items, of_item

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
    file, *path = claim["test"].split("::")
    assert set(path) <= names(ROOT / file), f"{file} does not define {path}"
    assert all(claim[field] for field in FIELDS)
    assert claim["code"].startswith("pmdkit/"), "the code of a claim is the package's, not a test's"


@pytest.mark.parametrize("item", items(), ids=lambda item: item["id"])
def test_an_item_of_the_paper_stands_in_the_ledger(item):
    assert set(item) == {"id", "kind", "title"}
    assert item["kind"] in KINDS
    assert of_item(item["id"]), f"{item['kind']} {item['id']} has no row"


def test_the_items_are_those_of_the_paper():
    """Counted in its source: environments by kind, labels by prefix, and no label twice."""
    found = [item["id"] for item in items()]
    assert len(found) == len(set(found)) == 84
    prefixes = Counter(re.split(":", name)[0] for name in found)
    assert prefixes == {
        "eq": 46, "thm": 2, "cor": 1, "prop": 7, "lem": 5, "asm": 4, "fig": 8, "tab": 4, "remark": 2, "app": 5,
    }  # fmt: skip


def test_ids_are_unique_and_disagreements_are_kept():
    ids = [claim["id"] for claim in claims()]
    assert len(ids) == len(set(ids))
    assert {claim["verdict"] for claim in claims()} >= {"holds", "holds-loosely", "disagrees"}


def test_every_test_of_the_ledger_collects(request):
    """A test may be defined and never run: names that pytest does not take, files that fail to import."""
    here = {item.nodeid.split("[")[0] for item in request.session.items}  # a run of everything has collected them
    wanted = sorted({claim["test"] for claim in claims()} - here)
    if not wanted:
        return
    files = sorted({test.split("::")[0] for test in wanted})
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *files]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    collected = {line.split("[")[0] for line in done.stdout.splitlines()}
    assert [test for test in wanted if test not in collected] == []
