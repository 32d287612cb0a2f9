"""Trackers: each gets every number at its step; one that fails is dropped with one warning, and the run goes on."""

import json
import os
import subprocess
import sys
import time

import pytest

from pmdkit.errors import EnvironmentLacks
from pmdkit_adapters import trackers
from pmdkit_adapters.trackers import Trackers

ROWS = [
    {"step": step, "pass_rate": step / 10, "tokens": 7 * step, "kl": None, "gauge": [{"bucket": 0}], "exact": True}
    for step in (1, 2, 3, 4)
]


def report(names, folder, rows, warnings):
    made = Trackers(names, folder, {"tier": "toy"}, warnings.append)
    for row in rows:
        made.log(row)
    made.close()


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return found


@pytest.mark.slow
def test_tensorboard_has_the_numbers_and_a_resumed_run_goes_on_at_its_step(tmp_path):
    """Steps after the checkpoint are computed again: each stands once, with the newer number."""
    warnings = []
    report(["tensorboard"], tmp_path, ROWS, warnings)
    found = events(tmp_path)
    assert found.Tags()["scalars"] == ["pass_rate", "tokens"]
    assert [e.value for e in found.Scalars("tokens")] == [7, 14, 21, 28]
    time.sleep(1.1)  # event files are ordered by the second in their names
    report(["tensorboard"], tmp_path, [{"step": 3, "pass_rate": 0.6}, {"step": 4, "pass_rate": 0.7}], warnings)
    again = events(tmp_path).Scalars("pass_rate")
    assert [e.step for e in again] == [1, 2, 3, 4]
    assert [e.value for e in again] == pytest.approx([0.1, 0.2, 0.6, 0.7])
    assert warnings == []


OFFLINE = """
import json, sys
from pathlib import Path
from pmdkit_adapters.trackers import Trackers

made = Trackers([sys.argv[1]], Path(sys.argv[2]), {"tier": "toy"}, lambda warning: sys.exit(warning))
for step in map(int, sys.argv[3:]):
    made.log({"step": step, "pass_rate": step / 10})
    made.log_table(step, "completions", [{"response": "a", "reward": 1.0}])
made.close()
print(json.dumps("done"))
"""


def apart(name, folder, *steps, **environment):
    """In a process of its own: these packages leave threads and services behind. By hand, with `pmdkit[trackers]`."""
    folder.mkdir(exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "TRACKIO_"))}
    words = [sys.executable, "-c", OFFLINE, name, str(folder), *map(str, steps)]
    done = subprocess.run(words, env=kept | environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == '"done"\n'  # stdout is for data


def test_wandb_is_offline_in_the_run_folder(tmp_path):
    pytest.importorskip("wandb")
    folder = tmp_path / "0001-run"
    apart("wandb", folder, 1, 2)
    name = json.loads((folder / "trackers.json").read_text())["id"]
    assert len(list((folder / "wandb").glob(f"offline-run-*-{name}/run-{name}.wandb"))) == 1
    assert list((folder / "wandb").glob("run-2*")) == []


def test_trackio_goes_on_with_the_same_run(tmp_path):
    pytest.importorskip("trackio")
    import sqlite3

    for steps in ((1, 2), (3, 4)):
        apart("trackio", tmp_path / "0001-run", *steps, TRACKIO_DIR=str(tmp_path / "home"))
    with sqlite3.connect(tmp_path / "home" / "pmdkit.db") as database:
        rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
    database.close()
    assert len({name for name, _, _ in rows}) == 1
    found = {step: rate for _, step, metrics in rows if (rate := json.loads(metrics).get("pass_rate")) is not None}
    assert found == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}


@pytest.mark.parametrize("place", ["open", "log", "finish"])
@pytest.mark.parametrize("problem", [RuntimeError("no\nspace"), SystemExit(3)])
def test_one_that_fails_is_told_once_and_the_run_goes_on(place, problem, tmp_path, monkeypatch):
    """The warning shows neither a key that the error names, nor a control character."""

    def fails(*given, **named):
        raise type(problem)(f"{problem} https://api:secret-horse@tracker.example/\x1b[2J")

    class Run:
        log = fails if place == "log" else lambda self, values, step: None
        finish = fails if place == "finish" else lambda self: None

    monkeypatch.setattr(trackers, "open_tracker", fails if place == "open" else lambda *given: Run())
    warnings = []
    report(["tensorboard"], tmp_path, ROWS, warnings)
    assert len(warnings) == 1
    assert type(problem).__name__ in warnings[0]
    assert not {"\n", "\x1b"} & set(warnings[0])
    assert "secret-horse" not in warnings[0]


def test_what_is_not_there_is_refused_before_the_run(monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentLacks):
        Trackers.check(["tensorboard"])
