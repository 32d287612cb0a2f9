"""`python -m pmdkit_adapters.verl.check OVERRIDES`: check verl's configuration; starts nothing.

It makes the checks that verl makes before it starts Ray, needs no GPU, and says what the batch sizes mean.
"""

import sys

from hydra import compose, initialize_config_module
from hydra.errors import InstantiationException
from omegaconf import DictConfig
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from pmdkit.errors import PmdkitError, UsageError
from pmdkit_adapters.verl.config import PMDPolicyLossConfig, objective_of

SEARCH = "hydra.searchpath=[pkg://pmdkit_adapters.verl.conf]"


def composed(overrides: list[str]) -> DictConfig:
    """verl's main_ppo configuration with these overrides; the group `pmd` needs no search path."""
    found = [word for word in overrides if word.startswith("hydra.searchpath")]
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[*([] if found else [SEARCH]), *overrides])


def checked(config: DictConfig) -> PMDPolicyLossConfig:
    """The policy loss of this configuration, after verl's own checks of it."""
    try:
        loss = omega_conf_to_dataclass(config.actor_rollout_ref.actor).policy_loss
    except InstantiationException as error:  # hydra wraps the error; its cause has the message for the user
        raise UsageError(str(error.__cause__ or error)) from None
    if not isinstance(loss, PMDPolicyLossConfig):
        raise UsageError("the run has no loss of pmdkit; add +pmd=mean and policy_loss.pmd_tau to the overrides")
    validate_config(config, need_reference_policy(config), need_critic(config))
    return loss


def main(overrides: list[str]) -> int:
    """Print what was checked, and verl's batch sizes in pmdkit's words; returns 0, or the exit code of the error."""
    try:
        config = composed(overrides)
        loss = checked(config)
        actor, group = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout.n
        prompts, mini = config.data.train_batch_size, actor.ppo_mini_batch_size
        if prompts % mini:
            why = "verl fills the last mini-batch with empty rows that count in the mean"
            raise UsageError(
                f"data.train_batch_size is {prompts} and actor.ppo_mini_batch_size {mini}; expected a multiple: {why}"
            )
    except PmdkitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    updates = prompts // mini * actor.ppo_epochs
    print(f"objective {objective_of(loss)}")
    print(f"a rollout batch is {prompts} prompts x {group} responses = {prompts * group}")
    print(f"it is used in {updates} ministeps of {mini} x {group} = {mini * group} responses")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
