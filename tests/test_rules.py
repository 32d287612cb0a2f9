"""Rules of the house that no linter knows: one concept per file, one meaning per name, imports in one direction.

The bounds are consequences of these rules, not goals. A file that holds two concepts to meet one is worse than a small
file.
"""

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "pmdkit").rglob("*.py"))}
TREES = {path: ast.parse(text) for path, text in SOURCES.items()}
LINES = sum(text.count("\n") for text in SOURCES.values())
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES}
INNER = [name for name, path in MODULES.items() if path.name != "__init__.py"]


def imported(name: str) -> set[str]:
    """The modules of pmdkit that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(TREES[MODULES[name]]):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}:{node.lineno}: imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys()


def test_shelves_hold_no_package_and_are_not_imported():
    for shelf in ("envs", "llm"):
        assert not list((ROOT / shelf).rglob("__init__.py"))
    for path, text in SOURCES.items():
        assert not re.search(r"^\s*(from|import) (envs|llm)(\.| |$)", text, re.M), path


def test_a_class_name_means_one_thing():
    classes = defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}


@pytest.mark.slow
def test_verbs_say_what_happens():
    """`broadcast` instead of `tell`, `resolve_config` instead of `settle`: a vague verb once had eight meanings."""
    vague = re.compile(r"_?(tell|told|telling|settle|settled|hear|heard|hand_out|handed|mend|mended|said|say)(_|$)")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and vague.match(node.name)
    ]
    assert found == []


def test_one_word_per_thing():
    """Synonyms that the glossary forbids do not appear as names."""
    forbidden = re.compile(r"\b(log_probs|loss_mask|olp|adv)\b")
    for path, text in SOURCES.items():
        if "adapters" in path.parts:
            continue  # a host's own keys
        for number, line in enumerate(text.splitlines(), 1):
            assert not forbidden.search(line), f"{path}:{number}: {line}"


def test_a_file_is_a_concept():
    """Neither crumbs that cost a reader a jump each, nor a file in which nothing is found."""
    assert max(path.stat().st_size for path in SOURCES) <= 34 * 1024
    assert len(SOURCES) <= 300
    assert 140 * len(SOURCES) <= LINES
    crumbs = [name for name in INNER if SOURCES[MODULES[name]].count("\n") < 40]
    assert len(crumbs) <= 0.06 * len(INNER), crumbs


@pytest.mark.slow
def test_few_modules_serve_one_sibling_alone():
    importers = defaultdict(set)
    for name in MODULES:
        for other in imported(name):
            importers[other].add(name)
    lonely = [
        name
        for name in INNER
        if len(importers[name]) == 1 and next(iter(importers[name])).rpartition(".")[0] == name.rpartition(".")[0]
    ]
    assert len(lonely) <= 0.12 * len(INNER), lonely


@pytest.mark.slow
def test_walls_are_cheap():
    """Lines of imports are what the walls between files cost."""
    imports = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    assert imports <= 0.055 * LINES


def test_objectives_import_torch_only_and_theory_numpy_only():
    allowed = {"objectives": {"torch", "pmdkit"}, "theory": {"numpy", "scipy", "pmdkit"}}
    for room, names in allowed.items():
        for path in (ROOT / "pmdkit" / room).rglob("*.py"):
            for node in ast.walk(TREES[path]):
                modules = (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else []
                )
                for module in modules:
                    assert module.split(".")[0] in names | sys.stdlib_module_names, f"{path} imports {module}"


def test_files_begin_with_what_is_here():
    for path, text in SOURCES.items():
        assert text.startswith(('"""', 'r"""')), path


STEP = """
import json, sys
from pathlib import Path
from pmdkit import loop

top, files, real = str(Path(loop.__file__).parent), set(), loop.run

def profile(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(top) and code.co_name != "<module>" and code.co_flags & 1:
        files.add(code.co_filename.removeprefix(top))

def run(*args, **options):
    if "observers" in options:
        options["observers"] = ()
    else:
        args = (*args[:4], (), *args[5:])
    sys.setprofile(profile)
    try:
        return real(*args, **options)
    finally:
        sys.setprofile(None)

loop.run = run
import pmdkit

tier, env, out, options = sys.argv[1:]
pmdkit.train("pmd-mean", tier, env, steps=1, out=out, **json.loads(options))
print(json.dumps(sorted(files)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tier", "env", "options", "most"),
    [
        ("bandit", "needle", {"group": 16}, 12),
        ("toy", "modular-sum", {}, 16),
        pytest.param(
            "llm",
            "starter",
            {"options": {"warm_start.pass_rate": 0.02, "warm_start.look": 5, "evaluation.problems": 8}},
            25,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_step_crosses_few_files(tier, env, options, most, tmp_path):
    """A reader who follows one step, callbacks left out, opens this many files at most."""
    command = [sys.executable, "-c", STEP, tier, env, str(tmp_path / "run"), json.dumps(options)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout.splitlines()[-1])
    assert 5 <= len(files) <= most, files
