"""No file of the packages loads a pickle or YAML; only the named ones make code of text or start processes.

This reads what is written, not what runs: it stops a slip, not somebody who hides a call.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOADERS = {"pickle", "cPickle", "joblib", "dill", "cloudpickle", "shelve", "marshal", "yaml"}
MAY_LOAD_TENSORS = "packages/pmdkit-lab/pmdkit_lab/dumps/readers.py"  # dumps of slime; pickle only for its exception
MAKE_CODE = {"eval", "exec", "compile", "__import__"}
MAY_MAKE_CODE = {
    "packages/pmdkit-course/pmdkit_course/worker.py",  # a learner's cell, in a process of its own
    "packages/pmdkit-course/pmdkit_course/exercises/thread.py",  # the course's own solutions, with a text changed
    "packages/pmdkit-course/pmdkit_course/kit.py",  # the formulas of the exam's own pictures
    "packages/pmdkit-course/pmdkit_course/variants.py",  # the course's own solutions, with one thing changed
    "packages/strict-answers/strict_answers/function_grader.py",  # a reward that the user named, in a worker
    "pmdkit/plugins.py",  # a file that the user named; it runs as the user
}
STARTERS = {"multiprocessing", "torch.multiprocessing", "concurrent.futures.process", "pty"}
START = re.compile(r"subprocess\.(run|call|check_\w+|Popen|get\w+)|asyncio\.create_subprocess_\w+")
START_BY_OS = re.compile(r"os\.(system|popen|startfile|fork\w*|(exec|spawn|posix_spawn)\w*)")
LEADERBOARD = "packages/pmdkit-course/pmdkit_course/kit_files/project/leaderboard.py"  # a race for each file of a class
MAY_START = {  # any other program
    "pmdkit/child_processes.py",
    "packages/strict-answers/strict_answers/process.py",
    "packages/pmdkit-course/pmdkit_course/sandbox.py",  # bubblewrap
    "llm/cluster/on_ray.py",
    LEADERBOARD,
    "packages/pmdkit-adapters/pmdkit_adapters/smollm2.py",  # pip, by the one command of a child that is Python
    "packages/pmdkit-lab/pmdkit_lab/rehearsal/rehearse.py",  # a compiler; a Python, by the one command again
    "packages/pmdkit-lab/pmdkit_lab/rehearsal/rank.py",  # its forks: torch is imported once
    "packages/pmdkit-adapters/pmdkit_adapters/trl/config.py",  # the golden vectors, by the one command again
}
MAY_START_PYTHON = {"pmdkit/child_processes.py", "packages/strict-answers/strict_answers/process.py", LEADERBOARD}


def findings(path: Path) -> list[str]:
    """What a file does that it may not, as `path:line call`."""
    name, found = str(path.relative_to(ROOT)), []
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        bad = [module for module in modules if module.partition(".")[0] in LOADERS]
        bad = [module for module in bad if (name, module) != (MAY_LOAD_TENSORS, "pickle")]
        bad += [module for module in modules if module in STARTERS and name not in MAY_START]
        bad += ["from subprocess"] if isinstance(node, ast.ImportFrom) and node.module == "subprocess" else []
        python = isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable"
        bad += ["sys.executable"] if python and name not in MAY_START_PYTHON else []
        if isinstance(node, ast.Call):
            call = ast.unparse(node.func).removeprefix("builtins.")
            loads = call in ("torch.load", "pd.read_pickle", "pandas.read_pickle") or call.startswith("pickle.")
            tensors = [ast.unparse(k) for k in node.keywords if k.arg == "weights_only"] == ["weights_only=True"]
            loads = loads and not (call == "torch.load" and tensors and name == MAY_LOAD_TENSORS)
            makes = (call in MAKE_CODE or call.endswith((".exec_module", ".run_path"))) and name not in MAY_MAKE_CODE
            starts = (bool(START.fullmatch(call)) and name not in MAY_START) or bool(START_BY_OS.fullmatch(call))
            bad += [call] if loads or makes or starts else []
            for keyword in node.keywords:
                if keyword.arg in ("allow_pickle", "trust_remote_code", "shell"):
                    bad += [] if ast.unparse(keyword.value) == "False" else [f"{call}({keyword.arg}=...)"]
        found += [f"{name}:{node.lineno} {what}" for what in bad]  # type: ignore[attr-defined]
    return found


def test_pickles_code_and_processes_are_made_in_the_named_places_only(tmp_path, monkeypatch):
    sources = [*ROOT.glob("pmdkit/**/*.py"), *ROOT.glob("packages/*/*_*/**/*.py"), *ROOT.glob("llm/**/*.py")]
    assert len(sources) > 150
    assert [line for path in sources for line in findings(path)] == []
    planted = tmp_path / "planted.py"
    planted.write_text(
        "import pickle\ntorch.load(x)\neval(x)\nf(x, allow_pickle=True)\nf(trust_remote_code=t)\n"
        "from multiprocessing import Pool\nfrom subprocess import run\nsubprocess.run(x)\nos.execv(sys.executable)\n"
    )
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert len(findings(planted)) == 10
