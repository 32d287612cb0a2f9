"""Which code of a learner's file answers an exercise: its cell, with the imports and helpers that it uses."""

import ast
import functools
import re
import symtable
from collections.abc import Iterable
from dataclasses import dataclass

from pmdkit_course.exercises import Exercise
from pmdkit_course.notebooks import NotebookCell, parsed
from pmdkit_course.source import is_import, loaded, names_of

SOLUTIONS = re.compile(r"pmdkit_course|\blesson_\d{3}|\banswers\.md\b")


@dataclass(frozen=True)
class Code:
    """The code that answers an exercise.

    Attributes:
        imports: import statements that the cell and its helpers use.
        cell: the learner's source, with the line numbers that the learner knows.
        helpers: functions, classes and plain constants of other cells that the cell uses, in an order that runs.
    """

    imports: tuple[str, ...]
    cell: str
    helpers: tuple[str, ...] = ()

    @property
    def reads_solutions(self) -> bool:
        """Whether it names the package or the files that hold the solutions."""
        return any(map(SOLUTIONS.search, (*self.imports, *self.helpers, self.cell)))


def exercises_in(cells: list[NotebookCell], known: Iterable[Exercise]) -> list[Exercise]:
    """Which exercises a file answers: those its cells are tagged with, or else those whose function it defines."""
    known = list(known)
    tags = frozenset().union(*(cell.tags for cell in cells if "exercise" in cell.tags))
    tagged = [e for e in known if e.id in tags]
    defined = frozenset().union(*(functions(cell.source) for cell in cells))
    return tagged or [e for e in known if e.name in defined]


def answer_to(exercise: Exercise, cells: list[NotebookCell]) -> Code | None:
    """The code to run for an exercise: imports and helpers it uses, then its cell. None if the file has no answer.

    A cell is found by its tags; if they were lost, the last cell that defines the function is taken. If a cell was
    split in two, both parts carry its tags, and both count.
    """
    places = [i for i, cell in enumerate(cells) if {"exercise", exercise.id} <= cell.tags]
    if not places:
        places = [i for i, cell in enumerate(cells) if exercise.name in functions(cell.source)][-1:]
    if not places:
        return None
    own = "\n".join(cells[i].source for i in places)
    others = [cell for i, cell in enumerate(cells) if i not in places]
    helpers = helpers_of(own, cells[: places[0]], others)
    used = "\n".join([*helpers, own])
    return Code(tuple(imports(cells[: places[0]], used)), own, tuple(helpers))


def helpers_of(own: str, before: list[NotebookCell], others: list[NotebookCell]) -> list[str]:
    """Definitions in other cells that a cell uses, and those that these use, in the order of the notebook.

    As in the notebook, the last definition before the cell counts; a later one counts if there is no other. Only
    functions, classes and constants that call nothing beyond `CALLED` are included, not what a cell computes.
    """
    known: dict[str, ast.stmt] = {}
    for cell in [*reversed(others), *before]:
        for node in parsed(cell.source):
            if defines(node):
                known |= dict.fromkeys(names_of(node), node)
    bound = {name for node in parsed(own) for name in names_of(node)}
    waiting, found = list(parsed(own)), []
    while waiting:
        for name in sorted(global_names(waiting.pop()) - bound):
            defined = known.get(name)
            if defined is not None and defined not in found:
                found.append(defined)
                waiting.append(defined)
    place = {id(node): n for n, node in enumerate(node for cell in others for node in parsed(cell.source))}
    try:
        return [ast.unparse(node) for node in sorted(found, key=lambda node: place[id(node)])]
    except RecursionError:
        return []


def global_names(node: ast.stmt) -> set[str]:
    """Global names that a statement uses, without the arguments and local variables of the functions in it."""
    found: set[str] = set()
    try:
        waiting = [symtable.symtable(ast.unparse(node), "<cell>", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # such as nested too deeply
        return found
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        top = table.get_type() == "module"
        found |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())}
    return found


CALLED = frozenset({"np", "numpy", "math", "torch", "range", "float", "int", "tuple", "list", "dict", "set", "len"})
"What a constant in another cell may call: such a line finishes at once, unlike a training run."


def defines(node: ast.stmt) -> bool:
    """Whether a statement defines a function, a class or a plain constant."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return True
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    if isinstance(node.value, ast.Lambda):
        return True
    calls = [inner.func for inner in ast.walk(node.value) if isinstance(inner, ast.Call)]
    return all(root_name(function) in CALLED for function in calls)


def root_name(node: ast.expr) -> str | None:
    """The name that an expression such as np.linalg.norm begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def imports(cells: list[NotebookCell], code: str) -> list[str]:
    """Import statements in some cells that bind a name used by the code."""
    wanted = set().union(*(loaded(node) for node in parsed(code)))  # empty if the code does not parse: reported later
    found = []
    for cell in cells:
        for node in parsed(cell.source):
            if is_import(node) and (wanted | {"*"}) & set(names_of(node)):
                found.append(ast.unparse(node))
    return found


@functools.lru_cache(64)
def functions(source: str) -> frozenset[str]:
    """Names that a cell defines at top level, imports aside: a function may also be assigned to its name."""
    nodes = parsed(source)
    if not nodes:  # a cell with a syntax error still counts as an answer for the function that it begins
        return frozenset(re.findall(r"^def\s+(\w+)", source, re.MULTILINE))
    return frozenset(name for node in nodes if not is_import(node) for name in names_of(node))
