"""The learner of language models: an engine writes the responses, packed forward passes score them, AdamW follows.

Which rows share a forward pass is microbatches.py; how log-probabilities are computed, scoring.py.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.errors import ComponentDied, Diverged, ResumeRefused, UsageError
from pmdkit.learner import Rollouts
from pmdkit.llm import weights
from pmdkit.llm.engines.protocol import Engine, Sampling, Tokens
from pmdkit.llm.fused import fused_total
from pmdkit.llm.memory import memory_of
from pmdkit.llm.microbatches import microbatches
from pmdkit.llm.provenance import settled
from pmdkit.llm.scoring import response_logp, to_rows
from pmdkit.objectives import Objective, coefficient, total
from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Batch
from pmdkit.randomness import derive
from pmdkit.tables import ScheduleTable, UpdateTable

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
        reference: keep a copy of the model as the reference policy.
        old, correction, correction_cap: whose log-probabilities pi_old are, see `provenance.settled`.
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
    ) -> None:
        self.version = 0
        self.model = model
        self.tokenizer = tokenizer
        self.encode = encode
        self.engine = engine
        self.sampling = sampling
        self.options = update
        self.passes = schedule.passes
        self.bfloat16 = bfloat16
        self.optimizer = make_optimizer(model, schedule, update)
        self.reference = deepcopy(model).requires_grad_(False) if reference else None
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
        if self.reference is None:
            return rollouts
        with torch.no_grad():
            return replace(rollouts, logp_ref=self.score(self.reference, rollouts))

    def publish(self) -> None:
        """Give the engine the present weights, if it does not have them."""
        if self.stale:
            self.engine.publish(weights.named(self.model), self.version)
            self.stale = False

    def after_phase_0(self) -> None:
        """The weights were moved by others: the engine needs them anew, and the reference policy is them."""
        self.stale = True
        if self.reference is not None:
            weights.load(self.reference, weights.named(self.model))

    def logp(self, rollouts: Rollouts) -> Tensor:
        """[N, T] log-probabilities under the current policy, with gradient unless it is switched off."""
        return self.score(self.model, rollouts)

    def score(self, model: PreTrainedModel, rollouts: Rollouts) -> Tensor:
        """[N, T] under a model, a token budget at a time."""
        prompts, responses = self.rows(rollouts)
        scored = torch.zeros_like(rollouts.logp_old, dtype=torch.float64)
        size = rollouts.mass.shape[1]
        for rows in microbatches(prompts, responses, size, self.options.token_budget, whole_groups=False):
            index = torch.tensor(rows)
            scored = scored.index_copy(0, index, self.some_logp(model, prompts, responses, rows, scored.shape[1]))
        return scored

    def some_logp(
        self, model: PreTrainedModel, prompts: list[Tokens], responses: list[Tokens], rows: list[int], width: int
    ) -> Tensor:
        """[n, T] float64 of some rows, on the CPU, in one forward pass."""
        with self.precision():
            scores = response_logp(model, [prompts[row] for row in rows], [responses[row] for row in rows])
        return to_rows(scores.logp, scores.lengths, width).double().cpu()

    def some_loss(
        self, objective: Objective, prompts: list[Tokens], responses: list[Tokens], rows: list[int], batch: Batch
    ) -> Tensor:
        """Scalar float64, with gradient: the sum over some rows, whose batch is given, in one forward pass."""
        if coefficient(objective, batch[:1]) is None:
            logp = self.some_logp(self.model, prompts, responses, rows, batch.mask.shape[1])
            return total(objective, replace(batch, logp=logp))
        with self.precision():
            asked, answers = [prompts[row] for row in rows], [responses[row] for row in rows]
            return fused_total(self.model, asked, answers, objective, batch).loss

    def update(self, objective: Objective, rollouts: Rollouts, batch: Batch) -> dict[str, float]:
        """One ministep. `loss` and `grad_norm` (before clipping) are those of the first pass.

        The batch is cut by the token budget; the parts add up to the same gradient whatever the budget.
        """
        self.engine.enter("update")
        self.last = rollouts, batch
        prompts, responses = self.rows(rollouts)
        counted = ((batch.weight != 0) & batch.mask.any(1)).tolist()
        size = rollouts.mass.shape[1]
        whole = traits(objective).whole_groups
        plan = list(microbatches(prompts, responses, size, self.options.token_budget, whole, counted))
        report: dict[str, float] = {}
        for _ in range(self.passes):
            self.optimizer.zero_grad(set_to_none=True)
            loss = 0.0
            with memory_of("update", "update.token_budget"):
                for done, rows in enumerate(plan):
                    self.report("update", done, len(plan), 0)
                    part = self.some_loss(objective, prompts, responses, rows, batch[torch.tensor(rows)])
                    part.backward()
                    loss += part.item()
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
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip).item()
        if not np.isfinite(norm):
            raise Diverged(f"the gradient's norm is {norm}; no step was taken, the last checkpoint is intact: lower lr")
        self.optimizer.step()
        if not weights.finite(self.model):
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
            "model": weights.named(self.model),
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
        }
        return state if self.reference is None else state | {"reference": weights.named(self.reference)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        weights.load(self.model, state["model"])
        if self.reference is not None:
            if "reference" not in state:
                raise ResumeRefused("the checkpoint has no reference policy, which this objective needs; start anew")
            weights.load(self.reference, state["reference"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.version = state["version"]
        self.stale = True

    def save_pretrained(self, path: str | Path) -> None:
        """Write a folder that transformers and vLLM load."""
        self.model.save_pretrained(path)
        self.tokenizer.save_pretrained(path)


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
