"""The rows of the ledger for docs/paper/index.md, section by section, each folded under its verdict, and their filter.

claims_page.toml says which row stands where. Opened, a row shows the paper's words, the equations, our note, and the
names of code and test; proofs.py shows these themselves. A missing name stops the build. Where the paper is
contradicted or has a slip, sliders move the counterexample. A row about a figure or a table has ours, and is open from
the start if that is a figure.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from generate.counterexamples import COUNTEREXAMPLES, explorable

from pmdkit_lab.ledger import EVIDENCE, OURS, PAPER, VERDICTS, equations

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paper" / "index.md"
SECTIONS = Path(__file__).with_suffix(".toml")
HEADINGS = re.compile(r"^## ([^\n]+)\n(?:(?!^## ).)*?\.claims\.md:(\w+)", re.MULTILINE | re.DOTALL)
PROVENANCE = f"""
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


def write_claims(page: Path, claims: Sequence[Mapping[str, str]], figures: Mapping[str, str] | None = None) -> int:
    """Write what the page includes, sections of `.claims.md` beside it; returns the number of rows.

    Args:
        page: docs/paper/index.md.
        claims: one mapping per claim, with the keys of pmdkit_lab.ledger.
        figures: id of a claim -> Markdown of its figures or its table; each needs its row.
    """
    figures = figures or {}
    if homeless := figures.keys() - {claim["id"] for claim in claims}:
        raise SystemExit(
            f"no row of the ledger is {', '.join(sorted(homeless))}, which has a figure; fix either's label"
        )
    displays = {row["id"]: row["tex"] for row in equations()}
    parts = {"counts": f"{counts(claims)}{PROVENANCE}", "filter": filter_form(claims)}
    for name, rows in by_section(claims).items():
        parts[name] = "".join(folded(claim, told, name, figures.get(claim["id"], ""), displays) for claim, told in rows)
    marks = "<!-- --8<-- [{}:{}] -->\n"
    text = "".join(f"{marks.format('start', name)}{part}\n{marks.format('end', name)}" for name, part in parts.items())
    page.with_name(".claims.md").write_text(text, encoding="utf-8")
    return len(claims)


def sections() -> list[dict[str, Any]]:
    """The sections, in the order of the page."""
    return list(tomllib.loads(SECTIONS.read_text(encoding="utf-8"))["section"])


def by_section(
    claims: Sequence[Mapping[str, str]],
) -> dict[str, list[tuple[Mapping[str, str], Mapping[str, Any] | None]]]:
    """section -> its rows, those that it lists first, each with what claims_page.toml says of it."""
    known = {claim["id"]: claim for claim in claims}
    found: dict[str, list[tuple[Mapping[str, str], Mapping[str, Any] | None]]] = {}
    listed = set[str]()
    for section in sections():
        found[section["name"]] = []
        for told in section.get("statement", ()):
            if told["claim"] not in known or told["claim"] in listed:
                raise SystemExit(f"{SECTIONS.name} lists {told['claim']} twice, or the ledger has it not; fix either")
            listed.add(told["claim"])
            found[section["name"]].append((known[told["claim"]], told))
    for claim in claims:
        if claim["id"] not in listed:
            found[section_of(claim)].append((claim, None))
    return found


def section_of(claim: Mapping[str, str]) -> str:
    """The section of a row that is not listed."""
    if not claim["lines"]:
        return "ours"
    line = int(claim["lines"].partition("-")[0])
    for section in sections():
        if any(first <= line <= last for first, last in section["lines"]):
            return str(section["name"])
    raise SystemExit(f"{claim['id']} is on line {line} of the paper, in no section; fix {SECTIONS.name}")


def counts(claims: Sequence[Mapping[str, str]]) -> str:
    """A table of the verdicts, with how many rows rest on which evidence, and what both words mean."""
    pairs = Counter((claim["verdict"], claim["evidence"]) for claim in claims)
    text = "| verdict | meaning | " + " | ".join(EVIDENCE) + " | all |\n" + "|---" * (3 + len(EVIDENCE)) + "|\n"
    for verdict, meaning in VERDICTS.items():
        own = [pairs[verdict, evidence] for evidence in EVIDENCE]
        text += f"| **{verdict}** | {meaning} | {' | '.join(map(str, own))} | {sum(own)} |\n"
    return text + "\n" + " ".join(f"**{kind}**: {meaning}." for kind, meaning in EVIDENCE.items()) + "\n"


def filter_form(claims: Sequence[Mapping[str, str]]) -> str:
    """The form that filters the rows; docs/paper/filter.js shows it and makes it work."""
    named = {"verdict": [*VERDICTS], "evidence": [*EVIDENCE], "kind": [claim["kind"] for claim in claims]}
    many = {name: Counter(claim[name] for claim in claims) for name in named}
    fields = {name: {value: f"{value} ({many[name][value]})" for value in values} for name, values in named.items()}
    fields["section"] = {name: title for title, name in HEADINGS.findall(PAGE.read_text(encoding="utf-8"))}
    selects = "".join(
        f'<label>{name} <select name="{name}"><option value="">any</option>'
        + "".join(f'<option value="{value}">{words}</option>' for value, words in values.items())
        + "</select></label>"
        for name, values in fields.items()
    )
    search = '<label>words <input type="search" name="words"></label>'
    return f'<form class="claims-filter" hidden>{selects}{search}<output aria-live="polite"></output></form>\n'


def folded(
    claim: Mapping[str, str],
    told: Mapping[str, Any] | None,
    section: str,
    figures: str,
    displays: Mapping[str, str],
) -> str:
    """One row, folded unless it has a picture; verdict, evidence, kind and section are its classes."""
    inside = figures + "\n\n".join(pieces(claim, told, displays))
    indented = "\n".join(f"    {line}".rstrip() for line in inside.split("\n"))
    title = (claim["title"] if told is None else told["says"]).replace('"', "&quot;")
    classes = f"claim verdict-{claim['verdict']} evidence-{claim['evidence']} kind-{claim['kind']} section-{section}"
    fold = "???+" if "<img" in figures else "???"
    return f'{fold} {classes} "**{claim["verdict"]}** · {title}"\n\n{indented}\n\n'


def pieces(claim: Mapping[str, str], told: Mapping[str, Any] | None, displays: Mapping[str, str]) -> Iterator[str]:
    """What a click opens: quote, equations, verdict, code, the claim's test and oracle."""
    file, name = claim["code"].split(":")
    docstring, _ = pulled(file, name)
    if claim["quote"]:
        yield f"The paper: “{readable(claim['quote'])}” ({claim['label']}, {place(claim['lines'])})."
    for display in paper_equations(told, claim, displays):
        yield f"$$ {display} $$"
    if told is not None and told.get("ours") and (found := re.search(r"\$\$(.*?)\$\$", docstring, re.DOTALL)):
        yield f"$$ {' '.join(found[1].split())} $$"
    stands = f"**{claim['verdict']}** by {claim['evidence']}: {VERDICTS[claim['verdict']]}."
    yield f"{stands} {claim['note']} (`{claim['id']}`)"
    if claim["verdict"] in ("disagrees", "misprint"):
        if claim["id"] not in COUNTEREXAMPLES:
            raise SystemExit(
                f"{claim['id']} is {claim['verdict']} and has no counterexample to move; add one to counterexamples.py"
            )
        yield f"{COUNTEREXAMPLES[claim['id']].sees}\n\n{explorable(claim['id'])}"
    tests = [test for test in (claim["test"], claim["oracle"]) if test]
    names = ", ".join(f"`{name.rpartition('/')[2]}`" for name in tests)
    yield f"Code: `{re.sub('^packages/[^/]*/', '', claim['code'])}`. Tests: {names}."


def paper_equations(
    told: Mapping[str, Any] | None, claim: Mapping[str, str], displays: Mapping[str, str]
) -> Iterator[str]:
    """The displayed equations of a row, for KaTeX; by default the claim's own. A finding of ours has none."""
    own = [name for name in (claim["id"], claim["label"]) if name in displays][:1]
    told = told or {}
    names = [] if told.get("ours") or claim["title"].startswith(OURS) else told.get("shows", own)
    for name in names:
        if name not in displays:
            raise SystemExit(f"{SECTIONS.name} shows {name} under {claim['id']}, which ledger/equations.toml has not")
        lines = " ".join(own_macros(displays[name]).split()).rstrip(" ,.")
        yield rf"\begin{{aligned}} {lines} \end{{aligned}}"


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


# The paper's TeX as Markdown and KaTeX.


def place(lines: str) -> str:
    """Lines of the source, in words."""
    first, last = lines.split("-")
    return f"line {first}" if first == last else f"lines {first} to {last}"


def readable(quote: str) -> str:
    """A quote as Markdown: formulas without the paper's macros, the rest without TeX's dashes."""
    parts = re.split(r"(\$[^$]*\$)", quote)
    return "".join(f"${own_macros(part[1:-1]).strip()}$" if part.startswith("$") else dashes(part) for part in parts)


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
    raise SystemExit(f"a brace of {formula} is not closed; fix packages/pmdkit-lab/pmdkit_lab/ledger")
