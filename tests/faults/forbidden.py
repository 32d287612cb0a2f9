"""Calls that no file of the project makes, found in its syntax tree: RULES, the places that may, and why they may.

The gates read what is written, not what runs: they stop a slip, not somebody who hides a call.
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

UNPICKLERS = {
    "pickle", "_pickle", "cPickle", "pickletools", "joblib", "dill", "cloudpickle", "shelve", "marshal", "hickle",
}  # fmt: skip
LOADERS = {
    "torch.load", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter", "torch.export.load",
    "pandas.read_pickle", "pd.read_pickle", "numpy.core.multiarray.fromstring", "torch.serialization.load",
}  # fmt: skip
OF_TEXT = {"eval", "exec", "compile", "__import__"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"}
ALGEBRA = {"sympy", "math_verify", "latex2sympy2", "latex2sympy2_extended"}
NETWORK = {
    "socket", "http", "urllib", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "telnetlib", "xmlrpc", "ssl",
    "socketserver", "websockets", "websocket", "huggingface_hub", "datasets", "wandb", "trackio", "zmq", "grpc",
}  # fmt: skip
LOCAL = {"urllib.parse", "http.HTTPStatus"}  # take addresses apart, open none
EVERYWHERE = ("", "::", "0.0.0.0", None)  # as the host of what listens
DOORS = {"urllib.request.urlopen", "asyncio.start_server", "asyncio.open_connection"}

Found = Iterator[str]
TELLING = (
    ast.Import, ast.ImportFrom, ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.Constant, ast.AnnAssign, ast.arg,
)  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One kind of forbidden call.

    Attributes:
        says: what it is, in a word or two.
        find: what it finds in a node: the call as text.
        allowed: files that may, and why.
        everywhere: false for what lessons, benchmarks and the site's build may do and the package may not.
    """

    says: str
    find: Callable[[ast.AST], Found]
    allowed: dict[str, str] = field(default_factory=dict)
    everywhere: bool = True


def violations(nodes: Iterable[ast.AST], path: str, every: "tuple[Rule, ...] | None" = None) -> list[str]:
    """What is forbidden in a file, as `path:line: rule: call`.

    Args:
        nodes: all of its syntax tree.
        path: from the root of the repository.
        every: rules; by default all.
    """
    found = []
    own = path.startswith("pmdkit/")
    apply = [r for r in (RULES if every is None else every) if path not in r.allowed and (r.everywhere or own)]
    for node in nodes:
        for rule in apply if isinstance(node, TELLING) else ():
            found += [f"{path}:{getattr(node, 'lineno', 0)}: {rule.says}: {what}" for what in rule.find(node)]
    return found


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or an attribute of names, "" of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        below = dotted(node.value)
        return f"{below}.{node.attr}" if below else ""
    return ""


def imported(node: ast.AST) -> Found:
    """Full names that a node imports: modules, and what is taken from them. Also by `import_module("name")`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and dotted(node.func).endswith(("import_module", "__import__")):
        yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str))


def modules(names: set[str], spared: set[str] = frozenset()) -> Callable[[ast.AST], Found]:  # type: ignore[assignment]
    """Imports of these packages, but of what is spared."""

    def find(node: ast.AST) -> Found:
        for name in imported(node):
            if name.split(".")[0] in names and not name.startswith(tuple(spared) or "\0"):
                yield f"import of {name}"

    return find


def calls(names: set[str]) -> Callable[[ast.AST], Found]:
    """Uses of these dotted names, called or handed on, and imports of them."""

    def find(node: ast.AST) -> Found:
        if isinstance(node, ast.Attribute) and dotted(node) in names:
            yield dotted(node)
        yield from (f"import of {name}" for name in imported(node) if name in names)

    return find


def ends(*names: str) -> Callable[[ast.AST], Found]:
    """Calls of anything with these last names: `x.mktemp()`, `mktemp()`."""

    def find(node: ast.AST) -> Found:
        if isinstance(node, ast.Call):
            last = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
            if last in names:
                yield f"{last}()"
        yield from (f"import of {name}" for name in imported(node) if name.split(".")[-1] in names)

    return find


def of_text(node: ast.AST) -> Found:
    """Builtins that make code of text; `re.compile` and `model.eval()` are others."""
    if isinstance(node, ast.Call) and dotted(node.func).removeprefix("builtins.") in OF_TEXT:
        yield f"{dotted(node.func)}()"
    if isinstance(node, ast.Call) and dotted(node.func).endswith(("exec_module", "run_path", "run_module")):
        yield f"{dotted(node.func)}()"
    if isinstance(node, ast.Name) and node.id in {"eval", "exec"} and isinstance(node.ctx, ast.Load):
        yield node.id


def keyword(name: str, fine: object) -> Callable[[ast.AST], Found]:
    """A keyword argument with any value but this one."""

    def find(node: ast.AST) -> Found:
        if isinstance(node, ast.keyword) and node.arg == name and getattr(node.value, "value", name) is not fine:
            yield f"{name}={ast.unparse(node.value)}"

    return find


def constant(*texts: str) -> Callable[[ast.AST], Found]:
    """A string that is exactly one of these: a key of a table, a name of a variable, an address."""

    def find(node: ast.AST) -> Found:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in texts:
            yield repr(node.value)

    return find


def field_of(name: str) -> Callable[[ast.AST], Found]:
    """A field or an argument of a function of this name: an option that a configuration could set."""

    def find(node: ast.AST) -> Found:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            yield f"field {name}"
        if isinstance(node, ast.arg) and node.arg == name:
            yield f"argument {name}"

    return find


def bind_everywhere(node: ast.AST) -> Found:
    """`bind(("", port))` and `host="::"`: every network of the machine."""
    if isinstance(node, ast.keyword) and node.arg == "host" and getattr(node.value, "value", 0) in EVERYWHERE:
        yield f"host={ast.unparse(node.value)}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "bind":
        for given in node.args[:1]:
            first = given.elts[0] if isinstance(given, ast.Tuple) and given.elts else None
            if isinstance(first, ast.Constant) and first.value in EVERYWHERE:
                yield f"bind(({first.value!r}, ...))"


def both(*finders: Callable[[ast.AST], Found]) -> Callable[[ast.AST], Found]:
    """What any of them finds."""

    def find(node: ast.AST) -> Found:
        for finder in finders:
            yield from finder(node)

    return find


WORKER = "a cell of the course runs in a process with limits, which judges nothing"
OWN = "the operator named this file on the command line; it runs as the operator, and SECURITY.md says so"
RULES = (
    Rule("loads a pickle", both(modules(UNPICKLERS), calls(LOADERS), keyword("allow_pickle", False))),
    Rule(
        "makes code of text",
        of_text,
        {"pmdkit/learn/worker.py": WORKER, "pmdkit/plugins.py": OWN},
    ),
    Rule(
        "starts a shell",
        both(calls(SHELLS), keyword("shell", False)),
        {"pmdkit/cli/listings.py": "names a shell to the parser of the command line, which starts none"},
    ),
    Rule(
        "parses mathematics",
        both(modules(ALGEBRA), ends("sympify", "parse_expr", "parse_latex", "lambdify")),
        {"pmdkit/envs/verifier/symbolic.py": "loaded by the verifier's processes only, see the test below"},
        everywhere=False,
    ),
    Rule("reads YAML", both(modules({"yaml", "ruamel"}), ends("unsafe_load", "full_load"))),
    Rule(
        "runs code of a model",
        both(keyword("trust_remote_code", False), field_of("trust_remote_code"), constant("trust_remote_code")),
        {"pmdkit/llm/model.py": "the name of the option that is refused"},
    ),
    Rule("listens everywhere", both(constant("0.0.0.0", "[::]"), bind_everywhere)),
    Rule(
        "uses the network",
        both(modules(NETWORK, LOCAL), calls(DOORS)),
        {
            "pmdkit/llm/engines/vllm/http.py": "speaks to the servers of [vllm]",
            "pmdkit/llm/engines/vllm/server_process.py": "looks for a free port on vllm.host",
            "pmdkit/llm/engines/vllm/weights_nccl.py": "tries whether a server can be reached",
            "pmdkit/llm/launcher.py": "listens on 127.0.0.1 for ranks; names this machine",
            "pmdkit/cli/llm_ranks.py": "asks the ranks' own store",
            "pmdkit/hub.py": "asks whether the hub answers, where a recipe names something there",
            "pmdkit/envs/math/readers.py": "reads a data set of the hub where a recipe names one",
            "pmdkit/adapters/trl/golden.py": "makes a data set of rows that stand in the file",
            "pmdkit/observe/trackers.py": "trackers that run.report_to asks for; offline unless their variables say so",
        },
        everywhere=False,
    ),
    Rule("guesses a file name", ends("mktemp", "tempnam", "tmpnam")),
    Rule(
        "opens vLLM to pickles",
        constant("VLLM_ALLOW_INSECURE_SERIALIZATION", "allow_insecure_serialization"),
    ),
    Rule("hides what is not finite", ends("nan_to_num", "nan_to_num_"), everywhere=False),
    Rule("unpacks an archive", ends("extractall", "unpack_archive")),
)
