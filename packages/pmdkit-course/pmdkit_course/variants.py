"""Variants of a solution: the same code with one thing changed, as by a mistake, and the sentence that names it.

A sign turned, a factor left out, a logarithm to another base, a plain mean for a weighted one: whoever returns what a
variant returns on every input has made a mistake with the same effect, whatever their code looks like.
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

Change = tuple[str, str, ast.expr]  # kind, sentence, and what stands in the place of an expression
Sort = tuple[type, tuple[int, ...]]  # type and shape of an argument
Put = Callable[[ast.expr], None]  # sets an expression in the place of another


@cache
def slips() -> dict[str, list[list[str]]]:
    """What somebody who slips writes for an operator, a function or a method, from slips.toml: kind, code, sentence."""
    return tomllib.loads(Path(__file__).with_name("slips.toml").read_text(encoding="utf-8"))


def variants(exercise: Exercise, case: Sequence[object]) -> Iterator[tuple[str, str, Answer]]:
    """Kind, sentence and function of every variant of a solution; arguments of one kind in `case` may be confused."""
    if exercise.name not in module_of(exercise.solution)[1]:
        return  # a lambda has no source of its own
    tree = ast.parse(solution_source(exercise))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    called = {ast.unparse(node.func) for node in ast.walk(functions[exercise.name]) if isinstance(node, ast.Call)}
    for function in [node for name, node in functions.items() if name == exercise.name or name in called]:
        own = function.name == exercise.name  # a learner does not know the arguments of a helper
        arguments = {
            a.arg: (type(v), np.shape(to_numpy(v))) for a, v in zip(function.args.args, case, strict=False) if own
        }
        stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        quantities = stored if own else frozenset()
        alike: dict[str, list[tuple[Put, ast.expr]]] = {}  # an expression that occurs twice may be mistaken twice
        for put, node in places(function):
            alike.setdefault(ast.unparse(node), []).append((put, node))
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
    """The function of that name in a module."""
    names: dict[str, object] = {}
    exec("import math\nimport numpy as np\nfrom scipy.stats import norm, t", names)
    exec(compile(ast.fix_missing_locations(copy.deepcopy(tree)), "<variant>", "exec"), names)
    answer = names[name]
    assert callable(answer)
    return answer


def places(function: ast.FunctionDef) -> list[tuple[Put, ast.expr]]:
    """Every expression of a function, its docstring aside, with the setter of its place."""
    found: list[tuple[Put, ast.expr]] = []
    for parent in (inner for statement in function.body for inner in ast.walk(statement)):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, ast.expr):
                found.append((partial(setattr, parent, field), value))
            elif isinstance(value, list):
                found += [(partial(value.__setitem__, i), v) for i, v in enumerate(value) if isinstance(v, ast.expr)]
    return [(put, node) for put, node in found if isinstance(getattr(node, "ctx", ast.Load()), ast.Load)]


class Part:
    """An operand or argument: in code as it is written, in a sentence by its name or by a word in its place."""

    def __init__(self, node: ast.expr, arguments: Container[str]) -> None:
        self.code = ast.unparse(node)
        self.name = f"`{self.code}`" if self.code in arguments else ""

    def __format__(self, word: str) -> str:
        return (self.name or word) if word else f"({self.code})"


def changes(node: ast.expr, arguments: Mapping[str, Sort], quantities: Set[str]) -> Iterator[Change]:
    """What may stand by mistake where an expression stands in the solution."""
    keys, operands = operation(node)
    parts = [Part(operand, arguments) for operand in operands]
    for kind, code, says in (slip for key in keys for slip in slips().get(key, ())):
        if code.startswith("."):
            changed = copy.deepcopy(node)
            changed.func.attr = code[1:]  # type: ignore[attr-defined]
            yield kind, says, changed
        elif all(f"{{{i}}}" not in code for i in range(len(parts), 3)) and not (
            # less 1 is no ratio to 1: without it a term is missing
            kind == "function" and keys[0] in ("Sub", "Div") and isinstance(operands[1], ast.Constant)
        ):
            says = says.format(*parts)
            yield kind, says[0].upper() + says[1:], parsed(code.format(*parts))
    if isinstance(node, ast.BinOp | ast.Call):
        held = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        for name, (kind_of, shape) in arguments.items():
            if name not in held and shape == () and issubclass(kind_of, int | float | np.number):
                for sign, word in (("*", "multiplied"), ("/", "divided")):
                    says = f"One factor too many: `{name}` is {word} by."
                    yield "factor", says, parsed(f"({ast.unparse(node)}) {sign} {name}")
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value not in (0, 1):
        for number, size in ((2 * node.value, "twice"), (node.value / 2, "half")):
            if number != 1:  # a 1 is no factor at all
                yield "factor", f"A constant is {size} what it should be.", ast.Constant(number)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.Compare):
        yield "selection", "Entries count that should be left out.", node.value
    elif isinstance(node, ast.Name) and node.id in arguments:
        for name in arguments:
            if name != node.id and arguments[name] == arguments[node.id]:
                yield "order", f"`{name}` stands where `{node.id}` belongs.", ast.Name(name, ast.Load())
    elif isinstance(node, ast.Name) and node.id in quantities:
        for name in sorted(quantities - {node.id}):
            yield "order", "One quantity stands where another belongs.", ast.Name(name, ast.Load())
    elif isinstance(node, ast.Call):
        for i, keyword in enumerate(node.keywords):
            if keyword.arg == "ddof":
                changed = copy.deepcopy(node)
                del changed.keywords[i]
                yield "spread", "The spread of a sample divides by n - 1 (ddof=1), and this one by n.", changed
        axes = [k.value for k in node.keywords if k.arg == "axis"] + (node.args if len(keys) > 1 else [])
        for axis in axes:
            if isinstance(axis, ast.Constant) and axis.value in (0, 1):
                place = ast.unparse(node).rpartition(str(axis.value))
                yield (
                    "axis",
                    "The wrong axis: it runs along the other one.",
                    parsed(f"{place[0]}{1 - axis.value}{place[2]}"),
                )


def operation(node: ast.expr) -> tuple[list[str], list[ast.expr]]:
    """The names in slips.toml of what an expression does, a method's last, and what it does it to."""
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
    """The expression that some code is."""
    return ast.parse(code, mode="eval").body
