"""Rules of the house that no linter knows: one meaning per name, imports in one direction."""

import ast
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "pmdkit").rglob("*.py"))}


@cache  # a second that not every process of a test run has to wait for
def trees():
    return {path: ast.parse(text) for path, text in SOURCES.items()}


def test_shelves_hold_no_package_and_are_not_imported():
    for shelf in ("envs", "llm"):
        assert not list((ROOT / shelf).rglob("__init__.py"))
    for path, text in SOURCES.items():
        assert not re.search(r"^\s*(from|import) (envs|llm)(\.| |$)", text, re.M), path


def test_a_class_name_means_one_thing():
    classes = defaultdict(list)
    for path, tree in trees().items():
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
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and vague.match(node.name)
    ]
    assert found == []


def test_one_word_per_thing():
    """Synonyms that the glossary forbids do not appear as names."""
    forbidden = re.compile(r"\b(log_probs|loss_mask|olp|adv)\b")
    for path, text in SOURCES.items():
        for number, line in enumerate(text.splitlines(), 1):
            assert not forbidden.search(line), f"{path}:{number}: {line}"


def imported(tree):
    """The packages that a file imports."""
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.split(".")[0] for name in names}


def test_the_thing_imports_its_one_companion_from_two_rooms():
    """Answers are judged by strict_answers, for environments and for language models; nothing else is imported."""
    for path, tree in trees().items():
        companions = imported(tree) & {"strict_answers", "pmdkit_adapters", "pmdkit_lab", "pmdkit_course"}
        room = path.relative_to(ROOT / "pmdkit").parts[0]
        assert companions <= ({"strict_answers"} if room in ("envs", "llm") else set()), path


def test_objectives_import_torch_only_and_theory_numpy_only():
    allowed = {"objectives": {"torch", "pmdkit"}, "theory": {"numpy", "scipy", "pmdkit"}}
    for room, names in allowed.items():
        for path in (ROOT / "pmdkit" / room).rglob("*.py"):
            assert imported(trees()[path]) <= names | sys.stdlib_module_names, path
