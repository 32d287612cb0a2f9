"""The picture of a run draws what metrics.jsonl holds, and leaves out what it does not."""

import json
import shutil

import numpy as np
import pytest
from matplotlib.figure import Figure

from pmdkit import Run, train
from pmdkit.figures.run import came_undone
from pmdkit.observe import gauge

LEARN, FAR, WHICH, BRAKE, BELIEF, CHANGE, LENGTHS, AGREE = QUESTIONS = (
    "Does it learn?", "How far does one step go?", "Which prompts move?", "How strong is the hidden brake?",
    "Which groups can be believed?", "How much does the policy change?", "How long are the responses?",
    "Do engine and trainer agree?",
)  # fmt: skip
LEFT = "How much of the old policy still counts?"


@pytest.fixture(scope="module")
def needle(tmp_path_factory) -> Run:
    return train(env="needle", steps=4, out=tmp_path_factory.mktemp("needle") / "run")


@pytest.fixture(scope="module")
def drawn_run(tmp_path_factory) -> Run:
    """Groups of draws at pass rates from hard to easy."""
    out = tmp_path_factory.mktemp("rates") / "run"
    return train("pmd-mean", env="pass-rates", group=16, steps=3, out=out)


def edited(run: Run, folder, rows, finished=True) -> Run:
    """The same run with other metrics on disk."""
    shutil.copytree(run.path, folder)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if not finished:
        (folder / "summary.json").unlink()
    return Run(folder)


def titles(figure: Figure) -> list[str]:
    return [ax.get_title("left") for ax in figure.axes if ax.get_title("left")]


def axes(figure: Figure, panel: str):
    (ax,) = [ax for ax in figure.axes if ax.get_title("left") == panel]
    return ax


def reading(figure: Figure, panel: str) -> str:
    """The sentence under the heading of a panel."""
    return axes(figure, panel).texts[0].get_text()


def caption(figure: Figure) -> str:
    """The sentences under the picture, in one line."""
    (text,) = [text.get_text() for ax in figure.axes for text in ax.texts if text.get_text().startswith("What to see.")]
    return text.replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")


def key(figure: Figure) -> list[str]:
    """What the legend above the panels says."""
    legends = [ax.get_legend() for ax in figure.axes if not ax.axison and ax.get_legend()]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def drawn(figure: Figure, panel: str) -> list[np.ndarray]:
    """What the lines of a panel hold, in the order drawn."""
    return [np.asarray(line.get_ydata(), float) for line in axes(figure, panel).lines]


def bars(figure: Figure, panel: str, label: str) -> list[float]:
    """The heights of the bars with a label."""
    (found,) = [bars for bars in axes(figure, panel).containers if bars.get_label() == label]
    return [float(bar.get_height()) for bar in found]


def test_measurement_and_theory_are_drawn_as_measured(needle: Run) -> None:
    """At the exact update they are the same numbers; the drawing must not mix them up."""
    figure = needle.figure()
    keys = ("log_ratio_pos", "theory_log_ratio_pos", "log_ratio_neg", "theory_log_ratio_neg")
    for name, line in zip(keys, drawn(figure, FAR), strict=False):
        np.testing.assert_array_equal(line, [row[name] for row in needle.metrics])
    assert "right 100\N{NO-BREAK SPACE}%, wrong 100\N{NO-BREAK SPACE}%" in reading(figure, FAR)
    rates, ends = drawn(figure, LEARN)[:2]
    np.testing.assert_array_equal(rates, [row["pass_rate"] for row in needle.metrics])
    np.testing.assert_array_equal(ends, [needle.summary["pass_rate_first"], needle.summary["pass_rate_last"]])
    assert titles(figure) == [LEARN, FAR, WHICH, BRAKE, LEFT, CHANGE]  # the full support has no groups to believe


@pytest.mark.slow
def test_what_depends_on_the_pass_rate_is_drawn_from_the_gauge(drawn_run: Run) -> None:
    figure = drawn_run.figure()
    assert titles(figure) == [LEARN, FAR, WHICH, BRAKE, BELIEF, CHANGE]
    rows = gauge.merge(row["gauge"] for row in drawn_run.metrics)
    assert len(rows) >= 5
    assert bars(figure, BRAKE, r"$\lambda/\tau$, exact") == [row["theory_lambda_over_tau"] for row in rows]
    np.testing.assert_array_equal(drawn(figure, BRAKE)[0], [row["tau"] for row in rows])
    assert bars(figure, BELIEF, "too few right draws") == [row["noise_share"] for row in rows]
    expected, effective = drawn(figure, BELIEF)
    np.testing.assert_array_equal(expected, [row["theory_noise_share"] for row in rows])
    np.testing.assert_array_equal(effective, [row["ess"] for row in rows])
    assert sum(bars(figure, BELIEF, "share of all prompts")) == pytest.approx(1)
    places = [line.get_xdata() for line in axes(figure, WHICH).lines[:4]]
    for place in places:
        np.testing.assert_array_equal(place, [row["bucket"] for row in rows])


@pytest.mark.slow
def test_lengths_are_drawn_where_they_vary_and_mismatch_where_it_is_known(drawn_run: Run, tmp_path) -> None:
    """Under lag no engine is compared with the trainer, and lengths are known all the same."""
    longer = [row | {"response_length": 10.0 + row["step"], "cut_off": 2} for row in drawn_run.metrics]
    figure = edited(drawn_run, tmp_path / "lag", longer).figure()
    assert titles(figure) == [*QUESTIONS[:-1]]
    np.testing.assert_array_equal(drawn(figure, LENGTHS)[0], [row["response_length"] for row in longer])
    apart = {"mismatch_mean": 1e-4, "mismatch_max": 1e-2, "mismatch_response": 1e-3}
    figure = edited(drawn_run, tmp_path / "engine", [row | apart for row in longer]).figure()
    assert titles(figure) == [*QUESTIONS]
    np.testing.assert_array_equal(drawn(figure, AGREE)[0], [1e-4] * 3)
    assert axes(figure, AGREE).get_yscale() == "log"
    figure = edited(drawn_run, tmp_path / "same", [row | dict.fromkeys(apart, 0.0) for row in longer]).figure()
    assert axes(figure, AGREE).get_yscale() == "linear"  # 0 has no logarithm


@pytest.mark.slow
def test_real_rewards_have_no_pass_rate_and_no_gauge() -> None:
    run = train(env="graded", steps=2)
    figure = run.figure()
    assert titles(figure) == [LEARN, FAR, BRAKE, CHANGE]
    assert axes(figure, LEARN).get_ylabel() == "reward (reward units)"
    assert not key(figure)
    np.testing.assert_array_equal(drawn(figure, BRAKE)[0], [row["theory_lambda_over_tau"] for row in run.metrics])
    assert "mean reward of the evaluation" in caption(figure)


def test_a_gap_stays_a_gap(needle: Run, tmp_path) -> None:
    """A step whose groups were all solved has no wrong response: null, never zero."""
    rows = [row | ({"log_ratio_neg": None} if row["step"] == 2 else {}) for row in needle.metrics]
    lines = drawn(edited(needle, tmp_path / "run", rows).figure(), FAR)
    assert np.isnan(lines[2]).tolist() == [False, True, False, False]


def steps_of(rate, prompts=100, silent=0.97, norm=0.05, seed=0) -> list[dict[str, float]]:
    """Rows of metrics: in each step every prompt is either right or wrong, with these chances."""
    right = np.random.default_rng(seed).binomial(prompts, rate) / prompts
    columns = np.broadcast_arrays(right, silent * prompts, norm)
    keys = ("pass_rate", "zero_variance_groups", "grad_norm")
    return [{"step": i + 1, **dict(zip(keys, row, strict=True))} for i, row in enumerate(np.stack(columns, 1).tolist())]


RISE, HIGH, LOW = np.linspace(0.1, 0.99, 40), np.full(100, 0.99), np.full(30, 0.88)


def test_a_solved_run_that_comes_undone_is_told_with_its_cause() -> None:
    norm = np.concatenate([np.full(142, 0.05), np.full(28, 0.2)])
    norm[145] = 3.25
    rows = steps_of(np.concatenate([RISE, HIGH, LOW]), norm=norm)
    said = came_undone(rows, 100).replace("\N{NO-BREAK SPACE}", " ")
    assert "in 97 % of the groups" in said
    assert "from 0.05 to 3.2" in said
    plain = came_undone([row | {"zero_variance_groups": 50} for row in rows], 100)  # half of the groups had a say
    assert said.startswith(plain)
    assert "gradient" not in plain
    before, after = (int(word.strip(",.")) for word in plain.replace("step ", "").split() if word.strip(",.").isdigit())
    assert 50 <= before <= 141
    assert 150 <= after <= 170


def test_the_noise_of_draws_and_a_run_that_never_was_solved_do_not_come_undone() -> None:
    """Fifty runs that stay at a pass rate; 16 prompts a step are as noisy as the starter's."""
    for seed in range(25):
        for prompts in (16, 128):
            assert came_undone(steps_of(np.full(400, 0.96), prompts, seed=seed), prompts) == ""
    assert came_undone(steps_of(np.concatenate([np.full(100, 0.9), np.full(100, 0.6)])), 100) == ""
