"""The paper's text against its own tables: arithmetic on the printed numbers, and what the numbers can bear."""

import numpy as np
import pytest
from scipy.stats import binomtest

from pmdkit.specs import find
from pmdkit_lab.figures import TABLES, table
from pmdkit_lab.figures.scores import BETWEEN, count, deviations, grpo, named, over_draws, over_problems
from pmdkit_lab.figures.tables import EPOCHS, GAINS, GSPO, HYPERPARAMETERS, MILLISECONDS, SCORES, SPEEDUP, STEPS

ROWS = (*SCORES, *GSPO)


@pytest.mark.parametrize(
    ("model", "expected", "agrees"), [("7B", (2.61, 8.96), (True, True)), ("30B", (14.27, 9.27), (False, False))]
)
def test_gains_over_grpo(model, expected, agrees):
    """AIME 24 and 25. The 7B gains of the text are those of the table, the 30B gains are not."""
    gains = np.subtract(named(model).pair, grpo(model).pair)
    np.testing.assert_allclose(gains, expected, atol=1e-9)
    np.testing.assert_allclose(table("tab1-scores").data[f"gains {model}"], expected, atol=1e-9)
    assert tuple(np.abs(gains - GAINS[model]) <= 0.05 + 1e-9) == agrees


def test_gains_in_standard_errors_of_the_draws():
    """1.5 on AIME 24 with the 7B model: not beyond the luck of the draws; 5.5, 6.4 and 4.4 elsewhere."""
    data = table("tab1-scores").data
    np.testing.assert_allclose(data["standard errors 7B"], [1.47, 5.54], atol=0.02)
    np.testing.assert_allclose(data["standard errors 30B"], [6.41, 4.36], atol=0.05)
    # the same method at three temperatures differs by more than that gain
    aime24 = [score.aime24 for score in SCORES if (score.model, score.method) == ("7B", "PMD-mean")]
    assert max(aime24) - min(aime24) > 1.8 * (named("7B").aime24 - grpo("7B").aime24)


def test_gspo_in_standard_errors_of_the_draws():
    data = table("tab3-gspo").data
    np.testing.assert_allclose(data["standard errors 7B"], [2.4, 4.5], atol=0.05)
    np.testing.assert_allclose(data["standard errors 30B"], [-1.1, 1.2], atol=0.05)


def test_gspo_is_ahead_of_grpo_on_the_mixture_of_experts_alone():
    """30B: by 16.77 and 6.66 points, 7.5 and 3.2 standard errors of the draws. 7B: 1.56 behind and 1.46 ahead."""
    for score, points in zip(GSPO, ((-1.56, 1.46), (16.77, 6.66)), strict=True):
        base = grpo(score.model)
        np.testing.assert_allclose(np.subtract(score.pair, base.pair), points, atol=0.005)
    errors = [deviations(*pair) for pair in zip(grpo("30B").pair, GSPO[1].pair, strict=True)]
    np.testing.assert_allclose(errors, [7.5, 3.2], atol=0.1)


def test_every_score_and_average_is_a_count():
    """Counts out of 960, to the two digits printed; averages are the means of the counts."""
    for score in ROWS:
        for value in score.pair:
            assert abs(count(value) / 9.6 - value) < 0.005 + 1e-9
        assert abs((count(score.aime24) + count(score.aime25)) / 19.2 - score.average) < 0.005 + 1e-9


@pytest.mark.parametrize("score", [10.52, 19.69, 50.83])
def test_intervals_of_a_score(score):
    """Over draws: SciPy's exact interval. Over problems: that of 30 draws where problems are all or nothing."""
    right = count(score)
    exact = binomtest(right, 960).proportion_ci(0.95, "exact")
    np.testing.assert_allclose([over_draws(score).low, over_draws(score).high], [100 * exact.low, 100 * exact.high])
    none, some, all_or_nothing = (over_problems(score, between) for between in (0.0, BETWEEN, 1.0))
    np.testing.assert_allclose([none.low, none.high], [over_draws(score).low, over_draws(score).high], rtol=1e-9)
    assert all_or_nothing.low < some.low < none.low < score < none.high < some.high < all_or_nothing.high
    share = right / 960
    normal = 196 * np.sqrt(share * (1 - share) / 30)
    assert 0.9 < all_or_nothing.width / (2 * normal) < 1.2


def test_speedup():
    """4.52 by the table, 4.49 to 4.54 with its rounding; the text says 4.6."""
    ratio, low, high = table("tab2-speed").data["overall"][2:]
    assert low < ratio < high
    np.testing.assert_allclose([ratio, low, high], [4.516, 4.494, 4.538], atol=0.001)
    assert high < SPEEDUP - 0.05  # what would be printed as 4.6


def test_where_the_speedup_comes_from():
    """Generation and update add up to the overall time; generation is 8.3 times cheaper, the update 12 % dearer."""
    for each in MILLISECONDS.values():
        assert abs(each["generation"] + each["update"] - each["overall"]) < 1e-12
    data = table("tab2-speed").data
    np.testing.assert_allclose([data["generation"][2], 1 / data["update"][2]], [8.26, 1.123], atol=0.005)


def test_495_steps_are_15_epochs_of_17_thousand_problems():
    """Text of the experiments: 512 prompts per step, 495 steps, 15 epochs; whole batches only."""
    sizes = [size for size in range(16_000, 18_000) if EPOCHS * (size // 512) == STEPS["7B"]]
    assert (sizes[0], sizes[-1]) == (16_896, 17_407)
    assert 495 * 512 / sizes[0] == pytest.approx(15.0)
    assert 495 * 512 / sizes[-1] == pytest.approx(14.56, abs=0.01)


@pytest.mark.parametrize(("column", "name"), [(1, "qwen2.5-7b"), (2, "qwen3-30b-a3b")])
def test_the_recipes_are_the_table(column, name):
    """Every row of the table that a recipe can hold."""
    paper, own = {row[0]: row[column] for row in HYPERPARAMETERS}, find.read(find.spec_file(name, "llm"))
    schedule, rollout, update, evaluation = (own[part] for part in ("schedule", "rollout", "update", "evaluation"))
    assert own["model"]["path"] == paper["model.path"]
    assert own["parallel"]["processes"] == paper["trainer.nnodes"] * paper["trainer.n_gpus_per_node"]
    assert schedule["prompts"] == paper["data.train_batch_size (prompts)"] == paper["data.gen_batch_size (prompts)"]
    assert schedule["prompts"] / schedule["ministeps"] == paper["actor.ppo_mini_batch_size (prompts)"]
    assert schedule["steps"] == STEPS["7B" if column == 1 else "30B"]
    assert (schedule["group"], schedule["passes"], schedule["lr"]) == (
        paper["rollout.n (group size)"], paper["actor.ppo_epochs"], paper["optim.lr"],
    )  # fmt: skip
    assert (rollout["width"], rollout["max_prompt"]) == (
        paper["data.max_response_length"], paper["data.max_prompt_length"],
    )  # fmt: skip
    assert rollout["temperature"] == paper["rollout.temperature"]
    assert (update["clip"], update["weight_decay"]) == (paper["grad clip"], paper["optim.weight_decay"])
    assert update["betas"] == [paper["optim.betas, first"], paper["optim.betas, second"]]
    assert evaluation["k"] == paper["val_kwargs.n (avg@k)"]
    assert (evaluation["temperature"], evaluation["top_p"]) == (
        paper["val_kwargs.temperature"], paper["val_kwargs.top_p"],
    )  # fmt: skip


def test_tables_say_what_they_hold():
    for name in TABLES:
        found = table(name)
        text = found.markdown()
        assert text.count("\n|") == len(found.rows) + 2
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert {line.replace("\\|", "").count("|") for line in lines} == {len(found.columns) + 1}, name
        assert found.sentence.endswith(".")
