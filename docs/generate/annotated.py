"""The annotated paper: its sections in our words, each statement with its verdict; a click opens the details.

The text is in annotated.toml. The details of a statement are the paper's words and its equation in its own form, our
note, the code and the test, pulled from the sources by name; a missing name stops the build. Where we disagree, sliders
move the counterexample.
"""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from generate.counterexamples import COUNTEREXAMPLES, explorable
from generate.ledger import own_macros, place, readable

from pmdkit_lab.ledger import OURS, PAPER, VERDICTS, equations

ROOT = Path(__file__).parents[2]
TOLD = Path(__file__).with_suffix(".toml")
HEAD = f"""# Equation, code, test

The paper (arXiv:{PAPER["arxiv"]}, {PAPER["version"]}) told again in our words, section by section. The colour and the
word beside each statement say how it stands here; a click opens the paper's own words and equation, what we found, the
code that computes it and the test that would fail if the verdict were wrong. Where we disagree, sliders move the
counterexample. Code and tests are pulled from the sources when the site is built. The [claim ledger](ledger.md) has all
{{count}} rows.

"""
LONGEST = 60  # lines of code or test that a page shows; the rest is cut


def write_annotated(page: Path, claims: Sequence[Mapping[str, str]]) -> int:
    """Write the page; returns the number of statements."""
    known = {claim["id"]: claim for claim in claims}
    displays = {row["id"]: row["tex"] for row in equations()}
    text, count, shown = HEAD.replace("{count}", str(len(claims))), 0, set[str]()
    for section in told():
        text += f"## {section['title']}\n\n{section['words']}\n\n"
        for statement in section["statement"]:
            if statement["claim"] not in known:
                raise SystemExit(f"the page tells {statement['claim']}, not in the ledger; fix {TOLD.name}")
            text += told_statement(statement, known[statement["claim"]], displays, shown)
            count += 1
    text += '<script type="module" src="../counterexamples.js"></script>\n'
    page.write_text(text, encoding="utf-8")
    return count


def told() -> list[dict[str, Any]]:
    """The sections, in the order of the paper."""
    return list(tomllib.loads(TOLD.read_text(encoding="utf-8"))["section"])


def told_statement(
    statement: Mapping[str, Any], claim: Mapping[str, str], displays: Mapping[str, str], shown: set[str]
) -> str:
    """One statement, folded."""
    inside = "\n\n".join(pieces(statement, claim, displays, shown))
    indented = "\n".join(f"    {line}".rstrip() for line in inside.split("\n"))
    title = statement["says"].replace('"', "&quot;")
    return f'??? {claim["verdict"]} "**{claim["verdict"]}** {title}"\n\n{indented}\n\n'


def pieces(
    statement: Mapping[str, Any], claim: Mapping[str, str], displays: Mapping[str, str], shown: set[str]
) -> Iterator[str]:
    """What a click opens: quote, equations, verdict, code, the claim's test and oracle."""
    file, name = claim["code"].split(":")
    docstring, code = pulled(file, name)
    if claim["quote"]:
        yield f"The paper: “{readable(claim['quote'])}” ({claim['label']}, {place(claim['lines'])})."
    for display in paper_equations(statement, claim, displays):
        yield f"$$ {display} $$"
    if statement.get("ours") and (found := re.search(r"\$\$(.*?)\$\$", docstring, re.DOTALL)):
        yield f"$$ {' '.join(found[1].split())} $$"
    stands = f"**{claim['verdict']}** by {claim['evidence']}: {VERDICTS[claim['verdict']]}."
    yield f"{stands} {claim['note']} (`{claim['id']}`)"
    if claim["verdict"] in ("disagrees", "misprint"):
        if claim["id"] not in COUNTEREXAMPLES:
            raise SystemExit(
                f"{claim['id']} is {claim['verdict']} and has no counterexample to move; add one to counterexamples.py"
            )
        yield f"{COUNTEREXAMPLES[claim['id']].sees}\n\n{explorable(claim['id'])}"
    yield block(f"{file}: {name}", code, shown)
    for test in filter(None, (claim["test"], claim["oracle"])):
        test_file, *test_names = test.split("::")
        yield block(f"{test_file}: {test_names[-1]}", pulled(test_file, test_names[-1])[1], shown)


def paper_equations(
    statement: Mapping[str, Any], claim: Mapping[str, str], displays: Mapping[str, str]
) -> Iterator[str]:
    """The displayed equations of a statement, for KaTeX; by default the claim's own. A finding of ours has none."""
    own = [name for name in (claim["id"], claim["label"]) if name in displays][:1]
    names = [] if statement.get("ours") or claim["title"].startswith(OURS) else statement.get("shows", own)
    for name in names:
        if name not in displays:
            raise SystemExit(f"{TOLD.name} shows {name} under {claim['id']}, which ledger/equations.toml has not")
        lines = " ".join(own_macros(displays[name]).split()).rstrip(" ,.")
        yield rf"\begin{{aligned}} {lines} \end{{aligned}}"


def block(title: str, code: str, shown: set[str]) -> str:
    """Code in a foldable block; only its name if the page has shown it before."""
    if title in shown:
        return f"`{title}` is shown above."
    shown.add(title)
    lines = code.splitlines()
    kept = lines if len(lines) <= LONGEST else [*lines[:LONGEST], "..."]
    body = "\n".join(f"    {line}".rstrip() for line in ["```python", *kept, "```"])
    return f'??? quote "`{title}`"\n\n{body}'


def pulled(file: str, name: str) -> tuple[str, str]:
    """Docstring of a function or class, and its source without the docstring."""
    source = (ROOT / file).read_text(encoding="utf-8")
    kinds = (ast.FunctionDef, ast.ClassDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and node.name == name:
            lines = source.splitlines()
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            docstring = ast.get_docstring(node)
            skip: range = range(0)
            if docstring is not None:
                inside = node.body[0]
                skip = range(inside.lineno, (inside.end_lineno or inside.lineno) + 1)
            kept = [lines[i - 1] for i in range(first, (node.end_lineno or first) + 1) if i not in skip]
            indent = len(kept[0]) - len(kept[0].lstrip())
            return docstring or "", "\n".join(line[indent:] for line in kept)
    raise SystemExit(
        f"{file} has no function or class {name}; the ledger names one: fix packages/pmdkit-lab/pmdkit_lab/ledger"
    )
