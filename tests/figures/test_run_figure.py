"""The picture of a run draws what metrics.jsonl holds, and leaves out what it does not."""

import json
import shutil

import numpy as np
import pytest
from matplotlib.figure import Figure

from pmdkit import Run, train


@pytest.fixture(scope="module")
def needle(tmp_path_factory) -> Run:
    return train(env="needle", steps=4, out=tmp_path_factory.mktemp("needle") / "run")


def edited(run: Run, folder, rows, finished=True) -> Run:
    """The same run with other metrics on disk."""
    shutil.copytree(run.path, folder)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if not finished:
        (folder / "summary.json").unlink()
    return Run(folder)


def titles(figure: Figure) -> list[str]:
    return [ax.get_title().split("\n")[0] for ax in figure.axes]


def drawn(figure: Figure, panel: str) -> list[np.ndarray]:
    """What the lines of a panel hold, in the order drawn."""
    (ax,) = [ax for ax in figure.axes if ax.get_title().startswith(panel)]
    return [np.asarray(line.get_ydata(), float) for line in ax.lines]


def test_measurement_and_theory_are_drawn_as_measured(needle: Run) -> None:
    """At the exact update they are the same numbers; the drawing must not mix them up."""
    figure = needle.figure()
    keys = ("log_ratio_pos", "theory_log_ratio_pos", "log_ratio_neg", "theory_log_ratio_neg")
    ax = figure.axes[1]
    lines = [np.asarray(line.get_ydata(), float) for line in ax.lines[:4]]
    for key, line in zip(keys, lines, strict=True):
        np.testing.assert_array_equal(line, [row[key] for row in needle.metrics])
    assert "right 1, wrong 1" in ax.get_title()
    np.testing.assert_array_equal(drawn(figure, "progress")[0], [row["pass_rate"] for row in needle.metrics])
    np.testing.assert_array_equal(drawn(figure, "multiplier")[0], [row["theory_lambda"] for row in needle.metrics])


def test_the_evaluation_before_and_after_is_marked(needle: Run) -> None:
    ends = drawn(needle.figure(), "progress")[1]
    np.testing.assert_array_equal(ends, [needle.summary["pass_rate_first"], needle.summary["pass_rate_last"]])


def test_the_title_names_both_reward_scales(needle: Run) -> None:
    plus_minus = train(env="plus-minus", steps=1)
    assert needle.figure().get_suptitle() == "bandit needle, pmd-mean, tau 0.05 on rewards {0,1} (0.1 on ±1)"
    assert plus_minus.figure().get_suptitle() == "bandit plus-minus, pmd-mean, tau 0.1 on rewards ±1 (0.05 on {0,1})"


def test_real_rewards_have_no_pass_rate_and_no_gauge() -> None:
    figure = train(env="graded", steps=2).figure()
    assert titles(figure) == ["progress", "log-ratio of one step", "movement"]
    assert figure.axes[0].get_ylabel() == "reward (reward units)"
    assert not figure.legends


def test_an_objective_without_prediction_is_drawn_without(needle: Run, tmp_path) -> None:
    rows = [row | {key: None for key in row if key.startswith("theory")} for row in needle.metrics]
    rows = [r | {"gauge": [g | {k: None for k in g if k.startswith("theory")} for g in r["gauge"]]} for r in rows]
    figure = edited(needle, tmp_path / "run", rows).figure()
    assert titles(figure)[-1] == "movement"
    assert "measured /" not in figure.axes[1].get_title()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["right, measured", "wrong, measured"]


def test_one_step_and_an_unfinished_run_are_drawn_as_far_as_they_go(needle: Run, tmp_path) -> None:
    figure = edited(needle, tmp_path / "run", needle.metrics[:1], finished=False).figure()
    assert len(drawn(figure, "progress")) == 1
    markers = [
        line.get_marker() for ax in figure.axes for line in ax.lines if len(np.atleast_1d(line.get_xdata())) == 1
    ]
    assert markers
    assert "" not in markers
    assert "None" not in markers


def test_a_gap_stays_a_gap(needle: Run, tmp_path) -> None:
    """A step whose groups were all solved has no wrong response: null, never zero."""
    rows = [row | ({"log_ratio_neg": None} if row["step"] == 2 else {}) for row in needle.metrics]
    lines = edited(needle, tmp_path / "run", rows).figure().axes[1].lines
    assert np.isnan(np.asarray(lines[2].get_ydata(), float)).tolist() == [False, True, False, False]


def test_a_step_far_from_its_target_is_still_seen(needle: Run, tmp_path) -> None:
    """Measured 0.01 nats against 20 predicted, over 400 steps: a linear axis would show two flat lines."""
    row = needle.metrics[0] | {"log_ratio_neg": -0.01, "theory_log_ratio_neg": -20.0, "log_ratio_pos": 0.02}
    figure = edited(needle, tmp_path / "run", [row | {"step": i + 1} for i in range(400)]).figure()
    ax = figure.axes[1]
    assert ax.get_yscale() == "symlog"
    figure.draw_without_rendering()
    heights = ax.transData.transform([[1, y] for y in (-20.0, -0.01, 0.0, 0.02)])[:, 1] / ax.bbox.height
    assert (np.diff(heights) > 0.02).all()
    assert "wrong 0.0005" in ax.get_title()


def test_alt_text_holds_the_numbers(needle: Run) -> None:
    alt = needle.figure().get_label()
    assert "bandit needle" in alt
    assert f"last {needle.metrics[-1]['pass_rate']:.3g}" in alt


def test_a_run_without_a_step_says_so(needle: Run, tmp_path) -> None:
    with pytest.raises(ValueError, match="has no finished step"):
        edited(needle, tmp_path / "run", []).figure()
