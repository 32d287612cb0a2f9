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
def test_a_failing_part_is_exit_1_and_a_check_that_says_no_exit_4(call, listed, tmp_path):
    """And a resumed reproduction does only what is missing; the check stands at the top of the report."""

    def broken(context):
        raise ValueError("no luck")

    code, out, err = call("--budget", "1h", "--jobs", "1", "--out", tmp_path / "out")
    assert code == 0
    assert "4 parts done" in out
    wrong = ClaimCheck("two", "", "", "2", "3", False)
    listed.append(Part("wrong", "Wrong", "checks", "", 1.0, lambda context: [wrong]))
    code, out, err = call("--resume", "--out", tmp_path / "out")
    assert code == 4
    assert "4 of them are already done and left alone" in err
    text = (tmp_path / "out" / "report.html").read_text()
    assert text.index("The check <b>two</b> says no: 2; expected: 3") < text.index("<nav")
    listed.append(Part("sick", "Sick", "exact", "", 1.0, broken))
    code, out, err = call("--out", tmp_path / "out", "--resume", "--json")
    assert code == 1
    assert json.loads(out)["parts"][-1]["reason"] == "ValueError: no luck"
