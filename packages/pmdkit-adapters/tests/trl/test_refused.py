"""Settings that would change the objective, or that nobody would read, stop the run with a sentence."""

from dataclasses import fields

import pytest
import trl
from trl import GRPOConfig

from pmdkit.errors import EnvironmentLacks
from pmdkit_adapters.trl import PMDConfig
from pmdkit_adapters.trl.config import FIXED


def config(**settings):
    given = {"use_cpu": True, "bf16": False, "report_to": "none", "per_device_train_batch_size": 8}
    return PMDConfig(**given | settings)


ACCEPTED = {name: value for settings in FIXED.values() for name, value in settings.items()}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_setting_that_has_one_value(name):
    """Another one of the same kind: true for false, a word for a word, half as much more for a number."""
    value = ACCEPTED[name]
    other = not value if isinstance(value, bool) else "other" if isinstance(value, str) else (value or 0) + 0.5
    with pytest.raises(ValueError):
        config(**{name: other})


def test_the_fields_of_grpo_config_about_losses_are_all_decided_on():
    """What a later TRL adds to GRPOConfig has to be looked at: it may change the loss."""
    ours, theirs = ({field.name for field in fields(of)} for of in (PMDConfig, GRPOConfig))
    assert ours - theirs == {"objective", "tau", "objective_options"}
    of_losses = {name for name in theirs if name.startswith(("entropy", "epsilon"))}
    of_adaptive_entropy = {"entropy_coef_min", "entropy_coef_max", "entropy_coef_delta", "entropy_target"}
    assert of_losses - of_adaptive_entropy <= ACCEPTED.keys()


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


def test_a_version_of_trl_that_is_not_known_is_tried(monkeypatch):
    monkeypatch.setattr(trl, "__version__", "1.99.0")
    assert config(tau=0.1).make_objective().tau == 0.1


LATER = """
import sys
here = sys.path.index({folder!r})
sys.path.pop(here)
sys.modules.pop("trl")
import trl
sys.path.insert(here, {folder!r})
once = trl.GRPOTrainer._calculate_rewards
trl.GRPOTrainer._calculate_rewards = lambda *given, **options: {rewards}
"""


@pytest.mark.parametrize(
    ("rewards", "found"), [("2 * once(*given, **options)", "case '"), ("once(*given, options)", "TypeError: ")]
)
def test_a_version_of_trl_that_changes_the_loss_is_refused(rewards, found, monkeypatch, tmp_path):
    """A later TRL, which scales rewards or has another signature, stands in the way of the real one."""
    (tmp_path / "trl.py").write_text(LATER.format(folder=str(tmp_path), rewards=rewards))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(trl, "__version__", "1.99." + found)
    with pytest.raises(EnvironmentLacks) as refused:
        config()
    assert found in str(refused.value)
    assert "\n" not in str(refused.value)
