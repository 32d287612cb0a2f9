"""Trackers: the real ones get every number at its step, and one that fails or hangs cannot touch a run."""

import json
import subprocess
import sys
import threading
import time

import pytest

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.observe import trackers
from pmdkit.observe.trackers import make_trackers

ROWS = [
    {"step": step, "pass_rate": step / 10, "tokens": 7 * step, "kl": None, "gauge": [{"bucket": 0}], "exact": True}
    for step in (1, 2, 3, 4)
]


@pytest.fixture
def warnings():
    return []


def report(names, folder, rows, warnings=None, config=None):
    made = make_trackers(names, folder, config or {"tier": "toy"}, None if warnings is None else warnings.append)
    for row in rows:
        made.log(row)
    made.close()


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return found


def test_tensorboard_has_the_numbers_and_nothing_else(tmp_path, warnings):
    pytest.importorskip("tensorboard")
    report(["tensorboard"], tmp_path, ROWS, warnings)
    found = events(tmp_path)
    assert found.Tags()["scalars"] == ["pass_rate", "tokens"]
    for key in ("pass_rate", "tokens"):
        assert [e.step for e in found.Scalars(key)] == [1, 2, 3, 4]
        assert [e.value for e in found.Scalars(key)] == pytest.approx([row[key] for row in ROWS])
    assert warnings == []


def test_tensorboard_shows_a_table_as_text(tmp_path, warnings):
    """A cell is one line and no Markdown of its own, whatever a response holds."""
    pytest.importorskip("tensorboard")
    made = make_trackers(["tensorboard"], tmp_path, {"tier": "llm"}, warnings.append)
    made.log(ROWS[0])
    made.log_table(1, "completions", [{"response": "a | b\u2028<b>", "reward": 1.0}, {"response": "c", "reward": None}])
    made.close()
    (event,) = events(tmp_path).Tensors("completions/text_summary")
    text = event.tensor_proto.string_val[0].decode()
    assert text.splitlines()[2:] == ["| a &#124; b<br>&lt;b&gt; | 1.0 |", "| c | None |"]
    assert event.step == 1
    assert warnings == []


@pytest.mark.slow
def test_a_resumed_run_goes_on_at_its_step(tmp_path, warnings):
    """Steps after the checkpoint were dropped and are computed again: each step stands once, with the newer number."""
    pytest.importorskip("tensorboard")
    report(["tensorboard"], tmp_path, ROWS, warnings)
    time.sleep(1.1)  # event files are ordered by the second in their names
    report(["tensorboard"], tmp_path, [{"step": 3, "pass_rate": 0.6}, {"step": 4, "pass_rate": 0.7}], warnings)
    found = events(tmp_path).Scalars("pass_rate")
    assert [e.step for e in found] == [1, 2, 3, 4]
    assert [e.value for e in found] == pytest.approx([0.1, 0.2, 0.6, 0.7])


OFFLINE = """
import json, sys
from pathlib import Path
from pmdkit.observe.trackers import make_trackers

made = make_trackers([sys.argv[1]], Path(sys.argv[2]), {"tier": "toy"})
for step in map(int, sys.argv[3:]):
    made.log({"step": step, "pass_rate": step / 10})
made.close()
print(json.dumps("done"))
"""


def apart(name, folder, *steps, **environment):
    """In a process of its own: these packages leave threads and services behind."""
    import os

    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "TRACKIO_"))}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, name, str(folder), *map(str, steps)],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == '"done"\n'  # stdout is for data
    assert "pmdkit: warning" not in done.stderr


def test_wandb_is_offline_in_the_run_folder(tmp_path):
    pytest.importorskip("wandb")
    folder = tmp_path / "0001-run"
    folder.mkdir()
    apart("wandb", folder, 1, 2)
    name = json.loads((folder / "trackers.json").read_text())["id"]
    assert len(list((folder / "wandb").glob(f"offline-run-*-{name}/run-{name}.wandb"))) == 1
    assert list((folder / "wandb").glob("run-2*")) == []


def test_trackio_goes_on_with_the_same_run(tmp_path):
    pytest.importorskip("trackio")
    import sqlite3

    folder = tmp_path / "0001-run"
    folder.mkdir()
    for steps in ((1, 2), (3, 4)):
        apart("trackio", folder, *steps, TRACKIO_DIR=str(tmp_path / "home"))
    with sqlite3.connect(tmp_path / "home" / "pmdkit.db") as database:
        rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
    database.close()
    assert len({name for name, _, _ in rows}) == 1
    assert [(step, json.loads(metrics)["pass_rate"]) for _, step, metrics in rows] == [
        (1, 0.1),
        (2, 0.2),
        (3, 0.3),
        (4, 0.4),
    ]


def fake(monkeypatch, opener):
    monkeypatch.setitem(trackers.TRACKERS, "fake", ("json", opener))


class FakeRun:
    """Keeps what it gets."""

    got: list

    def __init__(self, folder, config, first):
        type(self).got = []

    def log(self, values, step):
        self.got.append((step, values))

    def finish(self):
        self.got.append("closed")


def test_rows_arrive_in_order_and_the_end_waits_for_them(tmp_path, warnings, monkeypatch):
    class Slow(FakeRun):
        def log(self, values, step):
            time.sleep(0.02)
            super().log(values, step)

    fake(monkeypatch, Slow)
    report(["fake"], tmp_path, ROWS, warnings)
    assert Slow.got == [(row["step"], {"pass_rate": row["pass_rate"], "tokens": row["tokens"]}) for row in ROWS] + [
        "closed"
    ]
    assert warnings == []


@pytest.mark.parametrize("place", ["__init__", "log", "finish"])
@pytest.mark.parametrize("problem", [RuntimeError("no\nspace"), SystemExit(3), KeyboardInterrupt()])
def test_one_that_fails_is_told_once_and_the_run_goes_on(place, problem, tmp_path, warnings, monkeypatch):
    def fails(*given, **named):
        raise problem

    fake(monkeypatch, type("Failing", (FakeRun,), {place: fails}))
    made = make_trackers(["fake"], tmp_path, {}, warnings.append)
    for row in ROWS:
        made.log(row)
        time.sleep(0.01)
    made.close()
    assert len(warnings) == 1
    assert type(problem).__name__ in warnings[0]
    assert "metrics.jsonl has every row" in warnings[0]
    assert "\n" not in warnings[0]


@pytest.mark.parametrize("place", ["__init__", "log", "finish"])
def test_one_that_hangs_delays_nothing_and_its_rows_are_counted(place, tmp_path, warnings, monkeypatch):
    """More rows than the queue holds: none waits. The end waits for its patience, and no longer."""
    forever = threading.Event()

    def hangs(*given, **named):
        forever.wait()

    fake(monkeypatch, type("Hanging", (FakeRun,), {place: hangs}))
    monkeypatch.setattr(trackers, "WAITING", 8)
    monkeypatch.setattr(trackers, "PATIENCE", 0.2)
    made = make_trackers(["fake"], tmp_path, {}, warnings.append)
    for step in range(1, 21):
        made.log({"step": step, "loss": 1.0})
        if place == "finish":
            time.sleep(0.001)
    lost = made.trackers[0].dropped
    assert lost in ((20 - 9, 20 - 8) if place != "finish" else (0,))  # the thread holds at most one besides the queue
    made.close()
    assert made.trackers[0].thread.is_alive()
    assert len(warnings) == 1
    forever.set()
    made.trackers[0].thread.join()


def test_a_slow_one_that_catches_up_says_how_much_it_missed(tmp_path, warnings, monkeypatch):
    gate = threading.Event()

    class Late(FakeRun):
        def log(self, values, step):
            gate.wait()
            super().log(values, step)

    fake(monkeypatch, Late)
    monkeypatch.setattr(trackers, "WAITING", 2)
    made = make_trackers(["fake"], tmp_path, {}, warnings.append)
    for step in range(1, 11):
        made.log({"step": step, "loss": 1.0})
    gate.set()
    made.close()
    missed = made.trackers[0].dropped
    assert missed in (7, 8)
    assert len(Late.got) == 10 - missed + 1
    assert f"missed {missed} rows" in warnings[-1]


def test_what_is_not_there_is_said_before_the_run(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="did you mean 'tensorboard'"):
        make_trackers(["tensorbord"], tmp_path, {})
    monkeypatch.setitem(trackers.TRACKERS, "absent", ("no_such_package", FakeRun))
    with pytest.raises(EnvironmentLacks, match="pip install no_such_package"):
        make_trackers(["absent"], tmp_path, {})
    assert list(tmp_path.iterdir()) == []
    make_trackers([], tmp_path, {}).close()
