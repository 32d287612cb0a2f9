"""A recorder for verl's trainer: `VerlRecorder`, which pmdkit_adapters.verl exports as PMDRecorder.

verl makes it from `trainer.checkpoint_callback_class` in the process of its trainer, before it starts any worker.
"""

from typing import Any, Self

import torch
import verl
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.resolve import describe
from pmdkit_adapters.recorder import StepRecorder, cut_off, gauges, gold_of, row_sums
from pmdkit_adapters.verl.config import objective_of

FIELDS = ["uid", "response_mask", "rm_scores", "token_level_rewards", "old_log_probs", "rollout_log_probs"]


class VerlRecorder(StepRecorder, CheckpointCallback):
    """Record a run of verl: `trainer.checkpoint_callback_class=pmdkit_adapters.verl.PMDRecorder`.

    The arguments of `StepRecorder` are keys of the configuration: `+trainer.pmd_recorder.out=FOLDER`. A program that
    makes its own trainer writes `PMDRecorder(FOLDER).watch(trainer)`. It takes what is in the trainer's queue: the
    engine's log-probabilities and those of pi_old; what an update computes stays in the workers.
    """

    def __init__(self, out: str | None = None, *, config: Any = None, **options: Any) -> None:
        options |= {} if config is None else {"out": None, **config.trainer.get("pmd_recorder", {})}
        if (out := options.pop("out", None) or out) is None:
            raise UsageError(
                "trainer.pmd_recorder.out is missing; add +trainer.pmd_recorder.out=FOLDER to verl's overrides"
            )
        super().__init__(out, **options)
        if config is not None:
            from verl.trainer.ppo.v1.trainer_base import PPOTrainer  # imports Ray, which not every worker needs

            self.watch(PPOTrainer)

    def watch(self, trainer: Any) -> Self:
        """Listen to a trainer of verl before its `fit`, through its class: a process makes one trainer.

        Raises:
            EnvironmentLacks: this version of verl lacks what the recorder listens to.
        """
        owner: Any = trainer if isinstance(trainer, type) else type(trainer)
        lacks = [name for name in ("fit", "_update_actor") if not hasattr(owner, name)]
        if lacks:
            what = f"{owner.__name__} of verl {verl.__version__} has no {lacks[0]}"
            raise EnvironmentLacks(f"{what}; pip install verl==0.9.1")
        fit, update = owner.fit, owner._update_actor
        owner.fit = lambda its, *given, **options: self.on_fit(fit, its, *given, **options)
        owner._update_actor = lambda its, batch, metrics: self.on_update(update, its, batch, metrics)
        return self

    def on_fit(self, once: Any, trainer: Any, *given: Any, **options: Any) -> Any:
        """Set up the folder, then run `once`, the trainer's own `fit`. Raises what `StepRecorder.begin` raises."""
        config, rollout = trainer.config, trainer.config.actor_rollout_ref.rollout
        self.width = config.data.max_response_length
        self.sampler = 0.0 if rollout.top_p == 1 and rollout.top_k in (-1, 0) else None  # of all that the engine has
        self.bypass = bool((config.algorithm.get("rollout_correction") or {}).get("bypass_mode", False))
        self.begin(
            True,
            trainer.global_steps > 0,
            trainer.tokenizer,
            objective_table(config),
            env="verl",
            width=self.width,
            seed=config.data.get("seed") or 0,
            old="rollout" if self.bypass else "recompute",
        )
        return once(trainer, *given, **options)

    def on_update(self, once: Any, trainer: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        """Make an update as verl does, then log and record its step."""
        found = once(trainer, batch, metrics)
        if "gauges" not in self.failed:
            with self.harmless("gauges"):
                self.take(trainer, batch, metrics)
        if self.halt and self.raised:  # verl has no word for it: the loop ends after a step beyond its last one
            trainer.total_training_steps = min(trainer.total_training_steps, trainer.global_steps)
        return found

    def take(self, trainer: Any, batch: Any, metrics: dict[str, Any]) -> None:
        """Log the gauges of a step beside verl's metrics, and record the step if it is due."""
        from verl.trainer.ppo.v1.trainer_base import tq as queue

        step = trainer.global_steps
        data = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS)
        uid = data.pop("uid").tolist()
        data = data.to_padded_tensor()
        mask, old, engine = data["response_mask"].bool(), data["old_log_probs"].float(), data.get("rollout_log_probs")
        engine = None if self.bypass else engine  # it is pi_old
        members: dict[Any, list[int]] = {}
        for row, tag in enumerate(batch.tags):
            if not tag.get("is_padding", False):
                members.setdefault(uid[row], []).append(row)
        # a group that lost rows repeats its first one, without a verdict
        size = max(map(len, members.values()))
        index = torch.tensor([rows + rows[:1] * (size - len(rows)) for rows in members.values()])
        lost = torch.tensor([[place >= len(rows) for place in range(size)] for rows in members.values()])
        score = data.get("token_level_rewards", data["rm_scores"]).sum(1).double()
        reward = torch.where(lost, torch.nan, score[index])
        ids = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["responses"])
        ids = ids.to_padded_tensor()["responses"]
        end = getattr(trainer.tokenizer, "eos_token_id", None)
        cut = cut_off(ids, mask[:, : ids.shape[1]], self.width, [] if end is None else [end])
        sums = row_sums(mask, old, None, engine, cut)[index.flatten()].masked_fill(lost.view(-1, 1), 0.0)
        newest = all(batch.tags[row].get("min_global_steps") == step - 1 for row in index.flatten().tolist())
        found = gauges(reward, sums, self.tau, self.passed, 0.0 if newest else None, self.sampler)
        chosen = self.note(step, found, reward, True)
        metrics |= {f"pmd/{name}": value for name, value in found.items()}
        if chosen:
            index = index[chosen]
            rows, place = index.unique(return_inverse=True)
            more = queue.kv_batch_get(
                keys=[batch.keys[row] for row in rows],
                partition_id=batch.partition_id,
                select_fields=["prompts", "ref_log_prob", "reward_model"],
            )
            about = more.pop("reward_model", None)
            golds = [None] * len(rows) if about is None else [gold_of(each or {}) for each in about.tolist()]
            prompts = [prompt.tolist() for prompt in more.pop("prompts").unbind()]
            more = more.to_padded_tensor()
            width = ids.shape[1]
            known = {"mask": mask[rows, :width], "responses": ids[rows], "logp_old": old[rows, :width]}
            known["cut"] = cut[rows]
            known["logp_engine"] = None if engine is None else engine[rows, :width].float()
            known["logp_ref"] = more["ref_log_prob"].float() if "ref_log_prob" in more else None
            kept = {name: x[place.flatten()] for name, x in known.items() if x is not None}
            kept |= {name: [x[row] for row in place[:, 0]] for name, x in (("prompts", prompts), ("golds", golds))}
            version = min(batch.tags[row].get("min_global_steps") or 0 for row in rows)
            self.write(step, version, float(metrics["actor/loss"]), kept, reward[chosen])


def objective_table(config: Any) -> dict[str, Any]:
    """The objective as a table of pmdkit; a loss that pmdkit does not have gets a name that replay cannot load."""
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    mode = actor.policy_loss.loss_mode
    if mode == "pmd":
        return describe(objective_of(actor.policy_loss))
    norm = {"token-mean": "tokens", "seq-mean-token-mean": "length"}.get(actor.loss_agg_mode)
    plain = mode == "vanilla" and algorithm.adv_estimator == "grpo" and not (actor.use_kl_loss or actor.entropy_coeff)
    if norm is None or not plain:
        return {"name": f"verl {mode}"}
    std = "sample" if algorithm.norm_adv_by_std_in_grpo else "none"
    clips = {"clip_low": actor.clip_ratio_low, "clip_high": actor.clip_ratio_high}
    return {"name": "grpo", "norm": norm, "std": std, **clips}
