"""The trainer `pmd_sync`: verl's synchronous trainer, which also passes one tau per prompt to the loss.

verl hands its policy losses neither tau nor the prompt of a row, so this trainer stores a field `pmd_tau` beside the
advantages and replaces the workers' loss function. Importing this file registers it; see VERL_USE_EXTERNAL_MODULES.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.padding import response_to_nested

from pmdkit.adapters.verl.config import ADAPTIVE_TRAINER, estimator_objective
from pmdkit.adapters.verl.loss import loss_with_tau, row_tau
from pmdkit.errors import UsageError


@register_trainer(ADAPTIVE_TRAINER)
class PMDTrainerSync(PPOTrainerSync):
    """verl's synchronous trainer for an objective whose tau is a rule based on the group's rewards."""

    def __init__(self, config: DictConfig) -> None:
        # built here too: this process may be the first to see the configuration
        self.actor_config = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        if config.algorithm.use_kl_in_reward:
            raise UsageError(
                "algorithm.use_kl_in_reward is true; expected false: a tau rule reads the rewards as they were given"
            )
        super().__init__(config)

    def _build_replay_buffer(self) -> Any:
        """The buffer of a synchronous run, which verl picks by the trainer's name."""
        self.trainer_mode = "sync"
        return super()._build_replay_buffer()

    def on_init_end(self) -> None:
        """Give the workers, which exist by now, the loss that reads `pmd_tau`."""
        super().on_init_end()
        self.actor_rollout_wg.set_loss_fn(partial(loss_with_tau, config=self.actor_config))

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Compute verl's advantages, then the tau of every row."""
        batch = super()._compute_advantage(batch, metrics)
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["uid", "response_mask", "rm_scores"]
        )
        field, measured = tau_field(data, self.config.algorithm)
        metrics.update(measured)
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=field)


def tau_field(data: TensorDict, algorithm: DictConfig) -> tuple[TensorDict, dict[str, float]]:
    """The field `pmd_tau`, laid out as verl lays out advantages, and its range.

    Args:
        data: `uid`, `response_mask` and `rm_scores` of the whole batch, nested.
        algorithm: verl's node of that name.
    """
    objective, group = estimator_objective(algorithm)
    nested = data["response_mask"]
    padded = data.to_padded_tensor()
    mask = padded["response_mask"]
    uid = np.array(data["uid"].tolist() if hasattr(data["uid"], "tolist") else list(data["uid"]), dtype=object)
    tau = row_tau(objective, padded["rm_scores"], mask, uid, group)
    rows = response_to_nested(tau[:, None].expand(mask.shape), nested)
    real = tau[mask.bool().any(1)]
    measured = {"pmd/tau/mean": real.mean().item(), "pmd/tau/min": real.min().item(), "pmd/tau/max": real.max().item()}
    return TensorDict({"pmd_tau": rows}, batch_size=[len(torch.atleast_1d(tau))]), measured
