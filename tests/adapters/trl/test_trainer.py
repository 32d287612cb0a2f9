"""What PMDTrainer does around the loss: rows without a verdict, weights for an engine's mismatch, evaluation, logs."""

import pytest
import torch

from pmdkit.adapters.trl.rows import in_order
from pmdkit.objectives import PMDMean


def test_pi_old_is_the_policy_that_wrote_the_responses(trainer_of):
    """0 before the first update on a rollout batch, bit by bit, and not 0 before the second."""
    seen = []

    class Look(trainer_of.Seen):
        def watch(self, batch, sampled):
            seen.append(batch.log_ratio.detach().abs().max().item())
            super().watch(batch, sampled)

    made, log, _ = trainer_of.train(8, 4, 2, 4, 4, lr=0.05, tau=0.5, trainer=Look)  # two rollout batches, two ministeps
    assert seen[0:2] == seen[4:6] == [0.0, 0.0]
    assert min(seen[2:4] + seen[6:8]) > 1e-4
    ranges = [row["log_ratio_min"] for row in log if "log_ratio_min" in row]
    assert len(ranges) == 2
    assert all(value < 0 for value in ranges)
    assert made.num_iterations == 1


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


def test_the_engines_log_probabilities_are_compared_with_the_trainers(trainer_of):
    """An engine that says 0.5 nats more for every token, and nothing for the last one of a response."""
    plain, scored = trainer_of.rollout, {}

    class Look(trainer_of.Seen):
        def _get_per_token_logps_and_entropies(self, *given, **options):
            found = super()._get_per_token_logps_and_entropies(*given, **options)
            scored.setdefault("logp", found[0].detach())
            return found

    trainer_of.train(4, 16, 1, 1, 1, tau=0.5, trainer=Look)

    def rollout(prompts, trainer):
        found = plain(prompts, trainer)
        lengths = [len(ids) for ids in found["completion_ids"]]
        rows = zip(scored["logp"].tolist(), lengths, strict=True)
        return found | {"logprobs": [[x + 0.5 for x in row[: n - 1]] + [float("nan")] for row, n in rows]}

    trainer_of.rollout = rollout
    _, log, _ = trainer_of.train(4, 16, 1, 1, 1, tau=0.5)
    lengths = [len(trainer_of.response(row)) - 1 for row in range(16) if row != 6]
    assert log[0]["mismatch_mean"] == pytest.approx(0.5, abs=1e-5)
    assert log[0]["mismatch_response"] == pytest.approx(0.5 * sum(lengths) / 16, abs=1e-5)


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


def test_the_order_of_rows_is_restored():
    rows = {"pmd_row": torch.tensor([2, 0, 3, 1]), "x": torch.tensor([[20.0], [0.0], [30.0], [10.0]])}
    shuffled = [{name: value[:2] for name, value in rows.items()}, {name: value[2:] for name, value in rows.items()}]
    for part in shuffled:
        part["n"] = torch.tensor(4)
    restored = in_order(shuffled)
    assert [part["x"][:, 0].tolist() for part in restored] == [[0.0, 10.0], [20.0, 30.0]]
    assert [int(part["n"]) for part in restored] == [4, 4]


def test_evaluation_gives_the_loss_of_new_responses(trainer_of):
    """pi_old is the policy then: the loss is that of the advantages alone."""
    made, _, _ = trainer_of.train(4, 16, 1, 1, 1, objective=PMDMean(tau=0.5), per_device_eval_batch_size=16)
    found = made.evaluate(made.train_dataset)
    assert found["eval_loss"] > 0
    assert found["eval_unscored"] == 1
