"""The learner for language models, from top to bottom: rollout, log-probabilities, update, checkpoint.

An engine writes the responses, packed forward passes score them, and an optimizer follows the gradient.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit import foreign
from pmdkit.distributed import SINGLE, ProcessGroup
from pmdkit.errors import ComponentDied, Diverged, ResumeRefused, UsageError
from pmdkit.llm import (
    fused_loss,
    lora,
    lr_scheduler,
    mismatch,
    old_logprobs,
    optimizer,
    packing,
    rows_over_ranks,
    weight_sync_check,
    weights,
)
from pmdkit.llm.engines.base import Engine, Responses, Sampling, Tokens
from pmdkit.llm.engines.distributed import DistributedEngine, GenerateRequest
from pmdkit.llm.forward_root import ForwardRoot
from pmdkit.llm.logprobs import response_logp, scored_tokens, to_rows
from pmdkit.llm.out_of_memory import explain_out_of_memory
from pmdkit.loop import Episode, LogpHook, Rollouts
from pmdkit.objectives import Batch, Objective, total, traits
from pmdkit.objectives.credit import RoundingCheck
from pmdkit.randomness import derive
from pmdkit.specs.llm import UpdateTable
from pmdkit.specs.spec import ScheduleTable

if TYPE_CHECKING:
    from pmdkit.llm.rollouts import RolloutQueue
    from pmdkit.llm.turns import Turns


Report = Callable[[str, float, float, int], None]
"Takes the phase, how much of it is done, how much there is in all, and the tokens written so far."


class CausalLearner:
    """A Learner whose policy is a causal language model of transformers.

    Args:
        model: trained in place, float32; switched to packed attention here, permanently.
        tokenizer: for `save_pretrained`.
        encode: prompt number to the tokens of the prompt.
        engine: writes responses; it gets the weights before each rollout that follows an update.
        sampling: width and temperature of training rollouts.
        schedule: lr, optimizer and passes.
        update: token budget, clip, weight decay.
        bfloat16: forward and backward passes in bfloat16, see precision.py; weights and optimizer stay float32.
        reference: keep a reference policy: a copy of the model or, if it has adapters, the model without them.
        old, correction, correction_cap: whose log-probabilities pi_old are, see `old_logprobs.resolve_old_logprobs`.
        process_group: the processes that share the work. All of them call the same methods with the same arguments,
            and get the same results.
        monitor: judges the mismatch between engine and trainer in each step.
        turns: multi-turn episodes, in which an environment and the policy alternate in every rollout.

    Attributes:
        on_logp: called with the log-probabilities of each forward pass of an update, in its first pass over the data.
        queue: of rollouts ahead of the updates, if there is a lag.
        mismatch: between engine and trainer, in the last rollout.
        found: what the weight-sync check measured under the weights of the last rollout.
        logp_engine: [N, T] the engine's log-probabilities of the last rollout, if pi_old is the trainer's.
        last: what the last update saw, for inspection if it diverged.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        encode: Callable[[int], Tokens],
        engine: Engine,
        sampling: Sampling,
        schedule: ScheduleTable,
        update: UpdateTable,
        bfloat16: bool = False,
        reference: bool = False,
        old: str = "rollout",
        correction: str = "none",
        correction_cap: float = 2.0,
        process_group: ProcessGroup = SINGLE,
        monitor: mismatch.MismatchMonitor | None = None,
        turns: "Turns | None" = None,
    ) -> None:
        packing.use_packing(model)  # its engine may have switched only a copy
        self.version = 0
        self.process_group = process_group
        self.model = model
        self.tokenizer = tokenizer
        self.encode = encode
        self.engine = engine if isinstance(engine, DistributedEngine) else DistributedEngine(engine, process_group)
        self.sampling = sampling
        self.options = update
        self.passes = schedule.passes
        self.old, self.correction, self.correction_cap = old, correction, correction_cap
        self.monitor = monitor
        self.turns = turns
        copied = reference and not lora.has_adapters(model)
        self.reference = deepcopy(model).requires_grad_(False) if copied else None
        self.root = self.forward_root(model, bfloat16)
        self.reference_root = self.root if reference else None
        if self.reference is not None:
            self.reference_root = self.forward_root(self.reference, bfloat16)
        self.optimizer = optimizer.make_optimizer(model, schedule, update)
        plain = update.lr_scheduler_type == "constant" and update.warmup_steps == 0
        self.lr_scheduler = None if plain else lr_scheduler.LRScheduler(self.optimizer, schedule, update)
        self.report: Report = lambda what, done, total, tokens: None
        self.warn: Callable[[str], None] = lambda sentence: None
        self.on_logp: LogpHook | None = None
        self.queue: RolloutQueue | None = None
        self.mismatch: dict[str, float] = {}
        self.found: Mapping[str, float] = {}
        self.logp_engine: Tensor | None = None
        self.last: tuple[Rollouts, Batch] | None = None
        self.stale = True  # the engine has not been given these weights yet

    def forward_root(self, model: PreTrainedModel, bfloat16: bool) -> nn.Module:
        """The module at which a model's forward passes begin, wrapped for all processes."""
        dtype = torch.bfloat16 if bfloat16 else torch.float32
        return self.process_group.wrap(ForwardRoot(model, dtype, sharded=self.process_group.strategy == "fsdp2"))

    # Rollout: weights to the engine, responses from it, and whose log-probabilities count as pi_old.

    def rollout(self, prompts: Tensor, group: int | None, seed: int) -> Rollouts:
        """`group` responses to each prompt, given by number, seeded by (seed, prompt, k)."""
        request = self.generate_request(prompts, group, seed)
        self.sync_weights()
        episodes: list[Episode] | None = None
        with explain_out_of_memory("rollout", "rollout.cache_tokens"):
            if self.turns is not None:
                responses, episodes = self.turns.generate(self.engine, prompts, request)
            else:
                responses = self.engine.generate(
                    request.prompts, request.group, request.seeds, request.sampling, request.progress
                )
        self.found = self.engine.found
        rollouts = replace(self.as_rollouts(prompts, seed, responses, self.version), episodes=episodes)
        self.logp_engine = rollouts.logp_old if self.old == "recompute" else None
        rollouts, self.mismatch = old_logprobs.resolve_old_logprobs(
            rollouts, self.logp, self.old, self.correction, self.correction_cap
        )
        return self.with_reference(rollouts)

    def generate_request(self, prompts: Tensor, group: int | None, seed: int) -> GenerateRequest:
        """The request to an engine for a rollout; each response is seeded by (seed, prompt, k)."""
        if group is None:
            raise UsageError("schedule.group is not set; a language model has no support to enumerate: give --group")
        rows = len(prompts) * group
        return GenerateRequest(
            self.prompt_tokens(prompts),
            group,
            row_seeds(prompts, group, seed),
            self.sampling,
            lambda tokens, ended: self.report("rollout", ended, rows, tokens),
        )

    def as_rollouts(self, prompts: Tensor, seed: int, responses: Responses, version: int) -> Rollouts:
        """Rollouts from an engine's responses; raises ComponentDied unless weights of `version` wrote them."""
        rows = len(responses.mask)
        group = rows // len(prompts)
        self.report("rollout", rows, rows, int(responses.mask.sum()))
        if responses.version != version:
            raise ComponentDied(
                f"the engine answered with weights of version {responses.version}; expected {version}: "
                "its weights were not updated, restart it and go on with --resume"
            )
        return Rollouts(
            prompts=prompts,
            responses=responses.tokens.cpu(),
            logp_old=responses.logp.cpu(),
            mask=responses.mask.cpu(),
            mass=torch.full((len(prompts), group), 1.0 / group, dtype=torch.float64),
            sampled=True,
            seed=seed,
            version=responses.version,
            width=self.sampling.width,
        )

    def with_reference(self, rollouts: Rollouts) -> Rollouts:
        """The rollouts with log-probabilities under the reference policy, if there is one."""
        if self.reference_root is None:
            return rollouts
        with torch.no_grad(), lora.adapters_disabled(self.model):
            return replace(rollouts, logp_ref=self.score(self.reference_root, rollouts))

    def sync_weights(self) -> None:
        """Give the engine the current weights, if it does not have them."""
        if self.queue is not None:
            self.queue.drain()
        if not self.stale and self.engine.version == self.version:
            return
        self.engine.publish(self.gathered_weights(), self.version, self.expected_logp())
        self.stale = False

    def gathered_weights(self) -> weights.GatheredWeights:
        """The weights as engines take them; each is gathered when it is accessed."""
        return weights.GatheredWeights(lora.engine_weights(self.model, self.engine))

    def expected_logp(self) -> weight_sync_check.ExpectedLogp | None:
        """What the weight-sync check expects of an engine with the current weights."""
        check = self.engine.sync_check
        if check is None:
            return None
        prompts, responses = list(check.prompts), list(check.responses)
        with torch.no_grad():
            logp = self.score_rows(self.root, prompts, responses, 1, max(len(response) for response in responses))
        return [row[: len(response)] for row, response in zip(logp, responses, strict=True)]

    # Log-probabilities: which rows share a forward pass, and in which process.

    def logp(self, rollouts: Rollouts) -> Tensor:
        """[N, T] log-probabilities under the current policy, with gradient unless it is disabled."""
        return self.score(self.root, rollouts)

    def score(self, root: nn.Module, rollouts: Rollouts) -> Tensor:
        """[N, T] log-probabilities, a token budget at a time; with gradients enabled, each process scores all rows."""
        prompts, responses = self.row_tokens(rollouts)
        size, width = rollouts.mass.shape[1], rollouts.logp_old.shape[1]
        return self.score_rows(root, prompts, responses, size, width, rollouts.mask)

    def score_rows(
        self,
        root: nn.Module,
        prompts: list[Tokens],
        responses: list[Tokens],
        size: int,
        width: int,
        mask: Tensor | None = None,
    ) -> Tensor:
        """[N, width] log-probabilities of N responses, `size` to a prompt; 0 off the mask, if one is given."""
        group = SINGLE if torch.is_grad_enabled() else self.process_group
        plans = rows_over_ranks.shard_by_tokens(
            group, prompts, responses, size, self.options.token_budget, whole_groups=False
        )
        mine = [self.logp_of_rows(root, prompts, responses, rows, width, mask) for rows in plans[group.rank]]
        logp = torch.zeros(len(responses), width, dtype=torch.float64)
        for plan, part in zip(plans, group.gather(torch.cat(mine)), strict=True):
            logp = logp.index_copy(0, torch.tensor([row for rows in plan for row in rows], dtype=torch.long), part)
        return logp

    def logp_of_rows(
        self,
        root: nn.Module,
        prompts: list[Tokens],
        responses: list[Tokens],
        rows: list[int],
        width: int,
        mask: Tensor | None = None,
    ) -> Tensor:
        """[n, T] log-probabilities of some rows in one forward pass, float64 on the CPU."""
        if not rows:
            return (self.empty_pass(root, prompts, responses) * torch.zeros(0, width)).double()
        some, answers = [prompts[row] for row in rows], [responses[row] for row in rows]
        scored = None if mask is None else scored_tokens(mask[rows], answers)
        scores = root(lambda model: response_logp(model, some, answers, scored=scored))
        return to_rows(scores.logp, scores.lengths, width, scored).double().cpu()

    def empty_pass(self, root: nn.Module, prompts: list[Tokens], responses: list[Tokens]) -> Tensor:
        """0, with a gradient of 0 for every weight: the forward pass of a process that has no rows."""
        scores = root(lambda model: response_logp(model, [prompts[0][:1]], [responses[0][:1]]))
        return scores.logp.double().sum().cpu() * 0.0

    def row_tokens(self, rollouts: Rollouts) -> tuple[list[Tokens], list[Tokens]]:
        """N prompts and N responses; the responses of a group share one prompt object."""
        prompts = self.prompt_tokens(rollouts.prompts)
        size = rollouts.mass.shape[1]
        lengths = rollouts.extent.tolist()
        responses = [row[:length] for row, length in zip(rollouts.responses.tolist(), lengths, strict=True)]
        return [prompt for prompt in prompts for _ in range(size)], responses

    def prompt_tokens(self, prompts: Tensor) -> list[Tokens]:
        """The tokens of each prompt."""
        return [self.encode(number) for number in prompts.tolist()]

    # Update: one ministep, split by the token budget. The parts add up to the same gradient whatever the budget.

    def update(self, objective: Objective, rollouts: Rollouts, batch: Batch) -> dict[str, float]:
        """One ministep. `loss` and `grad_norm` (before clipping) are those of the first pass."""
        if self.queue is None:
            self.engine.enter("update")
        self.last = rollouts, batch
        if self.monitor is not None:
            self.mismatch |= self.monitor.check(self.version, self.mismatch, batch.tau, self.warn)
        prompts, responses = self.row_tokens(rollouts)
        counted = ((batch.weight != 0) & batch.mask.any(1)).tolist()
        size, whole_groups = rollouts.mass.shape[1], traits(objective).whole_groups
        plan = rows_over_ranks.shard_by_tokens(
            self.process_group, prompts, responses, size, self.options.token_budget, whole_groups, counted
        )[self.process_group.rank]
        report: dict[str, float] = {}
        skipped = 0
        for turn in range(self.passes):
            self.optimizer.zero_grad(set_to_none=True)
            loss, rounding = 0.0, RoundingCheck(objective)
            hooks: list[LogpHook] = [rounding] if self.on_logp is None or turn > 0 else [rounding, self.on_logp]
            with explain_out_of_memory("update", "update.token_budget"):
                for done, rows in enumerate(plan):
                    self.report("update", done, len(plan), 0)
                    with self.process_group.no_sync(self.root, last=done + 1 == len(plan)):
                        part = self.loss_of_rows(objective, prompts, responses, rows, batch, hooks)
                        part.backward()
                    loss += part.item()
            loss = sum(part.item() for part in self.process_group.gather(torch.tensor([loss], dtype=torch.float64)))
            signal = self.process_group.any_rank(rounding.signal)
            skipped += not signal
            norm = self.optimizer_step(loss, signal)
            report = report or {"loss": loss, "grad_norm": norm}
        self.report("update", len(plan), len(plan), 0)
        self.stale = True
        rate = {} if self.lr_scheduler is None else {"lr": self.optimizer.param_groups[0]["lr"]}
        return {**report, "skipped": skipped, **rate}

    def loss_of_rows(
        self,
        objective: Objective,
        prompts: list[Tokens],
        responses: list[Tokens],
        rows: list[int],
        batch: Batch,
        hooks: Sequence[LogpHook] = (),
    ) -> Tensor:
        """Scalar float64, with gradient: the sum over some rows of a ministep's batch, in one forward pass.

        The hooks get sums of log-probabilities from a response-level loss, and each of them from a token-level loss.
        """
        if not rows:
            return self.empty_pass(self.root, prompts, responses)
        some = batch[torch.tensor(rows)]
        if traits(objective).level == "token":
            logp = self.logp_of_rows(self.root, prompts, responses, rows, batch.mask.shape[1], batch.mask)
            loss = total(objective, replace(some, logp=logp))
        else:
            mine, answers = [prompts[row] for row in rows], [responses[row] for row in rows]
            fused = self.root(lambda model: fused_loss.fused_total(model, mine, answers, objective, some))
            loss, logp = fused.loss, fused.seq_logp[:, None]
        for on_logp in hooks:
            on_logp(batch, rows, logp)
        return loss

    def optimizer_step(self, loss: float, signal: bool = True) -> float:
        """Clip and step the optimizer; raise on numbers that are not finite, skip a gradient that is only rounding."""
        if not np.isfinite(loss):
            raise Diverged(
                f"the loss is {loss}; no step was taken, the last checkpoint is intact: lower lr or raise tau"
            )
        norm = weights.full_tensor(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)).item()
        if not np.isfinite(norm):
            raise Diverged(f"the gradient's norm is {norm}; no step was taken, the last checkpoint is intact: lower lr")
        if self.lr_scheduler is not None:
            self.lr_scheduler.step(self.version)  # a function of the step alone: a skipped step counts as taken
        if not signal:
            return norm
        self.optimizer.step()
        if self.process_group.any_rank(not weights.all_finite(self.model)):
            raise Diverged("a weight is not finite after the step; the last checkpoint is intact: lower lr")
        return norm

    # Checkpoint, and weights that others changed.

    def state_dict(self) -> dict[str, Any]:
        """Weights under the names in a Hugging Face folder, the optimizer's state, the version, the reference.

        With several processes, each has its own shards, and everything else is the same in all.
        """
        state: dict[str, Any] = {
            **lora.model_state(self.model),
            **({} if self.queue is None else self.queue.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
        }
        if self.reference is not None:
            state["reference"] = weights.named_weights(self.reference)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; with several processes, each reads its shards from disk."""
        for name in ("model", "adapter", "reference"):
            held = {key: value for key, value in state.get(name, {}).items() if isinstance(value, Tensor)}
            foreign.check_numbers(held, "the checkpoint")
        lora.load_model_state(self.model, state, self.process_group)
        if self.reference is not None:
            if "reference" not in state:
                raise ResumeRefused(
                    "the checkpoint has no reference policy, which this objective needs; start a new run"
                )
            weights.load_weights(self.reference, state["reference"], self.process_group)
        placed = optimizer.place_optimizer_state(state["optimizer"], self.optimizer, self.process_group)
        self.optimizer.load_state_dict(placed)
        self.version = state["version"]
        if self.queue is not None:
            self.queue.load_state_dict(state)
        self.stale = True

    def load_weights(self, model: PreTrainedModel) -> None:
        """Take over the weights of a model that others changed; it may be the learner's own."""
        if model is not self.model:
            weights.load_weights(self.model, weights.named_weights(model), self.process_group)
        self.stale = True

    def reset_reference(self) -> None:
        """Make the current policy the reference policy, after the warm start."""
        if self.reference is not None:
            weights.load_weights(self.reference, weights.named_weights(self.model))

    def save_pretrained(self, path: str | Path) -> None:
        """Write a folder that transformers and vLLM load; adapters are merged, and also saved in adapter/."""
        main = self.process_group.is_main_process
        given = self.process_group.size > 1 or lora.has_adapters(self.model)
        state = weights.full_state(lora.merged_weights(self.model), main) if given else None
        if main:
            lora.save_adapter(self.model, Path(path) / "adapter")
            self.model.save_pretrained(path, state_dict=state)
            self.tokenizer.save_pretrained(path)


def row_seeds(prompts: Tensor, group: int, seed: int) -> np.ndarray:
    """[P * G] seeds of responses, from the step's seed, prompt number and k; k counts on for a repeated prompt."""
    seen: dict[int, int] = {}
    seeds = []
    for number in prompts.tolist():
        first = seen.get(number, 0)
        seen[number] = first + group
        seeds += [derive(seed, number, k) for k in range(first, first + group)]
    return np.array(seeds, dtype=np.uint64)
