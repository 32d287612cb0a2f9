"""The claim ledger as a page: one row per claim of the paper, with its verdict, its code and its test."""

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pmdkit.ledger import VERDICTS

HEAD = """---
hide:
  - toc
---

# Claim ledger

Every claim of arXiv:2602.05933 that the code touches, and how it stands here. Each row names the code
and a test that fails if the verdict is wrong. `pmdkit ledger` prints the same rows, `pmdkit ledger --json` as data.

"""


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
        text += f"\n## {kind.capitalize()}\n\n| claim | verdict | note | code and test |\n|---|---|---|---|\n"
        text += "".join(row(claim) for claim in claims if claim["kind"] == kind)
    page.write_text(text, encoding="utf-8")
    return len(claims)


def row(claim: Mapping[str, str]) -> str:
    """One line of the table."""
    places = "<br>".join(breakable(claim[key]) for key in ("code", "test") if claim[key])
    cells = [f"{claim['title']} (`{claim['id']}`)", f"**{claim['verdict']}**", claim["note"], places]
    return "| " + " | ".join(" ".join(cell.replace("|", r"\|").split()) for cell in cells) + " |\n"


def breakable(place: str) -> str:
    """A path and a name as code that may break after a slash or a colon, not inside a word."""
    return "<code>" + re.sub(r"(/|:+)", r"\1<wbr>", html.escape(place)) + "</code>"
