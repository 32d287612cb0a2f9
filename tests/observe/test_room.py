"""A disk that will be full is told of after the first checkpoint, and not before it is needed."""

import shutil
from collections import namedtuple

import pytest

from pmdkit import train
from pmdkit.observe import checkpoint, files
from pmdkit.observe.room import shortage

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def folder(tmp_path):
    """Two checkpoints of 300 kB."""
    for step in (1, 2):
        (tmp_path / f"step-{step}").mkdir()
        files.write(tmp_path / f"step-{step}" / "model.safetensors", b"x" * 300_000)
    return tmp_path


@pytest.mark.parametrize(
    ("keep", "left", "free", "told"),
    [
        (2, 9, 300_000, None),  # one more while it is written
        (2, 9, 299_999, "0.3 MB free, and the checkpoints to come need 0.3 MB"),
        (4, 9, 899_999, "0.9 MB free, and the checkpoints to come need 0.9 MB"),
        (4, 1, 300_000, None),  # the last one
        (2, 0, 0, None),
        (1, 5, 0, None),  # there are more than are kept: nothing is added
    ],
)
def test_what_is_needed_and_what_is_free(folder, monkeypatch, keep, left, free, told):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9 - free, free))
    said = shortage(folder, keep, left)
    assert said is None if told is None else told in said


def test_a_run_says_it_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10, 10, 0))
    train("pmd-mean", backend="bandit", env="needle", steps=4, out=tmp_path / "run")
    assert capsys.readouterr().err.count("the checkpoints to come need") == 1
    assert checkpoint.steps(tmp_path / "run" / "checkpoints")[-1] == 4
