"""Test a recipe on the machine that is to run it: the self-check, and the largest token budget that fits.

`SelfCheck` is `--field-test` on the command line: each step passes or fails, and the first failure ends it.
`fit_token_budget` is `--fit`. `pmdkit_lab.planner.memory` computes memory by arithmetic instead.
"""

import datetime
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PreTrainedModel

from pmdkit.errors import EnvironmentLacks, PmdkitError
from pmdkit.llm import backend, forward_root, head, learner, logprobs, task
from pmdkit.llm.callbacks.evaluation import EvaluationCallback
from pmdkit.llm.callbacks.model_files import ModelFilesCallback
from pmdkit.loop import graded
from pmdkit.objectives import Objective, credit
from pmdkit.observe import checkpoint
from pmdkit.specs import LLMSpec
from pmdkit.trainer import TrainerCallback
from pmdkit.version import __version__

Kind = TypeVar("Kind", bound=TrainerCallback)
PROMPTS, GROUP, WIDTH, PROBLEMS = 8, 4, 256, 16  # 32 responses: minutes on one GPU, seconds for the starter
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.2}  # most nats per token between engine and trainer

# For the trials of `fit_token_budget`.
GIB = 2**30
SHARE = 0.8  # of the memory that the update may take: the allocator fragments, and steps differ
FIRST = 1024  # tokens
TRIAL_PROMPT = 32  # tokens of a trial that are not scored; the fewer, the more the head has to do


@dataclass(frozen=True)
class SelfCheckStep:
    """One step of the self-check; `told` is its finding in words, for the user."""

    name: str
    passed: bool
    seconds: float
    told: str


class SelfCheck:
    """Runs the steps in order on a small version of a recipe.

    Args:
        spec: of the recipe; its model, data, verifier, precision and memory settings are what is tested.
        objective: of the recipe.
        folder: for the checkpoint and the responses of the test.
    """

    def __init__(self, spec: LLMSpec, objective: Objective, folder: Path) -> None:
        self.spec = small_spec(spec)
        self.objective = objective
        self.folder = folder
        self.figures: dict[str, Any] = {}
        self.callbacks: Sequence[TrainerCallback] = ()
        self.learner: learner.CausalLearner
        self.task: task.MathTask

    def __call__(self, report: Callable[[SelfCheckStep], None]) -> list[SelfCheckStep]:
        """Run the checks up to the first failure."""
        checks = []
        for step in (self.load, self.generate, self.verify, self.update, self.publish, self.resume, self.evaluate):
            began = time.perf_counter()
            try:
                passed, told = step()
            except (PmdkitError, ValueError, RuntimeError) as problem:  # what can go wrong on a machine is the question
                passed, told = False, f"{type(problem).__name__}: {' '.join(str(problem).split())}"
            check = SelfCheckStep(step.__name__, passed, time.perf_counter() - began, told)
            checks.append(check)
            report(check)
            if not check.passed:
                break
        if checks[0].passed:
            self.task.grader.close()
            self.learner.engine.close()
        return checks

    def callback(self, kind: type[Kind]) -> Kind:
        """The callback of this kind that `load` made."""
        return next(callback for callback in self.callbacks if isinstance(callback, kind))

    def load(self) -> tuple[bool, str]:
        """Load model, tokenizer and data; packed attention must agree with the model's own."""
        made = backend.make_backend(self.spec, self.objective)
        assert isinstance(made.learner, learner.CausalLearner)
        assert isinstance(made.task, task.MathTask)
        self.learner, self.task, self.callbacks = made.learner, made.task, made.callbacks
        weights = sum(weight.numel() for weight in self.learner.model.parameters())
        device, path = self.learner.model.device, getattr(self.spec.model, "path", None)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"
        source = Path(path).name if path else str(getattr(self.spec.model, "build", ""))  # no path on this machine
        self.figures |= {"model": source, "weights": weights, "device": name}
        return True, f"{weights:,} weights on {name}; {self.task.problems.name}"

    def generate(self) -> tuple[bool, str]:
        """Generate responses, and compare the engine's log-probabilities with the trainer's."""
        began = time.perf_counter()
        self.rollouts = self.learner.rollout(self.task.prompts(1), GROUP, seed=1)
        seconds = time.perf_counter() - began
        tokens = int(self.rollouts.mask.sum())
        worst = self.learner.mismatch["mismatch_max"]
        limit = TOLERANCE[getattr(self.spec.model, "dtype", "float32")]
        self.figures |= {"tokens per second": tokens / seconds, "mismatch": worst}
        told = f"{tokens:,} tokens, {tokens / seconds:,.0f} per second; engine and trainer differ by {worst:.1e} nats"
        return worst <= limit, told if worst <= limit else f"{told}, more than {limit:g}: set rollout.old=recompute"

    def verify(self) -> tuple[bool, str]:
        """Check that the verifier's pool works, and grade every response."""
        probe = self.task.grader.probe()
        if not probe.correct:
            return False, f"the verifier's worker: {probe.reason}"
        self.reward = self.task.reward(self.rollouts)
        assert self.task.last is not None
        verdicts = self.task.last.verdicts
        answered = sum(verdict.extracted is not None for verdict in verdicts)
        right = sum(verdict.correct is True for verdict in verdicts)
        cut_off = sum(item.truncated for item in self.task.last.items)
        return True, f"{right} of {len(verdicts)} right, {answered} with an answer, {cut_off} cut off at {WIDTH} tokens"

    def update(self) -> tuple[bool, str]:
        """Make one ministep from rewards that differ, and measure its memory."""
        rollouts = self.rollouts
        reward = torch.arange(self.reward.numel()).view(self.reward.shape) % 2  # a gradient whatever the model knows
        groups = graded(reward.double(), rollouts)
        batch = credit(self.objective, groups, rollouts.logp_old, rollouts.mask, rollouts.logp_ref, rollouts.width)
        trained = [weight for weight in self.learner.model.parameters() if weight.requires_grad]
        few = sorted(trained, key=lambda weight: weight.numel())[:16]  # all move; copies of some suffice
        before = [weight.detach().clone() for weight in few]
        began = time.perf_counter()
        report = self.learner.update(self.objective, rollouts, batch)
        seconds = time.perf_counter() - began
        tokens = int(rollouts.mask.sum())
        device = self.learner.model.device
        peak = f", {torch.cuda.max_memory_allocated(device) / GIB:.1f} GiB at the peak" if device.type == "cuda" else ""
        self.figures |= {"update tokens per second": tokens / seconds, "memory": peak}
        with torch.no_grad():
            moved = (self.learner.logp(rollouts) - rollouts.logp_old).abs().max().item()
        told = f"gradient norm {report['grad_norm']:.3g}, {tokens / seconds:,.0f} tokens per second"
        changed = all(not torch.equal(old, new) for old, new in zip(before, few, strict=True))
        return changed, f"{told}; log-probabilities moved by up to {moved:.1e} nats{peak}"

    def publish(self) -> tuple[bool, str]:
        """Generate with the new weights, and compare log-probabilities again."""
        self.learner.version += 1
        self.learner.rollout(self.task.prompts(2), GROUP, seed=2)
        worst = self.learner.mismatch["mismatch_max"]
        limit = TOLERANCE[getattr(self.spec.model, "dtype", "float32")]
        return worst <= limit, f"version {self.learner.version}; engine and trainer differ by {worst:.1e} nats"

    def resume(self) -> tuple[bool, str]:
        """Write a checkpoint, check it, and load it over zeroed weights, which must then be bit-identical."""
        place = self.folder / "checkpoints"
        place.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        checkpoint.save_step(
            place,
            1,
            self.learner.state_dict(),
            keep=1,
            extra_files=self.callback(ModelFilesCallback).files(),
        )
        seconds = time.perf_counter() - began
        size = sum(path.stat().st_size for path in (place / "step-1").iterdir())
        before = {name: tensor.cpu().clone() for name, tensor in self.learner.state_dict()["model"].items()}
        _, state, warnings = checkpoint.load_newest(place)
        with torch.no_grad():
            for weight in self.learner.model.parameters():
                if weight.requires_grad:
                    weight.zero_()
        self.learner.load_state_dict(state)
        after = self.learner.state_dict()["model"]
        same = all(torch.equal(tensor, after[name].cpu()) for name, tensor in before.items())
        return same and not warnings, f"{size / GIB:.2f} GiB written in {seconds:.1f} s, loaded bit for bit"

    def evaluate(self) -> tuple[bool, str]:
        """Evaluate on some held-out problems, keeping every response."""
        evaluations = self.callback(EvaluationCallback)
        evaluation = evaluations.evaluation
        answers = evaluation(self.learner.engine, self.folder / "evaluation.jsonl")
        rate = evaluations.scores(answers)["pass_rate"]
        return rate is not None, f"pass rate {rate} on {len(evaluation.problems)} problems of {evaluation.name}"

    def row(self, checks: list[SelfCheckStep]) -> str:
        """The row for benchmarks/README.md."""
        got = {"model": "-", "weights": 0, "device": "-", "memory": ""} | self.figures
        rates = [f"{got.get(name, 0):,.0f}" for name in ("tokens per second", "update tokens per second")]
        passed, today = sum(check.passed for check in checks), datetime.datetime.now(datetime.UTC).date()
        return (
            f"| Field test of `{self.spec.name}`, pmdkit {__version__} | `pmdkit llm {self.spec.name} --field-test` | "
            f"{passed} of {len(checks)} checks; {got['model']}, {got['weights']:,} weights, "
            f"{got['device']}, torch {torch.__version__}; generation {rates[0]} tokens/s, update {rates[1]} tokens/s, "
            f"mismatch {got.get('mismatch', 0):.1e} nats{got['memory']} | {today} |"
        )


def small_spec(spec: LLMSpec) -> LLMSpec:
    """The recipe with few prompts and short responses; model, data, precision and token budgets are unchanged."""
    assert spec.rollout is not None
    assert spec.evaluation is not None
    width = min(WIDTH, spec.rollout.width)
    few = {"prompts": PROMPTS, "group": GROUP, "ministeps": 1, "steps": 2}
    return spec.model_copy(
        update={
            "schedule": spec.schedule.model_copy(update=few),
            "parallel": None if spec.parallel is None else spec.parallel.model_copy(update={"processes": 1}),
            "rollout": spec.rollout.model_copy(update={"width": width}),
            "evaluation": spec.evaluation.model_copy(update={"problems": PROBLEMS, "k": 1, "width": width}),
        }
    )


def fit_token_budget(model: PreTrainedModel, spec: LLMSpec) -> tuple[int, list[tuple[int, float]]]:
    """The largest token budget, a power of two, whose update fits beside weights, gradients and optimizer.

    Budgets are tried, each twice the one before it, until one does not fit or a whole ministep does.

    Returns:
        The budget in tokens, and the trials: tokens and peak GiB of each.
    """
    weights = sum(weight.numel() for weight in model.parameters())
    room = SHARE * capacity(model.device) - 8 * weights  # for the moments of Adam, fewer with adapters
    trials: list[tuple[int, float]] = []
    tokens = FIRST
    while not trials or trials[-1][0] < most_tokens(spec):
        peak = trial(model, tokens, spec)
        if peak is None or peak > room:
            break
        trials.append((tokens, peak / GIB))
        tokens *= 2
    if not trials:
        raise EnvironmentLacks(
            f"{FIRST} tokens at once do not fit beside {weights:,} weights; set model.checkpointing, "
            "model.dtype to bfloat16, or take a smaller model"
        )
    return trials[-1][0], trials


def most_tokens(spec: LLMSpec) -> int:
    """The most tokens that a ministep can have: a larger budget changes nothing."""
    assert spec.rollout is not None
    assert spec.schedule.prompts is not None
    assert spec.schedule.group is not None
    prompts = -(-spec.schedule.prompts // spec.schedule.ministeps)
    return prompts * (spec.rollout.max_prompt + spec.schedule.group * spec.rollout.width)


def trial(model: PreTrainedModel, tokens: int, spec: LLMSpec) -> int | None:
    """Peak bytes of one forward and backward pass over that many tokens; None if they do not fit."""
    assert spec.rollout is not None
    length = min(tokens, spec.rollout.width + TRIAL_PROMPT)
    rows = max(1, tokens // length)
    vocabulary = head.head_weight(model).shape[0]
    chance = torch.Generator().manual_seed(0)
    text = torch.randint(vocabulary, (rows, length), generator=chance).tolist()
    cuda = next(model.parameters()).device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    root = forward_root.ForwardRoot(model, getattr(torch, getattr(spec.model, "dtype", "float32")))
    prompts, responses = [row[:TRIAL_PROMPT] for row in text], [row[TRIAL_PROMPT:] for row in text]
    try:
        root(lambda model: logprobs.response_logp(model, prompts, responses)).logp.sum().backward()
    except (torch.OutOfMemoryError, MemoryError):
        return None
    finally:
        model.zero_grad(set_to_none=True)
    if cuda:
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def capacity(device: torch.device) -> int:
    """Bytes that the device can give this process."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) + int(torch.cuda.memory_reserved(device))
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
