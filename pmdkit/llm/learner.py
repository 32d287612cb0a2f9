"""The learner of language models: an engine writes the responses, packed forward passes score them, AdamW follows.

Which process scores which rows is division.py; which of them share a forward pass, microbatches.py; how
log-probabilities are computed, scoring.py.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.errors import ComponentDied, Diverged, ResumeRefused, UsageError
from pmdkit.learner import Rollouts
from pmdkit.llm import adapted, weights
from pmdkit.llm.alarm import Alarm
from pmdkit.llm.canary import Expected
from pmdkit.llm.division import divide
from pmdkit.llm.engines.protocol import Engine, Sampling, Tokens
from pmdkit.llm.engines.shared import SharedEngine, Work
from pmdkit.llm.fused import fused_total
from pmdkit.llm.memory import memory_of
from pmdkit.llm.optimizer import make_optimizer, on_host, placed
from pmdkit.llm.packing import use_packing
from pmdkit.llm.pending import Ordered, restored, written
from pmdkit.llm.provenance import settled
from pmdkit.llm.root import Root
from pmdkit.llm.scoring import response_logp, to_rows
from pmdkit.llm.shards import Gathered, whole
from pmdkit.llm.writer import Order, Writer
from pmdkit.objectives import Objective, coefficient, total
from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Batch
from pmdkit.randomness import derive
from pmdkit.tables import ScheduleTable, UpdateTable
from pmdkit.team import ALONE, Team

Report = Callable[[str, float, float, int], None]
"What goes on, how much of it is done, how much there is, tokens written so far."


class CausalLearner:
    """A Learner whose policy is a causal language model of transformers.

    Args:
        model: trained in place, float32; switched to packed attention here, for good.
        tokenizer: for `save_pretrained`.
        encode: the tokens of a prompt, by its number.
        engine: writes responses; weights are published to it before each rollout that follows an update. A Writer
            may also let it write ahead of time.
        sampling: width and temperature of training rollouts.
        schedule: lr, optimizer and passes.
        update: token budget, clip, weight decay.
        bfloat16: compute in bfloat16 where autocast thinks it safe; weights stay float32.
        reference: keep the reference policy: a copy of the model, or, where it has adapters, the model without them.
        old, correction, correction_cap: whose log-probabilities pi_old are, see `provenance.settled`.
        team: the processes that share the work. All call the same methods with the same arguments, and get the same.
        alarm: judges the mismatch of engine and trainer in each step.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        encode: Callable[[int], Tokens],
        engine: Engine | Writer,
        sampling: Sampling,
        schedule: ScheduleTable,
        update: UpdateTable,
        bfloat16: bool = False,
        reference: bool = False,
        old: str = "rollout",
        correction: str = "none",
        correction_cap: float = 2.0,
        team: Team = ALONE,
        alarm: Alarm | None = None,
    ) -> None:
        use_packing(model)  # its engine may have switched a copy only
        self.version = 0
        self.team = team
        self.model = model
        self.tokenizer = tokenizer
        self.encode = encode
        self.writer = engine if isinstance(engine, Writer) else Writer(shared(engine, team))
        self.engine = self.writer.engine
        self.sampling = sampling
        self.options = update
        self.passes = schedule.passes
        self.bfloat16 = bfloat16
        own = reference and not adapted.is_adapted(model)
        self.reference = deepcopy(model).requires_grad_(False) if own else None
        self.root = team.wrap(Root(model))
        self.reference_root = self.root if reference else None
        if self.reference is not None:
            self.reference_root = team.wrap(Root(self.reference))
        self.optimizer = make_optimizer(model, schedule, update)
        self.report: Report = lambda what, done, total, tokens: None
        self.provenance = old, correction, correction_cap
        self.alarm = alarm
        self.mismatch: dict[str, float] = {}  # of engine and trainer, in the last rollout
        self.found: Mapping[str, float] = {}  # by the canary, under the weights of the last rollout
        self.stale = True  # the engine has not been given these weights yet
        self.ordered: dict[int, Order] = {}  # and not collected, by the seed of their step
        self.restored: dict[int, Order] = {}  # written before an interruption, by the seed of their step
        self.last: tuple[Rollouts, Batch] | None = None  # what the last update saw, for whoever asks why it diverged

    def rollout(self, prompts: Tensor, group: int | None, seed: int) -> Rollouts:
        """`group` responses to each prompt of these numbers, seeded by (seed, prompt, k)."""
        return self.collect(self.order(prompts, group, seed))

    def order(self, prompts: Tensor, group: int | None, seed: int) -> Ordered:
        """Ask for a rollout by the present weights; `collect` gets it."""
        if group is None:
            raise UsageError("schedule.group is not set; a language model has no support to enumerate: give --group")
        if seed in self.restored:
            self.ordered[seed] = self.writer.order(self.restored.pop(seed))
            return Ordered(prompts, group, seed, self.ordered[seed])
        rows = len(prompts) * group
        work = Work(
            self.prompt_tokens(prompts),
            group,
            row_seeds(prompts, group, seed),
            self.sampling,
            lambda tokens, ended: self.report("rollout", ended, rows, tokens),
        )
        if self.writer.ahead:
            order = Order(work, self.version, self.snapshot(), self.expected())
        else:
            self.publish()
            order = Order(work, self.version)
        self.ordered[seed] = self.writer.order(order)
        return Ordered(prompts, group, seed, order)

    def collect(self, ordered: Ordered) -> Rollouts:
        """The rollout that was ordered."""
        prompts, group, order = ordered.prompts, ordered.group, ordered.order
        rows = len(prompts) * group
        drawn = self.writer.collect(order)
        del self.ordered[ordered.seed]
        self.report("rollout", rows, rows, int(drawn.mask.sum()))
        self.found = order.found
        if drawn.version != order.version:
            raise ComponentDied(
                f"the engine answered with weights of version {drawn.version}; expected {order.version}: "
                "its weights were not updated, restart it and go on with --resume"
            )
        rollouts = Rollouts(
            prompts=prompts,
            responses=drawn.tokens.cpu(),
            logp_old=drawn.logp.cpu(),
            mask=drawn.mask.cpu(),
            mass=torch.full((len(prompts), group), 1.0 / group, dtype=torch.float64),
            sampled=True,
            seed=ordered.seed,
            version=drawn.version,
            width=self.sampling.width,
        )
        if self.writer.ahead:  # the trainer's weights have moved on; the canary compared while they were the same
            self.mismatch = {}
        else:
            rollouts, self.mismatch = settled(rollouts, self.logp, *self.provenance)
        if self.reference_root is None:
            return rollouts
        with torch.no_grad(), adapted.switched_off(self.model):
            return replace(rollouts, logp_ref=self.score(self.reference_root, rollouts))

    def publish(self) -> None:
        """Give the engine the present weights, if it does not have them."""
        self.writer.drain()
        given = self.engine.given
        if self.stale or given is None or given[1] != self.version:
            self.engine.publish(self.present(), self.version, self.expected())
            self.stale = False

    def present(self) -> Gathered:
        """The weights as engines take them; a weight is put together when it is looked at."""
        return Gathered(adapted.for_engine(self.model, self.engine))

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of the present weights on the host, where there is an engine to take them."""
        copies = {}
        for name, weight in self.present().items():  # all processes look at all weights
            if self.engine.engine is not None:
                copies[name] = weight.detach().to("cpu", copy=True)
        return copies

    def expected(self) -> Expected | None:
        """What the canary expects of an engine with the present weights."""
        if self.engine.canary is None:
            return None
        asked, answers = list(self.engine.canary.prompts), list(self.engine.canary.responses)
        width = max(len(answer) for answer in answers)
        with torch.no_grad():
            logp = self.score_rows(self.root, asked, answers, 1, width)
        return [row[: len(answer)] for row, answer in zip(logp, answers, strict=True)]

    def take(self, model: PreTrainedModel) -> None:
        """Take over the weights of a model that others moved; it may be the learner's own."""
        if model is not self.model:
            weights.load(self.model, weights.named(model), self.team)
        self.stale = True

    def after_phase_0(self) -> None:
        """The weights were moved by others: the engine needs them anew, and the reference policy is them."""
        self.stale = True
        if self.reference is not None:
            weights.load(self.reference, weights.named(self.model))

    def logp(self, rollouts: Rollouts) -> Tensor:
        """[N, T] log-probabilities under the current policy, with gradient unless it is switched off."""
        return self.score(self.root, rollouts)

    def score(self, root: nn.Module, rollouts: Rollouts) -> Tensor:
        """[N, T] under a model, a token budget at a time; where a gradient is asked for, each process scores all."""
        prompts, responses = self.rows(rollouts)
        return self.score_rows(root, prompts, responses, rollouts.mass.shape[1], rollouts.logp_old.shape[1])

    def score_rows(
        self, root: nn.Module, prompts: list[Tokens], responses: list[Tokens], size: int, width: int
    ) -> Tensor:
        """[N, width] of N responses, `size` of them to a prompt."""
        team = ALONE if torch.is_grad_enabled() else self.team
        plans = divide(team, prompts, responses, size, self.options.token_budget, whole_groups=False)
        mine = [self.some_logp(root, prompts, responses, rows, width) for rows in plans[team.rank]]
        scored = torch.zeros(len(responses), width, dtype=torch.float64)
        for plan, part in zip(plans, team.gather(torch.cat(mine)), strict=True):
            scored = scored.index_copy(0, torch.tensor([row for rows in plan for row in rows], dtype=torch.long), part)
        return scored

    def some_logp(
        self, root: nn.Module, prompts: list[Tokens], responses: list[Tokens], rows: list[int], width: int
    ) -> Tensor:
        """[n, T] float64 of some rows, on the CPU, in one forward pass."""
        if not rows:
            return (self.idle(root, prompts, responses) * torch.zeros(0, width)).double()
        asked, answers = [prompts[row] for row in rows], [responses[row] for row in rows]
        with self.precision():
            scores = root(lambda model: response_logp(model, asked, answers))
        return to_rows(scores.logp, scores.lengths, width).double().cpu()

    def some_loss(
        self, objective: Objective, prompts: list[Tokens], responses: list[Tokens], rows: list[int], batch: Batch
    ) -> Tensor:
        """Scalar float64, with gradient: the sum over some rows of a ministep's batch, in one forward pass."""
        if not rows:
            return self.idle(self.root, prompts, responses)
        some = batch[torch.tensor(rows)]
        if coefficient(objective, some[:1]) is None:
            logp = self.some_logp(self.root, prompts, responses, rows, batch.mask.shape[1])
            return total(objective, replace(some, logp=logp))
        asked, answers = [prompts[row] for row in rows], [responses[row] for row in rows]
        with self.precision():
            loss: Tensor = self.root(lambda model: fused_total(model, asked, answers, objective, some)).loss
        return loss

    def idle(self, root: nn.Module, prompts: list[Tokens], responses: list[Tokens]) -> Tensor:
        """0, with a gradient of 0 by every weight: the pass of a process that has no rows in it."""
        with self.precision():
            scores = root(lambda model: response_logp(model, [prompts[0][:1]], [responses[0][:1]]))
        return scores.logp.double().sum().cpu() * 0.0

    def update(self, objective: Objective, rollouts: Rollouts, batch: Batch) -> dict[str, float]:
        """One ministep. `loss` and `grad_norm` (before clipping) are those of the first pass.

        The batch is cut by the token budget; the parts add up to the same gradient whatever the budget.
        """
        if not self.writer.ahead:
            self.engine.enter("update")
        self.last = rollouts, batch
        if self.alarm is not None:
            self.mismatch |= self.alarm.hear(self.version, self.mismatch, batch.tau, self.engine.warn)
        prompts, responses = self.rows(rollouts)
        counted = ((batch.weight != 0) & batch.mask.any(1)).tolist()
        size = rollouts.mass.shape[1]
        groups = traits(objective).whole_groups
        plans = divide(self.team, prompts, responses, size, self.options.token_budget, groups, counted)
        plan = plans[self.team.rank]
        report: dict[str, float] = {}
        for _ in range(self.passes):
            self.optimizer.zero_grad(set_to_none=True)
            loss = 0.0
            with memory_of("update", "update.token_budget"):
                for done, rows in enumerate(plan):
                    self.report("update", done, len(plan), 0)
                    with self.team.holding(self.root, last=done + 1 == len(plan)):
                        part = self.some_loss(objective, prompts, responses, rows, batch)
                        part.backward()
                    loss += part.item()
            loss = sum(part.item() for part in self.team.gather(torch.tensor([loss], dtype=torch.float64)))
            norm = self.step(loss)
            report = report or {"loss": loss, "grad_norm": norm}
        self.report("update", len(plan), len(plan), 0)
        self.stale = True
        return report

    def step(self, loss: float) -> float:
        """Clip and take the optimizer's step; a number that is not finite never becomes one."""
        if not np.isfinite(loss):
            raise Diverged(
                f"the loss is {loss}; no step was taken, the last checkpoint is intact: lower lr or raise tau"
            )
        norm = whole(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)).item()
        if not np.isfinite(norm):
            raise Diverged(f"the gradient's norm is {norm}; no step was taken, the last checkpoint is intact: lower lr")
        self.optimizer.step()
        if self.team.any(not weights.finite(self.model)):
            raise Diverged("a weight is not finite after the step; the last checkpoint is intact: lower lr")
        return norm

    def prompt_tokens(self, prompts: Tensor) -> list[Tokens]:
        """The tokens of each prompt."""
        return [self.encode(number) for number in prompts.tolist()]

    def rows(self, rollouts: Rollouts) -> tuple[list[Tokens], list[Tokens]]:
        """N prompts and N responses; the responses of a group name one and the same prompt object."""
        asked = self.prompt_tokens(rollouts.prompts)
        size = rollouts.mass.shape[1]
        lengths = rollouts.mask.sum(1).tolist()
        responses = [row[:length] for row, length in zip(rollouts.responses.tolist(), lengths, strict=True)]
        return [prompt for prompt in asked for _ in range(size)], responses

    def precision(self) -> AbstractContextManager[Any]:
        """Autocast to bfloat16 where it is asked for."""
        return torch.autocast(self.model.device.type, torch.bfloat16) if self.bfloat16 else nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """Weights under the names a Hugging Face folder has, the optimizer's state, the version, the reference."""
        state: dict[str, Any] = {
            **self.whole(adapted.state(self.model)),
            **written(self.restored | self.ordered, self.writer),
            "optimizer": self.whole(self.optimizer.state_dict()),
            "version": self.version,
        }
        return state if self.reference is None else state | {"reference": self.whole(weights.named(self.reference))}

    def whole(self, state: dict[str, Any]) -> dict[str, Any]:
        """The same with every shared tensor put together, in the main process and beside its accelerator.

        Not torch's `get_optimizer_state_dict`: it renames the slots, and gives some to an optimizer without a step.
        """
        found: dict[str, Any] = tree_map_only(DTensor, lambda x: on_host(x, self.team.main), state)
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; of a team, in the main process."""
        adapted.restore(self.model, state, self.team)
        if self.reference is not None:
            if "reference" not in state:
                raise ResumeRefused("the checkpoint has no reference policy, which this objective needs; start anew")
            weights.load(self.reference, state["reference"], self.team)
        self.optimizer.load_state_dict(placed(state["optimizer"], self.optimizer, self.team))
        self.version = state["version"]
        self.restored = restored(state.get("pending", {}), self.team)
        self.stale = True

    def save_pretrained(self, path: str | Path) -> None:
        """Write a folder that transformers and vLLM load; adapters are merged, and also stand beside."""
        given = self.team.size > 1 or adapted.is_adapted(self.model)
        state = self.whole(adapted.merged(self.model)) if given else None
        if self.team.main:
            adapted.save_adapter(self.model, Path(path) / "adapter")
            self.model.save_pretrained(path, state_dict=state)
            self.tokenizer.save_pretrained(path)


def shared(engine: Engine, team: Team) -> SharedEngine:
    """The engine of this process as one of all."""
    return engine if isinstance(engine, SharedEngine) else SharedEngine(engine, team)


def row_seeds(prompts: Tensor, group: int, seed: int) -> np.ndarray:
    """[P * G] one seed per response, from the step's seed, the prompt's number and k; a repeated prompt counts on."""
    seen: dict[int, int] = {}
    seeds = []
    for number in prompts.tolist():
        first = seen.get(number, 0)
        seen[number] = first + group
        seeds += [derive(seed, number, k) for k in range(first, first + group)]
    return np.array(seeds, dtype=np.uint64)
