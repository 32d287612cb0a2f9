"""The learner whose model is on a Tinker server: rollouts from the newest sampler, updates by its objective here.

The loop, the objective, grading and metrics are those of every run of a language model. This machine has the tokenizer
and the model's configuration, no weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.errors import ComponentDied, Diverged, ResumeRefused, UsageError
from pmdkit.llm.engines.base import NO_WEIGHTS, Phase, Progress, ResponseCheck, Responses, Sampling, Tokens
from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.head import head_weight
from pmdkit.llm.learner import INTACT, EngineLearner, Report
from pmdkit.llm.model import end_tokens
from pmdkit.llm.optimizer import make_lr_scheduler
from pmdkit.llm.rollouts import EngineRollouts
from pmdkit.loop import LogpHook, Rollouts
from pmdkit.objectives import Batch, Objective, total
from pmdkit.objectives.credit import RoundingCheck
from pmdkit.objectives.regulariser import EffectiveSampleSize
from pmdkit.specs import LLMSpec
from pmdkit_adapters.tinker import certificate, service
from pmdkit_adapters.tinker.replies import check_logps, check_samples
from pmdkit_adapters.tinker.server import LONGEST, WRITTEN

EPS = 1e-8  # of Adam, torch's; the SDK's default is 1e-12
RESTORED = 0.05  # nats by which a restored log-probability may differ: more than rounding, less than a few updates


class SamplerEngine:
    """An Engine that draws from the newest sampler of a model on a server, or from the model without adapters.

    Args:
        ends: tokens that end a response.
        newest: makes the sampler of the current weights. `publish` calls it, once at least before any request.
    """

    def __init__(self, client: service.TrainingClient, ends: Sequence[int], newest: Callable[[], Any]) -> None:
        self.client, self.ends, self.newest = client, list(ends), newest
        self.sampler: Any = None
        self.version = NO_WEIGHTS

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: NDArray[np.uint64],
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each prompt in one request, with the seed of its first; the server's draws decide."""
        sdk, server = self.client.sdk, self.client.server

        def request() -> list[Any]:
            futures = []
            for number, prompt in enumerate(prompts):
                params = sdk.SamplingParams(
                    max_tokens=sampling.width,
                    temperature=0.0 if sampling.greedy else sampling.temperature,
                    top_p=sampling.top_p,
                    seed=int(seeds[number * group] % 2**31),
                    stop=self.ends,
                )
                given = sdk.ModelInput.from_ints(list(prompt))
                futures.append(self.sampler.sample(prompt=given, num_samples=group, sampling_params=params))
            return futures

        rows: list[tuple[list[int], list[float]]] = []
        for future in server.ask("take requests for responses", request):

            def answer(future: Any = future) -> list[Any]:
                return [SimpleNamespace(tokens=x.tokens, logprobs=x.logprobs) for x in future.result().sequences]

            found = server.ask("write responses", answer, LONGEST + sampling.width / WRITTEN)
            rows += check_samples(found, group, sampling.width)
            if progress is not None:
                progress(sum(len(tokens) for tokens, _ in rows), len(rows))
        return Responses.from_rows(rows, self.ends, self.version)

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[Tensor]:
        """[T_n] log-probabilities of the tokens of each response."""
        sequences = [[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)]

        def score() -> list[list[Any]]:
            from_ints = self.client.sdk.ModelInput.from_ints
            futures = [self.sampler.compute_logprobs(from_ints(tokens)) for tokens in sequences]
            return [list(future.result()) for future in futures]

        found = self.client.server.ask("score", score, service.patience(sequences))
        # the first token has no log-probability; some servers leave it out
        rows = [row[1:] if len(row) == len(tokens) else row for row, tokens in zip(found, sequences, strict=False)]
        logps = check_logps("a request for log-probabilities", rows, service.targets(sequences))
        return [logp[len(logp) - len(response) :] for logp, response in zip(logps, responses, strict=True)]

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take a sampler of the weights that the server has; `weights` are not read."""
        self.sampler, self.version = self.newest(), version

    def enter(self, phase: Phase) -> None:
        """Do nothing: the server decides what it holds in memory."""

    def close(self) -> None:
        """The server ends the session when this process does."""


class TinkerLearner(EngineLearner):
    """A Learner whose model is on a Tinker server.

    Args:
        client: its model there, certified.
        model: on the meta device: its configuration alone is read.
        tokenizer, encode, report: as for `EngineLearner`.
        text: tokens whose log-probabilities are kept in a checkpoint, to see that the server restores its weights.
        reference: score responses under the model without adapters too.

    What the service has no answer to is refused, mostly before a run (`backend.resolve`): gradients outside an update,
    logits and what needs all of them, weights of an earlier version.
    """

    def __init__(
        self,
        spec: LLMSpec,
        client: service.TrainingClient,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        encode: Callable[[int], Tokens],
        text: Tokens,
        report: Report = lambda phase, done, total, tokens: None,
        *,
        reference: bool = False,
    ) -> None:
        schedule, update, ends = spec.schedule, spec.update, end_tokens(model, tokenizer)
        engine = DistributedEngine(
            SamplerEngine(client, ends, client.sampler),
            end=ends[0],
            response_check=ResponseCheck(ends, head_weight(model).shape[0]),
        )
        super().__init__(model, tokenizer, encode, engine, spec.rollout, schedule, report=report)
        self.client, self.text = client, text
        self.base: SamplerEngine | None = None
        if reference:
            name = str(spec.remote.model or spec.model.path)
            self.base = SamplerEngine(client, ends, lambda: client.base_sampler(name))
            self.base.publish({}, 0)
        self.lr, self.lr_scheduler = schedule.lr, make_lr_scheduler([schedule.lr], schedule, update)
        self.adam = {
            "beta1": update.betas[0],
            "beta2": update.betas[1],
            "eps": EPS,
            "weight_decay": update.weight_decay if schedule.optimizer == "adamw" else 0.0,
            "grad_clip_norm": update.clip,
        }

    def publish(self) -> Mapping[str, float]:
        """Take a sampler of the current weights."""
        return self.engine.publish({}, self.version)

    def score(self, rollouts: Rollouts) -> Tensor:
        """[N, T] log-probabilities under the current policy, float32, without gradient.

        Raises:
            UsageError: gradients are enabled; the service gives them in an update only.
        """
        if torch.is_grad_enabled():
            raise UsageError("a Tinker server gives log-probabilities without gradient; score under torch.no_grad()")
        prompts, responses, _ = self.rows(rollouts)
        logps = self.client.logp([[*p, *r.tolist()] for p, r in zip(prompts, responses, strict=True)])
        return rectangle(logps, rollouts.mask)

    def with_reference(self, rollouts: EngineRollouts) -> EngineRollouts:
        """The rollouts with log-probabilities under the model without adapters, if the objective has a reference."""
        if self.base is None:
            return rollouts
        prompts, responses, _ = self.rows(rollouts)
        logps = self.base.score(prompts, [response.tolist() for response in responses])
        return replace(rollouts, logp_ref=rectangle(logps, rollouts.mask).double())

    def update(self, objective: Objective, rollouts: Rollouts, batch: Batch) -> dict[str, float]:
        """One ministep; `loss` is that of the first pass, `grad_norm` the server's, NaN if it reports none.

        Raises:
            Diverged: the loss or its gradient is not finite; no step was taken.
        """
        prompts, responses, _ = self.rows(rollouts)
        sequences = [[*p, *r.tolist()] for p, r in zip(prompts, responses, strict=True)]
        report: dict[str, float] = {}
        skipped = 0
        for turn in range(self.passes):
            rounding, ess = RoundingCheck(objective), EffectiveSampleSize(objective)
            losses: list[float] = []
            norm = 0.0

            def loss_of(
                logps: list[Tensor],
                rounding: RoundingCheck = rounding,
                ess: LogpHook = ess,
                losses: list[float] = losses,
            ) -> Tensor:
                logp = rectangle(logps, batch.mask).double()
                loss = total(objective, replace(batch, logp=logp))
                for on_logp in (rounding, ess):
                    on_logp(batch, range(len(logp)), logp)
                losses.append(loss.item())
                if not np.isfinite(losses[-1]):
                    raise Diverged(f"the loss is {losses[-1]}, and no step was taken; {INTACT}")
                # every row needs a gradient; one that is rounding must not stay behind on the server
                return (loss if rounding.signal else 0 * loss) + 0 * logp.sum()

            self.report("update", turn, self.passes, 0)
            self.client.backward(sequences, loss_of)
            if self.lr_scheduler is not None:
                (self.lr,) = self.lr_scheduler.step(self.version)
            if rounding.signal:
                norm = self.client.step(learning_rate=self.lr * ess.factor, **self.adam)
            else:
                skipped += 1
            report = report or {"loss": losses[0], "grad_norm": norm}
        self.report("update", self.passes, self.passes, 0)
        self.sync_metrics = None
        rate = {} if self.lr_scheduler is None else {"lr": self.lr}
        return {**report, "skipped": skipped, **rate}

    def state_dict(self) -> dict[str, Any]:
        """Where the server keeps weights and optimizer, under a name of this step; no tensors."""
        kept = {"path": self.client.save(f"step-{self.version}"), "logp": self.client.logp([self.text])[0].tolist()}
        return {"model": {}, "optimizer": {"state": {}, "param_groups": []}, "version": self.version, "tinker": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the server restore what `state_dict` saved there.

        Raises:
            ResumeRefused: it does not have that state, or other weights come back.
        """
        path, logp = state["tinker"]["path"], torch.tensor(state["tinker"]["logp"])
        try:
            self.client.load(path)
            moved = certificate.furthest(logp, self.client.logp([self.text])[0])
        except ComponentDied as problem:
            raise ResumeRefused(f"{path} is not restored: {problem}") from problem
        if not moved < RESTORED:
            raise ResumeRefused(
                f"the server restores {path} with log-probabilities that differ by {moved:.2g} nats from those saved; "
                "start again with another --out"
            )
        self.version, self.sync_metrics = state["version"], None


def rectangle(logps: Sequence[Tensor], mask: Tensor) -> Tensor:
    """[N, T] log-probabilities of responses, 0 off the mask, from those of whole sequences; with gradient."""
    flat = torch.cat([logp[len(logp) - size :] for logp, size in zip(logps, mask.sum(1).tolist(), strict=True)])
    return torch.zeros(mask.shape, dtype=flat.dtype).masked_scatter(mask, flat)


def certified_client(spec: LLMSpec, text: Tokens) -> tuple[service.TrainingClient, certificate.Witness, list[str]]:
    """A new client whose call takes the right gradient, the witness that proved it, and the calls that are wrong.

    `text` may be any tokens; the proof is made on them.
    """
    make = service.connect(spec)
    witness, faults = certificate.certify(make, text)
    client = make()
    client.call = witness.client.call
    return client, witness, faults
