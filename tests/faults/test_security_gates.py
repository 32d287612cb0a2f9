"""No file of the project loads a pickle, runs text, starts a shell, trusts a model's code or listens everywhere.

The rules and their exceptions are forbidden.py; each is shown a snippet that it must refuse, and one that it must not.
"""

import ast
import functools
import json
import re
import tomllib
from pathlib import Path

import pytest

from .forbidden import RULES, imported, violations

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
    """symbolic.py, which has sympy, is imported by the worker and by nobody else; the pool starts it by name."""
    who = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        for node in nodes(path)
        for name in imported(node)
        if "verifier.symbolic" in name or name == "pmdkit.envs.verifier.worker"
    ]
    assert set(who) <= {"pmdkit/envs/verifier/worker.py", "pmdkit/learn/worker.py"}
    assert "pmdkit/envs/verifier/worker.py" in who


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
