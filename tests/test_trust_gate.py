"""Every place that loads named code is known here, and stands behind the gate of `pmdkit.plugins`."""

import ast

from .test_rules import ROOT, TREES

OURS = {"module_from_file", "class_from_path"}
LOADERS = OURS | {"exec", "eval", "spec_from_file_location", "run_path", "SourceFileLoader"}
KNOWN = {
    # file, function: why it may
    ("pmdkit/plugins.py", "module_from_file"): "the gate itself: require_trust before anything runs",
    ("pmdkit/plugins.py", "class_from_path"): "asks module_from_file",
    ("pmdkit/envs/build.py", "kind_of"): "kinds of [env], by class_from_path",
    ("pmdkit/envs/reward_functions.py", "load"): "a worker; who starts it has asked require_trust, task.make_grader",
    ("pmdkit/llm/turns.py", "make_environment"): "environments that take turns, by module_from_file",
    ("pmdkit/trainer.py", "own_callbacks"): "callbacks of [run], by class_from_path",
    ("pmdkit/objectives/__init__.py", "build_objective"): "objectives, by class_from_path",
    ("pmdkit/objectives/temperatures.py", "make_tau"): "rules for tau, by class_from_path",
    ("pmdkit/testing/golden/__init__.py", "from_file"): "an implementation that the caller names, by module_from_file",
    ("packages/pmdkit-course/pmdkit_course/worker.py", "load"): "a submission, in the sandbox of pmdkit_course",
    ("packages/pmdkit-course/pmdkit_course/worker.py", "import_known"): "imports of a submission, in the same sandbox",
}


def loads(tree):
    """(function, what it calls) of each call that loads code by name."""
    for outer in ast.walk(tree):
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(outer):
                if isinstance(node, ast.Call):
                    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                    plain = name not in ("exec", "eval") or isinstance(node.func, ast.Name)  # model.eval() is torch's
                    if name in LOADERS and plain:
                        yield outer.name, name


def test_every_place_that_loads_named_code_is_known():
    found = {(str(path.relative_to(ROOT)), function) for path, tree in TREES.items() for function, _ in loads(tree)}
    assert found == set(KNOWN), "a new place that loads named code: put it behind plugins.require_trust, and add it"
