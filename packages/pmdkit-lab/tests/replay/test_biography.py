"""The story of a response: its numbers add up, in every tier and for every kind of loss."""

import math

import pytest
import torch

from pmdkit.objectives import OBJECTIVES, load_objective
from pmdkit_lab.replay.biography import biography, loss_slope, regressed_on, resting_log_ratio
from pmdkit_lab.replay.gradient import batch_of, gradient, point
from pmdkit_lab.replay.recorded import RecordingText, open_step
from pmdkit_lab.replay.replay import make_request


def tell(run, row, objective=None, **options):
    recording = open_step(run.path)
    return biography(recording, make_request(recording, objective, options), row, RecordingText(recording, run.path))


def test_pmd_mean_by_hand(toy):
    """Reward to gradient, each number from the one before it."""
    recording = open_step(toy.path)
    row = int((recording["reward"].flatten() == 1).nonzero()[0])
    story = tell(toy, row)
    prompt, k = divmod(row, 8)
    others = [float(r) for i, r in enumerate(recording["reward"][prompt]) if i != k]
    assert story["baseline"] == pytest.approx(sum(others) / 7)
    assert story["advantage"] == pytest.approx(1 - sum(others) / 7)
    at = story["path"]["seen"]
    assert at["target"] == pytest.approx(story["advantage"] / 0.05)
    assert at["residual"] == pytest.approx(story["advantage"] - 0.05 * at["log_ratio"])
    assert at["loss"] == pytest.approx(at["residual"] ** 2 / 0.1)
    length = len(story["tokens"])
    assert story["weight"] == pytest.approx(1 / 8 / 8 / length)  # of 8 prompts in its update, 8 responses, its length
    assert at["gradient"] == pytest.approx(-at["residual"] * story["weight"], rel=1e-6)
    for token in story["tokens"]:
        assert token["gradient"] == pytest.approx(at["gradient"], rel=1e-6)
    assert sum(t["logp"] - t["logp_old"] for t in story["tokens"]) == pytest.approx(at["log_ratio"], abs=1e-6)
    assert story["formula"].startswith("L = ")


def test_stories_add_up_to_the_step(llm):
    """The gradients that the rows are told make up the gradient of the step."""
    recording = open_step(llm.path)
    question = make_request(recording)
    whole = gradient(
        question.objective, batch_of(question.objective, recording), point(recording, "seen"), question.ministeps, 4
    )
    stories = [tell(llm, row) for row in range(16)]
    assert sum(s["path"]["seen"]["gradient_sum"] for s in stories) == pytest.approx(float(whole.values.sum()))
    assert sum(s["path"]["seen"]["share"] for s in stories) == pytest.approx(1.0)


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_every_objective_has_a_story_in_every_tier(name, bandit, drawn, toy, llm, llm_tokens):
    for run in (bandit, drawn, toy, llm, llm_tokens):
        story = tell(run, 5, name)
        assert len(story["tokens"]) == story["length"]
        assert story["formula"]
        assert math.isfinite(story["advantage"])


def test_texts(bandit, drawn, toy, llm):
    assert tell(bandit, 7)["response_text"] == "arm 7"
    assert tell(drawn, 7)["prompt_text"].startswith("context ")
    words = tell(toy, 7)
    assert set((words["prompt_text"] + " " + words["response_text"]).split()) <= {"0", "1", "<eos>"}
    language = tell(llm, 7)
    assert "Answer:" in language["prompt_text"]
    assert language["prompt_text"].startswith("arithmetic-")
    assert language["text_note"] is None


def test_what_a_loss_is_a_regression_on(toy):
    """PMD and DRO regress on the log-ratio, REBEL and TB less the group's mean, the others on nothing."""
    recording = open_step(toy.path)
    found = {}
    for name in ("pmd-mean", "pmd-part", "dro", "rebel", "tb", "rloo", "gspo", "chi2-po"):
        objective = load_objective(name)
        found[name] = regressed_on(objective, batch_of(objective, recording)[0:8])
    mean = "the group's mean"
    assert found == {
        "pmd-mean": "pi_old", "pmd-part": "pi_old", "dro": "pi_old", "rebel": mean, "tb": mean,
        "rloo": None, "gspo": None, "chi2-po": None,
    }  # fmt: skip


def test_where_a_pull_ends(toy):
    """PMD-mean's is A / tau, GSPO's the edge of its band, RLOO's nowhere."""
    recording = open_step(toy.path)
    n = int((recording["reward"].flatten() == 1).nonzero()[0])

    def row(name, **options):
        objective = load_objective(name, **options)
        return objective, batch_of(objective, recording)[n : n + 1]

    mean, batch = row("pmd-mean", tau=0.05)
    assert resting_log_ratio(mean, batch) == pytest.approx(float(batch.advantage / 0.05), abs=1e-5)
    gspo, batch = row("gspo", clip_high=0.1)
    assert resting_log_ratio(gspo, batch) == pytest.approx(int(batch.length) * math.log(1.1), abs=1e-5)
    assert resting_log_ratio(*row("rloo")) is None
    chi2, batch = row("chi2-po", tau=0.05)
    at = torch.tensor([resting_log_ratio(chi2, batch)], dtype=torch.float64)
    assert abs(float(loss_slope(chi2, batch, at))) < 1e-4
