"""The claim ledger: every claim of the paper with its quote, code, test, evidence and verdict."""

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any

VERDICTS = {
    "holds": "true as stated, and checked",
    "holds-loosely": "true, but far from tight or only in a narrower range than the words suggest",
    "reproduced-small": "reproduced at the size of a laptop, not at the paper's",
    "not-on-this-hardware": "needs hardware or data that the tests do not have",
    "undecided": "tried here, and neither shown nor refuted by what came out",
    "disagrees": "what we compute is not what is stated",
}
EVIDENCE = {
    "proof": "an argument for every case, whose steps or identity the test checks",
    "arithmetic": "counting and sums on the paper's own text, formulas and tables",
    "computation": "the quantities themselves, exactly or to many digits, on the cases that the test names",
    "training": "runs of training at the size of a laptop",
}
KINDS = ("theorem", "proposition", "lemma", "assumption", "equation", "remark", "figure", "table", "text", "code")
FIELDS = ("id", "kind", "title", "verdict", "evidence", "code", "test", "oracle", "note", "label", "lines", "quote")
FILES = ("claims", "displayed", "words", "proofs")  # of rows; the first line of each says what it holds
PAPER = {
    "arxiv": "2602.05933",
    "version": "v1",  # of 5 February 2026
    "sha256": "ad4d714af50e00e5b2223173bb390a7cafcd4877270ed4bdb7284968b020b4ae",
}
"The TeX source that `lines` and `quote` refer to: one file, hashed byte for byte."
OURS = "Not in the paper"
"Begins the title of a finding of our own, which has no quote."
LONGEST_QUOTE = 40  # words, a formula counting as one
CUT = "[...]"  # what a quote leaves out: references, displayed equations, half sentences
REACH = 600  # characters of the source that one cut may stand for


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
    """What the paper consists of, in its order: id, kind and title of every labelled statement, figure and table."""
    return rows("items", "item")


def of_item(item: str) -> list[dict[str, str]]:
    """The rows of an item: its own, and those whose id continues after a colon."""
    return [row for row in claims() if row["id"] == item or row["id"].startswith(f"{item}:")]


def equations() -> list[dict[str, str]]:
    """Displayed equations of the paper in its own form: id, lines and tex, which has the paper's macros."""
    return rows("equations", "equation")


def rows(file: str, table: str) -> list[dict[str, str]]:
    """The tables of a file."""
    return list(contents(file)[table])


def contents(file: str) -> dict[str, Any]:
    """The contents of a file."""
    return tomllib.loads((Path(__file__).parent / f"{file}.toml").read_text(encoding="utf-8"))


# Checking the quotes. The paper's source is not part of the package; anyone who has it can check every quote.


def words(quote: str) -> int:
    """Words of a quote. A formula counts as one; what is cut out does not count."""
    return len(re.sub(r"\$[^$]*\$", "formula", quote.replace(CUT, " ")).split())


def misquoted(source: bytes) -> list[str]:
    """What is wrong with the quotes of the ledger, one sentence each; empty if all are in the source as stated.

    Args:
        source: the TeX file of PAPER.
    """
    found = hashlib.sha256(source).hexdigest()
    if found != PAPER["sha256"]:
        return [f"the source has sha256 {found}; the quotes are from {PAPER['sha256']}, arXiv:{PAPER['arxiv']}"]
    tex = source.decode("utf-8")
    wrong = [sentence for row in claims() if row["quote"] for sentence in complaints(row, tex)]
    return wrong + [
        f"equation {row['id']} is not in lines {row['lines']} as it is stored"
        for row in equations()
        if not in_order(row["tex"].strip().split("\n"), squeezed(cut_out(tex, row["lines"])))
    ]


def cut_out(tex: str, lines: str) -> str:
    """Some lines of a source, such as "3-7"."""
    first, last = map(int, lines.split("-"))
    return "\n".join(tex.split("\n")[first - 1 : last])


def in_order(lines: list[str], text: str) -> bool:
    """Whether lines of TeX follow one another in a squeezed text, perhaps with something between them."""
    place = 0
    for line in map(squeezed, lines):
        place = text.find(line, place) + len(line)
        if place < len(line):
            return False
    return True


def squeezed(tex: str) -> str:
    """TeX without blanks, comments, labels and commands that suppress equation numbers."""
    tex = re.sub(r"(?<!\\)%.*", "", tex)
    return re.sub(r"\\label\{[^}]*\}|\\notag|\\nonumber|\s", "", tex)


def complaints(row: dict[str, str], tex: str) -> list[str]:
    """What is wrong with the quote of one row."""
    place = locate(row["quote"], tex, row["label"])
    if place is None:
        return [f"{row['id']}: the source has no {row['quote']!r} under {row['label']}"]
    lines = f"{place[0]}-{place[1]}"
    if lines != row["lines"]:
        return [f"{row['id']}: quoted from lines {row['lines']}, found in lines {lines}"]
    return []


def locate(quote: str, tex: str, label: str) -> tuple[int, int] | None:
    """First and last line of a quote in a TeX source, at the match nearest to a label; None if absent."""
    text, line_of = plain(tex)
    gap = f".{{1,{REACH}}}?"
    pattern = gap.join(re.escape(part.strip()) for part in quote.split(CUT) if part.strip())
    hits = re.finditer(f"(?=({pattern}))", text)  # looking ahead, so that one hit does not hide the next
    places = [(line_of[hit.start(1)], line_of[hit.end(1) - 1]) for hit in hits]
    at = tex.find(rf"\label{{{label}}}")
    if not places or at < 0:
        return None
    line = tex.count("\n", 0, at) + 1
    return min(places, key=lambda place: abs(place[0] - line))


def plain(tex: str) -> tuple[str, list[int]]:
    """A source as it reads, without comments and text markup, with single spaces; and the line of each character."""
    letters: list[str] = []
    line_of: list[int] = []
    for number, line in enumerate(tex.split("\n"), 1):
        seen = re.sub(r"(?<!\\)%.*", "", line)
        for pattern, sign in READS:
            seen = re.sub(pattern, sign, seen)
        for sign in f"{seen} ":
            if not (sign.isspace() and (not letters or letters[-1] == " ")):
                letters.append(" " if sign.isspace() else sign)
                line_of.append(number)
    return "".join(letters), line_of


READS = (
    (r"\\pmdmean(?![a-z])", "PMD-mean"),
    (r"\\pmdpart(?![a-z])", "PMD-part"),
    (r"(PMD-mean|PMD-part)\\ ", r"\1 "),
    (r"\\(?:emph|textbf|noindent|textsc)\{([^{}]*)\}", r"\1"),
    (r"\\%", "%"),
)
