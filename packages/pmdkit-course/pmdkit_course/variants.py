"""Variants of a solution: the same code with one thing changed, as by a mistake, and the sentence that names it.

A sign turned, a factor left out, a logarithm to another base, a plain mean for a weighted one: whoever returns what a
variant returns on every input has made a mistake with the same effect, whatever their code looks like.
"""

import ast
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial

import numpy as np

from pmdkit_course.comparison import to_numpy
from pmdkit_course.exercises import Answer, Exercise
from pmdkit_course.source import module_of, solution_source

Change = tuple[str, str, ast.expr]  # kind, sentence, and what stands in the place of an expression
Sort = tuple[type, tuple[int, ...]]  # type and shape of an argument
Put = Callable[[ast.expr], None]  # sets an expression in the place of another

CALLS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "log": (
        ("base", "np.log2({0})", "A logarithm is to base 2; nats are meant."),
        ("base", "np.log10({0})", "A logarithm is to base 10; nats are meant."),
        ("function", "np.log1p({0})", "A logarithm is of 1 plus what it should be of."),
        ("function", "({0})", "A logarithm is missing."),
    ),
    "log1p": (
        ("base", "np.log2(1 + {0})", "A logarithm is to base 2; nats are meant."),
        ("base", "np.log10(1 + {0})", "A logarithm is to base 10; nats are meant."),
        ("function", "np.log(abs({0}))", "A logarithm is of p where it should be of 1 - p."),
        ("sign", "np.log1p(-({0}))", "A logarithm is of 1 + x where it should be of 1 - x."),
    ),
    "exp": (
        ("function", "({0})", "An exponential is missing."),
        ("sign", "np.exp(-({0}))", "An exponent has the wrong sign."),
    ),
    "sqrt": (("square", "({0})", "A square root is missing."),),
    "abs": (("sign", "({0})", "An absolute value is missing: the sign should not matter."),),
    "arctanh": (
        ("function", "np.tanh({0})", "The function is used in the wrong direction: its inverse is needed."),
        ("function", "np.arctan({0})", "This is the inverse of the tangent, not of tanh."),
        ("function", "np.arcsinh({0})", "This is the inverse of sinh, not of tanh."),
        ("function", "({0})", "A function is left out."),
    ),
    "maximum": (
        ("clip", "({0})", "Negative values should be cut off at 0, and are not."),
        ("sign", "np.abs({0})", "Negative values should be cut off at 0; here they lose their sign."),
        ("sign", "np.maximum(-({0}), 0)", "The wrong side is cut off: the negative part is left."),
        ("square", "np.maximum({0}, 0) ** 2", "The positive part is squared."),
        ("function", "(np.asarray({0}) > 0) * 1.0", "It counts whether a value is positive, and not how large it is."),
    ),
    "ceil": (
        ("rounding", "math.floor({0})", "Rounded down where it should be rounded up."),
        ("rounding", "math.floor({0}) + 1", "Rounded up past a whole number: one that is exact is not to be raised."),
        ("rounding", "round({0})", "Rounded to the nearest whole number where it should be rounded up."),
    ),
    "logsumexp": (
        ("function", "np.max({0})", "The largest term stands for the logarithm of the sum."),
        ("term", "np.log(np.exp({0} - np.max({0})).sum())", "What is taken out of a sum is not put back."),
    ),
    "delete": (("own", "({0})", "A response's own reward is among its peers."),),
    "max": (
        ("clip", "{1}", "A lower limit is missing."),
        ("order", "min({0}, {1})", "The smaller counts where the larger should."),
    ),
    "ppf": (
        ("quantile", "norm.ppf({0})", "A quantile of the normal distribution stands where Student's t belongs."),
        ("quantile", "norm.ppf({0}).round(2)", "A quantile of the normal distribution stands for Student's t."),
        ("quantile", "t.ppf(2 * {0} - 1, {1})", "A quantile leaves the whole error on one side; it is for both."),
        ("quantile", "t.ppf((1 + {0}) / 2, {1})", "A quantile leaves half of the error that is meant."),
        ("quantile", "t.ppf(1 - {0}, {1})", "A quantile of the wrong end: the two ends are exchanged."),
        ("quantile", "1.0", "One standard error stands where so many belong as Student's t asks for."),
    ),
}
"What stands for a call of a function by somebody who slips; {0} is its first argument, {1} its second."
RANGES = (
    ("range({}, {} - 1)", "A range ends one too early."),
    ("range({}, {} + 1)", "A range goes on for one too long."),
    ("range({} + 1, {})", "A range begins one too late."),
    ("range({}, {} // 2 + 1)", "A range ends half way."),
)
METHODS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "argmax": (("order", "argmin", "The smallest is chosen where the largest belongs."),),
    "max": (("order", "min", "The smallest value stands where the largest belongs."),),
    "sum": (("aggregate", "mean", "A mean is taken where a sum belongs."),),
    "mean": (("aggregate", "sum", "A sum is taken where a mean belongs."),),
    "std": (("square", "var", "A variance stands where its root, the standard deviation, belongs."),),
}
"The same for methods, which keep their arguments."
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
}


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


def changes(node: ast.expr, arguments: Mapping[str, Sort], quantities: Set[str]) -> Iterator[Change]:
    """What may stand by mistake where an expression stands in the solution."""

    def other(text: str, *parts: ast.expr) -> ast.expr:
        return ast.parse(text.format(*(f"({ast.unparse(part)})" for part in parts)), mode="eval").body

    def word(part: ast.expr, noun: str) -> str:
        """An argument by its name, and anything else without giving it away."""
        return f"`{part.id}`" if isinstance(part, ast.Name) and part.id in arguments else noun

    if isinstance(node, ast.BinOp | ast.Call):
        yield from extra_factors(node, arguments, other)
    if isinstance(node, ast.BinOp):
        left, right, op = node.left, node.right, node.op
        if isinstance(op, ast.Add | ast.Sub):
            added, turned = ("added", "subtracted") if isinstance(op, ast.Sub) else ("subtracted", "added")
            yield (
                "sign",
                f"{cap(word(right, 'a term'))} is {added} where it should be {turned}.",
                other("{} + {}" if isinstance(op, ast.Sub) else "{} - {}", left, right),
            )
            one = "1" if isinstance(right, ast.Constant) else word(right, "something")
            yield "term", f"A term is missing: {one} should be {turned}.", left
            yield (
                "term",
                f"A term is missing beside the one that is {turned}.",
                (right if isinstance(op, ast.Add) else other("-{}", right)),
            )
            if isinstance(op, ast.Sub):
                yield "sign", "A difference is taken the wrong way round.", other("{} - {}", right, left)
                yield "term", "A term is missing, the one that something is subtracted from.", right
                if not isinstance(right, ast.Constant):
                    yield "function", "A ratio is taken where a difference belongs.", other("{} / {}", left, right)
            else:
                yield (
                    "function",
                    "Two numbers are multiplied where they should be added.",
                    other("{} * {}", left, right),
                )
        elif isinstance(op, ast.Mult | ast.Div | ast.FloorDiv):
            times = isinstance(op, ast.Mult)
            done, due = ("divided", "multiplied") if times else ("multiplied", "divided")
            yield (
                "factor",
                f"By {word(right, 'a factor')} is {done} where it should be {due}.",
                other("{} / {}" if times else "{} * {}", left, right),
            )
            yield "factor", f"A factor is missing: {word(right, 'something')} should be {due} by.", left
            yield (
                "factor",
                f"A factor is missing: {word(left, 'something')} should be multiplied by.",
                (right if times else other("1 / {}", right)),
            )
            if times:
                yield (
                    "function",
                    "Two numbers are added where they should be multiplied.",
                    other("{} + {}", left, right),
                )
            else:
                yield "inverse", "A fraction is upside down.", other("{} / {}", right, left)
                if not isinstance(right, ast.Constant):
                    yield "function", "A difference is taken where a ratio belongs.", other("{} - {}", left, right)
            for part in (left, right):
                text = "{} * {} * {}" if times else "{} / {} / {}"
                if word(part, "") and (times or part is right):
                    yield "square", f"The factor `{ast.unparse(part)}` is in it twice.", other(text, left, right, part)
        elif isinstance(op, ast.Pow):
            yield "square", "A power is missing.", left
        elif isinstance(op, ast.MatMult):
            weights = word(left, "weights")
            yield "weights", f"A plain mean stands where {weights} should weigh.", other("np.mean({})", right)
            yield "weights", f"A plain sum stands where {weights} should weigh.", other("np.sum({})", right)
            for name, adjective in (("max", "largest"), ("min", "smallest"), ("median", "middle")):
                yield (
                    "function",
                    f"The {adjective} value stands where an average belongs.",
                    other(f"np.{name}({{}})", right),
                )
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", "A minus sign is missing.", node.operand
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        yield "selection", "The mask is upside down.", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value not in (0, 1):
        for number, size in ((2 * node.value, "twice"), (node.value / 2, "half")):
            if number != 1:  # a 1 is no factor at all
                yield "factor", f"A constant is {size} what it should be.", ast.Constant(number)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPPED:
        limit = copy.deepcopy(node)
        limit.ops = [FLIPPED[type(node.ops[0])]()]
        yield "edge", "Which side does the limit itself belong to?", limit
    elif isinstance(node, ast.IfExp):
        yield "edge", "A special case is left out.", node.body
    elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(".shape"):
        yield (
            "axis",
            "The length of one axis stands where that of the other belongs.",
            other("{}[1 - {}]", node.value, node.slice),
        )
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
        yield from changed_calls(node, other)


def extra_factors(node: ast.expr, arguments: Mapping[str, Sort], other: Callable[..., ast.expr]) -> Iterator[Change]:
    """One factor too many: a number among the arguments that the expression does not hold."""
    held = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    for name, (kind, shape) in arguments.items():
        if name not in held and shape == () and issubclass(kind, int | float | np.number):
            factor = ast.Name(name, ast.Load())
            yield "factor", f"One factor too many: `{name}` is multiplied by.", other("{} * {}", node, factor)
            yield "factor", f"One factor too many: `{name}` is divided by.", other("{} / {}", node, factor)


def changed_calls(node: ast.Call, other: Callable[..., ast.expr]) -> Iterator[Change]:
    """Another function, another axis, another divisor of a variance, or a case distinction that is not made."""
    method = isinstance(node.func, ast.Attribute) and not ast.unparse(node.func).startswith(("np.", "math.", "theory."))
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    parts = [node.func.value] if method and isinstance(node.func, ast.Attribute) and not node.args else node.args
    if name == "where":
        _, chosen, otherwise = node.args
        yield "edge", "A distinction is missing: one rule is used everywhere.", chosen
        yield "edge", "A distinction is missing: the other rule is used everywhere.", otherwise
    elif name == "range":
        first, end = ([ast.Constant(0)] if len(node.args) == 1 else []) + node.args[:2]
        for text, says in RANGES:
            yield "range", says, other(text, first, end)
    elif parts and not any(k.arg == "key" for k in node.keywords):
        for kind, text, says in CALLS.get(name, ()):
            if "{1}" not in text or len(parts) > 1:
                yield kind, says, other(text, *parts)
    if method and isinstance(node.func, ast.Attribute):
        for kind, text, says in METHODS.get(name, ()):
            changed = copy.deepcopy(node)
            changed.func = ast.Attribute(node.func.value, text, ast.Load())
            yield kind, says, changed
        if name == "mean" and not node.args:
            yield "function", "The median stands where the mean belongs.", other("np.median({})", node.func.value)
        if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value in (0, 1):
            changed = copy.deepcopy(node)
            changed.args = [ast.Constant(1 - node.args[0].value)]
            yield "axis", "The wrong axis: it runs along the other one.", changed
    for i, keyword in enumerate(node.keywords):
        changed = copy.deepcopy(node)
        if keyword.arg == "ddof":
            del changed.keywords[i]
            yield "spread", "The spread of a sample divides by n - 1 (ddof=1), and this one by n.", changed
        if keyword.arg == "axis" and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, int):
            changed.keywords[i].value = ast.Constant(1 - keyword.value.value)
            yield "axis", "The wrong axis: it runs along the other one.", changed


def cap(text: str) -> str:
    """With a capital letter."""
    return text[:1].upper() + text[1:]
