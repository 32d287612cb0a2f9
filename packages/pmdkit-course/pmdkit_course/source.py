"""The source of an exercise's functions, taken from its file without type annotations.

Whatever a solution uses from its file (helpers, constants, imports) is found by name, so that the text runs on its own.
"""

import ast
import functools
import inspect
import itertools
import sys
import textwrap
from collections.abc import Collection
from dataclasses import dataclass

from pmdkit.errors import EnvironmentLacks
from pmdkit_course.exercises import NO_SOLUTIONS, Answer, Exercise, stored

WIDTH = 88
"Line width of a lesson's code."


@dataclass(frozen=True)
class Parts:
    """A solution in pieces. Attributes: imports; helpers; text, the function; why, its docstring; body, the rest."""

    imports: tuple[str, ...]
    helpers: tuple[str, ...]
    text: str
    why: str
    body: str


def solution_source(exercise: Exercise) -> str:
    """The solution with everything it needs."""
    parts = solution_parts(exercise)
    return "\n\n\n".join(filter(None, ["\n".join(parts.imports), *parts.helpers, parts.text]))


def solution_parts(exercise: Exercise, bound: Collection[str] = ()) -> Parts:
    """The solution in pieces, for callers that assemble them in another order.

    Args:
        exercise: the exercise.
        bound: names already defined where the text will run; imports of nothing else are left out.

    Raises:
        EnvironmentLacks: this install has no solutions.
    """
    if exercise.id in stored():
        raise EnvironmentLacks(NO_SOLUTIONS)
    lines, nodes = module_of(exercise.solution)
    own = nodes[exercise.name]
    needed: list[ast.stmt] = []
    waiting = [own]
    while waiting:
        for name in sorted(loaded(ast.parse(without_annotations(waiting.pop(), lines)))):
            node = nodes.get(name)
            if node is not None and node is not own and node not in needed:
                needed.append(node)
                waiting.append(node)
    needed.sort(key=lambda node: node.lineno)
    text = without_annotations(own, lines)
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef), f"{exercise.name} is not written with def"
    why, first = ast.get_docstring(node), node.body[0]
    begin = (first.end_lineno or 0) if why else first.lineno - 1  # after the docstring: a comment may come first
    return Parts(
        imports=tuple(ast.unparse(n) for n in needed if is_import(n) and not set(names_of(n)) <= set(bound)),
        helpers=tuple(without_annotations(n, lines) for n in needed if not is_import(n)),
        text=text,
        why=why or "",
        body="\n".join(text.split("\n")[begin:]).strip("\n"),
    )


@functools.cache
def module_of(function: Answer) -> tuple[list[bytes], dict[str, ast.stmt]]:
    """The file of a function, parsed once: its lines, and its top-level statements by the names they bind."""
    source = inspect.getsource(sys.modules[function.__module__])
    nodes = {name: node for node in ast.parse(source).body for name in names_of(node)}
    return source.encode().splitlines(keepends=True), nodes


def without_annotations(node: ast.stmt, lines: list[bytes]) -> str:
    """The text of a statement, without the annotations of functions; the columns of ast count bytes."""
    text, starts = b"".join(lines), [0, *itertools.accumulate(map(len, lines))]

    def end(part: ast.expr | ast.stmt) -> int:
        return starts[(part.end_lineno or 0) - 1] + (part.end_col_offset or 0)

    edges = [starts[min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1], end(node)]
    for inner in ast.walk(node):
        if isinstance(inner, ast.arg) and inner.annotation is not None:
            edges += [starts[inner.lineno - 1] + inner.col_offset + len(inner.arg.encode()), end(inner.annotation)]
        if isinstance(inner, ast.FunctionDef) and inner.returns is not None:
            edges += [text.rindex(b" ->", 0, end(inner.returns)), end(inner.returns)]
    edges.sort()  # begin, and of each annotation its two ends, and end: what lies between a pair of them stays
    return b"".join(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)).decode()


def names_of(node: ast.stmt) -> list[str]:
    """Names that a top-level statement binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [a.asname or a.name.partition(".")[0] for a in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]


def loaded(node: ast.AST) -> set[str]:
    """Names that a statement uses."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def is_import(node: ast.stmt) -> bool:
    """Whether a statement is an import."""
    return isinstance(node, ast.Import | ast.ImportFrom)


def comment(text: str, indent: str = "    ") -> str:
    """Text as a comment, wrapped to the width of a lesson."""
    words = " ".join(text.split())
    return textwrap.fill(words, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
