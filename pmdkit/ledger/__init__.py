"""The claim ledger: every claim of the paper, where it is in the code, the test that establishes it, a verdict."""

import tomllib
from pathlib import Path

VERDICTS = {
    "holds": "true as stated, and checked",
    "holds-loosely": "true, but far from tight or only in a narrower range than the words suggest",
    "reproduced-small": "reproduced at the size of a laptop, not at the paper's",
    "not-on-this-hardware": "needs hardware or data that the tests do not have",
    "disagrees": "what we compute is not what is stated",
}
KINDS = ("theorem", "proposition", "lemma", "assumption", "equation", "remark", "figure", "table", "text", "code")
FIELDS = ("id", "kind", "title", "verdict", "code", "test", "note")
FILES = ("claims", "displayed", "words", "proofs")  # of rows; what each holds is said in its first line


def claims() -> list[dict[str, str]]:
    """All rows, file after file, each in the order of the paper; the keys are FIELDS.

    `code` is `file:name`, `test` is `file::name`, both relative to the root of the checkout.
    """
    return [row for file in FILES for row in rows(file, "claim")]


def items() -> list[dict[str, str]]:
    """What the paper consists of, in its order: id, kind and title of every labelled statement, figure and table."""
    return rows("items", "item")


def of_item(item: str) -> list[dict[str, str]]:
    """The rows of an item: its own, and those whose id continues after a colon."""
    return [row for row in claims() if row["id"] == item or row["id"].startswith(f"{item}:")]


def rows(file: str, table: str) -> list[dict[str, str]]:
    """The tables of a file."""
    path = Path(__file__).parent / f"{file}.toml"
    return list(tomllib.loads(path.read_text(encoding="utf-8"))[table])
