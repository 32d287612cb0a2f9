"""The learner of language models: an engine writes the responses, packed forward passes score them, AdamW follows.

Which process scores which rows is division.py; which of them share a forward pass, microbatches.py; how
log-probabilities are computed, scoring.py.
"""

from collections.abc import Callable
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
from pmdkit.llm.division import divide
from pmdkit.llm.engines.protocol import Engine, Sampling, Tokens
from pmdkit.llm.fused import fused_total
from pmdkit.llm.memory import memory_of
from pmdkit.llm.provenance import settled
from pmdkit.llm.root import Root
from pmdkit.llm.scoring import response_logp, to_rows
from pmdkit.llm.shards import Gathered, whole
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
        model: trained in place, float32, switched to packed attention.
        tokenizer: for `save_pretrained`.
        encode: the tokens of a prompt, by its number.
        engine: writes responses; weights are published to it before each rollout that follows an update.
        sampling: width and temperature of training rollouts.
        schedule: lr, optimizer and passes.
        update: token budget, clip, weight decay.
        bfloat16: compute in bfloat16 where autocast thinks it safe; weights stay float32.
        reference: keep the reference policy: a copy of the model, or, where it has adapters, the model without them.
        old, correction, correction_cap: whose log-probabilities pi_old are, see `provenance.settled`.
        team: the processes that share the work. All call the same methods with the same arguments, and get the same.
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
        team: Team = ALONE,
    ) -> None:
        self.version = 0
        self.team = team
        self.model = model
        self.tokenizer = tokenizer
        self.encode = encode
        self.engine = engine
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
        self.mismatch: dict[str, float] = {}  # of engine and trainer, in the last rollout
        self.stale = True  # the engine has not been given these weights yet
        self.last: tuple[Rollouts, Batch] | None = None  # what the last update saw, for whoever asks why it diverged

    def rollout(self, prompts: Tensor, group: int | None, seed: int) -> Rollouts:
        """`group` responses to each prompt of these numbers, seeded by (seed, prompt, k)."""
        if group is None:
            raise UsageError("schedule.group is not set; a language model has no support to enumerate: give --group")
        asked = self.prompt_tokens(prompts)
        self.publish()
        self.engine.enter("rollout")
        rows = len(asked) * group
        with memory_of("rollout", "rollout.cache_tokens"):
            drawn = self.engine.generate(
                asked,
                group,
                row_seeds(prompts, group, seed),
                self.sampling,
                lambda tokens, ended: self.report("rollout", ended, rows, tokens),
            )
        self.report("rollout", rows, rows, int(drawn.mask.sum()))
        if drawn.version != self.version:
            raise ComponentDied(
                f"the engine answered with weights of version {drawn.version}; expected {self.version}: "
                "its weights were not updated, restart it and go on with --resume"
            )
        mass = torch.full((len(prompts), group), 1.0 / group, dtype=torch.float64)
        rollouts = Rollouts(
            prompts=prompts,
            responses=drawn.tokens.cpu(),
            logp_old=drawn.logp.cpu(),
            mask=drawn.mask.cpu(),
            mass=mass,
            sampled=True,
            seed=seed,
            version=drawn.version,
            width=self.sampling.width,
        )
        rollouts, self.mismatch = settled(rollouts, self.logp, *self.provenance)
        if self.reference_root is None:
            return rollouts
        with torch.no_grad(), adapted.switched_off(self.model):
            return replace(rollouts, logp_ref=self.score(self.reference_root, rollouts))

    def publish(self) -> None:
        """Give the engine the present weights, if it does not have them."""
        if self.stale:
            self.engine.publish(Gathered(adapted.for_engine(self.model, self.engine)), self.version)
            self.stale = False

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
        size, budget = rollouts.mass.shape[1], self.options.token_budget
        team = ALONE if torch.is_grad_enabled() else self.team
        plans = divide(team, prompts, responses, size, budget, whole_groups=False)
        width = rollouts.logp_old.shape[1]
        mine = [self.some_logp(root, prompts, responses, rows, width) for rows in plans[team.rank]]
        scored = torch.zeros_like(rollouts.logp_old, dtype=torch.float64)
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
        self.engine.enter("update")
        self.last = rollouts, batch
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
        self.optimizer.load_state_dict(self.placed(state["optimizer"]))
        self.version = state["version"]
        self.stale = True

    def placed(self, optimizer: dict[str, Any]) -> dict[str, Any]:
        """The optimizer's state with tensors where this process needs them, cut as the weights are that they belong to.

        A team's own processes have shapes only, the main one the numbers.
        """
        if self.team.size == 1:
            return optimizer
        trained = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        placed: dict[int, dict[str, Any]] = {}
        for index, slots in sorted(optimizer["state"].items()):
            placed[index] = {}
            for name, value in sorted(slots.items()):
                if isinstance(value, Tensor):
                    like = trained[index].detach()
                    target = torch.zeros_like(like) if value.shape == like.shape else torch.zeros(value.shape)
                    self.team.copy(value, target)
                    value = target
                placed[index][name] = value
        return {**optimizer, "state": placed}

    def save_pretrained(self, path: str | Path) -> None:
        """Write a folder that transformers and vLLM load; adapters are merged, and also stand beside."""
        given = self.team.size > 1 or adapted.is_adapted(self.model)
        state = self.whole(adapted.merged(self.model)) if given else None
        if self.team.main:
            adapted.save_adapter(self.model, Path(path) / "adapter")
            self.model.save_pretrained(path, state_dict=state)
            self.tokenizer.save_pretrained(path)


def on_host(tensor: DTensor, main: bool) -> Tensor:
    """A shared tensor put together, in the CPU's memory; nothing of it outside of the main process."""
    found = whole(tensor)
    return found.cpu() if main else found.new_empty(0)


def make_optimizer(model: PreTrainedModel, schedule: ScheduleTable, update: UpdateTable) -> torch.optim.Optimizer:
    """The optimizer of [schedule] and [update], over every weight alike."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    if schedule.optimizer == "sgd":
        return torch.optim.SGD(trained, lr=schedule.lr)
    kind = torch.optim.AdamW if schedule.optimizer == "adamw" else torch.optim.Adam
    decay = update.weight_decay if schedule.optimizer == "adamw" else 0.0
    return kind(trained, lr=schedule.lr, betas=update.betas, weight_decay=decay, fused=True)


def row_seeds(prompts: Tensor, group: int, seed: int) -> np.ndarray:
    """[P * G] one seed per response, from the step's seed, the prompt's number and k; a repeated prompt counts on."""
    seen: dict[int, int] = {}
    seeds = []
    for number in prompts.tolist():
        first = seen.get(number, 0)
        seen[number] = first + group
        seeds += [derive(seed, number, k) for k in range(first, first + group)]
    return np.array(seeds, dtype=np.uint64)
