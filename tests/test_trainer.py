"""Callbacks of a run: when each method is called, with what, and that whatever began also ends."""

from dataclasses import replace

import pytest
import torch

from pmdkit.fit import Display, TrainerCallback, fit
from pmdkit.observe.run_folder import RunFolder, new_folder
from pmdkit.resolve import build, resolve


class Log(TrainerCallback):
    """Writes down what it is called with; may fail at a step."""

    def __init__(self, calls, name, fails_at=None):
        self.calls = calls
        self.name = name
        self.fails_at = fails_at

    def on_init_end(self, run):
        self.calls.append((self.name, "init", run.folder.started))

    def on_train_begin(self, run):
        self.calls.append((self.name, "begin", run.backend.learner.version))

    def on_step_end(self, run, result):
        if result.step == self.fails_at:
            raise RuntimeError("a callback of the user's own")
        lines = run.folder.read_metrics()
        assert lines[-1] == {**result.row, "step": result.step}
        self.calls.append((self.name, "step", result.step))

    def on_save(self, run, extra_files):
        extra_files[f"{self.name}.txt"] = b"mine"
        self.calls.append((self.name, "save", run.backend.learner.version))

    def on_train_end(self, run, error):
        self.calls.append((self.name, "end", type(error)))


def go(folder, steps=2, **fails):
    calls = []
    spec, objective = resolve("bandit", "needle", {"steps": steps, "env.arms": 4})
    backend = build(spec, objective)[1]
    logs = [Log(calls, "a", **fails), Log(calls, "b")]
    backend = replace(backend, callbacks=[*backend.callbacks, *logs])
    return calls, lambda: fit(spec, objective, backend, folder, Display())


@pytest.mark.parametrize(("seconds", "saved"), [(200, [2, 4, 5]), (1, [5])])
def test_long_steps_are_saved_between_two_checkpoints(tmp_path, monkeypatch, seconds, saved):
    clock, calls = [0.0], []
    spec, objective = resolve("bandit", "needle", {"steps": 5, "env.arms": 4, "run.checkpoint_every": 100})
    backend = build(spec, objective)[1]

    class Slow(Log):
        def on_step_end(self, run, result):
            clock[0] += seconds

    monkeypatch.setattr("pmdkit.fit.time.monotonic", lambda: clock[0])
    backend = replace(backend, callbacks=[*backend.callbacks, Slow(calls, "slow")])
    fit(spec, objective, backend, new_folder(tmp_path / "run", "run"), Display())
    assert [step for _, what, step in calls if what == "save"] == saved


@pytest.mark.parametrize(("reward", "silent"), [(0.0, True), (1.0, False)])
def test_a_run_without_a_group_of_two_rewards_says_that_nothing_was_learned(tmp_path, capsys, reward, silent):
    """Draws whose rewards all agree, and the same with one that differs."""
    spec, objective = resolve("bandit", "needle", {"steps": 2, "env.arms": 4, "schedule.group": 8})
    backend = build(spec, objective)[1]
    backend.task.reward = lambda drawn: torch.eye(*drawn.mass.shape, dtype=torch.float64) * reward
    fit(spec, objective, backend, new_folder(tmp_path / "run", "run"), Display())
    assert ("nothing was learned" in capsys.readouterr().err) == silent


def test_the_order_of_calls(tmp_path):
    folder = new_folder(tmp_path / "run", "run")
    calls, run = go(folder)
    run()
    of_a = [what for name, *what in calls if name == "a"]
    steps = [["step", 1], ["save", 1], ["step", 2], ["save", 2]]
    assert of_a == [["init", True], ["begin", 0], *steps, ["end", type(None)]]
    assert [name for name, what, _ in calls if what == "step"] == ["a", "b", "a", "b"]
    assert [name for name, what, _ in calls if what == "end"] == ["b", "a"]  # the last one first
    saved = folder.checkpoints / "step-2"
    assert (saved / "a.txt").read_bytes() == (saved / "b.txt").read_bytes() == b"mine"


def test_a_failing_callback_ends_the_run_and_all_of_them_end(tmp_path):
    folder = new_folder(tmp_path / "run", "run")
    calls, run = go(folder, fails_at=2)
    with pytest.raises(RuntimeError, match="of the user's own"):
        run()
    assert [(name, what) for name, what, _ in calls][-2:] == [("b", "end"), ("a", "end")]
    assert calls[-1][2] is RuntimeError
    assert not (folder.checkpoints / "step-2").exists()
    calls, run = go(RunFolder(folder.path))
    run()
    assert ("a", "begin", 1) in calls
    assert ("a", "step", 1) not in calls
