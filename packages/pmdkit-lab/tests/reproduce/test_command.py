"""`pmdkit reproduce`: exit codes, one JSON value, the plan before it begins."""

import json

import pytest

from pmdkit_lab.reproduce import Part, parts
from pmdkit_lab.reproduce.part import ClaimCheck


def test_the_plan_is_printed_and_nothing_starts(call, tmp_path, capsys):
    assert call("reproduce", "--budget", "2m", "--jobs", "2", "--dry-run", "--out", tmp_path / "out") == 0
    plan = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in plan] == [part.name for part in parts.PARTS]
    assert {row["name"] for row in plan if row["planned"]} == {
        part.name for part in parts.PARTS if part.seconds <= 30 and not part.needs
    }
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_failing_part_is_exit_1_and_a_check_that_says_no_exit_4(call, tiny, monkeypatch, tmp_path, capsys):
    """And the check stands at the top of the report."""

    def broken(context):
        raise ValueError("no luck")

    wrong = ClaimCheck("two", "", "", "2", "3", False)
    listed = [*tiny[0], Part("wrong", "Wrong", "objectives", "", 1.0, lambda context: [wrong])]
    monkeypatch.setattr(parts, "PARTS", listed)
    assert call("reproduce", "--budget", "1h", "--jobs", "1", "--out", tmp_path / "out") == 4
    text = (tmp_path / "out" / "report.html").read_text()
    assert text.index("The check <b>two</b> says no: 2; expected: 3") < text.index("<nav")
    listed.append(Part("sick", "Sick", "exact", "", 1.0, broken))
    capsys.readouterr()
    assert call("reproduce", "--out", tmp_path / "out", "--resume", "--json") == 1
    assert json.loads(capsys.readouterr().out)["parts"][-1]["reason"] == "ValueError: no luck"
