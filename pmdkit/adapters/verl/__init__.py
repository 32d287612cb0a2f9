"""pmdkit's objectives inside verl 0.9: importing this registers them. Tested with verl 0.9.1.

verl imports it in each of its processes, through the entry point `verl.plugins`. The trainer for adaptive temperatures
is in `trainer.py` and is imported on demand; the keys to set are in `conf/pmd/`.
"""

from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss

from pmdkit.adapters.verl.config import PMDPolicyLossConfig
from pmdkit.adapters.verl.loss import ESTIMATORS, LOSSES

__all__ = ["ESTIMATORS", "LOSSES", "PMDPolicyLossConfig"]

for _name, _loss in LOSSES.items():
    register_policy_loss(_name)(_loss)
for _name, _estimator in ESTIMATORS.items():
    register_adv_est(_name)(_estimator)
