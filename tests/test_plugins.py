"""Code out of a file runs only where a person named the file: run folders and recipes from elsewhere run nothing."""

import json
import py_compile
from contextlib import suppress
from importlib.util import cache_from_source

import gymnasium
import pytest

from pmdkit import Run, envs, plugins, train
from pmdkit.cli import main
from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.observe.run_folder import RunFolder
from pmdkit.resolve import resolve
from pmdkit_lab.dumps.recorded import open_step
from pmdkit_lab.replay.replay import make_request

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


def stored(code, tmp_path):
    """The folder of a run whose configuration names code, by somebody else."""
    options = {"run.record": 1, "objective.tau": {"rule": f"{code}:Rule"}}
    run = train(f"{code}:Loss", env="needle", steps=2, out=tmp_path / "run", options=options)
    assert has_run(code)
    return run.path


def recipe(code, tmp_path, text=RECIPE):
    file = tmp_path / "recipe.toml"
    file.write_text(text.format(code=code))
    return str(file)


FOREIGN = {
    "eval": lambda run, code, tmp: main(["eval", str(run)]),
    "figure": lambda run, code, tmp: main(["figure", str(run)]),
    "resume": lambda run, code, tmp: main(["bandit", "needle", "--out", str(run), "--resume", "--steps", "3"]),
    "resume in Python": lambda run, code, tmp: train(env="needle", out=run, resume=True, steps=3),
    "policy": lambda run, code, tmp: Run(run).policy,
    "replay": lambda run, code, tmp: main(["replay", str(run)]),
    "replay of another objective": lambda run, code, tmp: main(["replay", str(run), "--objective", "pmd-part"]),
    "biography": lambda run, code, tmp: make_request(open_step(run, None)),
    "recipe, dry run": lambda run, code, tmp: main(["llm", recipe(code, tmp), "--dry-run"]),
    "spec": lambda run, code, tmp: main(["bandit", recipe(code, tmp, BANDIT)]),
    "resolve": lambda run, code, tmp: resolve("bandit", recipe(code, tmp, BANDIT), {}),
    "load": lambda run, code, tmp: envs.load(recipe(code, tmp, BANDIT)),
    "Gymnasium": lambda run, code, tmp: gymnasium.make("pmdkit/Bandit-v0", env=recipe(code, tmp, BANDIT)),
}


@pytest.mark.parametrize("place", FOREIGN)
def test_what_a_file_names_is_not_run(place, code, tmp_path, capsys):
    run = stored(code, tmp_path)
    with pytest.raises((SystemExit, UsageError)) as left:
        FOREIGN[place](run, code, tmp_path)
    told = capsys.readouterr().err if left.type is SystemExit else str(left.value)
    assert (left.value.code if left.type is SystemExit else left.value.exit_code) == 2
    assert not has_run(code)
    assert f"add --trust {code}" in told


RESUME = ["bandit", "needle", "--resume", "--steps", "3", "--json", "--out"]


@pytest.mark.slow
def test_code_that_is_named_again_runs(code, call, tmp_path):
    run = stored(code, tmp_path)
    assert call(*RESUME, run, "--objective", f"{code}:Loss") == 0
    assert has_run(code)
    assert Run(run, trust=str(code)).policy.shape == (1, 100)
    for verb in ("eval", "replay"):
        assert call(verb, run, "--trust", code, "--json") == 0
        assert has_run(code)
    two = tmp_path / "two"
    named = ["--trust", str(code), "--out", str(two), "--steps", "1", "--json"]
    assert call("bandit", recipe(code, tmp_path, BANDIT), *named) == 0
    assert Run(two, trust=str(code)).evaluate(k=2)["k"] == 2


def test_code_that_changed_is_not_the_code_of_the_run(code, call, tmp_path):
    run = stored(code, tmp_path)
    code.write_text(CODE + "# another line\n")
    for verb in ("eval", "figure"):
        assert call(verb, run, "--trust", code) == ResumeRefused.exit_code
    assert call(*RESUME, run, "--trust", str(code)) == ResumeRefused.exit_code
    with pytest.raises(ResumeRefused, match=f"code {code}"):
        _ = Run(run, trust=str(code)).policy
    assert not has_run(code)

    assert call(*RESUME, run, "--trust", str(code), "--accept-changes") == 0
    assert has_run(code)
    (change,) = json.loads(RunFolder(run).inputs.read_text())["changes"]
    assert (change["input"], change["after_step"]) == (f"code {code}", 2)
    assert call("eval", run, "--trust", code, "--json") == 0  # what was accepted is the run's from now on


def test_another_spelling_of_a_file_is_seen_too(code):
    """Whatever is loaded was seen: my.py/ is my.py, for a Path."""
    loaded = 0
    for end in ("", "/", "//", "/.", "/./", "/../my.py", "/../my.py/", " ", ".", ":", ":x", "\n", "#", "?"):
        for name in (f"{code}{end}:Two", f"./{code.name}{end}:Two"):
            with suppress(ValueError):
                plugins.class_from_path(name)
            if has_run(code):
                loaded += 1
                with pytest.raises(UsageError):
                    plugins.NOTHING.require({"env": [name]})
    assert loaded > 2


SIBLINGS = {
    "my.py": "import helper, losses.inner\nfrom plain import one" + CODE,
    "helper.py": "import json\nimport deep.er\nVALUE = 1\n",
    "losses/__init__.py": "from . import inner\nfrom .other import *\n",
    "losses/inner.py": "def late():\n    from plain.two import TWO\n    return TWO\n",
    "losses/other.py": "",
    "plain/one.py": "", "plain/two.py": "TWO = 2\n", "deep/er.py": "", "unused.py": "",
    "json.py": "raise AssertionError", "numpy.py": "raise AssertionError", "pmdkit/envs.py": "raise AssertionError",
}  # fmt: skip
USED = ["helper", "losses", "losses.inner", "losses.other", "plain.one", "plain.two", "deep.er"]


@pytest.fixture
def siblings(tmp_path):
    for name, text in SIBLINGS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "my.py"


def test_a_file_imports_what_lies_beside_it_after_everything_that_is_installed(siblings):
    assert sorted(plugins.sibling_modules(siblings)) == sorted(USED)
    module = plugins.module_from_file(siblings)
    assert module.losses.inner.late() == 2
    assert module.np is __import__("numpy")
    siblings.with_name("helper.py").write_text("VALUE = 2\n")
    assert plugins.module_from_file(siblings).helper.VALUE == 2  # read again
    other = siblings.parent / "other" / "my.py"
    other.parent.mkdir()
    other.with_name("helper.py").write_text("VALUE = 3\n")
    other.write_text("import helper\n")
    assert plugins.module_from_file(other).helper.VALUE == 3
    with pytest.raises(ModuleNotFoundError):
        __import__("unused")


def test_bytecode_beside_a_sibling_is_not_read(siblings):
    """Python itself takes it unchecked."""
    helper = siblings.with_name("helper.py")
    planted = siblings.with_name("planted.py")
    planted.write_text("VALUE = 'planted'\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(planted), cache_from_source(str(helper)), str(helper), invalidation_mode=mode)
    assert plugins.module_from_file(siblings).helper.VALUE == 1


def test_siblings_belong_to_the_code_of_a_run(siblings):
    found, known = plugins.sibling_modules(siblings), {plugins.sha256_of_code(siblings)}
    for count, file in enumerate(found.values(), 2):
        file.write_text(file.read_text() + "# another line\n")
        known.add(plugins.sha256_of_code(siblings))
        assert len(known) == count
    siblings.with_name("unused.py").write_text("# another line\n")
    assert plugins.sha256_of_code(siblings) in known
