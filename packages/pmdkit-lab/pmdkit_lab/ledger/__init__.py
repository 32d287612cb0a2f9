"""The claim ledger: every claim of the paper with its quote, code, test, evidence and verdict."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

VERDICTS = {
    "holds": "true as stated, and checked",
    "holds-loosely": "true, but far from tight or only in a narrower range than the words suggest",
    "reproduced-small": "reproduced at the size of a laptop, not at the paper's",
    "not-on-this-hardware": "needs hardware or data that the tests do not have",
    "undecided": "tried here, and neither shown nor refuted by what came out",
    "misprint": "a slip of a sign or a factor in print that changes nothing else",
    "disagrees": "what we compute contradicts what is stated",
}
EVIDENCE = {
    "proof": "an argument for every case, whose steps or identity the test checks",
    "arithmetic": "counting and sums on the paper's own text, formulas and tables",
    "computation": "the quantities themselves, exactly or to many digits, on the cases that the test names",
    "training": "runs of training at the size of a laptop",
}
KINDS = ("theorem", "proposition", "lemma", "assumption", "equation", "remark", "figure", "table", "text", "code")
FIELDS = ("id", "kind", "title", "verdict", "evidence", "code", "test", "oracle", "note", "label", "lines", "quote")
FILES = ("claims", "displayed", "words", "proofs")  # files of rows; the first line of each describes its contents
PAPER = {
    "arxiv": "2602.05933",
    "version": "v1",  # 5 February 2026
    "sha256": "ad4d714af50e00e5b2223173bb390a7cafcd4877270ed4bdb7284968b020b4ae",
}
"The TeX source that `lines` and `quote` refer to: one file, hashed byte for byte."
OURS = "Not in the paper"
"Begins the title of a finding of our own, which has no quote."


def claims() -> list[dict[str, str]]:
    """All rows, file after file, each in the order of the paper; the keys are FIELDS.

    `code` is `file:name`, `test` is `file::name`, both relative to the root of the checkout. `oracle` is the test that
    holds the code to its definition, or empty where `test` is all there is. `quote` has the paper's words, `lines`
    where they begin and end in its source, `label` the label they appear under.
    """
    found = [row for file in FILES for row in rows(file, "claim")]
    oracles = contents("claims")["oracles"]
    for row in found:
        oracle = oracles.get(row["code"], "")
        row["oracle"] = oracle if oracle != row["test"] else ""
    return [{field: row[field] for field in FIELDS} for row in found]


def items() -> list[dict[str, str]]:
    """The paper's items in its order: id, kind and title of every labelled statement, figure and table."""
    return rows("items", "item")


def of_item(item: str) -> list[dict[str, str]]:
    """The rows of an item: its own, and those whose id continues after a colon."""
    return [row for row in claims() if row["id"] == item or row["id"].startswith(f"{item}:")]


def equations() -> list[dict[str, str]]:
    """The displayed equations of the paper: id, lines, and tex with the paper's own macros."""
    return rows("equations", "equation")


def rows(file: str, table: str) -> list[dict[str, str]]:
    """The tables of a file."""
    return list(contents(file)[table])


@cache
def contents(file: str) -> dict[str, Any]:
    """The contents of a file, read once."""
    return tomllib.loads((Path(__file__).parent / f"{file}.toml").read_text(encoding="utf-8"))
