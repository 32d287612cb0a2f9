"""Who watches: plain lines in a log, a table on a terminal, and a sparkline that shows the shape."""

import io

import pytest
from rich.console import Console

from pmdkit import train
from pmdkit.console import SHOWN, LiveDisplay, LogDisplay, sparkline
from pmdkit.observe.metrics import KEYS


@pytest.mark.slow
def test_a_log_has_about_ten_lines_and_the_last_step(tmp_path, capsys):
    train(env="needle", steps=95, out=tmp_path / "run", display=LogDisplay())
    lines = capsys.readouterr().err.splitlines()
    assert 8 <= len(lines) <= 14
    assert lines[0] == "pmdkit: bandit needle: pmd-mean, tau 0.05, full support, exact"
    assert lines[-1].startswith("pmdkit: step 95/95: pass rate 1.0000")


def test_a_screen_shows_theory_beside_measurement(tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    run = train(env="needle", steps=1, out=tmp_path / "run", display=LiveDisplay(console))
    text = console.file.getvalue()
    assert "log-ratio of wrong" in text
    assert text.count(f"{run.metrics[0]['log_ratio_neg']:.4f}") >= 2
    # 64 responses, one of which grew by 7.3 nats: ((7.3 - 1) e^7.3 + 1) / 64 is 146 nats, more than half of 160
    far = run.metrics[0] | {"response_length": 20.0, "tokens": 1280, "log_ratio_max": 7.3}
    shown = LiveDisplay(console)
    shown.begin(run.spec, 0)
    for kl, one in ((160.0, True), (300.0, False)):
        with console.capture() as captured:
            console.print(shown.picture(far | {"kl": kl}))
        assert ("one response" in captured.get()) == one
    shown.end()


def test_time_left_is_known_where_a_step_takes_minutes(tmp_path):
    run, clock = train(env="needle", steps=1, out=tmp_path / "run"), [0.0]
    shown = LiveDisplay(Console(file=io.StringIO(), force_terminal=True, width=100))
    shown.progress.get_time = lambda: clock[0]
    shown.begin(run.spec.model_copy(update={"schedule": run.spec.schedule.model_copy(update={"steps": 10})}), 0)
    for step in (1, 2, 3):
        clock[0] = 400.0 * step
        shown.show(run.metrics[0] | {"step": step})
    shown.end()
    assert shown.progress.tasks[0].time_remaining == 7 * 400


def test_what_a_screen_shows_is_in_every_row():
    assert {key for key, *_ in SHOWN} <= set(KEYS)


def test_sparkline():
    assert sparkline([0, 1, 2, 3], 10) == "▁▃▆█"
    assert sparkline([5.0] * 3, 10) == "▁▁▁"
    assert sparkline(list(range(1000)), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([], 8) == ""
