"""A recorder for any GRPOTrainer: `TRLRecorder`, which pmdkit_adapters.trl exports as PMDRecorder."""

from functools import partial
from typing import Any, Self

import torch
import trl
from accelerate.utils import gather_object
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import TrainerCallback
from trl import GRPOTrainer

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.resolve import describe
from pmdkit_adapters.recorder import StepRecorder, cut_off, gauges, gold_of, row_sums
from pmdkit_adapters.trl.trainer import PMDTrainer, response_mask

HOOKS = {  # methods of GRPOTrainer, and ours that are called in their place and call them
    "_generate_and_score_completions": "on_rollout",
    "_compute_loss": "on_loss",
    "_get_per_token_logps_and_entropies": "on_logp",
}


class TRLRecorder(StepRecorder, TrainerCallback):
    """Record a GRPOTrainer of TRL, or of a derived class: `PMDRecorder("out").watch(trainer)`.

    It takes what TRL computes and adds no forward pass, so nothing is known after a step. A step is a rollout batch,
    numbered by the first update that uses it; of several in one update the last is kept. See `StepRecorder` for the
    arguments, docs/use/trainers.md for what is logged.

    TRL's own calls stay outside of `harmless`, and so do collective ones, which every process has to reach.
    """

    trainer: Any = None
    left = 0  # rows of the rollout batch whose first loss is still to come
    micro_batch: dict[str, Any] | None = None  # whose loss is being computed

    def watch(self, trainer: GRPOTrainer) -> Self:
        """Listen to a trainer, and be one of its callbacks; before `trainer.train()`.

        Raises:
            UsageError: it is no GRPOTrainer.
            EnvironmentLacks: this version of TRL lacks what the recorder listens to.
        """
        if not isinstance(trainer, GRPOTrainer):
            raise UsageError(f"the trainer is a {type(trainer).__name__}; expected trl's GRPOTrainer")
        lacks = [name for name in (*HOOKS, "_logs", "_metrics") if not hasattr(trainer, name)]
        if lacks:
            raise EnvironmentLacks(f"GRPOTrainer of trl {trl.__version__} has no {lacks[0]}; pip install trl==1.16.0")
        if self.trainer is not trainer:  # else its hooks are wrapped already
            self.trainer = trainer
            for theirs, ours in HOOKS.items():  # transformers gives a callback neither its trainer nor the rows
                setattr(trainer, theirs, partial(getattr(self, ours), getattr(trainer, theirs)))
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Set up the folder; raises what `StepRecorder.begin` raises."""
        if self.trainer is None:
            raise UsageError("PMDRecorder has no trainer; call recorder.watch(trainer) before trainer.train()")
        self.stride = max(1, args.steps_per_generation * args.num_iterations // args.gradient_accumulation_steps)
        self.begin(
            self.trainer.accelerator.is_main_process,
            state.global_step > 0,
            self.trainer.processing_class,
            objective_of(self.trainer),
            env="trl",
            width=args.max_completion_length,
            seed=args.seed,
            old="recompute",
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the training after an alarm, if `halt` is set."""
        if self.halt and self.raised:
            control.should_training_stop = True

    def on_rollout(self, once: Any, inputs: Any) -> dict[str, Any]:
        """Take the rows of a rollout batch before TRL shuffles them, and the rewards of all processes."""
        rows: dict[str, Any] = once(inputs)
        if not self.trainer.model.training:
            return rows
        with self.harmless("gauges"):
            ids, logged = rows["completion_ids"], self.trainer._logs["rewards"]
            count = len(ids) * self.trainer.accelerator.num_processes
            each = torch.tensor([list(logged[name])[-count:] for name in self.trainer.reward_func_names]).double()
            total = (each * self.trainer.reward_weights.cpu().double()[:, None]).nansum(0)
            self.reward = torch.where(each.isnan().all(0), torch.nan, total).view(-1, self.trainer.num_generations)
            self.rows, self.version, self.left = rows, self.trainer.state.global_step, len(ids)
            self.golds = [gold_of(row) for row in inputs]
            self.seen = torch.full(ids.shape, torch.nan, device=ids.device)
            self.losses = torch.zeros((), device=ids.device)
        if self.stopped():
            return rows
        return rows | {"pmd_row": torch.arange(len(ids), device=ids.device)}

    def stopped(self) -> bool:
        """Whether the gauges have failed in a process: then all of them stop, and no collective call lacks one."""
        accelerator = self.trainer.accelerator
        return bool(accelerator.gather(torch.tensor(["gauges" in self.failed], device=accelerator.device)).any())

    def on_loss(self, once: Any, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Add up the losses of a rollout batch's first pass; with the last of them it is complete."""
        first = "pmd_row" in inputs and self.left > 0
        self.micro_batch = inputs if first else None
        loss: Tensor = once(model, inputs)
        self.micro_batch = None
        if first:
            self.losses += loss.detach()
            self.left -= len(inputs["pmd_row"])
            if self.left == 0:
                self.finish()
        return loss

    def on_logp(self, once: Any, *given: Any, **options: Any) -> tuple[Tensor, Any, Any]:
        """Take the log-probabilities that the loss of a micro-batch is computed from."""
        found: tuple[Tensor, Any, Any] = once(*given, **options)
        if self.micro_batch is not None:
            with self.harmless("gauges"):
                self.seen[self.micro_batch["pmd_row"]] = found[0].detach().to(self.seen)
        return found

    def finish(self) -> None:
        """Log the gauges of a rollout batch, and record it if it is due."""
        trainer, rows, step = self.trainer, self.rows, self.version + 1
        with self.harmless("gauges"):
            mask, args = response_mask(rows), trainer.args
            # TRL leaves pi_old out if there is no update between a rollout and its loss: then the policy is pi_old
            old, engine = rows.get("old_per_token_logps", self.seen).float(), rows.get("sampling_per_token_logps")
            ids, written = rows["completion_ids"], rows["completion_mask"].bool()
            cut = cut_off(ids, written, args.max_completion_length, trainer.eos_token_ids)
            cut |= ~mask.any(1) & args.mask_truncated_completions
            mine = row_sums(mask, old, self.seen, engine, cut)
        if self.stopped():
            return
        sums = trainer.accelerator.gather(mine).cpu()
        with self.harmless("gauges"):
            plain = args.top_p == 1 and not (args.top_k or args.min_p or args.generation_kwargs)
            # TRL gives the engine the weights before each rollout, so pi_old is as old as the draws
            sampler = 0.0 if plain and args.repetition_penalty == 1 else None
            found = gauges(self.reward, sums, self.tau, self.passed, 0.0, sampler)
            chosen = self.note(step, found, self.reward, trainer.accelerator.is_main_process)
            for name, value in found.items():
                trainer._metrics["train"][f"pmd/{name}"].append(value)
        if self.stopped() or not chosen:
            return
        with self.harmless("gauges"):
            # of some groups, of which each process sends its rows to the main one
            size, begin = self.reward.shape[1], trainer.accelerator.process_index * len(mask)
            places = torch.arange(self.reward.numel()).view(-1, size)[chosen].flatten() - begin
            share = places[(places >= 0) & (places < len(mask))].to(mask.device)
            known = {"mask": mask, "responses": ids, "logp_old": old, "logp_seen": self.seen}
            known |= {"logp_engine": engine, "logp_ref": rows.get("ref_per_token_logps"), "cut": cut[:, None]}
            known |= {"correction": rows.get("importance_sampling_ratio")}
            given = {name: x for name, x in known.items() if x is not None}
            part: dict[str, Any] = {  # numpy, which writes them, has no bfloat16
                name: (x.float() if x.is_floating_point() else x)[share].cpu() for name, x in given.items()
            }
            asked = zip(rows["prompt_ids"][share], rows["prompt_mask"][share], strict=True)
            lists = {"prompts": [ids[on.bool()].tolist() for ids, on in asked]}
            lists["golds"] = [self.golds[row] for row in share.tolist()]
        if self.stopped():
            return
        parts = gather_object([part | lists])
        updates = trainer.args.gradient_accumulation_steps / trainer.args.steps_per_generation  # share of the batch
        loss = updates * float(trainer.accelerator.gather(self.losses).mean())
        if trainer.accelerator.is_main_process:
            with self.harmless("recording"):
                whole: dict[str, Any] = {
                    name: pad_sequence([row for each in parts for row in each[name]], batch_first=True) for name in part
                }
                if "correction" in whole and whole["correction"].shape != whole["mask"].shape:
                    whole["correction"] = whole["correction"][:, 0]  # a weight for each response
                whole["cut"] = whole["cut"][:, 0]
                whole |= {name: [row for each in parts for row in each[name]][::size] for name in lists}
                self.write(step, self.version, loss, whole, self.reward[chosen])


def objective_of(trainer: Any) -> dict[str, Any]:
    """The objective as a table of pmdkit; a loss that pmdkit does not have gets a name that replay cannot load."""
    if isinstance(trainer, PMDTrainer):
        return describe(trainer.objective)
    args = trainer.args
    norm = {"grpo": "length", "dapo": "tokens", "dr_grpo": "max"}.get(args.loss_type)
    std = {"group": "sample", "none": "none"}.get(trainer.scale_rewards)
    other = args.beta or args.delta or args.importance_sampling_level != "token" or args.entropy_coef
    if norm is None or std is None or other:
        return {"name": f"trl {args.loss_type}"}
    clips = {"clip_low": trainer.epsilon_low, "clip_high": trainer.epsilon_high}
    return {"name": "grpo", "norm": norm, "std": std, **clips}
