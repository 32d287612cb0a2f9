"""`pmdkit reproduce`: exit codes, one JSON value, the plan before it begins."""

import json

import pytest

from pmdkit_lab.reproduce import Part, parts
from pmdkit_lab.reproduce.part import ClaimCheck


@pytest.fixture
def call(capsys):
    """Exit code, stdout and stderr of the command."""
    from pmdkit.cli import main

    def run(*arguments):
        try:
            main(["reproduce", *map(str, arguments)])
            code = 0
        except SystemExit as leave:
            code = leave.code or 0
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def listed(tiny, monkeypatch):
    """The command does the tiny parts and what a test adds."""
    own = list(tiny[0])
    monkeypatch.setattr(parts, "PARTS", own)
    return own


def test_the_plan_is_printed_and_nothing_starts(call, tmp_path):
    code, out, err = call("--budget", "2m", "--jobs", "2", "--dry-run", "--out", tmp_path / "out")
    plan = json.loads(out)
    assert code == 0
    assert not err
    assert [row["name"] for row in plan] == [part.name for part in parts.PARTS]
    assert {row["name"] for row in plan if row["planned"]} == {
        part.name for part in parts.PARTS if part.seconds <= 30 and not part.needs
    }
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_reproduction_from_begin_to_end(call, listed, tmp_path):
    code, out, err = call("--budget", "1h", "--jobs", "1", "--out", tmp_path / "out", "--json")
    summary = json.loads(out)
    assert code == 0
    assert summary["report"] == str(tmp_path / "out" / "report.html")
    assert [row["state"] for row in summary["parts"]] == ["done"] * 4
    assert "pmdkit: budget 1h, one run at a time: 4 parts, estimated at 4s" in err
    assert "[4/4] sum: " in err
    code, out, err = call("--resume", "--out", tmp_path / "out")
    assert code == 0
    assert "4 parts done" in out
    assert "report: " in out
    assert "4 of them are already done and left alone" in err


@pytest.mark.slow
def test_a_failing_part_is_exit_1_and_a_check_that_says_no_exit_4(call, listed, tmp_path):
    def broken(context):
        raise ValueError("no luck")

    listed.append(
        Part("wrong", "Wrong", "checks", "", 1.0, lambda context: [ClaimCheck("two", "", "", "2", "3", False)])
    )
    code, out, err = call("--budget", "1h", "--out", tmp_path / "out")
    assert code == 4
    assert "two did not hold" in err.splitlines()[-1]
    listed.append(Part("sick", "Sick", "exact", "", 1.0, broken))
    code, out, err = call("--out", tmp_path / "out", "--resume", "--json")
    assert code == 1
    assert "1 of 6 parts failed, the first, sick, with: ValueError: no luck" in err
    assert "--resume" in err
    assert json.loads(out)["parts"][-1]["reason"] == "ValueError: no luck"


def test_a_stop_is_exit_75(call, listed, tmp_path):
    def stop(context):
        raise KeyboardInterrupt

    listed.insert(1, Part("stop", "Stop", "exact", "", 1.0, stop))
    code, out, err = call("--budget", "1h", "--out", tmp_path / "out")
    assert code == 75
    assert not out
    assert "stopped with 1 of 5 parts done" in err
    assert (tmp_path / "out" / "report.html").exists()
