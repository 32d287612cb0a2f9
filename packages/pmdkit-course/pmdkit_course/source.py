"""The source of an exercise's functions, taken from its file without type annotations.

Whatever a solution uses from its file (helpers, constants, imports) is found by name, so that the text runs on its own.
"""

import ast
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pmdkit.errors import EnvironmentLacks
from pmdkit_course.exercises import NO_SOLUTIONS, Answer, Exercise, stored

WIDTH = 88
"Line width of a lesson's code."
FOR_TOOLS = re.compile(r" *# (?:type: ignore|noqa).*$", re.MULTILINE)


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
        bound: names already defined where the text will run; their imports are left out.
    """
    if exercise.id in stored():
        raise EnvironmentLacks(NO_SOLUTIONS)
    lines, nodes = module_of(exercise.solution)
    own = nodes[exercise.name]
    needed: list[ast.stmt] = []
    waiting = [own]
    while waiting:
        for name in sorted(loaded(waiting.pop())):
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
    # the columns of ast count bytes
    return source.encode().split(b"\n"), {name: node for node in ast.parse(source).body for name in names_of(node)}


def without_annotations(node: ast.stmt, lines: list[bytes]) -> str:
    """The lines of a statement, with the annotations of functions cut out from the end."""
    lines = list(lines)
    top = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    end = node.end_lineno or node.lineno
    for line, column, last, stop in sorted(annotations(node, lines), reverse=True):
        lines[line - 1 : last] = [lines[line - 1][:column] + lines[last - 1][stop:]]
        end -= last - line
    return FOR_TOOLS.sub("", b"\n".join(lines[top - 1 : end]).decode())


def names_of(node: ast.stmt) -> list[str]:
    """Names that a top-level statement binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [a.asname or a.name.partition(".")[0] for a in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]


def loaded(node: ast.stmt) -> set[str]:
    """Names that a statement uses, not counting those in function annotations."""
    skipped = {id(inner) for hint in hints_of(node) for inner in ast.walk(hint)}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and id(n) not in skipped}


def hints_of(node: ast.stmt) -> Iterator[ast.expr]:
    """Annotations of a function and of the functions in it."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef) and inner.returns is not None:
            yield inner.returns
        if isinstance(inner, ast.arg) and inner.annotation is not None:
            yield inner.annotation


def annotations(node: ast.stmt, lines: list[bytes]) -> Iterator[tuple[int, int, int, int]]:
    """Cuts (line, column, end line, end column) that remove function annotations."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.arg) and inner.annotation is not None:
            hint, begin = inner.annotation, inner.col_offset + len(inner.arg.encode())
            yield inner.lineno, begin, hint.end_lineno or 0, hint.end_col_offset or 0
        if isinstance(inner, ast.FunctionDef) and inner.returns is not None:
            hint = inner.returns
            arrow = re.search(rb" *-> *$", lines[hint.lineno - 1][: hint.col_offset])
            assert arrow is not None, "a return annotation stands on the line of its arrow"
            yield hint.lineno, arrow.start(), hint.end_lineno or 0, hint.end_col_offset or 0


def is_import(node: ast.stmt) -> bool:
    """Whether a statement is an import."""
    return isinstance(node, ast.Import | ast.ImportFrom)


def comment(text: str, indent: str = "    ") -> str:
    """Text as a comment, wrapped to the width of a lesson."""
    words = " ".join(text.split())
    return textwrap.fill(words, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
