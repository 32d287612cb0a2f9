"""pmdkit's objectives inside verl 0.9: importing this registers them, both as `pmd`. Tested with verl 0.9.1.

verl imports it in each of its processes, through the entry point `verl.plugins`; the keys to set are in `conf/pmd/`.
"""

from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss

from pmdkit_adapters.verl.config import PMDPolicyLossConfig
from pmdkit_adapters.verl.loss import advantage_estimator, policy_loss
from pmdkit_adapters.verl.recorder import VerlRecorder as PMDRecorder

__all__ = ["PMDPolicyLossConfig", "PMDRecorder"]

register_adv_est("pmd")(advantage_estimator)
register_policy_loss("pmd")(policy_loss)
