"""`pmdkit replay`: what it prints, and what it answers to mistakes."""

import pytest


def test_the_tables(call, toy, capsys):
    assert call("replay", toy.path, "--objective", "pmd-part", "--tau", 0.4, "--set", "norm=none") == 0
    assert "the recording reproduces it to 0.0e+00" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        "nowhere", "RUN --step 9", "RUN --objective pmd-meen", "RUN --objective grpo --tau 0.1", "RUN --tau 0",
        "RUN --set nrom=none", "RUN --set schedule.lr=1",
    ],
)  # fmt: skip
def test_mistakes(call, toy, capsys, words):
    assert call("replay", *words.replace("RUN", str(toy.path)).split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1


def test_an_objective_that_is_gone(call, tmp_path):
    """A loss of one's own whose file is no longer there: told, and others can be asked."""
    own = tmp_path / "my.py"
    own.write_text("from pmdkit.objectives.skeleton import MyLoss\n\n\nclass Mine(MyLoss):\n    pass\n")
    out = tmp_path / "out"
    words = ("--objective", f"{own}:Mine", "--group", 4, "--steps", 1, "--record", "--out", out)
    assert call("bandit", "needle", *words) == 0
    assert call("replay", out, "--trust", own) == 0
    own.unlink()
    assert call("replay", out, "--trust", own) == 2
    assert call("replay", out, "--objective", "rloo") == 0
