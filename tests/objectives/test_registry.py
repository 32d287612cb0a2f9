"""Objectives by name and by path: the skeleton is loaded as a user's copy would be."""

from pathlib import Path

import pytest

import pmdkit.objectives
from pmdkit.objectives import OBJECTIVES, PassRate, PMDMean, load_objective, objective_name
from pmdkit.testing import check_objective

SKELETON = Path(pmdkit.objectives.__file__).with_name("skeleton.py")


def write(folder, text):
    file = folder / "my.py"
    file.write_text(text)
    return file


def test_every_name_gives_its_class_and_back():
    for name, kind in OBJECTIVES.items():
        objective = load_objective(name)
        assert type(objective) is kind
        assert objective_name(objective) == name


def test_options_reach_the_fields():
    assert load_objective("pmd-mean", tau=0.3, baseline="mean") == PMDMean(tau=0.3, baseline="mean")
    assert load_objective("pmd-mean", tau={"rule": "pass-rate", "floor": 0.2}).tau == PassRate(floor=0.2)


def test_a_copy_of_the_skeleton_passes_the_contract(tmp_path):
    copy = write(tmp_path, SKELETON.read_text())
    objective = load_objective(f"{copy}:MyLoss", tau=0.2)
    assert objective_name(objective) == "MyLoss"
    assert objective.tau == 0.2
    assert "ok" in check_objective(objective).values()


def test_an_edited_file_is_read_again(tmp_path):
    file = write(tmp_path, SKELETON.read_text())
    assert load_objective(f"{file}:MyLoss").tau == 0.05
    write(tmp_path, SKELETON.read_text().replace("tau: Tau = 0.05", "tau: Tau = 0.125"))
    assert load_objective(f"{file}:MyLoss").tau == 0.125


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("pmd-meen", {}, "'pmd-mean'"),
        ("pmd-mean", {"tua": 1.0}, "'tau'"),
        ("pmd-mean", {"norm": "lenght"}, "none, length, max, tokens"),
        ("nowhere.py:MyLoss", {}, "is not a file"),
        ("my.py", {}, "names no class"),
        ("{my}:MyLos", {}, "'MyLoss'"),
        ("{my}:MyLoss", {"taw": 1}, "'tau'"),
    ],
)
def test_mistakes_are_one_line_with_the_right_word(tmp_path, name, options, word):
    file = write(tmp_path, SKELETON.read_text())
    with pytest.raises(ValueError) as error:
        load_objective(name.replace("{my}", str(file)), **options)
    assert word in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "import no_such_module_at_all",
        "class MyLoss:\n  norm = 'none'",
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass MyLoss:\n  norm: str = 'none'",
    ],
)
def test_files_that_are_no_objective(tmp_path, text):
    with pytest.raises(ValueError):
        load_objective(f"{write(tmp_path, text)}:MyLoss")
