"""Variants of a solution: the same code with one thing changed, as by a mistake, and the sentence that names it.

A sign turned, a factor left out, a logarithm to another base, a plain mean for a weighted one: whoever returns what a
variant returns on every input has made a mistake with the same effect, whatever their code looks like.
"""

import ast
import copy
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from functools import partial

import numpy as np

from pmdkit_course.comparison import to_numpy
from pmdkit_course.exercises import Answer, Exercise
from pmdkit_course.source import module_of, solution_source

Change = tuple[str, str, ast.expr]  # kind, sentence, and what stands in the place of an expression
Sort = tuple[type, tuple[int, ...]]  # type and shape of an argument
Put = Callable[[ast.expr], None]  # sets an expression in the place of another

LIMIT = "Which side does the limit itself belong to?"
SLIPS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Add": (
        ("sign", "{0} - {1}", "{1:a term} is subtracted where it should be added."),
        ("term", "{0}", "A term is missing: {1:something} should be added."),
        ("term", "{1}", "A term is missing beside the one that is added."),
        ("function", "{0} * {1}", "Two numbers are multiplied where they should be added."),
    ),
    "Sub": (
        ("sign", "{0} + {1}", "{1:a term} is added where it should be subtracted."),
        ("term", "{0}", "A term is missing: {1:something} should be subtracted."),
        ("term", "-{1}", "A term is missing beside the one that is subtracted."),
        ("sign", "{1} - {0}", "A difference is taken the wrong way round."),
        ("term", "{1}", "A term is missing, the one that something is subtracted from."),
        ("function", "{0} / {1}", "A ratio is taken where a difference belongs."),
    ),
    "Mult": (
        ("factor", "{0} / {1}", "By {1:a factor} is divided where it should be multiplied."),
        ("factor", "{0}", "A factor is missing: {1:something} should be multiplied by."),
        ("factor", "{1}", "A factor is missing: {0:something} should be multiplied by."),
        ("function", "{0} + {1}", "Two numbers are added where they should be multiplied."),
    ),
    "Div": (
        ("factor", "{0} * {1}", "By {1:a factor} is multiplied where it should be divided."),
        ("factor", "{0}", "A factor is missing: {1:something} should be divided by."),
        ("factor", "1 / {1}", "A factor is missing: {0:something} should be multiplied by."),
        ("inverse", "{1} / {0}", "A fraction is upside down."),
        ("function", "{0} - {1}", "A difference is taken where a ratio belongs."),
    ),
    "Pow": (("square", "{0}", "A power is missing."),),
    "MatMult": (
        ("weights", "np.mean({1})", "A plain mean stands where {0:weights} should weigh."),
        ("weights", "np.sum({1})", "A plain sum stands where {0:weights} should weigh."),
        ("function", "np.max({1})", "The largest value stands where an average belongs."),
        ("function", "np.min({1})", "The smallest value stands where an average belongs."),
        ("function", "np.median({1})", "The middle value stands where an average belongs."),
    ),
    "USub": (("sign", "{0}", "A minus sign is missing."),),
    "Invert": (("selection", "{0}", "The mask is upside down."),),
    "Gt": (("edge", "{0} >= {1}", LIMIT),),
    "GtE": (("edge", "{0} > {1}", LIMIT),),
    "Lt": (("edge", "{0} <= {1}", LIMIT),),
    "LtE": (("edge", "{0} < {1}", LIMIT),),
    "IfExp": (("edge", "{0}", "A special case is left out."),),
    "where": (
        ("edge", "{1}", "A distinction is missing: one rule is used everywhere."),
        ("edge", "{2}", "A distinction is missing: the other rule is used everywhere."),
    ),
    "log": (
        ("base", "np.log2({0})", "A logarithm is to base 2; nats are meant."),
        ("base", "np.log10({0})", "A logarithm is to base 10; nats are meant."),
        ("function", "np.log1p({0})", "A logarithm is of 1 plus what it should be of."),
        ("function", "{0}", "A logarithm is missing."),
    ),
    "log1p": (
        ("base", "np.log2(1 + {0})", "A logarithm is to base 2; nats are meant."),
        ("base", "np.log10(1 + {0})", "A logarithm is to base 10; nats are meant."),
        ("function", "np.log(abs({0}))", "A logarithm is of p where it should be of 1 - p."),
    ),
    "exp": (
        ("function", "{0}", "An exponential is missing."),
        ("sign", "np.exp(-{0})", "An exponent has the wrong sign."),
    ),
    "sqrt": (("square", "{0}", "A square root is missing."),),
    "abs": (("sign", "{0}", "An absolute value is missing: the sign should not matter."),),
    "arctanh": (
        ("function", "np.arctan({0})", "This is the inverse of the tangent, not of tanh."),
        ("function", "np.arcsinh({0})", "This is the inverse of sinh, not of tanh."),
    ),
    "maximum": (
        ("clip", "{0}", "Negative values should be cut off at 0, and are not."),
        ("sign", "np.abs({0})", "Negative values should be cut off at 0; here they lose their sign."),
        ("square", "np.maximum({0}, 0) ** 2", "The positive part is squared."),
        ("function", "(np.asarray({0}) > 0) * 1.0", "It counts whether a value is positive, and not how large it is."),
    ),
    "ceil": (
        ("rounding", "math.floor({0})", "Rounded down where it should be rounded up."),
        ("rounding", "math.floor({0}) + 1", "Rounded up past a whole number: one that is exact is not to be raised."),
        ("rounding", "round({0})", "Rounded to the nearest whole number where it should be rounded up."),
    ),
    "logsumexp": (("term", "np.log(np.exp({0} - np.max({0})).sum())", "What is taken out of a sum is not put back."),),
    "delete": (("own", "{0}", "A response's own reward is among its peers."),),
    "max": (("order", "min({0}, {1})", "The smaller counts where the larger should."),),
    "ppf": (
        ("quantile", "norm.ppf({0})", "A quantile of the normal distribution stands where Student's t belongs."),
        ("quantile", "norm.ppf({0}).round(2)", "A quantile of the normal distribution stands for Student's t."),
        ("quantile", "t.ppf(2 * {0} - 1, {1})", "A quantile leaves the whole error on one side; it is for both."),
        ("quantile", "t.ppf((1 + {0}) / 2, {1})", "A quantile leaves half of the error that is meant."),
        ("quantile", "1.0", "One standard error stands where so many belong as Student's t asks for."),
    ),
    ".max": (("order", ".min", "The smallest value stands where the largest belongs."),),
    ".sum": (("aggregate", ".mean", "A mean is taken where a sum belongs."),),
    ".mean": (
        ("aggregate", ".sum", "A sum is taken where a mean belongs."),
        ("function", "np.median({0})", "The median stands where the mean belongs."),
    ),
    ".std": (("square", ".var", "A variance stands where its root, the standard deviation, belongs."),),
}
"""What somebody who slips writes for an operator, a function, or a method (with a dot), as kind, code and sentence.

{0} is the first operand or argument; in a sentence it is its name, if that is an argument of the exercise, or else a
word that gives nothing away. A code with a dot in front is another method of the same arguments.
"""


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
    for kind, code, says in (slip for key in keys for slip in SLIPS.get(key, ())):
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
    """The names in `SLIPS` of what an expression does, a method's last, and what it does it to."""
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
