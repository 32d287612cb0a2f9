"""Settings that would change the objective, or that nobody would read, stop the run with a sentence."""

from dataclasses import fields

import pytest
import torch
from trl import GRPOConfig

from pmdkit.adapters.trl import PMDConfig, PMDTrainer
from pmdkit.adapters.trl.config import SAMPLING, SETTINGS
from pmdkit.errors import CheckFailed, EnvironmentLacks
from pmdkit.objectives import PMDMean, load_objective

BAD = {
    "loss_type": "dapo",
    "scale_rewards": "group",
    "multi_objective_aggregation": "normalize_then_sum",
    "importance_sampling_level": "sequence",
    "beta": 0.04,
    "epsilon": 0.3,
    "epsilon_high": 0.28,
    "delta": 2.0,
    "sapo_temperature_neg": 1.0,
    "sapo_temperature_pos": 1.1,
    "vespo_k_pos": 1.0,
    "vespo_lambda_pos": 1.0,
    "vespo_k_neg": 1.0,
    "vespo_lambda_neg": 1.0,
    "off_policy_mask_threshold": 0.5,
    "top_entropy_quantile": 0.2,
    "entropy_coef": 0.01,
    "use_adaptive_entropy": True,
    "router_aux_loss_coef": 0.001,
    "mask_truncated_completions": True,
    "disable_dropout": False,
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.1,
    "repetition_penalty": 1.05,
}


def config(**settings):
    given = {"use_cpu": True, "bf16": False, "report_to": "none", "per_device_train_batch_size": 8}
    return PMDConfig(**given | settings)


def test_every_setting_that_is_refused_is_tried_here():
    assert BAD.keys() == SETTINGS.keys() | SAMPLING.keys()


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_setting_of_a_loss_that_is_not_used(name):
    with pytest.raises(ValueError, match=f"^{name} is .*; expected .*: "):
        config(**{name: BAD[name]})


def test_the_fields_of_grpo_config_about_losses_are_all_decided_on():
    """What a later TRL adds to GRPOConfig has to be looked at: it may change the loss."""
    ours, theirs = ({field.name for field in fields(of)} for of in (PMDConfig, GRPOConfig))
    assert ours - theirs == {"objective", "tau", "objective_options", "passed", "on_policy_tolerance"}
    of_losses = {name for name in theirs if name.startswith(("sapo", "vespo", "entropy", "epsilon"))}
    of_adaptive_entropy = {"entropy_coef_min", "entropy_coef_max", "entropy_coef_delta", "entropy_target"}
    assert of_losses - of_adaptive_entropy <= SETTINGS.keys()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"generation_kwargs": {"top_p": 0.9}}, "generation_kwargs is .*expected none"),
        ({"steps_per_generation": 3, "gradient_accumulation_steps": 2}, "expected a multiple: ministeps"),
        (
            {"steps_per_generation": 4, "gradient_accumulation_steps": 1, "per_device_train_batch_size": 2},
            "on each process",
        ),
        (
            {"objective": "rebel", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
            "must share a forward pass",
        ),
        ({"num_generations_eval": 1}, "num_generations_eval is 1"),
        ({"objective": "pmd-men"}, "unknown objective 'pmd-men'.*pmd-mean"),
        ({"objective_options": {"taus": 1.0}}, "option of pmd-mean 'taus'"),
        ({"tau": -1.0}, "tau"),
        ({"objective_options": {"entropy_coef": 0.01}}, "the objective has entropy_coef; expected neither"),
        (
            {"objective": "grpo", "objective_options": {"kl_coef": 0.1, "kl_in": "reward", "entropy_coef": 0.01}},
            "the objective has kl_coef and entropy_coef; expected neither",
        ),
        (
            {"vllm_importance_sampling_correction": True, "vllm_importance_sampling_mode": "token_truncate"},
            "one weight per response",
        ),
    ],
)
def test_other_mistakes(settings, message):
    with pytest.raises(ValueError, match=message):
        config(**settings)


def test_another_temperature_is_warned_of():
    with pytest.warns(UserWarning, match="has to be sampled later, is the one at this temperature"):
        config(temperature=0.7)


def test_a_plain_grpo_config():
    with pytest.raises(ValueError, match="args is a GRPOConfig; expected a PMDConfig"):
        PMDTrainer("model", None, GRPOConfig(use_cpu=True, bf16=False, report_to="none"))


def test_two_places_for_options():
    with pytest.raises(ValueError, match="an instance has its options"):
        PMDTrainer("model", None, config(tau=0.1), objective=PMDMean())


def test_an_instance_with_a_penalty_that_trl_cannot_compute():
    with pytest.raises(ValueError, match="the objective has kl_coef; expected neither"):
        PMDTrainer("model", None, config(), objective=load_objective("pmd-part", tau=0.1, kl_coef=0.1))


def test_another_version_of_trl(monkeypatch):
    from pmdkit.adapters.trl import check_trl, metadata

    monkeypatch.setattr(metadata, "version", lambda name: "1.15.2")
    with pytest.raises(EnvironmentLacks, match=r"trl is 1\.15\.2.*pip install trl==1\.16\.0"):
        check_trl()


def test_a_policy_that_is_not_pi_old_at_the_first_ministep(trainer_of):
    """Scored in evaluation mode or by other kernels, pi_old would be another policy than the one that is trained."""

    class Noisy(trainer_of.Seen):
        def _get_per_token_logps_and_entropies(self, *given, **options):
            logp, entropy, aux = super()._get_per_token_logps_and_entropies(*given, **options)
            return logp + 0.05 * torch.is_grad_enabled(), entropy, aux

    with pytest.raises(CheckFailed, match=r"log-ratio is 0\.05 nats; expected at most on_policy_tolerance 0\.01"):
        trainer_of.train(4, 2, 4, 8, 2, trainer=Noisy, tau=0.5)
