"""The right column of docs/paper/proofs.md: verdict, code and tests of each row of the ledger that the page names.

The page includes `.proofs.md:NAME`, where NAME is a row's id in small letters, with - for what is no letter or digit.
Code that stands further up is named and not shown again.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from generate.claims_page import place, pulled

LONGEST = 60  # lines of code or test that the page shows; the rest is cut
INCLUDED = re.compile(r'^--8<-- "docs/paper/\.proofs\.md:([\w-]+)"$', re.MULTILINE)


def name_of(claim: Mapping[str, str]) -> str:
    """The name by which the page includes a row."""
    return re.sub(r"[^a-z0-9_]", "-", claim["id"].lower())


def write_proofs(page: Path, claims: Sequence[Mapping[str, str]]) -> int:
    """Write what the page includes, sections of `.proofs.md` beside it; returns their number."""
    rows = {name_of(claim): claim for claim in claims}
    shown: set[str] = set()
    text = ""
    wanted = INCLUDED.findall(page.read_text(encoding="utf-8"))
    for name in wanted:
        if name not in rows:
            raise SystemExit(f"{page.name} includes {name}, which is no row of the ledger; fix either")
        claim = rows[name]
        head = f"**{claim['verdict']}** · {claim['title']} (`{claim['label']}`, {place(claim['lines'])})"
        parts = [f"{head}\n{{: #{name} }}"]
        for where in filter(
            None, (claim["code"], claim["oracle"], claim["test"])
        ):  # the plain formula before the hard test
            file, *names = re.split("::?", where)
            title = f"`{file}: {names[-1]}`"
            parts.append(f"{title}, above" if where in shown else f"{title}\n\n{block(pulled(file, names[-1])[1])}")
            shown.add(where)
        text += f"<!-- --8<-- [start:{name}] -->\n" + "\n\n".join(parts) + f"\n<!-- --8<-- [end:{name}] -->\n"
    page.with_name(".proofs.md").write_text(text, encoding="utf-8")
    return len(wanted)


def block(code: str) -> str:
    """Code as Markdown, cut after LONGEST lines."""
    lines = code.splitlines()
    kept = lines if len(lines) <= LONGEST else [*lines[:LONGEST], "..."]
    return "\n".join(["```python", *kept, "```"])
