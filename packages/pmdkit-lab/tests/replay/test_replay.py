"""What a replay says of another objective or tau, against what a run with it would have computed."""

import pytest
import torch

from pmdkit.errors import UsageError
from pmdkit.objectives import RLOO, coefficient, cut, total
from pmdkit.recording import Recording
from pmdkit_lab.dumps.recorded import open_step
from pmdkit_lab.replay.gradient import NotRecorded, batch_of, gradient, point
from pmdkit_lab.replay.replay import make_request, make_requests, replay


@pytest.fixture
def step(toy):
    return open_step(toy.path)


def test_the_loss_is_the_objectives_own(step):
    """Against `credit`, `cut` and `total` called by hand."""
    question = make_request(step, "pmd-part", {"tau": 0.3})
    batch = batch_of(question.objective, step)
    found = replay(step, question)["points"]["old"]
    prompts, size = step["mass"].shape
    losses = [total(question.objective, cut(batch, part, prompts, size)).item() for part in (slice(0, 8), slice(8, 16))]
    assert found["losses"] == losses


def test_coefficients_are_those_that_a_trainer_forms(step):
    question = make_request(step, "chi2-po", {"tau": 0.3})
    batch = batch_of(question.objective, step)
    here = gradient(question.objective, batch, point(step, "old"), 1, 8)
    per_token = coefficient(question.objective, batch)[:, None] * step.mask
    torch.testing.assert_close(here.values, per_token.double(), atol=1e-7, rtol=1e-5)


def test_the_first_gradient_does_not_know_tau(step):
    """PMD-mean at pi_old is the policy gradient whatever tau; after the step it is not."""
    points = replay(step, make_request(step, options={"tau": 5.0}))["points"]
    assert points["old"]["cosine"] == pytest.approx(1.0, abs=1e-6)
    assert points["old"]["scale"] == pytest.approx(1.0, abs=1e-6)
    assert points["after"]["cosine"] < 0.999


def test_the_exact_update_leaves_no_gradient(bandit):
    """After an exact step the recorded objective has nothing left to ask, by the logits of the policy."""
    found = replay(open_step(bandit.path), make_request(open_step(bandit.path)))
    assert found["points"]["old"]["norm"] == pytest.approx(bandit.metrics[-1]["grad_norm"], rel=1e-9)
    assert found["points"]["after"]["norm"] < 1e-9


def test_the_exact_update_is_where_the_run_went(bandit):
    """On the full support the exact update of the group is that of the step; there no objective pushes on."""
    found = replay(open_step(bandit.path), make_request(open_step(bandit.path)))["responses"]
    assert len(found) == 100
    for row in found:
        assert row["exact"]["pmd-mean"] == pytest.approx(row["log_ratio"]["after"], abs=1e-9)


def test_a_loss_of_another_trainer_is_no_objective(step):
    """What it made of the step cannot be replayed; what ours would have made of it can."""
    other = Recording(step.about | {"objective": {"name": "trl sapo", "tau": 0.3}}, step.mask, step.tensors)
    asked = make_requests(other)
    assert [request.table.get("tau") for request in asked] == [0.3, 0.3, None]
    found = replay(other, *asked)
    assert found["recorded"]["replayed"] is None
    assert [each["objective"]["name"] for each in found["beside"]] == ["pmd-part", "grpo"]


def test_a_gradient_of_nan_is_refused(step):
    class Root(RLOO):
        def loss(self, batch):
            return 0 * (batch.logp - batch.logp.detach()).abs().sqrt()

    with pytest.raises(UsageError, match=r"the loss of Root is 0\.0 on this step; expected .* a finite gradient"):
        gradient(Root(), batch_of(Root(), step), point(step, "old"), 1, 8)


def test_one_objective_with_two_options_is_two_calls(step):
    """The pushes are told apart by name."""
    cold, hot = (make_request(step, "pmd-mean", {"tau": tau}) for tau in (0.05, 5.0))
    with pytest.raises(UsageError, match="got pmd-mean, pmd-mean; expected each name once"):
        replay(step, cold, hot)


def test_clipping_shows(drawn):
    """Far enough from pi_old a narrow band silences tokens that a wide one does not."""
    recording = open_step(drawn.path)
    silent = []
    for low, high in ((1e-3, 1e-3), (1.0, 1e6)):
        request = make_request(recording, options={"clip_low": low, "clip_high": high})
        silent.append(replay(recording, request)["points"]["after"]["silent"])
    assert silent[0] > 0.1
    assert silent[1] == 0.0


def test_a_part_of_a_group_is_not_compared(step):
    """REBEL compares the rows of a group; without some of them it says so, and PMD-mean goes on with the rest."""
    seen = step["logp_seen"].clone()
    seen[3] = torch.nan
    torn = Recording(step.about, step.mask, step.tensors | {"logp_seen": seen})
    rebel = replay(torn, make_request(torn, "rebel"))["points"]["seen"]
    assert "whole groups" in rebel["missing"]
    mean = replay(torn, make_request(torn))["points"]["seen"]
    assert (mean["rows"], mean["rows_missing"]) == (127, 1)
    objective = make_request(torn, "tb").objective
    with pytest.raises(NotRecorded, match="whole groups"):
        gradient(objective, batch_of(objective, torn), point(torn, "seen"), 1, 8)


def without(step, prompt, k=None):
    """The step with a response, or a whole group, that the verifier came to no verdict on."""
    mass, reward = step["mass"].clone(), step["reward"].clone()
    mass[prompt, k if k is not None else slice(None)] = 0
    mass[prompt] /= mass[prompt].sum().clamp_min(1e-300)
    reward[mass == 0] = 0
    return Recording(step.about, step.mask, step.tensors | {"mass": mass, "reward": reward})


def test_responses_without_a_verdict_count_for_nothing(step):
    lone = without(step, 2, 3)
    found = replay(lone, make_request(lone))
    assert found["points"]["old"]["rows"] == 127
    whole = without(step, 2)
    found = replay(whole, make_request(whole))
    assert found["points"]["old"]["rows"] == 120


def test_a_step_of_which_nothing_counts(step):
    """Groups of equal rewards that the run leaves out: a loss of 0, and no update that looked at a row."""
    about = step.about | {"drop_equal_groups": True, "updates": [{"loss": 0.0, "grad_norm": 0.0}] * 2}
    tensors = {name: x for name, x in step.tensors.items() if name != "logp_seen"}
    silent = Recording(about, step.mask, tensors | {"reward": torch.zeros_like(step["reward"])})
    found = replay(silent, make_request(silent))
    assert found["recorded"]["replayed"] == [0.0, 0.0]
    assert found["points"]["old"]["norm"] == 0
    assert found["drivers"] == []
