"""The soak itself, small: a run that is watched, two machines on one folder, what is kept, and what the page quotes."""

import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from .kills import PHASES
from .soak import PARTS, Asked, growth, kill_runs, page_rows, read_figures, soak, watch_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
STEPS = 400


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Samples of a run, and its folder."""
    folder = tmp_path_factory.mktemp("watched")
    return watch_run("bandit", folder, STEPS), folder / "run"


@pytest.mark.nightly
def test_a_run_that_does_not_grow_passes(watched):
    found = growth(*watched, STEPS)
    assert found["memory_mib"][0] > 50
    assert found["files"][0] >= 3
    assert found["processor_ms"][0] > 0


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["memory", "files", "threads", "processor", "checkpoints"])
def test_what_grows_is_seen(watched, name):
    """A tenth more of each 40 steps; processor time by its square, as where every step reads all rows before it."""
    samples, out = watched
    power = 3 if name == "processor" else 1
    grown = [
        replace(one, **{name: type(value)(value * (1 + 4 * one.step / STEPS) ** power)})
        for one in samples
        for value in [getattr(one, name)]
    ]
    with pytest.raises(AssertionError):
        growth(grown, out, STEPS)


@pytest.mark.nightly
def test_an_interrupted_soak_goes_on_with_what_is_left(tmp_path, monkeypatch, capsys):
    """A second machine is refused; a part that is done is not done again, one of which other figures are asked is."""
    asked = Asked(steps=STEPS)
    soak(tmp_path, ["machines"], asked)
    first = capsys.readouterr().out
    assert "on node-b" in first
    monkeypatch.setitem(PARTS, "machines", None)
    soak(tmp_path, ["machines"], asked)
    assert capsys.readouterr().out == first
    with pytest.raises(TypeError):
        soak(tmp_path, ["machines"], replace(asked, steps=STEPS + 1))


def test_interrupted_kills_go_on_with_their_hundred(tmp_path, monkeypatch):
    """Of the bookkeeping alone: `test_kills.py` kills. Batches begin at plans of their own; none is counted twice."""
    kept, firsts = {}, []

    def run_all(place, arguments):
        firsts.append(int(arguments[0][-1]))
        if len(firsts) == 2:
            raise KeyboardInterrupt
        kills = [[[phase], ["SIGKILL"], phase == "resume"] for phase in PHASES for _ in range(15)]
        return [{"kills": kills, "broken": None, "lingered": 0.1 * len(firsts)}]

    monkeypatch.setitem(kill_runs.__globals__, "run_all", run_all)
    with pytest.raises(KeyboardInterrupt):
        kill_runs(tmp_path, 300, kept.update, {})
    assert (kept["batches"], kept["fell"]["all"]) == (1, 105)
    found = kill_runs(tmp_path, 300, kept.update, dict(kept))
    assert firsts == [0, 1000, 1000, 2000]
    assert (found["batches"], found["runs"], found["fell"]["all"], found["lingered"]) == (3, 3, 315, 0.4)


def test_the_page_quotes_the_last_whole_soak():
    found = read_figures()
    page = (Path(__file__).parents[2] / "docs" / "project" / "faults.md").read_text().splitlines()
    assert set(found) == set(PARTS)
    for part, figures in found.items():
        assert figures["done"], part
        assert figures["asked"] == asdict(Asked()) | {"vllm": ""}, part
    assert [row for row in page_rows(found) if row not in page] == []
