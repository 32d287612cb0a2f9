"""What PMDTrainer does around the loss: rows without a verdict, weights for an engine's mismatch, evaluation, logs."""

import pytest
import torch

from pmdkit.objectives import PMDMean


def test_pi_old_is_the_policy_that_wrote_the_responses(trainer_of):
    """The log-ratio is 0 before the first update on a rollout batch, bit by bit, and not 0 before the second."""
    _, log, _ = trainer_of.train(8, 4, 2, 4, 4, lr=0.05, tau=0.5)  # two rollout batches, two ministeps
    moved = [row["log_ratio_rms"] for row in log if "log_ratio_rms" in row]
    assert moved[0] == moved[2] == 0.0
    assert min(moved[1], moved[3]) > 1e-4


def test_responses_without_a_verdict_teach_nothing_and_are_counted(trainer_of):
    """Row 6 has none. Its tokens could be any."""
    given = {"micro": 4, "accumulation": 4, "per_rollout": 4, "updates": 1, "tau": 0.5}
    _, log, before = trainer_of.train(4, **given)
    plain = trainer_of.response
    trainer_of.response = lambda row: [3, 3, 3, 3, 1] if row == 6 else plain(row)
    _, _, after = trainer_of.train(4, **given)
    trainer_of.response = lambda row: [3, 3, 3, 3, 1] if row == 7 else plain(row)
    _, _, other = trainer_of.train(4, **given)
    name = "model.layers.0.mlp.up_proj.weight"
    torch.testing.assert_close(after[0][name], before[0][name], atol=1e-6, rtol=0)
    assert (other[0][name] - before[0][name]).abs().max() > 1e-3
    assert log[0]["unscored"] == 1


def test_weights_for_an_engines_mismatch_multiply_the_loss_of_their_response(trainer_of):
    """TRL computes them for vLLM only; here they are put where it puts them. Twice the weight is twice the gradient."""

    class Twice(trainer_of.Seen):
        def _generate_and_score_completions(self, inputs):
            rows = super()._generate_and_score_completions(inputs)
            return rows | {"importance_sampling_ratio": torch.full((len(rows["completion_ids"]), 1), 2.0)}

    given = {"micro": 4, "accumulation": 4, "per_rollout": 4, "updates": 1, "tau": 0.5}
    _, _, one = trainer_of.train(4, **given)
    _, _, two = trainer_of.train(4, **given, trainer=Twice)
    for name, gradient in one[0].items():
        torch.testing.assert_close(two[0][name], 2 * gradient, atol=1e-7, rtol=0)


def test_advantages_in_the_log_are_those_of_the_objective(trainer_of):
    made, _, _ = trainer_of.train(4, 4, 4, 4, 1, objective=PMDMean(tau=0.5))
    rewards = [trainer_of.reward(row) for row in range(4)]
    assert list(made._logs["advantages"])[:4] == pytest.approx([r - (sum(rewards) - r) / 3 for r in rewards])
    assert len(made._logs["advantages"]) == 16


def test_several_rewards_are_summed_with_their_weights(trainer_of):
    seen = {}

    class Two(trainer_of.Seen):
        def __init__(self, model, reward_funcs, *more, **options):
            super().__init__(
                model, [reward_funcs, lambda row, **_: [None if r == 6 else 0.1 for r in row]], *more, **options
            )

        def _generate_and_score_completions(self, inputs):
            rows = super()._generate_and_score_completions(inputs)
            seen["rewards"] = self.pmd_rewards.tolist()
            return rows

    trainer_of.train(4, 4, 4, 4, 1, trainer=Two, reward_weights=[2.0, 1.0], tau=0.5)
    wanted = [float("nan") if row == 6 else 2 * trainer_of.reward(row) + 0.1 for row in range(16)]
    assert seen["rewards"] == pytest.approx(wanted, abs=1e-7, nan_ok=True)


def test_evaluation_gives_the_loss_of_new_responses(trainer_of):
    """pi_old is the policy then: the loss is that of the advantages alone."""
    made, _, _ = trainer_of.train(4, 16, 1, 1, 1, objective=PMDMean(tau=0.5), per_device_eval_batch_size=16)
    found = made.evaluate(made.train_dataset)
    assert found["eval_loss"] > 0
    assert found["eval_unscored"] == 1
