"""No file of the packages loads a pickle or YAML, and only the named ones make code of text or trust a model's code.

This reads what is written, not what runs: it stops a slip, not somebody who hides a call.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOADERS = {"pickle", "cPickle", "joblib", "dill", "cloudpickle", "shelve", "marshal", "yaml"}
MAKE_CODE = {"eval", "exec", "compile", "__import__"}
MAY_MAKE_CODE = {
    "packages/pmdkit-course/pmdkit_course/worker.py",  # a learner's cell, in a process of its own
    "pmdkit/plugins.py",  # a file that the user named; it runs as the user
}


def findings(path: Path) -> list[str]:
    """What a file does that it may not, as `path:line call`."""
    name, found = str(path.relative_to(ROOT)), []
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        bad = [module for module in modules if module.partition(".")[0] in LOADERS]
        if isinstance(node, ast.Call):
            call = ast.unparse(node.func).removeprefix("builtins.")
            loads = call in ("torch.load", "pd.read_pickle", "pandas.read_pickle")
            makes = (call in MAKE_CODE or call.endswith((".exec_module", ".run_path"))) and name not in MAY_MAKE_CODE
            bad += [call] if loads or makes else []
            for keyword in node.keywords:
                if keyword.arg in ("allow_pickle", "trust_remote_code", "shell"):
                    bad += [] if ast.unparse(keyword.value) == "False" else [f"{call}({keyword.arg}=...)"]
        found += [f"{name}:{node.lineno} {what}" for what in bad]  # type: ignore[attr-defined]
    return found


def test_no_pickle_is_loaded_and_no_code_made_of_text_but_in_the_named_places(tmp_path, monkeypatch):
    sources = [*ROOT.glob("pmdkit/**/*.py"), *ROOT.glob("packages/*/*_*/**/*.py"), *ROOT.glob("llm/**/*.py")]
    assert len(sources) > 150
    assert [line for path in sources for line in findings(path)] == []
    planted = tmp_path / "planted.py"
    planted.write_text("import pickle\ntorch.load(x)\neval(x)\nf(x, allow_pickle=True)\nf(trust_remote_code=t)\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert len(findings(planted)) == 5
