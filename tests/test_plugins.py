"""Code out of a file runs only where a person named the file: run folders and recipes from elsewhere run nothing."""

import ast
import json
import shutil
from pathlib import Path

import pytest

from pmdkit import Run, plugins, train
from pmdkit.cli import main
from pmdkit.envs import make
from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.llm.backend import make_verifier
from pmdkit.observe.run_folder import RunFolder
from pmdkit.recording import open_step
from pmdkit.training import plan
from pmdkit_lab.replay.replay import make_request

PACKAGE = Path(plugins.__file__).parent
CODE = """
from dataclasses import dataclass
from pathlib import Path
from pmdkit.envs import Bandit
from pmdkit.objectives import PMDMean
import numpy as np

with open(Path(__file__).parent / "ran", "a") as file:
    file.write("x")

@dataclass(frozen=True)
class Loss(PMDMean):
    pass

@dataclass(frozen=True)
class Rule:
    scale: float = 0.1
    def __call__(self, groups):
        return groups.reward.new_full((len(groups.reward),), self.scale)

@dataclass(frozen=True)
class Two:
    def build(self):
        return Bandit("two", np.array([[0.0, 1.0]]), np.log(np.array([[0.5, 0.5]])), np.array([[0.0, 1.0]]))

def grade(response, gold):
    return 1.0
"""
RECIPE = """
[env]
kind = "arithmetic"
problems = 100
[model]
build = "starter"
[reward]
grade = "{code}:grade"
[objective]
name = "pmd-mean"
tau = 0.05
[schedule]
group = 4
steps = 1
"""
BANDIT = """
[env]
kind = "{code}:Two"
[objective]
name = "pmd-mean"
tau = {{ rule = "{code}:Rule" }}
"""


@pytest.fixture
def code(tmp_path):
    file = tmp_path / "my.py"
    file.write_text(CODE)
    return file


def has_run(code):
    marker = code.with_name("ran")
    found = marker.exists()
    marker.unlink(missing_ok=True)
    return found


def forget():
    """What another process, or another day, knows of names: nothing."""
    plugins.TRUSTED.clear()


def stored(code, tmp_path, **schedule):
    """The folder of a run whose configuration names code, by somebody else."""
    run = train(f"{code}:Loss", env="needle", steps=2, out=tmp_path / "run", options={"run.record": 1}, **schedule)
    assert has_run(code)
    forget()
    return run.path


def leave(arguments):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code


def recipe(code, tmp_path, text=RECIPE):
    file = tmp_path / "recipe.toml"
    file.write_text(text.format(code=code))
    return str(file)


FOREIGN = {
    "eval": lambda run, code, tmp: main(["eval", str(run)]),
    "resume": lambda run, code, tmp: main(["bandit", "needle", "--out", str(run), "--resume", "--steps", "3"]),
    "resume in Python": lambda run, code, tmp: train(env="needle", out=run, resume=True, steps=3),
    "policy": lambda run, code, tmp: Run(run).policy,
    "replay": lambda run, code, tmp: main(["replay", str(run)]),
    "biography": lambda run, code, tmp: make_request(open_step(run, None)),
    "recipe, dry run": lambda run, code, tmp: main(["llm", recipe(code, tmp), "--dry-run"]),
    "spec": lambda run, code, tmp: main(["bandit", recipe(code, tmp, BANDIT)]),
    "plan": lambda run, code, tmp: plan("bandit", recipe(code, tmp, BANDIT), {}),
    "environment": lambda run, code, tmp: make({"kind": f"{code}:Two"}),
}


@pytest.mark.parametrize("place", FOREIGN)
def test_what_a_file_names_is_not_run(place, code, tmp_path, capsys):
    run = stored(code, tmp_path)
    with pytest.raises((SystemExit, UsageError)) as left:
        FOREIGN[place](run, code, tmp_path)
    sentence = str(left.value)
    if left.type is SystemExit:
        assert left.value.code == 2
        sentence = capsys.readouterr().err
    assert not has_run(code)
    assert f"add --trust {code}" in sentence


@pytest.mark.slow
def test_a_recipe_does_not_start_a_grader_that_nobody_named(code, tmp_path):
    plugins.trust(str(code))
    spec = plan("llm", recipe(code, tmp_path), {})[0]
    forget()
    with pytest.raises(UsageError, match="--trust"):
        make_verifier(spec)
    assert not has_run(code)
    plugins.trust(str(code))
    with make_verifier(spec) as verifier:
        assert verifier.own
    assert has_run(code)


@pytest.mark.slow
def test_code_that_is_named_again_runs(code, tmp_path, capsys):
    run = stored(code, tmp_path)
    again = ["bandit", "needle", "--out", str(run), "--resume", "--steps", "3", "--json"]
    assert leave([*again, "--objective", f"{code}:Loss"]) == 0
    assert has_run(code)
    forget()
    assert leave(["eval", str(run), "--trust", str(code), "--json"]) == 0
    forget()
    assert Run(run, trust=str(code)).policy.shape == (1, 100)
    forget()
    assert leave(["replay", str(run), "--trust", str(code), "--json"]) == 0
    forget()
    train(f"{code}:Loss", env="needle", out=run, resume=True, steps=4)
    forget()
    assert (
        leave(
            ["bandit", recipe(code, tmp_path, BANDIT), "--trust", str(code), "--out", str(tmp_path / "two"), "--json"]
        )
        == 0
    )
    assert len(Run(tmp_path / "two").metrics) > 0


def test_code_that_changed_is_not_the_code_of_the_run(code, tmp_path, capsys):
    run = stored(code, tmp_path)
    code.write_text(CODE + "# another line\n")
    name = ["--objective", f"{code}:Loss"]
    again = ["bandit", "needle", "--out", str(run), "--resume", "--steps", "3", "--json"]
    assert leave(["eval", str(run), "--trust", str(code)]) == 2
    assert "is not the code that the run began with" in capsys.readouterr().err
    assert leave([*again, *name]) == ResumeRefused.exit_code
    assert f"code {code} (was " in capsys.readouterr().err
    with pytest.raises(UsageError, match="sha256"):
        _ = Run(run, trust=str(code)).policy
    assert not has_run(code)
    assert leave([*again, *name, "--accept-changes"]) == 0
    assert has_run(code)
    forget()
    changes = json.loads(RunFolder(run).inputs.read_text())["changes"]
    assert [(change["input"], change["after_step"]) for change in changes] == [(f"code {code}", 2)]
    assert (
        leave(["eval", str(run), "--trust", str(code), "--json"]) == 0
    )  # what was accepted is the code of the run from now on


def test_a_name_in_python_is_enough_for_the_edit_that_follows(code, tmp_path):
    """In a notebook a class is edited and trained again, under the same name."""
    train(f"{code}:Loss", env="needle", steps=1, out=tmp_path / "a")
    code.write_text(CODE.replace("Loss(PMDMean):", "Loss(PMDMean):  # edited"))
    train(f"{code}:Loss", env="needle", steps=1, out=tmp_path / "b")


def test_a_folder_of_an_older_version_has_no_digest_and_needs_the_name_alone(code, tmp_path):
    run = stored(code, tmp_path)
    RunFolder(run).inputs.unlink()
    shutil.rmtree(RunFolder(run).checkpoints / "step-2")
    with pytest.raises(UsageError, match="--trust"):
        _ = Run(run).policy
    assert not has_run(code)


def callers(*names):
    """Where the package calls functions of these names."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in names:
                    found.add(path.relative_to(PACKAGE).as_posix())
    return found


@pytest.mark.slow
def test_one_gate():
    """Whoever adds another way for code in, or another place that opens the gate, has to answer for it here.

    The gate is shut by default: what `build_objective`, `class_from_path` and `module_from_file` are given runs only
    if it was named, so that they may be called from anywhere.
    """
    assert callers("spec_from_file_location", "module_from_spec", "run_path", "SourceFileLoader") == {"plugins.py"}
    # the sandbox runs submissions, see docs/teach/grading.md
    assert callers("exec") == {"plugins.py", "learn/worker.py"}
    # arguments that a person gave, never values that were read
    assert callers("trust") == {
        "cli/eval.py", "cli/llm.py", "cli/replay.py", "cli/train.py", "envs/gym.py", "envs/verifier/worker.py",
        "objectives/__init__.py", "replay/replay.py", "testing/golden/__init__.py", "training.py",
    }  # fmt: skip
    # its argument counts as given by a person
    assert callers("load_objective") == {
        "adapters/trl/config.py", "adapters/trl/trainer.py", "adapters/verl/config.py",
        "explain/explanation.py", "sweeps/measurements.py", "testing/__main__.py",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["my.py", "my.py:Loss", "a/b.py:f", "C:\\x\\my.py:Loss"])
def test_code_has_a_name(name):
    assert plugins.code_file(name).name.endswith("my.py" if "my" in name else "b.py")


@pytest.mark.parametrize("name", ["pmd-mean", "", "http://127.0.0.1:8000", "data.jsonl", "pass-rate", "python.pyc:x"])
def test_other_values_are_no_code(name):
    assert plugins.code_file(name) is None
