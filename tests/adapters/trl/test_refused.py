"""Settings that would change the objective, or that nobody would read, stop the run with a sentence."""

import importlib
from dataclasses import fields

import pytest
import trl
from trl import GRPOConfig

from pmdkit.adapters.trl import PMDConfig
from pmdkit.adapters.trl import config as config_module
from pmdkit.adapters.trl.config import FIXED
from pmdkit.errors import EnvironmentLacks

BAD = {
    "loss_type": "dapo",
    "scale_rewards": "group",
    "multi_objective_aggregation": "normalize_then_sum",
    "importance_sampling_level": "sequence",
    "beta": 0.04,
    "epsilon": 0.3,
    "epsilon_high": 0.28,
    "delta": 2.0,
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
    "generation_kwargs": {"top_p": 0.9},
}


def config(**settings):
    given = {"use_cpu": True, "bf16": False, "report_to": "none", "per_device_train_batch_size": 8}
    return PMDConfig(**given | settings)


def test_every_setting_that_is_refused_is_tried_here():
    assert BAD.keys() == {name for settings in FIXED.values() for name in settings}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_setting_that_has_one_value(name):
    with pytest.raises(ValueError):
        config(**{name: BAD[name]})


def test_the_fields_of_grpo_config_about_losses_are_all_decided_on():
    """What a later TRL adds to GRPOConfig has to be looked at: it may change the loss."""
    ours, theirs = ({field.name for field in fields(of)} for of in (PMDConfig, GRPOConfig))
    assert ours - theirs == {"objective", "tau", "objective_options"}
    of_losses = {name for name in theirs if name.startswith(("entropy", "epsilon"))}
    of_adaptive_entropy = {"entropy_coef_min", "entropy_coef_max", "entropy_coef_delta", "entropy_target"}
    assert of_losses - of_adaptive_entropy <= BAD.keys()


@pytest.mark.parametrize(
    "settings",
    [
        {"steps_per_generation": 3, "gradient_accumulation_steps": 2},
        {"steps_per_generation": 4, "gradient_accumulation_steps": 1, "per_device_train_batch_size": 2},
        {"objective": "rebel", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        {"objective": "pmd-men"},
        {"objective_options": {"taus": 1.0}},
        {"tau": -1.0},
        {"objective_options": {"entropy_coef": 0.01}},
        {"objective": "grpo", "objective_options": {"kl_coef": 0.1, "kl_in": "reward", "entropy_coef": 0.01}},
        {"vllm_importance_sampling_correction": True, "vllm_importance_sampling_mode": "token_truncate"},
    ],
)
def test_other_mistakes(settings):
    with pytest.raises(ValueError):
        config(**settings)


def test_another_version_of_trl(monkeypatch):
    monkeypatch.setattr(trl, "__version__", "1.15.2")
    with pytest.raises(EnvironmentLacks):
        importlib.reload(config_module)
