"""Base install and extras: what works without torch imports none, what needs it says so, remedies can be copied."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pmdkit import extras
from pmdkit.errors import EnvironmentLacks

ABSENT = sorted({module for modules in extras.EXTRAS.values() for module in modules})
BLOCK = f"""
import importlib.util, sys
absent, real = set({ABSENT}), importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.split(".")[0] in absent else real(name, package)
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def without_extras(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process where no package of an extra can be imported, as in a base install."""
    return subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, cwd=cwd)


@pytest.mark.slow
def test_the_base_works_without_torch(tmp_path):
    verbs = [["theory", "--json"], ["ledger"], ["envs"], ["learn", "list"], ["learn", "start", "lessons"], ["doctor"]]
    verbs += [["figure", "fig1-right", "--out", "figures"]]
    code = f"""
from pmdkit.cli import main
for verb in {verbs}:
    try:
        main(verb)
    except SystemExit as leave:
        assert not leave.code, (verb, leave.code)
try:
    main(["learn", "check", "101.1"])
except SystemExit as leave:
    assert leave.code == 4, leave.code
import pmdkit.envs, pmdkit.theory, pmdkit.stats, pmdkit_lab.figures
assert pmdkit.envs.make({{"kind": "needle"}}).arms == 100
"""
    done = without_extras(code, tmp_path)
    assert not done.returncode, done.stderr
    lessons = {path.name for path in Path(__file__).parents[1].glob("tutorials/*.ipynb")}
    assert {path.name for path in (tmp_path / "lessons").glob("*.ipynb")} == lessons
    assert "101.1  Not filled in yet" in done.stdout


@pytest.mark.slow
def test_what_needs_an_extra_says_which_and_how(tmp_path):
    code = """
from pmdkit.cli import main
for verb in (["bandit", "needle"], ["objectives"], ["plan", "one-gpu"]):
    try:
        main(verb)
    except SystemExit as leave:
        assert leave.code == 3, (verb, leave.code)
import pmdkit
for name in ("train", "objectives"):
    try:
        getattr(pmdkit, name)
    except Exception as problem:
        print(type(problem).__name__, problem, file=sys.stderr)
try:
    pmdkit.envs.BanditEnv
except Exception as problem:
    print(type(problem).__name__, problem, file=sys.stderr)
"""
    lines = without_extras(code, tmp_path).stderr.splitlines()
    home = extras.CHECKOUT
    needed = f"pip install -c {home}/constraints.txt -e '{home}[torch]'"
    assert len(lines) == 6
    assert all(needed in line for line in lines[:5])
    assert "[gym]" in lines[5]


def test_a_remedy_in_a_checkout_installs_it_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(extras.CHECKOUT)
    assert extras.remedy("llm") == "pip install -c constraints.txt -e '.[llm]'"
    monkeypatch.chdir(tmp_path)
    assert extras.remedy("llm") == f"pip install -c {extras.CHECKOUT}/constraints.txt -e '{extras.CHECKOUT}[llm]'"


def test_a_remedy_outside_a_checkout_names_what_is_missing_and_never_pmdkit(monkeypatch, tmp_path):
    """The name pmdkit on an index need not be ours: whoever registered it would be installed."""
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    monkeypatch.setitem(extras.EXTRAS, "llm", ("torch", "absent_one", "absent_two"))
    assert extras.remedy("llm") == "pip install absent_one absent_two"
    with pytest.raises(EnvironmentLacks, match=r"to_pandas needs absent\.inner, .* install absent here"):
        extras.need("absent.inner", "to_pandas")


def test_the_extras_of_pyproject_hold_the_modules_that_are_asked_for():
    import tomllib

    file = extras.CHECKOUT / "pyproject.toml"
    project = tomllib.loads(file.read_text())["project"]
    for extra, modules in extras.EXTRAS.items():
        wanted = " ".join(project["optional-dependencies"][extra]).replace("-", "_")
        for module in modules:
            assert module in wanted, (extra, module)
    base = [line.split(">")[0] for line in project["dependencies"]]
    assert not {"torch", "gymnasium", "transformers"} & set(base), json.dumps(base)
