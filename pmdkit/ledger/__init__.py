"""The claim ledger: every claim of the paper, where it stands in the code, the test that establishes it, a verdict."""

import tomllib
from pathlib import Path

VERDICTS = {
    "holds": "true as stated, and checked",
    "holds-loosely": "true, but far from tight or only in a narrower range than the words suggest",
    "reproduced-small": "reproduced at the size of a laptop, not at the paper's",
    "not-on-this-hardware": "needs hardware or data that the tests do not have",
    "disagrees": "what we compute is not what is stated",
}
KINDS = ("theorem", "proposition", "lemma", "equation", "remark", "figure", "table", "text", "code")
FIELDS = ("id", "kind", "title", "verdict", "code", "test", "note")


def claims() -> list[dict[str, str]]:
    """All rows in the order of the paper; the keys are FIELDS.

    `code` is `file:name`, `test` is `file::name`, both relative to the root of the checkout.
    """
    path = Path(__file__).parent / "claims.toml"
    return list(tomllib.loads(path.read_text(encoding="utf-8"))["claim"])
