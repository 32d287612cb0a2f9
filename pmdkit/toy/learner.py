"""The toy learner: a small transformer that samples or enumerates responses and takes gradient steps.

Below it are its evaluation on held-out problems, the model that it starts from, and the warm start of that model.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pmdkit import untrusted
from pmdkit.envs.tokens.problem import TokenProblem, checked_rewards, sample_prompts
from pmdkit.errors import PmdkitError, UsageError
from pmdkit.extras import load_entry_point
from pmdkit.loop import LogpHook, Rollouts
from pmdkit.objectives import Batch, Objective, total
from pmdkit.objectives.regulariser import EffectiveSampleSize
from pmdkit.observe.checkpoint import check_shapes
from pmdkit.optimizer import make_optimizer
from pmdkit.randomness import generator
from pmdkit.specs.toy import ModelTable, WarmStartTable
from pmdkit.toy.model import ModelConfig, Transformer
from pmdkit.toy.sampling import generate, score

CLIP = 1.0  # norm of the gradient, as in the paper's runs


class ToyLearner:
    """A Learner whose policy is a transformer.

    Args:
        model: trained in place.
        eos: the token that ends a response.
        width: generation budget, tokens.
        space: [A, T] every response and its mask, if they can be enumerated: the full support for `group=None`.
        lr, optimizer, passes: of the updates; `passes` optimizer steps on every ministep.
        reference: keep a copy of the model as the reference policy.
    """

    def __init__(
        self,
        model: Transformer,
        eos: int,
        width: int,
        space: tuple[Tensor, Tensor] | None = None,
        lr: float = 1e-3,
        optimizer: str = "adamw",
        passes: int = 1,
        reference: bool = False,
    ) -> None:
        self.version = 0
        self.on_logp: LogpHook | None = None
        self.model = model
        self.optimizer = make_optimizer(model, optimizer, lr, fused=True)
        self.passes = passes
        self.reference = deepcopy(model).requires_grad_(False) if reference else None
        self.eos = eos
        self.width = width
        self.space = space

    def rollout(self, prompts: Tensor, group: int | None, seed: int) -> Rollouts:
        """Draw `group` responses per prompt, or enumerate all of them with mass pi_old."""
        if group is None:
            return self.enumerate(prompts, seed)
        responses, logp, mask = generate(self.model, prompts, group, self.width, self.eos, seed)
        mass = torch.full((len(prompts), group), 1.0 / group, dtype=torch.float64)
        return self.pack(prompts, responses, logp, mask, mass, seed, sampled=True)

    def enumerate(self, prompts: Tensor, seed: int) -> Rollouts:
        """Every response to every prompt; its mass is its probability."""
        if self.space is None:
            raise ValueError("the responses are too many to enumerate; give --group, the number to draw per prompt")
        responses, mask = (x.repeat(len(prompts), 1) for x in self.space)
        with torch.no_grad():
            logp = score(self.model, prompts, responses, mask)
        mass = logp.double().sum(1).exp().view(len(prompts), -1)
        # float32 log-probabilities sum to 1 within 1e-6 only, and `pmdkit.theory` wants 1 within 1e-8
        return self.pack(prompts, responses, logp, mask, mass / mass.sum(1, keepdim=True), seed, sampled=False)

    def pack(
        self, prompts: Tensor, responses: Tensor, logp: Tensor, mask: Tensor, mass: Tensor, seed: int, sampled: bool
    ) -> Rollouts:
        """Rollouts, scored by the reference policy where there is one."""
        logp_ref = None
        if self.reference is not None:
            with torch.no_grad():
                logp_ref = score(self.reference, prompts, responses, mask)
        return Rollouts(
            prompts=prompts,
            responses=responses,
            logp_old=logp,
            mask=mask,
            mass=mass,
            sampled=sampled,
            seed=seed,
            version=self.version,
            width=self.width,
            logp_ref=logp_ref,
        )

    def logp(self, rollouts: Rollouts) -> Tensor:
        """[N, T] log-probabilities under the current policy, nats, with gradient; 0 off the mask."""
        return score(self.model, rollouts.prompts, rollouts.responses, rollouts.mask)

    def update(self, objective: Objective, rollouts: Rollouts, batch: Batch) -> dict[str, float]:
        """One ministep. `loss` and `grad_norm` (before clipping) are those of the first pass."""
        report: dict[str, float] = {}
        for turn in range(self.passes):
            # pi is scored again in every pass, pi_old never: the batch keeps logp_old from the rollout. So the first
            # pass of the first ministep is on-policy, and all others move away from pi_old.
            logp = self.logp(rollouts)
            if turn == 0 and self.on_logp is not None:
                self.on_logp(batch, range(len(logp)), logp)
            loss = total(objective, replace(batch, logp=logp))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            report = report or {"loss": loss.item(), "grad_norm": norm.item()}
            ess = EffectiveSampleSize(objective)
            ess(batch, range(len(logp)), logp)
            ess.step(self.optimizer)
        return report

    def state_dict(self) -> dict[str, Any]:
        """Weights, the optimizer's state, the version, and the reference policy where there is one."""
        tensors = dict(self.model.state_dict())
        if self.reference is not None:
            tensors |= {f"reference.{name}": value for name, value in self.reference.state_dict().items()}
        return {"model": tensors, "optimizer": self.optimizer.state_dict(), "version": self.version}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        found, wanted = state["model"], self.state_dict()["model"]
        check_shapes(found, wanted)
        weights = {k: v for k, v in found.items() if not k.startswith("reference.")}
        self.model.load_state_dict(weights)
        if self.reference is not None:
            self.reference.load_state_dict({k: found[f"reference.{k}"] for k in weights})
        with untrusted.shaped("the checkpoint", "one of this run", "put its own checkpoints back"):
            self.optimizer.load_state_dict(state["optimizer"])
            self.version = int(state["version"])


def held_out_pass_rate(learner: ToyLearner, problem: TokenProblem, prompts: Tensor, draws: int, seed: int) -> float:
    """Share of right responses to held-out prompts [P, L], or to all of them if the problem has few, averaged.

    Exact if responses can be enumerated, else by the same draws at every call.
    """
    rollouts = learner.rollout(prompts, draws if learner.space is None else None, seed)
    right = checked_rewards(problem, *(x.cpu().numpy() for x in (prompts, rollouts.responses, rollouts.mask)))
    return float((rollouts.mass.numpy() * right).sum(1).mean())


def build_model(table: ModelTable, problem: TokenProblem, seed: int) -> Transformer:
    """The transformer of a run, built from [model] or loaded from its folder, with room for prompt and response."""
    context = problem.prompt_length + problem.width
    if table.path is None:
        config = ModelConfig(
            vocabulary=len(problem.vocabulary),
            context=context,
            dimension=table.dimension,
            layers=table.layers,
            heads=table.heads,
            inner=max(16, 8 * (table.dimension * 8 // 3 // 8)),
        )
        return Transformer(config, seed)
    model: Transformer
    folders = load_entry_point("format", "huggingface", elsewhere=["huggingface"])
    model, vocabulary = folders.load_pretrained(table.path)
    if tuple(vocabulary) != problem.vocabulary:
        ours, theirs = (f"{len(words)} tokens, {' '.join(words[:6])} ..." for words in (problem.vocabulary, vocabulary))
        raise UsageError(f"model.path {table.path} has {theirs}; expected the task's vocabulary, {ours}")
    if model.config.context < context:
        need = f"this task needs {context} for prompt and response: take another model"
        raise UsageError(f"model.path {table.path} reads {model.config.context} tokens; {need}")
    return model


def warm_start(
    model: Transformer,
    problem: TokenProblem,
    options: WarmStartTable,
    seed: int,
    pass_rate: Callable[[], float],
    note: Callable[[str], None],
) -> None:
    """Supervised learning on right answers until the policy passes a chosen share of the problems, in place.

    AdamW on the likelihood of answers to prompts that are not held out; the seed is for drawing prompts and answers.
    `pass_rate` measures the model on the evaluation problems, and `note` is called with lines of progress.
    """
    # a separate optimizer, because the moments of a supervised loss would steer the run's first steps
    optimizer = make_optimizer(model, "adamw", options.lr, fused=True)
    reached, step = pass_rate(), 0
    while reached < options.pass_rate:
        if step >= options.max_steps:
            remedy = "raise warm_start.max_steps or warm_start.lr, or ask for less with warm_start.pass_rate"
            what = f"the warm start ended at pass rate {reached:.3f}, below {options.pass_rate}"
            raise PmdkitError(f"{what}, after {step} supervised steps; {remedy}")
        for index in range(step, min(step + options.look, options.max_steps)):
            rng = generator(seed, "warm start", index)
            prompts = sample_prompts(problem, rng, options.batch)
            answers, mask = problem.answers(prompts, rng)
            tokens = torch.from_numpy(mask)
            # L = -sum_t log pi(y_t | x, y_<t) / number of tokens
            loss = -score(model, torch.from_numpy(prompts), torch.from_numpy(answers), tokens).sum() / tokens.sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
        step = index + 1
        reached = pass_rate()
        if step % (10 * options.look) == 0 and reached < options.pass_rate:
            note(f"warm start: pass rate {reached:.3f} after {step} supervised steps")
    note(f"warm start: pass rate {reached:.3f} after {step} supervised steps")
