"""verl's real trainer on a CPU: its `fit`, its queue, its replay buffer, its file logger; no vLLM and no Ray workers.

python trainer_run.py FOLDER OVERRIDE...

Rows are put into the queue as the agent loop would put them. In place of the workers a tiny Qwen2 in this process
scores them and is updated by verl's own loss.
"""

import os
import sys
from pathlib import Path

import torch

GROUP, PROMPTS, STEPS = 4, 3, 3
DEATH = int(os.environ.get("GRADER_DIES", "0"))  # step from which on nothing is paid


def prompt(p):
    """Tokens of a prompt; the lengths differ."""
    return [2 + (5 * p + k) % 29 for k in range(1 + p % 3)]


def response(step, p, k):
    """Tokens of a response, one to five."""
    return [2 + (step + 7 * p + 11 * k + 3 * t) % 29 for t in range(1 + (step + p + k) % 5)]


def reward(step, p, k):
    """1 or 0; the first group of a step is all right, or half of each group until the grader dies."""
    if DEATH:
        return float(step < DEATH and (step + p + k) % 2 == 0)
    return float(p == 0 or (step + p + k) % 3 == 0)


def there(step, p, k):
    """Whether a session ended; one of the second step did not."""
    return (step, p, k) != (2, 1, 2)


def score(model, ids):
    """Log-probability of each token but the first, without padding."""
    logits = model(ids[None]).logits[0, :-1].log_softmax(-1)
    return logits.gather(1, ids[1:, None])[:, 0]


def main(folder, overrides):
    torch.set_num_threads(1)
    import ray
    import transfer_queue as queue
    from test_real_actor import tiny_model
    from transformers import AutoTokenizer
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl_rows import config

    settings = config(
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.rollout.calculate_log_probs=true",
        f"data.train_batch_size={PROMPTS}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
        "trainer.logger=[file]",
        "trainer.val_before_train=false",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
        "trainer.checkpoint_callback_class=pmdkit_adapters.verl.PMDRecorder",
        *overrides,
    )
    trainer = PPOTrainerSync(settings)  # makes the recorder

    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    queue.init()
    model = tiny_model(folder / "model")
    actor = omega_conf_to_dataclass(settings.actor_rollout_ref.actor)

    class Workers:
        """What the trainer asks of its workers, answered by the tiny model."""

        _dispatch_info = {"actor": [0]}  # noqa: RUF012

        def compute_log_prob(self, batch):
            ids = queue.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["input_ids"])["input_ids"]
            with torch.no_grad():
                logp = [torch.cat([score(model, row), torch.zeros(1)]) for row in ids.unbind()]
            logp = torch.nested.as_nested_tensor(logp, layout=torch.jagged)
            fields = tu.get_tensordict({"log_probs": logp, "entropy": -logp})
            return queue.kv_batch_put(keys=batch.keys, partition_id="train", fields=fields)

        def update_actor(self, batch):
            names = ["input_ids", "responses", "response_mask", "old_log_probs", "advantages"]
            rows = queue.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=names)
            lengths = [len(row) for row in rows["responses"].unbind()]
            logp = [score(model, row)[-n:] for row, n in zip(rows.pop("input_ids").unbind(), lengths, strict=True)]
            logp = torch.nested.as_nested_tensor(logp, layout=torch.jagged).to_padded_tensor(0.0)
            rows = rows.to_padded_tensor()
            loss, _ = get_policy_loss_fn("vanilla")(
                rows["old_log_probs"], logp, rows["advantages"], rows["response_mask"], config=actor
            )
            loss.backward()
            with torch.no_grad():
                for weight in model.parameters():
                    weight -= 0.05 * weight.grad
                    weight.grad = None
            return {"metrics": {"loss": [loss.item()], "grad_norm": [1.0], "mfu": [0.0]}}

    class Nothing:
        """Weights are not sent anywhere, and there are no GPUs."""

        reward_loop_worker_handles = ()

        def update_weights(self, step):
            pass

        def sleep_replicas(self):
            pass

        def get_n_gpus(self):
            return 1

    def prepare_step():
        """The agent loop's work: responses, rewards, log-probabilities of an engine that is 0.25 nats off."""
        step, keys, fields, tags = trainer.global_steps, [], [], []
        for p in range(PROMPTS):
            queue.kv_put(
                key=f"u{step}p{p}",
                partition_id="train",
                tag={"is_prompt": True, "status": "finished", "global_steps": step},
            )
            for k in range(GROUP):
                if not there(step, p, k):
                    continue
                asked, answer = torch.tensor(prompt(p)), torch.tensor(response(step, p, k))
                whole, on = torch.cat([asked, answer]), torch.ones_like(answer)
                with torch.no_grad():
                    logp = score(model, whole)[-len(answer) :]
                rewards = torch.zeros(len(answer))
                rewards[-1] = reward(step, p, k)
                keys.append(f"u{step}p{p}_{k}_0")
                fields.append(
                    {
                        "prompts": asked,
                        "responses": answer,
                        "input_ids": whole,
                        "position_ids": torch.arange(len(whole)),
                        "response_mask": on,
                        "loss_mask": on,
                        "rm_scores": rewards,
                        "rollout_log_probs": logp - 0.25 * (-1.0) ** torch.arange(len(answer)),
                        "uid": f"u{step}p{p}",
                        "reward_model": {"ground_truth": f"gold {p}"},
                        "num_turns": 2,
                    }
                )
                version = {"min_global_steps": step - 1, "max_global_steps": step - 1}
                tags.append({"seq_len": len(whole), "global_steps": step, "status": "success", **version})
        queue.kv_batch_put(keys=keys, partition_id="train", fields=tu.list_of_dict_to_tensordict(fields), tags=tags)
        return {}

    trainer.actor_rollout_wg = Workers()
    trainer.checkpoint_manager = trainer.reward_loop_manager = trainer.resource_pool_manager = Nothing()
    trainer.prepare_step = prepare_step
    trainer.tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    trainer.global_steps, trainer.steps_per_epoch, trainer.total_training_steps = (
        0,
        STEPS,
        DEATH + 3 if DEATH else STEPS,
    )
    trainer._init_dump_executor()
    try:
        trainer.fit(None)
    finally:
        queue.close()
        ray.shutdown()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(Path(sys.argv[1]), sys.argv[2:])
