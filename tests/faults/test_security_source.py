"""What stands in the files of the project: no forbidden call, and pins that have hashes and lie in bounds.

No file loads a pickle, runs text, starts a shell, trusts a model's code or listens everywhere: RULES, the places that
may, and why they may; each rule is shown a snippet that it must refuse, and all of them one that they must not. The
gates read what is written, not what runs: they stop a slip, not somebody who hides a call.
"""

import ast
import functools
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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
        {
            "packages/pmdkit-course/pmdkit_course/worker.py": WORKER,
            "pmdkit/plugins.py": OWN,
            "pmdkit/sweeps/run.py": "runs pmdkit itself, as its command line does",
            "docs/generate/claims.py": "reads the claims in our own lessons, when the site is built",
        },
    ),
    Rule(
        "starts a shell",
        both(calls(SHELLS), keyword("shell", False)),
        {"pmdkit/cli/listings.py": "names a shell to the parser of the command line, which starts none"},
    ),
    Rule(
        "parses mathematics",
        both(modules(ALGEBRA), ends("sympify", "parse_expr", "parse_latex", "lambdify")),
        {"packages/strict-answers/strict_answers/symbolic.py": "the verifier's processes only, see below"},
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
            "pmdkit/llm/engines/vllm/weights_transfer.py": "tries whether a server can be reached",
            "pmdkit/llm/ranks.py": "listens on 127.0.0.1 for ranks; names this machine",
            "pmdkit/llm/model.py": "downloads safetensors and JSON of a model on the hub, which the recipe names",
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


# The gates.

ROOT = Path(__file__).parents[2]
PLACES = ("pmdkit", "llm", "envs", "docs", "benchmarks", "tutorials")
SOURCES = sorted(path for place in PLACES for path in (ROOT / place).rglob("*.py"))


@functools.cache
def nodes(path):
    """All nodes of a file."""
    return tuple(ast.walk(ast.parse(path.read_text())))


PLANTED = {
    "loads a pickle": [
        "import pickle",
        "from joblib import load",
        "import torch\nx = torch.load('a.pt', weights_only=True)",
        "from torch import load",
        "import importlib\nimportlib.import_module('dill')",
        "import numpy as np\nnp.load('a.npy', allow_pickle=True)",
        "f(allow_pickle=chosen)",
    ],
    "makes code of text": [
        "eval(text)",
        "exec(text)",
        "compile(text, 'a', 'exec')",
        "import builtins\nbuiltins.eval(text)",
        "spec.loader.exec_module(module)",
        "list(map(eval, texts))",
        "__import__(name)",
    ],
    "starts a shell": [
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import os\nos.system('ls')",
        "from os import popen",
        "subprocess.Popen(line, shell=wanted)",
    ],
    "parses mathematics": [
        "import sympy\nsympy.sympify(text)",
        "from sympy.parsing.sympy_parser import parse_expr",
        "from math_verify import parse",
        "expression.lambdify(text)",
    ],
    "reads YAML": ["import yaml\nyaml.load(text)", "from yaml import safe_load", "reader.full_load(text)"],
    "runs code of a model": [
        "AutoModel.from_pretrained(path, trust_remote_code=True)",
        "AutoModel.from_pretrained(path, trust_remote_code=table.trust)",
        "class Table:\n    trust_remote_code: bool = False",
        "def load(path, trust_remote_code):\n    pass",
        "options = {'trust_remote_code': True}",
    ],
    "listens everywhere": ["serve(host='0.0.0.0')", "serve(host='::')", "s.bind(('', 80))"],
    "uses the network": [
        "import requests",
        "from urllib.request import urlopen",
        "import socket",
        "from huggingface_hub import snapshot_download",
        "import asyncio\nasyncio.start_server(f)",
    ],
    "guesses a file name": ["import tempfile\ntempfile.mktemp()", "from tempfile import mktemp"],
    "opens vLLM to pickles": ["import os\nos.environ['VLLM_ALLOW_INSECURE_SERIALIZATION'] = '1'"],
    "hides what is not finite": ["import torch\ntorch.nan_to_num(loss)", "loss.nan_to_num_()"],
    "unpacks an archive": ["import tarfile\ntarfile.open(name).extractall(where)"],
}
FINE = """
import os, re, subprocess, tempfile
import numpy as np
from urllib.parse import urlsplit
pattern = re.compile("a")
model.eval()
subprocess.run(["ls"], shell=False)
np.load("a.npy")
AutoModel.from_pretrained(path, trust_remote_code=False)
server = ("127.0.0.1", 0)
folder = tempfile.mkdtemp()
def eval(run):
    "A verb of the command line."
"""


def test_no_file_does_what_is_forbidden():
    assert len(SOURCES) > 200
    found = [line for path in SOURCES for line in violations(nodes(path), str(path.relative_to(ROOT)))]
    assert found == []


@pytest.mark.parametrize("says", [rule.says for rule in RULES])
def test_each_gate_refuses_what_is_planted(says):
    assert PLANTED[says], f"nothing is planted for the rule '{says}'"
    for snippet in PLANTED[says]:
        found = violations(ast.walk(ast.parse(snippet)), "pmdkit/planted.py")
        assert any(f": {says}: " in line for line in found), snippet


def test_what_is_harmless_passes():
    assert violations(ast.walk(ast.parse(FINE)), "pmdkit/harmless.py") == []


def test_every_exception_is_needed_and_has_a_reason():
    """A file that lost its reason loses its exception."""
    for rule in RULES:
        for path, reason in rule.allowed.items():
            assert len(reason) > 20
            without = [type(rule)(rule.says, rule.find, everywhere=rule.everywhere)]
            assert violations(nodes(ROOT / path), path, tuple(without)), f"{path} needs no exception: {rule.says}"


def test_mathematics_is_parsed_in_the_verifiers_processes_only():
    """symbolic.py, which has sympy, is imported by nobody: the grader names it to its workers."""
    who = [str(path) for path in SOURCES for node in nodes(path) for name in imported(node) if "symbolic" in name]
    assert who == []
    assert '"strict_answers.symbolic:load"' in (ROOT / "packages/strict-answers/strict_answers/grader.py").read_text()


def test_everything_that_loads_a_model_says_that_its_code_is_not_run():
    """transformers asks at the terminal where it is told nothing."""
    seen = 0
    for path in SOURCES:
        if not path.is_relative_to(ROOT / "pmdkit"):
            continue
        for node in nodes(path):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "from_pretrained":
                assert "trust_remote_code=False" in ast.unparse(node), f"{path}:{node.lineno}"
                seen += 1
    assert seen >= 3


def test_lower_bounds_keep_out_versions_with_published_holes():
    """vLLM before 0.14 ran the code of a model whatever it was told, torch before 2.10 that of a checkpoint."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *(line for lines in project["optional-dependencies"].values() for line in lines)]
    for package, least in {"torch": (2, 10), "vllm": (0, 14), "transformers": (5, 0), "jinja2": (3, 1)}.items():
        bounds = [found[1] for line in every if (found := re.match(rf"{package}>=([\d.]+)", line))]
        assert bounds, f"{package} has no lower bound"
        for bound in bounds:
            assert tuple(int(part) for part in bound.split(".")) >= least


def test_notebooks_are_stored_without_outputs():
    """An output may hold a path, a key, or a page that runs."""
    notebooks = sorted((ROOT / "tutorials").rglob("*.ipynb"))
    assert notebooks
    for path in notebooks:
        if ".ipynb_checkpoints" in path.parts:
            continue
        cells = json.loads(path.read_text())["cells"]
        for cell in (cell for cell in cells if cell["cell_type"] == "code"):
            assert cell["outputs"] == [], path
            assert cell["execution_count"] is None, path
            assert not re.search(r"^\s*[!%]", "".join(cell["source"]), re.M), f"{path} asks a shell"


# Where the environment comes from: a changed file is refused, and an audit that says nothing is reported.


@pytest.fixture(scope="module")
def audit():
    """requirements/audit.py as a module."""
    spec = importlib.util.spec_from_file_location("audit", ROOT / "requirements" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_pin_has_its_hashes_and_lies_in_its_bounds(audit, project):
    constraints = audit.pins(ROOT / "constraints.txt")
    assert len(constraints) > 150
    locks = [ROOT / "requirements" / name for name in ("hashes.txt", "torch.txt")]
    assert audit.wrong_locks(constraints, *locks) == []
    assert audit.wrong_bounds(constraints, project) == []
    own = audit.hashes(ROOT / "requirements" / "audit.txt")
    assert own["pip-audit"] > 0
    assert min(own.values()) > 0


def test_a_lock_that_was_left_behind_is_seen(audit, project, tmp_path):
    lock = tmp_path / "hashes.txt"
    some = "a" * 64
    lock.write_text(
        f"# of all\nold==1.0 \\\n    --hash=sha256:{some}\nbare==2.0\nextra==1 \\\n    --hash=sha256:{some}\n"
    )
    told = audit.wrong_locks({"old": "1.1", "bare": "2.0", "new": "3.0"}, lock)
    assert [line.split()[0] for line in told] == ["old", "new", "extra", "bare"]
    project = {"dependencies": ["old>=1.2", "bare<2", "free"], "optional-dependencies": {"all": ["pmdkit[llm]"]}}
    told = audit.wrong_bounds({"old": "1.10", "bare": "2.0"}, project)
    assert [line.split()[0] for line in told] == ["bare<2", "bare", "free"]
    assert audit.wrong_versions({}), "nothing that is installed here was tested"


SAYS = {
    "nothing is known of the canary": ({"jinja2": []}, None, 3, "it knows of no hole"),
    "the service does not answer": (None, None, 3, "does not know jinja2"),
    "it stops in the middle": ({"jinja2": ["CVE-1"]}, None, 3, "does not know numpy"),
    "all is well": ({"jinja2": ["CVE-1"]}, {"numpy": []}, 0, ""),
    "a hole": ({"jinja2": ["CVE-1"]}, {"numpy": ["CVE-2", "CVE-3"]}, 4, "numpy 2.0: CVE-2, CVE-3"),
}


@pytest.mark.parametrize("case", SAYS)
def test_an_audit_that_could_not_ask_does_not_pass(audit, case, tmp_path, monkeypatch):
    """A stand-in for pip-audit answers as the real one does, in its JSON; None is its answer without the service."""
    canary, rest, code, told = SAYS[case]
    stand_in = tmp_path / "pip-audit"
    stand_in.write_text(
        f"import json, sys\nasked = open(sys.argv[-1]).read().split('==')[0]\n"
        f"known = {{'jinja2': {canary!r}, 'numpy': {rest!r}}}[asked]\n"
        "one = {'name': asked, 'skip_reason': 'not found'} if known is None else "
        "{'name': asked, 'vulns': [{'id': i} for i in known[asked]]}\n"
        "print(json.dumps({'dependencies': [one]}))\n"
        "sys.exit(1 if known and known[asked] else 0)\n"
    )
    monkeypatch.setattr(audit, "AUDIT", [sys.executable, str(stand_in)])
    found, lines = audit.vulnerable({"numpy": "2.0"})
    assert found == code
    assert told in " ".join(lines)


def test_without_pip_audit_nobody_is_asked(audit, monkeypatch, tmp_path):
    monkeypatch.setattr(audit, "AUDIT", [str(tmp_path / "nothing")])
    assert audit.vulnerable({"numpy": "2.0"})[0] == 3
    monkeypatch.setattr(audit, "AUDIT", [sys.executable, "-c", "import sys; sys.exit('no network')"])
    assert audit.vulnerable({"numpy": "2.0"}) == (3, ["nobody could be asked for vulnerabilities: no network"])


def test_ci_installs_by_hash_before_it_tests():
    """And with options that check every file, take no source distribution, and add nothing that is not listed."""
    ci = (ROOT / ".ci" / "run").read_text()
    assert ci.index("tools/install-locked.sh") < ci.index("tools/audit.sh") < ci.index("make test")
    assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(options())


def options():
    """The options of pip in tools/install-locked.sh."""
    return re.search(r'^hashed="(.*)"$', (ROOT / "tools" / "install-locked.sh").read_text(), re.M)[1].split()


def wheel(folder, text):
    """A wheel whose one module holds a text."""
    folder.mkdir()
    path = folder / "planted-1.0-py3-none-any.whl"
    about = {"METADATA": "Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n", "RECORD": ""}
    about["WHEEL"] = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("planted.py", text)
        for name, content in about.items():
            archive.writestr(f"planted-1.0.dist-info/{name}", content)
    return path


def test_a_changed_file_is_refused(tmp_path):
    """The options of tools/install-locked.sh: the right wheel installs, another of that name and version does not."""
    import hashlib

    good = wheel(tmp_path / "good", "x = 1")
    wheel(tmp_path / "bad", "x = 2")
    lock = tmp_path / "hashes.txt"
    lock.write_text(f"planted==1.0 --hash=sha256:{hashlib.sha256(good.read_bytes()).hexdigest()}\n")
    for folder, code in (("bad", 1), ("good", 0)):
        out = tmp_path / f"out-{folder}"
        pip = [sys.executable, "-m", "pip", "install", *options(), "--isolated", "--no-index", "--no-cache-dir"]
        places = ["--find-links", str(tmp_path / folder), "--target", str(out), "-r", str(lock)]
        done = subprocess.run([*pip, *places], capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert (out / "planted.py").exists() == (code == 0)
