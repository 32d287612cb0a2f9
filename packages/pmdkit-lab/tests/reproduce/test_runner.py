"""A reproduction survives Ctrl-C and kill -9 after any part: nothing is done twice, and the report is the same."""

import re
import signal
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pmdkit.errors import ResumeRefused, Stopped, UsageError
from pmdkit.observe import files
from pmdkit_lab.reproduce import Part
from pmdkit_lab.reproduce.part import RESERVED
from pmdkit_lab.reproduce.runner import Reproduction, load_config, run_part

TIME = re.compile(r'(<(?:span|time) class="time">)[^<]*')


def timeless(out):
    """The report without its times."""
    text, count = TIME.subn(r"\1", (out / "report.html").read_text())
    assert count > 3
    return text


def interrupted(parts, at):
    """The parts, Ctrl-C in the one at a place, before it has done anything."""

    def stop(context):
        signal.raise_signal(signal.SIGINT)

    return [*parts[:at], replace(parts[at], make=stop), *parts[at + 1 :]]


@pytest.mark.slow
def test_interrupted_after_each_part_it_ends_as_if_nobody_had_disturbed_it(tiny, go, tmp_path):
    parts, made = tiny
    go(parts, tmp_path / "whole")
    made.clear()
    out = tmp_path / "out"
    for at in range(len(parts)):
        with pytest.raises(Stopped, match=rf"stopped with {at} of 4 parts done.*--resume"):
            go(interrupted(parts, at), out, resume=at > 0)
        assert f"<b>{at} of 4</b> parts done" in (out / "report.html").read_text(), "an early look is possible"
        go(parts[: at + 1], out, resume=True)
    assert set(made.values()) == {1}, "no part is done twice"
    go(parts, out, resume=True)
    assert timeless(out) == timeless(tmp_path / "whole")


@pytest.mark.slow
def test_a_failing_part_is_named_and_tried_again(tiny, go, tmp_path):
    parts, made = tiny

    def broken(context):
        raise RuntimeError("no <luck>")

    sick = [parts[0], Part("sick", "Sick", "exact", "It fails.", 1.0, broken), *parts[1:]]
    needy = [*sick, Part("needy", "Needy", "exact", "It waits.", 1.0, lambda context: [], ("sick",))]
    summary = go(needy, tmp_path / "out")
    states = {row["name"]: row["state"] for row in summary["parts"]}
    done = dict.fromkeys(("line", "ledger", "numbers", "sum"), "done")
    assert states == done | {"sick": "failed", "needy": "late"}
    assert "no &lt;luck&gt;" in (tmp_path / "out" / "report.html").read_text()
    assert "no <luck>" in (tmp_path / "out" / "parts" / "sick" / "failure.txt").read_text()
    well = replace(sick[1], make=parts[3].make)
    summary = go([parts[0], well, *parts[1:], needy[-1]], tmp_path / "out", resume=True)
    assert all(row["state"] == "done" for row in summary["parts"])
    assert made["line"] == 1


@pytest.fixture
def clock(monkeypatch):
    """Time that stands still unless a test moves `now`: what fits does not depend on how busy the machine is."""
    still = SimpleNamespace(now=0.0)
    still.monotonic = lambda: still.now
    monkeypatch.setattr("pmdkit_lab.reproduce.runner.time", still)
    return still


def test_a_part_that_does_not_fit_what_is_left_is_named(tiny, go, clock, tmp_path):
    """The first part takes ten times its estimate: by that speed the second does not fit any more, a small one does."""
    parts, _ = tiny

    def slow(context):
        clock.now += 1.0
        return []

    listed = [
        Part("slow", "Slow", "exact", "It sleeps.", 0.1, slow),
        Part("large", "Large", "exact", "It is left out.", 5.0, parts[0].make),
        parts[2],
    ]
    summary = go(listed, tmp_path / "out", budget=RESERVED + 6.2)
    slow_row, large, small = summary["parts"]
    assert slow_row["state"] == small["state"] == "done"
    assert (large["state"], large["reason"]) == ("late", "it may take 7s here, and 5s were left")


def test_the_speed_of_the_machine_is_by_the_jobs_that_a_part_had(clock, tmp_path):
    """400 s of work that took 400 s alone: the speed is 1, although this process has four jobs."""
    part = Part("wide", "Wide", "exact", "Runs.", 400.0, lambda context: [], parallel=True)
    four = SimpleNamespace(jobs=4)
    result = {"state": "done", "seconds": 400.0, "jobs": 1, "pieces": []}
    state = Reproduction(tmp_path, {"budget_seconds": 1e3}, [part], [part], four, {"wide": result}, 0.0)
    assert state.speed == 1
    run_part(state, part, "wide", print)
    assert state.results["wide"]["jobs"] == 4


def test_only_versions_that_a_report_must_not_mix_refuse_to_go_on(tmp_path):
    config = load_config(tmp_path, 60.0)
    for versions in (config["versions"] | {"abacus": "1"}, config["versions"] | {"torch": "1"}):
        files.replace(tmp_path / "config.json", files.encode(config | {"versions": versions}))
        refused = versions["torch"] == "1"
        with pytest.raises(ResumeRefused, match="torch 1 is now") if refused else nullcontext():
            load_config(tmp_path, None)


@pytest.mark.slow
def test_a_larger_budget_goes_on_and_a_smaller_one_is_refused(tiny, go, clock, tmp_path):
    parts, made = tiny
    out = tmp_path / "out"
    summary = go(parts, out, budget=RESERVED + 2.5)
    assert [row["state"] for row in summary["parts"]] == ["done", "done", "left out", "left out"]
    assert [row.get("budget") for row in summary["parts"]] == [None, None, "1m", "1m"]
    with pytest.raises(ResumeRefused, match="begun with a budget of 8s, larger than 5s"):
        go(parts, out, budget=5.0, resume=True)
    summary = go(parts, out, resume=True)
    assert [row["state"] for row in summary["parts"]] == ["done"] * 4
    assert set(made.values()) == {1}


def test_other_peoples_folders_are_left_alone(tiny, go, tmp_path):
    parts, _ = tiny
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("dear")
    (tmp_path / "file").write_text("mine")
    for place in ("thesis", "file"):
        for resume in (False, True):
            with pytest.raises(UsageError):
                go(parts, tmp_path / place, resume=resume)
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["thesis.tex"]
    (tmp_path / "new").mkdir()
    go(parts[:1], tmp_path / "new", resume=True)  # an empty folder may be resumed
    with pytest.raises(UsageError):
        go(parts, tmp_path / "new")
