"""The claim ledger as a page: one row per claim of the paper, with its verdict, its code and its test."""

import ast
import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pmdkit.ledger import VERDICTS

ROOT = Path(__file__).parents[2]
HEAD = """---
hide:
  - toc
---

# Claim ledger

Every theorem, proposition, lemma, remark, assumption, labelled equation, figure and table of arXiv:2602.05933, what it
says in words, and how it stands here. Each row names the code and a test that fails if the verdict is wrong; the
equation is that of the code's docstring. `pmdkit ledger` prints the same rows, `pmdkit ledger --json` as data.

"""
COLUMNS = "| claim | equation | verdict | note | code and test |\n|---|---|---|---|---|\n"


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
    kinds = list(dict.fromkeys(claim["kind"] for claim in claims))
    for kind in kinds:
        text += f"\n## {kind.capitalize()}\n\n{COLUMNS}"
        text += "".join(row(claim) for claim in claims if claim["kind"] == kind)
    page.write_text(text, encoding="utf-8")
    return len(claims)


def row(claim: Mapping[str, str]) -> str:
    """One line of the table."""
    places = "<br>".join(breakable(claim[key]) for key in ("code", "test") if claim[key])
    cells = [f"{claim['title']} (`{claim['id']}`)", f"**{claim['verdict']}**", claim["note"], places]
    first, *rest = [" ".join(cell.replace("|", r"\|").split()) for cell in cells]
    return "| " + " | ".join([first, equation(claim["code"]), *rest]) + " |\n"


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
    return "$" + shown.replace(r"\|", r"\Vert ").replace("|", r"\vert ") + "$"


def breakable(place: str) -> str:
    """A path and a name as code that may break after a slash or a colon, not inside a word."""
    return "<code>" + re.sub(r"(/|:+)", r"\1<wbr>", html.escape(place)) + "</code>"
