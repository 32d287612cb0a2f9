"""What is installed and what is published comes from files that were named before."""

import runpy
from datetime import date, timedelta
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
audit = runpy.run_path(str(ROOT / "requirements" / "audit.py"))


@pytest.mark.parametrize(("days", "code"), [(0, 3), (audit["DAYS"], 3), (audit["DAYS"] + 1, 4)])
def test_pins_that_nobody_could_be_asked_about_may_be_used_for_a_while(days, code):
    assert audit["not_asked"]("no network", date(2026, 1, 1), date(2026, 1, 1) + timedelta(days))[0] == code


@pytest.mark.parametrize("named", ["v4", "release/v1", "main", "3d3c42e", "3d3c42e5aac5ba805825da76410c181273ba90b1"])
def test_an_action_is_named_by_commit_and_version(named, tmp_path):
    (tmp_path / "a.yml").write_text(f"      - uses: actions/checkout@{named}\n")
    assert len(audit["wrong_actions"](tmp_path)) == 1
    assert audit["wrong_actions"](ROOT / ".github" / "workflows") == []
