"""The learners of language models, from top to bottom: rollout; log-probabilities, update, checkpoint.

An engine writes the responses of each. `CausalLearner` has its model here: its policy scores them in packed forward
passes, an optimizer follows the gradient. `llm/train.py` shows the same step in one process, as a program to change.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.errors import Diverged, UsageError, explain_out_of_memory
from pmdkit.llm import fused_loss, lora, optimizer, precision, weights
from pmdkit.llm.async_rollouts import PolicySnapshot, RolloutQueue, RolloutRequest, SampleRows
from pmdkit.llm.companions import EpisodePlayer
from pmdkit.llm.engines.base import Engine, Sampling
from pmdkit.llm.engines.distributed import DistributedEngine, GenerateRequest
from pmdkit.llm.engines.weight_sync_check import ExpectedLogp
from pmdkit.llm.in_flight import with_versions
from pmdkit.llm.logprobs import scored_places
from pmdkit.llm.micro_batches import shard_by_tokens
from pmdkit.llm.mismatch import OffPolicyMean
from pmdkit.llm.old_logprobs import resolve_old_logprobs
from pmdkit.llm.policy import CausalPolicy
from pmdkit.llm.rollouts import EngineRollouts, make_rollouts, response_tokens, row_seeds
from pmdkit.llm.tokens import Tokens
from pmdkit.loop import Episode, Learner, LogpHook, Rollouts
from pmdkit.objectives import Batch, Objective, total, traits
from pmdkit.objectives.credit import RoundingCheck
from pmdkit.objectives.regulariser import EffectiveSampleSize
from pmdkit.process_group import SINGLE, ProcessGroup
from pmdkit.specs.llm import RolloutTable, UpdateTable
from pmdkit.specs.spec import ScheduleTable

Report = Callable[[str, float, float, int], None]
"Takes the phase, how much of it is done, how much there is in all, and the tokens written so far."

INTACT = "the last checkpoint is intact: lower lr, or raise tau"


class EngineLearner(Learner):
    """A Learner whose responses an engine writes. A subclass publishes weights, scores, steps and saves.

    Args:
        model: of transformers; on the meta device where its weights are elsewhere.
        encode: prompt number to the tokens of the prompt.
        engine: writes responses; it gets the weights before each rollout that follows an update.
        rollout: width and temperature of responses, and whose log-probabilities pi_old are.
        turns: multi-turn episodes, in which an environment and the policy alternate in every rollout.
        queue: of rollouts ahead of the updates, if there is a lag; its engine is `engine`.
        report: called with the progress of a rollout or an update.

    Attributes:
        version: completed steps.
        on_logp: called with the log-probabilities of each forward pass of an update, in its first pass over the data.
        sync_metrics: what the last publish measured; None if the engine has not been given the current weights.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        encode: Callable[[int], Tokens],
        engine: DistributedEngine,
        rollout: RolloutTable,
        schedule: ScheduleTable,
        process_group: ProcessGroup = SINGLE,
        turns: EpisodePlayer | None = None,
        queue: RolloutQueue | None = None,
        report: Report = lambda phase, done, total, tokens: None,
    ) -> None:
        self.version = 0
        self.model, self.tokenizer, self.encode = model, tokenizer, encode
        self.engine, self.process_group = engine, process_group
        self.options, self.passes = rollout, schedule.passes
        self.sampling = Sampling(rollout.width, rollout.temperature)
        self.turns, self.queue, self.report = turns, queue, report
        self.on_logp: LogpHook | None = None
        self.sync_metrics: Mapping[str, float] | None = None

    @abstractmethod
    def publish(self) -> Mapping[str, float]:
        """Give the engine the current weights; returns what the sync check measured."""

    def offer(self) -> None:
        """Offer the current policy to responses in flight; nothing where there are none."""

    @abstractmethod
    def score(self, rollouts: Rollouts) -> Tensor:
        """Like `logp`, in the precision in which the policy computes them: half the memory for a whole step."""

    @abstractmethod
    def with_reference(self, rollouts: EngineRollouts) -> EngineRollouts:
        """The rollouts with log-probabilities under the reference policy, if there is one."""

    def rollout(self, prompts: Tensor, group: int | None, seed: int) -> EngineRollouts:
        """`group` responses to each prompt, given by number, seeded by (seed, prompt, k)."""
        request = self.generate_request(prompts, group, seed)
        measured = self.sync_weights()
        episodes: list[Episode] | None = None
        with explain_out_of_memory("rollout", "schedule.prompts"):
            if self.turns is not None:
                responses, episodes = self.turns.generate(self.engine, prompts, request)
            else:
                responses = self.engine.generate(
                    request.prompts, request.group, request.seeds, request.sampling, request.progress
                )
        self.report("rollout", len(responses.mask), len(responses.mask), int(responses.mask.sum()))
        self.engine.enter("update")  # it sleeps while the trainer scores and updates; the next publish wakes it
        rollouts = make_rollouts(prompts, seed, responses, self.version, self.sampling.width)
        rollouts = replace(rollouts, episodes=episodes, measured=measured)
        old, correction, cap = self.options.old, self.options.correction, self.options.correction_cap
        return self.with_reference(resolve_old_logprobs(rollouts, self.score, old, correction, cap))

    def sync_weights(self) -> Mapping[str, float]:
        """Give the engine the current weights, if it does not have them; returns what the sync check measured."""
        if self.queue is not None:
            self.offer()
            self.queue.drain()
        if self.sync_metrics is None or self.engine.version != self.version:
            self.sync_metrics = self.publish()
        return self.sync_metrics

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

    def logp(self, rollouts: Rollouts) -> Tensor:
        """[N, T] log-probabilities under the current policy, float64, with gradient unless it is disabled.

        The policy is the one that draws: its logits are the model's divided by rollout.temperature, for pi_old, the
        reference and the current policy alike.
        """
        return self.score(rollouts).double()

    def rows(self, rollouts: Rollouts) -> tuple[list[Tokens], list[Tensor], int]:
        """N prompts, of which those of a group are one object, N responses [T_n], and the size G of a group."""
        size = rollouts.mass.shape[1]
        prompts = [prompt for prompt in self.prompt_tokens(rollouts.prompts) for _ in range(size)]
        return prompts, response_tokens(rollouts), size

    def prompt_tokens(self, prompts: Tensor) -> list[Tokens]:
        """The tokens of each prompt, from the numbers [P] of the prompts."""
        return [self.encode(number) for number in prompts.tolist()]


class CausalLearner(EngineLearner):
    """A Learner whose model, a causal language model of transformers, is trained here, in place.

    Args:
        policy: the model, scored by all processes.
        tokenizer, encode, engine, rollout, schedule, turns, queue, report: as for `EngineLearner`.
    """

    def __init__(
        self,
        policy: CausalPolicy,
        tokenizer: PreTrainedTokenizerBase,
        encode: Callable[[int], Tokens],
        engine: Engine,
        rollout: RolloutTable,
        schedule: ScheduleTable,
        update: UpdateTable,
        *,
        turns: EpisodePlayer | None = None,
        queue: RolloutQueue | None = None,
        report: Report = lambda phase, done, total, tokens: None,
    ) -> None:
        group = policy.process_group
        engine = engine if isinstance(engine, DistributedEngine) else DistributedEngine(engine, group)
        super().__init__(policy.model, tokenizer, encode, engine, rollout, schedule, group, turns, queue, report)
        self.policy, self.clip = policy, update.clip
        self.optimizer = optimizer.make_optimizer(policy.model, schedule, update)
        rates = [param_group["lr"] for param_group in self.optimizer.param_groups]
        self.lr_scheduler = optimizer.make_lr_scheduler(rates, schedule, update)

    # Weights to the engine, and rollouts ahead of the updates.

    def publish(self) -> Mapping[str, float]:
        """Give the engine the current weights; returns what the sync check measured."""
        return (self.queue or self.engine).publish(self.gathered_weights(), self.version, self.expected_logp())

    def submit(self, prompts: Tensor, group: int | None, seed: int) -> RolloutRequest:
        """Request a rollout by the current weights, which is drawn while the trainer updates; there must be a queue."""
        assert self.queue is not None
        call = self.generate_request(prompts, group, seed)
        return self.queue.submit(prompts, seed, self.version, call, self.snapshot)

    def offer(self) -> None:
        """Offer the current policy to responses in flight, which go on under it from their next token."""
        if self.queue is not None and self.queue.newest_policy is not None and self.queue.pending:
            self.queue.offer(self.version, self.snapshot)

    def snapshot(self, sample: SampleRows | None) -> PolicySnapshot:
        """The current policy and its scores of a few responses, for an engine that writes while the trainer goes on."""
        needed = self.engine.engine is not None
        # every process accesses every weight, since that gathers it from all of them
        copy = {name: x.detach().to("cpu", copy=True) for name, x in self.gathered_weights().items() if needed}
        scored = None
        if sample is not None:
            size = len(sample.mask) // len(sample.prompts)
            prompts = [prompt for prompt in self.prompt_tokens(sample.prompts) for _ in range(size)]
            with torch.no_grad():  # at temperature 1, like the engine
                scored = prompts, sample, self.policy.logp(prompts, sample.responses, size, sample.mask)
        return PolicySnapshot(copy, self.expected_logp(), scored)

    def collect(self, request: RolloutRequest) -> EngineRollouts:
        """A submitted rollout; its measurements belong to the weights that wrote it."""
        assert self.queue is not None
        responses = self.queue.collect(request)
        self.report("rollout", len(responses.mask), len(responses.mask), int(responses.mask.sum()))
        version = responses.version if self.options.in_flight else request.version
        rollouts = make_rollouts(request.prompts, request.seed, responses, version, self.sampling.width)
        rollouts = replace(rollouts, measured=request.measured, changes=request.changes)
        if self.options.in_flight:
            bound = self.options.max_age, self.options.too_old
            rollouts = with_versions(rollouts, responses, request.version, self.version, *bound)
        return self.with_reference(rollouts)

    def gathered_weights(self) -> weights.GatheredWeights:
        """The weights as engines take them; each is gathered when it is accessed."""
        if getattr(self.engine.engine, "model", None) is self.model:  # it has them already, adapters apart
            return weights.GatheredWeights(weights.named_weights(self.model))
        named = lora.MergedWeights(self.model) if self.policy.adapters else weights.named_weights(self.model)
        buffers = {lora.stock_name(name) for name, _ in self.model.named_buffers()}
        return weights.GatheredWeights(named, torch.bfloat16 if self.policy.bfloat16 else None, buffers)

    def expected_logp(self) -> ExpectedLogp | None:
        """Numbers that the weight-sync check expects under the current weights; engines score at temperature 1."""
        check = self.engine.sync_check
        if check is None:
            return None
        lengths = torch.tensor([len(response) for response in check.responses])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        with torch.no_grad():
            responses = [torch.tensor(response) for response in check.responses]
            logp = self.policy.logp(check.prompts, responses, 1, mask)
        return [row[on] for row, on in zip(logp, mask, strict=True)]

    # Log-probabilities.

    def score(self, rollouts: Rollouts) -> Tensor:
        """Like `logp`, in the precision in which the policy computes them: half the memory for a whole step."""
        return self.policy.logp(*self.rows(rollouts), rollouts.mask, self.sampling.temperature)

    def with_reference(self, rollouts: EngineRollouts) -> EngineRollouts:
        """The rollouts with log-probabilities under the reference policy, if there is one."""
        policy, how = self.policy, (rollouts.mask, self.sampling.temperature)
        if policy.reference_root is None:
            return rollouts
        with torch.no_grad(), lora.adapters_disabled(self.model) if policy.adapters else nullcontext():
            logp_ref = policy.logp(*self.rows(rollouts), *how, policy.reference_root)
        return replace(rollouts, logp_ref=logp_ref.double())

    # Update: one ministep, split by the token budget. The parts add up to the same gradient whatever the budget.

    def update(self, objective: Objective, rollouts: Rollouts, batch: Batch) -> dict[str, float]:
        """One ministep. `loss` and `grad_norm` (before clipping) are those of the first pass.

        With a lag also `off_policy`, how far the policy before the ministep is from the draws: see `OffPolicyMean`.

        Raises:
            Diverged: the loss, the gradient or a weight is not finite.
        """
        group, root = self.process_group, self.policy.root
        prompts, responses, size = self.rows(rollouts)
        counted = ((batch.weight != 0) & batch.mask.any(1)).tolist()
        plan = shard_by_tokens(
            group, prompts, responses, size, self.policy.token_budget, traits(objective).whole_groups, counted
        )[group.rank]
        report: dict[str, float] = {}
        skipped, off_policy = 0, OffPolicyMean()
        for turn in range(self.passes):
            self.optimizer.zero_grad(set_to_none=True)
            losses, rounding, ess = [], RoundingCheck(objective), EffectiveSampleSize(objective)
            hooks: list[LogpHook] = [rounding, ess]
            if self.on_logp is not None and turn == 0:
                hooks.append(self.on_logp)
            if self.queue is not None and self.sampling.temperature == 1 and turn == 0:  # as the queue's mismatch
                hooks.append(off_policy)
            with explain_out_of_memory("update", "update.token_budget"), precision.cast_once(root):
                for done, rows in enumerate(plan):
                    self.report("update", done, len(plan), 0)
                    with group.no_sync(root, last=done + 1 == len(plan)):
                        part = self.loss_of_rows(objective, prompts, responses, rows, batch, hooks)
                        part.backward()
                    losses.append(part.detach())  # reading it now would wait for an accelerator
            loss = sum(part.item() for part in losses)
            found = torch.cat([torch.tensor([loss], dtype=torch.float64), off_policy.sums])
            loss, moved, tokens = torch.stack(group.gather(found)).sum(0).tolist()
            if not np.isfinite(loss):
                raise Diverged(f"the loss is {loss}, and no step was taken; {INTACT}")
            norm = weights.full_tensor(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)).item()
            if not np.isfinite(norm):
                raise Diverged(f"the gradient's norm is {norm}, and no step was taken; {INTACT}")
            if self.lr_scheduler is not None:  # a function of the step alone: a skipped step counts as taken
                rates = self.lr_scheduler.step(self.version)
                for param_group, lr in zip(self.optimizer.param_groups, rates, strict=True):
                    param_group["lr"] = lr
            # Where all rewards of a batch agree, the gradient is 0 up to rounding, and Adam would scale that up to a
            # step of full size.
            if group.any_rank(rounding.signal):
                if ess.power:
                    ess.sums = torch.stack(group.gather(ess.sums)).sum(0)
                ess.step(self.optimizer)
                if group.any_rank(not weights.all_finite(self.model)):
                    raise Diverged(f"a weight is not finite after the step; {INTACT}")
            else:
                skipped += 1
            self.optimizer.zero_grad(set_to_none=True)  # the engine needs the memory until the next update
            if turn == 0:
                report = {"loss": loss, "grad_norm": norm, **({"off_policy": moved / tokens} if tokens else {})}
        self.report("update", len(plan), len(plan), 0)
        self.sync_metrics = None
        rate = {} if self.lr_scheduler is None else {"lr": self.optimizer.param_groups[0]["lr"]}
        return {**report, "skipped": skipped, **rate}

    def loss_of_rows(
        self,
        objective: Objective,
        prompts: Sequence[Tokens],
        responses: Sequence[Tensor],
        rows: Sequence[int],
        batch: Batch,
        hooks: Sequence[LogpHook] = (),
    ) -> Tensor:
        """Scalar float64, with gradient: the sum over some rows of a ministep's batch, in one pass; 0 without rows.

        If there are rows, the hooks get log-probabilities: sums [n, 1] of a response-level loss, else [n, T].
        """
        root, temperature, mask = self.policy.root, self.sampling.temperature, batch.mask
        if not rows:
            return self.policy.logp_of_rows(root, prompts, responses, rows, mask).double().sum()
        some = batch[torch.tensor(rows)]
        if traits(objective).level == "token":
            flat = self.policy.logp_of_rows(root, prompts, responses, rows, mask, temperature)
            places = scored_places(some.mask, torch.tensor([len(responses[row]) for row in rows]))
            # the host knows these places, and need not wait for a mask to be counted
            at = tuple(place.to(flat.device) for place in places.nonzero(as_tuple=True))
            logp = flat.new_zeros(places.shape).index_put(at, flat).double()
            loss = total(objective, replace(fused_loss.batch_on(flat.device, some), logp=logp))
        else:
            mine, answers = [prompts[row] for row in rows], [responses[row].tolist() for row in rows]
            fused = root(
                lambda model: fused_loss.fused_total(model, mine, answers, objective, some, temperature=temperature)
            )
            loss, logp = fused.loss, fused.seq_logp[:, None]
        for on_logp in hooks:
            on_logp(batch, rows, logp)
        return loss

    # Checkpoint, and weights that others changed.

    def state_dict(self) -> dict[str, Any]:
        """Weights under the names in a Hugging Face folder, adapters merged; optimizer, version, reference.

        With several processes, each has its own shards, and everything else is the same in all.
        """
        adapted = self.policy.adapters
        self.offer()
        state: dict[str, Any] = {
            "model": dict(lora.MergedWeights(self.model)) if adapted else weights.named_weights(self.model),
            **({} if self.queue is None else self.queue.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
        }
        if adapted:
            state["adapter"] = lora.adapter_weights(self.model)
        if self.policy.reference is not None:
            state["reference"] = weights.named_weights(self.policy.reference)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned in the main process, in every process."""
        if self.policy.adapters:  # the base is not in it: its files are compared when the run begins
            weights.copy_weights(lora.adapter_weights(self.model), state.get("adapter", {}), self.process_group)
        else:
            weights.load_weights(self.model, state["model"], self.process_group)
        if self.policy.reference is not None:
            weights.load_weights(self.policy.reference, state.get("reference", {}), self.process_group)
        placed = optimizer.place_optimizer_state(state["optimizer"], self.optimizer, self.process_group)
        self.optimizer.load_state_dict(placed)
        self.version = state["version"]
        if self.queue is not None:
            self.queue.load_state_dict(state)
        self.sync_metrics = None

    def load_weights(self, model: PreTrainedModel) -> None:
        """Take over the weights of a model that others changed; it may be the learner's own."""
        if model is not self.model:
            weights.load_weights(self.model, weights.named_weights(model), self.process_group)
        self.sync_metrics = None
