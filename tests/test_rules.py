"""Rules of the house that no linter knows: shelves are not packages, files stay small, words stay fixed."""

import re
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "pmdkit").rglob("*.py"))


def test_shelves_hold_no_package_and_are_not_imported():
    for shelf in ("envs", "llm"):
        assert not list((ROOT / shelf).rglob("__init__.py"))
    for path in SOURCES:
        assert not re.search(r"^\s*(from|import) (envs|llm)(\.| |$)", path.read_text(), re.M), path


def test_files_stay_small():
    sizes = {path: path.stat().st_size for path in SOURCES}
    assert max(sizes.values()) <= 20 * 1024, max(sizes, key=sizes.get)
    assert statistics.median(sizes.values()) <= 5 * 1024


def test_one_word_per_thing():
    """Synonyms that the glossary forbids do not appear as names."""
    forbidden = re.compile(r"\b(log_probs|loss_mask|olp|adv)\b")
    for path in SOURCES:
        if "adapters" in path.parts:
            continue  # a host's own keys
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not forbidden.search(line), f"{path}:{number}: {line}"


def test_objectives_import_torch_only_and_theory_numpy_only():
    allowed = {"objectives": {"torch", "pmdkit"}, "theory": {"numpy", "scipy", "pmdkit"}}
    import ast
    import sys

    for room, names in allowed.items():
        for path in (ROOT / "pmdkit" / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                modules = (
                    [a.name for a in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else []
                )
                for module in modules:
                    top = module.split(".")[0]
                    assert top in names | sys.stdlib_module_names, f"{path} imports {module}"


def test_files_begin_with_what_is_here():
    for path in SOURCES:
        assert path.read_text().startswith(('"""', 'r"""')), path
