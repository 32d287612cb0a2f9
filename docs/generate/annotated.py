"""The annotated paper: statement, equation, the code that computes it and the test that holds it, side by side.

Equation, code and test are pulled from the sources by name; a name that is gone stops the build. Which claims: CHOSEN.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pmdkit.ledger import VERDICTS

ROOT = Path(__file__).parents[2]
HEAD = """# Equation, code, test

The statements on which the paper stands, each beside the code that computes it and the test that would fail if it were
wrong. What you see is pulled from the sources when the site is built. The [claim ledger](ledger.md) has all the others.

"""
CHOSEN = (
    "eq:pmd_kl_subproblem", "eq:boltzmann_update", "eq:L_partition", "eq:L_mean", "thm:pmdmean_solution",
    "thm:pmdmean_solution:normalised", "eq:lambda_bounds", "eq:lambda_asymptotics:small", "prop:binary_ratios",
    "prop:mixed_subproblem", "eq:loo-s-mean", "eq:loo-s-part", "eq:ideal_improvement", "prop:eta_mean_asymp:hard",
    "prop:tgt_err_clean:a", "prop:tgt_err_clean:a:corrected", "prop:tgt_err_clean:b", "cor:convergence_one_step",
    "lem:pmdmean_refined", "app:length_weights", "code:target_clamp",
)  # fmt: skip
LONGEST = 60  # lines of code or test that a page shows; more is linked by name only


def write_annotated(page: Path, claims: Sequence[Mapping[str, str]]) -> int:
    """Write the page; returns the number of statements."""
    known = {claim["id"]: claim for claim in claims}
    text = HEAD
    for name in CHOSEN:
        if name not in known:
            raise SystemExit(f"the annotated paper shows claim {name}, which the ledger has not; mend CHOSEN")
        text += section(known[name])
    page.write_text(text, encoding="utf-8")
    return len(CHOSEN)


def section(claim: Mapping[str, str]) -> str:
    """One statement."""
    file, name = claim["code"].split(":")
    test_file, *test_names = claim["test"].split("::")
    docstring, code = pulled(file, name)
    _, test = pulled(test_file, test_names[-1])
    equation = re.search(r"\$\$(.*?)\$\$", docstring, re.DOTALL)
    shown = f"\n$$ {' '.join(equation[1].split())} $$\n" if equation else ""
    return f"""## {claim["title"]}

`{claim["id"]}`: **{claim["verdict"]}**, {VERDICTS[claim["verdict"]]}. {claim["note"]}
{shown}
{block(f"{file}: {name}", code, opened=True)}
{block(f"{test_file}: {test_names[-1]}", test, opened=False)}
"""


def block(title: str, code: str, opened: bool) -> str:
    """Code that can be folded away."""
    lines = code.splitlines()
    kept = lines if len(lines) <= LONGEST else [*lines[:LONGEST], "..."]
    body = "\n".join(f"    {line}".rstrip() for line in ["```python", *kept, "```"])
    return f'???{"+" if opened else ""} quote "`{title}`"\n\n{body}\n'


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
    raise SystemExit(f"{file} has no function or class {name}; the ledger names one: mend pmdkit/ledger")
