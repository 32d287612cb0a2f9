"""The trainer `pmd_sync` on a real Ray and a real TransferQueue, without GPUs: advantages, then one tau per row.

python trainer_worker.py FOUND.json
"""

import json
import sys
from pathlib import Path

import cloudpickle
import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1 import get_trainer_cls

from pmdkit.adapters.verl.check import composed
from pmdkit.adapters.verl.trainer import PMDTrainerSync

LENGTHS, REWARDS = [2, 3, 1, 4, 2, 3], [1.0, -1, -1, 1, 1, -1]


def nested(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


class Workers:
    """Stands for the worker group: what it is given travels as Ray sends it."""

    def set_loss_fn(self, function):
        self.function = cloudpickle.loads(cloudpickle.dumps(function))


class Weights:
    """Stands for the checkpoint manager."""

    def update_weights(self, step):
        self.step = step


def main(found):
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 * 2**20, logging_level="error")
    config = composed(
        [
            "+pmd=mean_adaptive",
            "actor_rollout_ref.rollout.n=3",
            "actor_rollout_ref.rollout.name=vllm",
            "actor_rollout_ref.actor.use_dynamic_bsz=true",
            "transfer_queue.enable=true",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        ]
    )
    tq.init(config.transfer_queue)
    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
    assert type(trainer) is PMDTrainerSync
    trainer.actor_rollout_wg, trainer.checkpoint_manager, trainer.global_steps = Workers(), Weights(), 0
    trainer.on_init_end()

    fields = {
        "uid": ["a"] * 3 + ["b"] * 3,
        "response_mask": nested([torch.ones(n, dtype=torch.long) for n in LENGTHS]),
        "rm_scores": nested(
            [torch.tensor([0.0] * (n - 1) + [float(r)]) for n, r in zip(LENGTHS, REWARDS, strict=True)]
        ),
        "rollout_log_probs": nested([-torch.ones(n) for n in LENGTHS]),
        "old_log_probs": nested([-torch.ones(n) for n in LENGTHS]),
    }
    keys = [f"{uid}_{n}_0" for uid in "ab" for n in range(3)]
    batch = tq.kv_batch_put(
        keys=keys, partition_id="train", fields=TensorDict(fields, batch_size=6), tags=[{} for _ in keys]
    )
    metrics = {}
    batch = trainer._compute_advantage(batch, metrics)
    data = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["advantages", "pmd_tau"])
    result = {
        "advantages": [row.tolist() for row in data["advantages"].unbind()],
        "tau": [row.tolist() for row in data["pmd_tau"].unbind()],
        "metrics": {name: value for name, value in metrics.items() if name.startswith("pmd/")},
        "loss": trainer.actor_rollout_wg.function.func.__name__,
        "objective": repr(trainer.actor_rollout_wg.function.keywords["config"].policy_loss.objective()),
        "buffer": type(trainer.replay_buffer).__name__,
    }
    Path(found).write_text(json.dumps(result))
    tq.close()
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
