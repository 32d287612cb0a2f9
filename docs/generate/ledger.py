"""The claim ledger as a page: one row per claim of the paper, with its verdict, its code and its test."""

import ast
import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pmdkit_lab.ledger import EVIDENCE, PAPER, VERDICTS

ROOT = Path(__file__).parents[2]
HEAD = """---
hide:
  - toc
---

# Claim ledger

Every theorem, proposition, lemma, remark, assumption, labelled equation, figure and table of arXiv:2602.05933, what it
says in words, and how it stands here. Each row quotes the paper, names the code and a test that fails if the verdict is
wrong, and says by what kind of evidence; the equation is that of the code's docstring. `pmdkit ledger` prints the same
rows, `pmdkit ledger --json` as data.

"""
HEADINGS = ("claim", "the paper's words", "equation of the code", "verdict", "note", "code and test")
COLUMNS = f"| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|\n"

QUOTES = f"""
Quotes are from the TeX source of arXiv:{PAPER["arxiv"]}, {PAPER["version"]}, by label and line; the file has sha256
`{PAPER["sha256"]}`.
"""
ABS = r"\abs{"
MACROS = (
    (r"\\E(?![a-zA-Z])", r"\\mathbb{E}"),
    (r"\\(KL|TV|Var)(?![a-zA-Z])", r"\\mathrm{\1}"),
    (r"\\cW(?![a-zA-Z])", "W"),
    (r"\\pmd(mean|part)(?![a-zA-Z])", r"\\text{PMD-\1}"),
    (r"\\argmax(?![a-zA-Z])", r"\\operatorname*{argmax}"),
    (r"~", r"\\ "),
)


def write_ledger(page: Path, claims: Sequence[Mapping[str, str]]) -> int:
    """Write the page; returns the number of rows.

    Args:
        page: file to write.
        claims: one mapping per claim, with the keys id, kind, title, verdict, code, test, note.
    """
    for claim in claims:
        if claim["verdict"] not in VERDICTS:
            raise SystemExit(
                f"claim {claim['id']} has verdict {claim['verdict']!r}; expected one of {', '.join(VERDICTS)}"
            )
    counts = Counter(claim["verdict"] for claim in claims)
    text = HEAD + "| verdict | meaning | claims |\n|---|---|---|\n"
    text += "".join(f"| **{name}** | {meaning} | {counts[name]} |\n" for name, meaning in VERDICTS.items())
    text += f"\n{by_evidence(claims)}\n{QUOTES}"
    kinds = list(dict.fromkeys(claim["kind"] for claim in claims))
    for kind in kinds:
        text += f"\n## {kind.capitalize()}\n\n{COLUMNS}"
        text += "".join(row(claim) for claim in claims if claim["kind"] == kind)
    page.write_text(text, encoding="utf-8")
    return len(claims)


def row(claim: Mapping[str, str]) -> str:
    """One line of the table."""
    places = "<br>".join(breakable(claim[key]) for key in ("code", "test") if claim[key])
    verdict = f"**{claim['verdict']}**, by {claim['evidence']}"
    cells = [f"{claim['title']} (`{claim['id']}`)", verdict, claim["note"], places]
    first, *rest = [" ".join(cell.replace("|", r"\|").split()) for cell in cells]
    return "| " + " | ".join([first, quoted(claim), equation(claim["code"]), *rest]) + " |\n"


def by_evidence(claims: Sequence[Mapping[str, str]]) -> str:
    """A table of how many rows of each verdict rest on which evidence."""
    counts = Counter((claim["verdict"], claim["evidence"]) for claim in claims)
    text = "| evidence | meaning | " + " | ".join(VERDICTS) + " |\n" + "|---" * (2 + len(VERDICTS)) + "|\n"
    for kind, meaning in EVIDENCE.items():
        text += f"| **{kind}** | {meaning} | " + " | ".join(str(counts[name, kind]) for name in VERDICTS) + " |\n"
    return text


def quoted(claim: Mapping[str, str]) -> str:
    """The paper's words with their place, as a cell of a table; a finding of our own has none."""
    if not claim["quote"]:
        return ""
    return f"“{readable(claim['quote'])}” <small>{claim['label']}, {place(claim['lines'])}</small>"


def place(lines: str) -> str:
    """Lines of the source, in words."""
    first, last = lines.split("-")
    return f"line {first}" if first == last else f"lines {first} to {last}"


def readable(quote: str) -> str:
    """A quote as Markdown: formulas without the paper's macros and without bars, the rest without TeX's dashes."""
    parts = re.split(r"(\$[^$]*\$)", quote)
    return "".join(cell_safe(own_macros(part)) if part.startswith("$") else dashes(part) for part in parts)


def dashes(words: str) -> str:
    """Prose of TeX as Markdown."""
    return words.replace("--", "–").replace("[...]", "…").replace("*", r"\*").replace("_", r"\_")


def own_macros(formula: str) -> str:
    """A formula with the paper's own macros expanded."""
    for pattern, meaning in MACROS:
        formula = re.sub(pattern, meaning, formula)
    while (start := formula.find(ABS)) >= 0:
        end = closing_brace(formula, start + len(ABS))
        formula = rf"{formula[:start]}\left\lvert {formula[start + len(ABS) : end]}\right\rvert {formula[end + 1 :]}"
    return formula


def closing_brace(formula: str, start: int) -> int:
    """The position of the brace that closes the one just before `start`."""
    depth = 1
    for place in range(start, len(formula)):
        depth += {"{": 1, "}": -1}.get(formula[place], 0)
        if depth == 0:
            return place
    raise SystemExit(f"a brace of {formula} is not closed; mend packages/pmdkit-lab/pmdkit_lab/ledger")


def cell_safe(formula: str) -> str:
    """A formula without a bar, which would end the cell of a table."""
    return formula.replace(r"\|", r"\Vert ").replace("|", r"\vert ")


def equation(code: str) -> str:
    """The first displayed equation of a docstring, for a cell of a table: no bars, which would end the cell."""
    file, name = code.split(":")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    text = next(
        (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds) and node.name == name), None
    )
    found = re.search(r"\$\$(.*?)\$\$", text or "", re.DOTALL)
    if not found:
        return ""
    shown = " ".join(found[1].split()).rstrip(" .;,")
    return f"${cell_safe(shown)}$"


def breakable(place: str) -> str:
    """A path and a name as code that may break after a slash or a colon, not inside a word."""
    return "<code>" + re.sub(r"(/|:+)", r"\1<wbr>", html.escape(place)) + "</code>"
