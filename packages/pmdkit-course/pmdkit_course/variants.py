"""Variants of a solution: the same code with one typical mistake, and the sentence that names the mistake.

A wrong sign, a missing factor, a logarithm with another base, an unweighted mean: an answer that equals a variant on
every input contains a mistake with the same effect, whatever its code looks like.
"""

import ast
import copy
import tomllib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from functools import cache, partial
from pathlib import Path

import numpy as np

from pmdkit_course.comparison import to_numpy
from pmdkit_course.exercises import Answer, Exercise
from pmdkit_course.source import module_of, solution_source

Change = tuple[str, str, ast.expr]  # kind, sentence, and the wrong expression
Sort = tuple[type, tuple[int, ...]]  # type and shape of an argument
Put = Callable[[ast.expr], None]  # replaces an expression by another

TOGETHER = ("log", "log1p", "exp", "sqrt")
"Functions that somebody who gets one wrong gets wrong everywhere."


@cache
def slips() -> dict[str, list[list[str]]]:
    """Common slips for an operator, a function or a method, from slips.toml: kind, code, sentence."""
    return tomllib.loads(Path(__file__).with_name("slips.toml").read_text(encoding="utf-8"))


def variants(exercise: Exercise, case: Sequence[object]) -> Iterator[tuple[str, str, Answer]]:
    """Yield kind, sentence and function of each variant of a solution; like arguments in `case` may be swapped."""
    if exercise.name not in module_of(exercise.solution)[1]:
        return  # a lambda has no source of its own
    tree = ast.parse(solution_source(exercise))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    called = {ast.unparse(node.func) for node in ast.walk(functions[exercise.name]) if isinstance(node, ast.Call)}
    for function in [node for name, node in functions.items() if name == exercise.name or name in called]:
        own = function.name == exercise.name  # a learner does not know the arguments of a helper
        arguments = {
            a.arg: (type(v), tuple(getattr(to_numpy(v), "shape", ())))
            for a, v in zip(function.args.args, case, strict=False)
            if own
        }
        stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        quantities = stored if own else frozenset()
        alike: dict[str, list[tuple[Put, ast.expr]]] = {}  # an expression that occurs twice may be wrong once or twice
        for put, node in places(function):
            alike.setdefault(ast.unparse(node), []).append((put, node))
        for name in TOGETHER:  # several of them, each with the same slip
            each = [(put, node) for put, node in places(function) if operation(node)[0][0] == name]
            if len({ast.unparse(node) for _, node in each}) < 2:
                continue
            options = [{says: other for _, says, other in changes(node, arguments, quantities)} for _, node in each]
            for kind, says, _ in list(changes(each[0][1], arguments, quantities)):
                if all(says in option for option in options):
                    for (put, _), option in zip(each, options, strict=True):
                        put(option[says])
                    answer = compiled(tree, exercise.name)
                    for put, node in each:
                        put(node)
                    yield kind, says, answer
        for each in alike.values():
            for changed in [[place] for place in each] + ([each] if len(each) > 1 else []):
                for kind, says, other in changes(changed[0][1], arguments, quantities):
                    for put, _ in changed:
                        put(other)
                    answer = compiled(tree, exercise.name)
                    for put, node in changed:
                        put(node)
                    yield kind, says, answer


def compiled(tree: ast.Module, name: str) -> Answer:
    """Compile a module and return its function of this name."""
    names: dict[str, object] = {}
    exec("import math\nimport numpy as np\nfrom scipy.stats import norm, t", names)
    exec(compile(ast.fix_missing_locations(copy.deepcopy(tree)), "<variant>", "exec"), names)
    answer = names[name]
    assert callable(answer)
    return answer


def places(function: ast.FunctionDef) -> list[tuple[Put, ast.expr]]:
    """Every expression of a function except its docstring, with a function that replaces it."""
    found: list[tuple[Put, ast.expr]] = []
    for parent in (inner for statement in function.body for inner in ast.walk(statement)):
        for field, value in ast.iter_fields(parent):
            if isinstance(parent, ast.Slice):  # [::-1] holds a minus sign that is none
                continue
            if isinstance(value, ast.expr):
                found.append((partial(setattr, parent, field), value))
            elif isinstance(value, list):
                found += [(partial(value.__setitem__, i), v) for i, v in enumerate(value) if isinstance(v, ast.expr)]
    return [(put, node) for put, node in found if isinstance(getattr(node, "ctx", ast.Load()), ast.Load)]


class Part:
    """An operand or argument: its source in code; in a sentence its name, or a word that gives nothing away."""

    def __init__(self, node: ast.expr, arguments: Container[str]) -> None:
        self.code = ast.unparse(node)
        self.name = f"`{self.code}`" if self.code in arguments else ""

    def __format__(self, word: str) -> str:
        return (self.name or word) if word else f"({self.code})"


def changes(node: ast.expr, arguments: Mapping[str, Sort], quantities: Set[str]) -> Iterator[Change]:
    """Yield the wrong expressions that a student may write for one expression of the solution."""
    keys, operands = operation(node)
    parts = [Part(operand, arguments) for operand in operands]
    for kind, code, says in (slip for key in keys for slip in slips().get(key, ())):
        if code.startswith("."):
            changed = copy.deepcopy(node)
            changed.func.attr = code[1:]  # type: ignore[attr-defined]
            yield kind, says, changed
        elif all(f"{{{i}}}" not in code for i in range(len(parts), 3)) and not (
            # x / 1 for x - 1 is a missing term, not a ratio
            kind == "function" and keys[0] in ("Sub", "Div") and isinstance(operands[1], ast.Constant)
        ):
            says = says.format(*parts)
            yield kind, says[0].upper() + says[1:], parsed(code.format(*parts))
    if isinstance(node, ast.BinOp | ast.Call):
        held = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        for name, (kind_of, shape) in arguments.items():
            if name not in held and shape == () and issubclass(kind_of, int | float | np.number):
                for sign, word in (("*", "multiplies"), ("/", "divides")):
                    says = f"There is a factor too many: this {word} by `{name}`."
                    yield "factor", says, parsed(f"({ast.unparse(node)}) {sign} {name}")
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value not in (0, 1):
        for number, size in ((2 * node.value, "twice"), (node.value / 2, "half")):
            if number != 1:  # a factor of 1 changes nothing
                yield "factor", f"A constant is {size} what it should be.", ast.Constant(number)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.Compare):
        yield "selection", "This uses all entries; some should be left out.", node.value
    elif isinstance(node, ast.Name) and node.id in arguments:
        for name in arguments:
            if name != node.id and arguments[name] == arguments[node.id]:
                yield "order", f"This uses `{name}`; it should use `{node.id}`.", ast.Name(name, ast.Load())
    elif isinstance(node, ast.Name) and node.id in quantities:
        for name in sorted(quantities - {node.id}):
            yield "order", "Two quantities of the solution are mixed up.", ast.Name(name, ast.Load())
    elif isinstance(node, ast.Call):
        for i, keyword in enumerate(node.keywords):
            if keyword.arg == "ddof":
                changed = copy.deepcopy(node)
                del changed.keywords[i]
                yield "spread", "This spread divides by n; the spread of a sample divides by n - 1 (ddof=1).", changed
        axes = [k.value for k in node.keywords if k.arg == "axis"] + (node.args if len(keys) > 1 else [])
        for axis in axes:
            if isinstance(axis, ast.Constant) and axis.value in (0, 1):
                place = ast.unparse(node).rpartition(str(axis.value))
                yield (
                    "axis",
                    "This runs along the wrong axis; use the other axis.",
                    parsed(f"{place[0]}{1 - axis.value}{place[2]}"),
                )


def operation(node: ast.expr) -> tuple[list[str], list[ast.expr]]:
    """The names under which slips.toml lists an expression's operation, a method's name last, and its operands."""
    match node:
        case ast.BinOp(left, operator, right):
            return [type(operator).__name__.removeprefix("Floor")], [left, right]
        case ast.UnaryOp(operator, operand):
            return [type(operator).__name__], [operand]
        case ast.Compare(left, [operator], [right]):
            return [type(operator).__name__], [left, right]
        case ast.IfExp(_, body, _):
            return ["IfExp"], [body]
        case ast.Call(ast.Attribute(value, name), arguments):
            if ast.unparse(value) in ("np", "math", "theory"):
                return [name], arguments
            return [name, f".{name}"], arguments or [value]
        case ast.Call(ast.Name(name), arguments, keywords) if not any(k.arg == "key" for k in keywords):
            return [name], arguments
    return [""], []


def parsed(code: str) -> ast.expr:
    """Parse code into an expression."""
    return ast.parse(code, mode="eval").body
