"""Events of a run are found where they were made, and not in noise."""

import numpy as np
import pytest

from pmdkit import Run, train
from pmdkit.figures.events import events_of


def rows_of(rates, entropy=None, sigma=0.01, seed=0):
    """Lines of metrics.jsonl with these pass rates and the noise of draws."""
    noisy = np.asarray(rates) + sigma * np.random.default_rng(seed).normal(size=len(rates))
    entropy = np.full(len(rates), 1.0) if entropy is None else entropy
    return [
        {"step": i + 1, "pass_rate": float(np.clip(p, 0, 1)), "reward_mean": float(p), "entropy": float(h)}
        for i, (p, h) in enumerate(zip(noisy, entropy, strict=True))
    ]


RISE = np.linspace(0.1, 0.99, 60)


def test_a_drop_is_found_with_its_steps():
    fall = np.linspace(0.99, 0.9, 40)
    (event,) = events_of(rows_of(np.concatenate([RISE, np.full(140, 0.99), fall]), sigma=0.003))
    assert event.kind == "drop"
    assert event.step == pytest.approx(240, abs=4)
    assert 50 <= event.since <= 205
    assert f"in step {event.step}" in event.says


def test_a_drop_that_is_made_up_for_says_when():
    dent = np.concatenate(
        [RISE, np.full(60, 0.99), np.linspace(0.99, 0.7, 20), np.linspace(0.7, 0.99, 20), [0.99] * 40]
    )
    (event,) = events_of(rows_of(dent))
    assert event.kind == "drop"
    assert event.step == pytest.approx(140, abs=3)
    assert "is back by step 15" in event.says or "is back by step 16" in event.says


def test_noise_alone_has_no_event():
    """Forty seeds of runs that only rise, with the noise of 8 draws."""
    for seed in range(40):
        assert [e.kind for e in events_of(rows_of(np.linspace(0.1, 0.99, 200), sigma=0.1, seed=seed))] == []


def test_a_plateau_begins_where_the_rise_ends_and_a_solved_run_has_none():
    stuck = np.concatenate([np.linspace(0.1, 0.5, 50), np.full(150, 0.5)])
    (event,) = events_of(rows_of(stuck))
    assert event.kind == "plateau"
    assert event.step == pytest.approx(50, abs=6)
    assert float(event.says.rstrip(".").rpartition(" ")[2]) == pytest.approx(0.5, abs=0.01)
    assert events_of(rows_of(stuck + 0.49)) == []


def test_entropy_collapses_only_where_something_is_unsolved():
    entropy = np.concatenate([np.linspace(2.0, 0.1, 50), np.full(50, 0.05)])
    found = events_of(rows_of(np.linspace(0.1, 0.6, 100), entropy))
    assert [event.kind for event in found] == ["collapse"]
    assert found[0].step == pytest.approx(48, abs=3)
    assert events_of(rows_of(np.concatenate([np.linspace(0.1, 0.99, 40), np.full(60, 0.99)]), entropy)) == []


def test_a_short_run_and_one_without_the_keys_have_none():
    assert events_of(rows_of([0.1, 0.9, 0.1])) == []
    assert events_of([{"step": i, "loss": 0.0} for i in range(1, 50)]) == []


def test_a_restart_is_remembered_and_drawn(tmp_path):
    """A run goes on from its checkpoint and says so in words, in the picture and in the alternative text."""
    once = train(env="needle", steps=4, out=tmp_path / "run")
    assert once.folder.read_restarts() == []
    again = train(env="needle", steps=8, out=tmp_path / "run", resume=True)
    assert again.folder.read_restarts() == [4]
    figure = Run(tmp_path / "run").figure()
    words = " ".join(text.get_text() for ax in figure.axes for text in ax.texts).replace("\n", " ")
    assert "went on from the checkpoint of step 4" in words
    assert "went on from the checkpoint of step 4" in figure.get_label()
    assert "restart" in words
