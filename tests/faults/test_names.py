"""Nothing is created outside of where runs go, whatever specs, objectives, folders and stored runs are called."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pmdkit.config import Spec
from pmdkit.errors import UsageError
from pmdkit.sweeps.grid import expand
from pmdkit.training import plan, train

from .configs import run
from .scale import scaled

SPEC = '[env]\nkind = "needle"\narms = 4\n[objective]\nname = "pmd-mean"\n[schedule]\nsteps = 1\n'
OBJECTIVE = """\
from dataclasses import dataclass
from pmdkit.objectives import PMDMean

@dataclass(frozen=True)
class Mine(PMDMean):
    pass
"""
NAMES = [
    "..", ".", "...", "~", "~root", "-", "-rf", "--out", "CON", "NUL", "aux.txt", "a.", "a ", " a", "a..b", ".hidden",
    "$HOME", "a;b", "a|b", "`id`", "%2e%2e%2f", "..%2f", "\u202e..", "a\u2215b", "\uff0e\uff0e", "\u4e1c\u4eac",
    "\u03c0", "e\u0301", "a\\..\\b", "C:\\x", "\\\\host\\share", "x" * 200, "\u00e9" * 100, "*", "?", "[a]", "{a,b}",
    "a\tb", "a\nb", "a\x1b[31mb", "a\x7f",
]  # fmt: skip
REPEATABLE = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


def tree(folder: Path) -> set[str]:
    """Everything below a folder, links not followed, without what Python keeps of modules."""
    paths = {Path(top, name) for top, folders, names in os.walk(folder) for name in folders + names}
    return {path.relative_to(folder).as_posix() for path in paths if "__pycache__" not in path.parts}


def below(made: set[str], root: Path, folder: Path) -> bool:
    """Whether all that was made in a folder is one thing in it, or below that."""
    inside = root.relative_to(folder).as_posix()
    return all(path == inside or path.startswith(inside + "/") for path in made)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A place deep enough to climb out of, with an objective of one's own beside it."""
    here = tmp_path / "a" / "b" / "c" / "work"
    here.mkdir(parents=True)
    (here.parent / "mine.py").write_text(OBJECTIVE)
    monkeypatch.chdir(here)
    return here


@pytest.mark.parametrize("name", NAMES)
def test_a_spec_may_be_called_anything_and_its_run_stays_below_runs(name, place, tmp_path):
    (place / f"{name}.toml").write_text(SPEC)
    before = tree(tmp_path)
    try:
        finished = train(env=f"./{name}.toml")
    except UsageError:
        assert not name.isprintable() or "\\" in name or name in (".", "..")
        assert tree(tmp_path) == before
        return
    assert finished.path.parent == Path("runs")
    assert finished.path.name.isascii()
    assert below(tree(tmp_path) - before, place / "runs", tmp_path)
    assert len(list((place / "runs").iterdir())) == 1


@pytest.mark.parametrize("path", ["../mine.py", "UP/TMP/a/b/c/mine.py", "/TMP/a/b/c/mine.py", "x/../../mine.py"])
def test_an_objective_in_any_file_leaves_the_run_below_runs(path, place, tmp_path):
    (place / "x").mkdir()
    path = path.replace("UP", "../" * len(place.parts)).replace("TMP", str(tmp_path).lstrip("/"))
    before = tree(tmp_path)
    train(f"{path}:Mine", steps=1)
    assert below(tree(tmp_path) - before, place / "runs", tmp_path)
    assert len(list((place / "runs").iterdir())) == 1


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "..", "a/b", "a\\b", "a\0b", "a\nb", "", "x" * 300])
def test_the_name_in_a_stored_run_is_no_way_out(name, place):
    """A run folder from elsewhere is read as data."""
    record = Spec.read("needle", "bandit").record()
    assert Spec(**record).name == "needle"
    with pytest.raises(ValueError, match="the name of a spec is"):
        Spec(**{**record, "name": name})
    (place / "theirs").mkdir()
    (place / "theirs" / "config.json").write_text(json.dumps({**record, "name": name}))
    for arguments in (["bandit", "needle", "--resume", "--out", "theirs"], ["eval", "theirs"]):
        before = tree(place)
        outcome = run(*arguments)
        assert outcome.code in (2, 5), outcome
        assert outcome.err.count("\n") == 1
        assert tree(place) == before


@pytest.mark.parametrize("out", ["", "x" * 300, "a/" + "x" * 300, "a\nb", "a\x1b[31m", "\udcff", "a\tb"])
def test_a_folder_that_cannot_be_named_is_refused(out, place, tmp_path):
    before = tree(tmp_path)
    for more in ([], ["--resume"]):
        outcome = run("bandit", "needle", "--steps", "1", f"--out={out}", *more)
        assert outcome.code == 2, outcome
        assert outcome.err.count("\n") == 1
    assert tree(tmp_path) == before


@pytest.mark.parametrize("out", ["-x", "~", "CON", "a.", "..a", "\u6771\u4eac", "a b", "$HOME", "deep/er/still"])
def test_a_folder_is_what_it_is_called(out, place, tmp_path):
    """No expansion, no translation: the folder of that name, below where one is."""
    before = tree(tmp_path)
    train(steps=1, out=out)
    assert (place / out / "summary.json").is_file()
    assert below(tree(tmp_path) - before, place / Path(out).parts[0], tmp_path)


@pytest.mark.parametrize("inside", ["checkpoints", "figures", "rollouts", "config.json"])
def test_a_link_out_of_a_run_is_not_followed(inside, place, tmp_path):
    """Not on a resume, and not where a folder is to be filled that holds the link alone."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (place / "run").mkdir()
    (place / "run" / inside).symlink_to(outside if inside != "config.json" else outside / "config.json")
    outcome = run("bandit", "needle", "--steps", "1", "--resume", "--out", "run")
    assert outcome.code == 2, outcome
    assert run("bandit", "needle", "--steps", "1", "--out", "run").code == 2
    train(steps=1, out="finished")
    (place / "finished" / "evaluations").symlink_to(outside)
    outcome = run("bandit", "needle", "--steps", "2", "--resume", "--out", "finished")
    assert outcome.code == 2
    assert "is a link out of the run's folder" in outcome.err
    assert not list(outside.iterdir())


any_name = st.one_of(st.sampled_from(NAMES), st.text(min_size=1, max_size=40))
any_path = st.lists(st.one_of(st.sampled_from(["..", ".", "~", "/", ""]), any_name), min_size=1, max_size=5).map(
    "/".join
)


@settings(max_examples=scaled(200), **REPEATABLE)
@given(any_path)
def test_the_folders_of_runs_and_sweeps_have_plain_names(path):
    """A label and the name of a point are one part of a path, of characters that every system takes."""
    spec = Spec.read("needle", "bandit").model_copy(update={"objective": {"name": f"{path}:Mine"}})
    points = expand("bandit", path, {"objective.name": [f"{path}:Mine", "rloo"]}, [0], {"objective.baseline": path})
    for name in (spec.label, *(point.name for point in points)):
        assert len(name) <= 140
        assert set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
        assert (Path("/root/runs") / f"0001-{name}").resolve().parent == Path("/root/runs")
        assert (Path("/root/runs") / name).resolve().parent == Path("/root/runs")


@settings(max_examples=scaled(100), **REPEATABLE)
@given(any_path)
def test_no_path_is_taken_for_the_name_of_a_spec(path):
    with pytest.raises(UsageError, match=r"unknown|does not exist|is no file"):
        plan("bandit", path, {})
    with pytest.raises(UsageError, match=r"unknown|does not exist|is no file"):
        plan("bandit", path + ".toml", {})
