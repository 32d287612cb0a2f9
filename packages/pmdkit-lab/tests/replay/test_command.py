"""`pmdkit replay`: what it prints, and what it answers to mistakes."""

import shutil

import pytest


@pytest.fixture
def run(tmp_path, toy):
    """A copy that may be damaged."""
    shutil.copytree(toy.path, tmp_path / "run")
    return tmp_path / "run"


def test_the_tables(call, toy, capsys):
    assert call("replay", toy.path, "--objective", "pmd-part", "--tau", 0.4, "--set", "norm=none") == 0
    said = capsys.readouterr().out
    assert "asked     pmd-part, tau 0.4, norm none" in said
    assert "the recording reproduces it to 0.0e+00" in said
    for words in ("that drew the rows", "before each update", "after the step", "prompts that drive the step"):
        assert words in said
    assert "…" not in said


MISTAKES = {
    "no run": (["nowhere"], "nowhere is not a run folder of pmdkit"),
    "a step that was not recorded": (
        ["RUN", "--step", "9"],
        r"step 9 of .*\[1, 2, 3\]",
    ),
    "an unknown objective": (["RUN", "--objective", "pmd-meen"], "pmd-mean"),
    "an objective without tau": (["RUN", "--objective", "grpo", "--tau", "0.1"], "tau"),
    "a tau of 0": (["RUN", "--tau", "0"], "tau is 0.* expected a finite number > 0"),
    "an unknown option": (["RUN", "--set", "nrom=none"], "norm"),
    "an option of the run": (["RUN", "--set", "schedule.lr=1"], "a replay changes options of the objective only"),
    "too many ministeps": (["RUN", "--ministeps", "17"], "ministeps is 17 for 16 prompts; expected 1 to 16"),
}


@pytest.mark.parametrize("what", list(MISTAKES))
def test_mistakes(call, run, capsys, what):
    import re

    arguments, sentence = MISTAKES[what]
    assert call("replay", *[run if a == "RUN" else a for a in arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert re.search(sentence, said.err)


def test_an_objective_that_is_gone(call, tmp_path):
    """A loss of one's own whose file is no longer there: told, and others can be asked."""
    own = tmp_path / "my.py"
    own.write_text("from pmdkit.objectives.skeleton import MyLoss\n\n\nclass Mine(MyLoss):\n    pass\n")
    out = tmp_path / "out"
    assert (
        call("bandit", "needle", "--objective", f"{own}:Mine", "--group", 4, "--steps", 1, "--record", "--out", out)
        == 0
    )
    assert call("replay", out, "--trust", own) == 0
    own.unlink()
    assert call("replay", out, "--trust", own) == 2
    assert call("replay", out, "--objective", "rloo") == 0
