"""What happens in a run on a language model besides its steps, each a TrainerCallback.

Evaluations that an interruption does not repeat, records of responses, the files that make a checkpoint a folder of
transformers, and what a run starts and stops: verifier, engine, progress.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.config import Spec
from pmdkit.distributed import SINGLE, ProcessGroup
from pmdkit.envs.math.problem import leaks
from pmdkit.envs.verifier import Item, audit
from pmdkit.envs.verifier.pool import VerdictJournal
from pmdkit.errors import Diverged, EnvironmentLacks
from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.evaluate import Answered, Evaluation, append
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.task import MathTask
from pmdkit.loop import Rollouts
from pmdkit.objectives import Groups
from pmdkit.observe import files
from pmdkit.observe.console import SilentDisplay
from pmdkit.observe.metrics import StepMetrics
from pmdkit.observe.run_folder import RunFolder
from pmdkit.replay.recorder import StepExtras
from pmdkit.trainer import Display, RunContext, StepResult, TrainerCallback

AUDITED = 200  # answers


class ResourcesCallback(TrainerCallback):
    """What the run uses besides its learner: the verifier's processes, the engine, and who hears of progress.

    Args:
        learner, task: of the run.
    """

    def __init__(self, learner: CausalLearner, task: MathTask) -> None:
        self.learner = learner
        self.task = task

    def on_init_end(self, run: RunContext) -> None:
        """Where verdicts are written down, and where progress and warnings go."""
        self.task.grader.journal = VerdictJournal(run.folder.path / "verdicts.jsonl")
        if type(run.display) is not SilentDisplay:  # its subclasses show something
            self.learner.report = ProgressClock(run.display).progress
        self.learner.warn = run.display.warn
        if isinstance(self.learner.engine, DistributedEngine):
            self.learner.engine.warn = run.display.warn

    def on_train_end(self, run: RunContext, error: BaseException | None) -> None:
        """The verifier's processes and the engine end with the run. Of one that diverged, the last batch is kept."""
        try:
            if isinstance(error, Diverged) and run.backend.process_group.is_main_process:
                self.save_last(run.folder.path / "diverged.safetensors")
        finally:
            self.task.grader.close()
            (self.learner.queue or self.learner.engine).close()

    def save_last(self, path: Path) -> None:
        """The batch that the last update saw, to look at afterwards."""
        if self.learner.last is None:
            return
        rollouts, batch = self.learner.last
        tensors = {"prompts": rollouts.prompts, "responses": rollouts.responses, "logp_old": rollouts.logp_old}
        tensors |= {name: getattr(batch, name) for name in ("mask", "advantage", "weight", "tau", "mass", "group")}
        files.replace(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}))


class DataCallback(TrainerCallback):
    """Reports, and writes down, how many problems there are and what reading dropped, repaired or merged.

    Args:
        task, evaluation: of the run.
    """

    def __init__(self, task: MathTask, evaluation: Evaluation) -> None:
        self.task = task
        self.evaluation = evaluation

    def on_init_end(self, run: RunContext) -> None:
        """Write data.json; warn where problems of the evaluation are trained on."""
        if not run.backend.process_group.is_main_process:
            return
        problems, evaluation = self.task.problems, self.evaluation
        about = {
            "problems": problems.name,
            "train": len(problems.train),
            "held_out": len(problems.held_out),
            "counts": dict(problems.counts),
            "evaluation": evaluation.name,
            "evaluated": len(evaluation.problems),
        }
        files.replace(run.folder.path / "data.json", files.encode(about))
        if problems.counts:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in problems.counts.items())
            run.display.note(f"{problems.name}: {len(problems.train):,} problems to train on; {reasons} (data.json)")
        if evaluation.name == "held-out":  # another part of the same problems, without copies
            return
        texts = (problems.problem(int(number)).problem for number in problems.train)
        leaked = leaks(texts, (problem.problem for problem in evaluation.problems))
        if leaked:
            run.display.warn(
                f"{leaked} of {len(evaluation.problems)} problems of {evaluation.name} are trained on as well"
            )


class EvaluationCallback(TrainerCallback):
    """Evaluates during a run, each step once: one that is done already is read, not sampled again.

    Args:
        learner, task: of the run.
        evaluation: the fixed evaluation.
        last: step of the run; its evaluation is done before its checkpoint, whose card shows it.
        every: steps between evaluations, 0 for first and last only.
        process_group: evaluates together; the main process alone looks into the folder.
    """

    def __init__(
        self,
        learner: CausalLearner,
        task: MathTask,
        evaluation: Evaluation,
        last: int,
        every: int = 0,
        process_group: ProcessGroup = SINGLE,
    ) -> None:
        self.learner = learner
        self.task = task
        self.evaluation = evaluation
        self.last = last
        self.every = every
        self.process_group = process_group
        self.folder: RunFolder | None = None  # of the main process, once the run has begun
        self.display: Display | None = None

    def on_init_end(self, run: RunContext) -> None:
        """Where markers and records go."""
        self.folder, self.display = (run.folder if self.process_group.is_main_process else None), run.display

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Evaluate every k-th step and the last one."""
        if result.step == self.last or (self.every and result.step % self.every == 0):
            self.evaluate()

    def evaluate(self) -> dict[str, float | None]:
        """`pass_rate` and `reward` of the present policy. One that is done already is read, not drawn again."""
        step = self.learner.version
        marker = None if self.folder is None else self.folder.evaluations / f"{self.evaluation.name}-step-{step}.json"
        done = json.loads(marker.read_text())["scores"] if marker is not None and marker.exists() else None
        found: dict[str, float | None] | None = self.process_group.broadcast_object(done)
        if found is not None:
            return found
        answers = self.draw(None if marker is None else marker.with_suffix(".jsonl"))
        if step == 0:
            self.audit(answers[:AUDITED])
            self.report_routing()
        scores = self.scores(answers)
        if marker is not None:
            files.replace(marker, files.encode({"step": step, "scores": scores, "counts": counts(answers)}))
        return scores

    def draw(self, record: Path | None) -> list[Answered]:
        """All responses of the evaluation, with progress. Several processes write the record when it is complete."""
        self.learner.sync_weights()
        self.learner.engine.enter("rollout")
        clock = ProgressClock(self.display)
        answers = self.evaluation(
            self.learner.engine,
            record if self.process_group.size == 1 else None,  # a part of it would have to be known to all
            lambda done, total, tokens: clock.progress("evaluation", done, total, tokens),
        )
        if record is not None and self.process_group.size > 1:
            record.unlink(missing_ok=True)
            append(record, answers)
        return answers

    def scores(self, answers: list[Answered]) -> dict[str, float | None]:
        """Pass rate and mean reward; a response without a verdict is in neither."""
        verdicts = [answer.verdict for answer in answers if answer.verdict.scored]
        if not verdicts:
            return {"pass_rate": None, "reward": None}
        values = [verdict.value for verdict in verdicts if verdict.value is not None]
        low, high = self.task.low, self.task.high
        return {
            "pass_rate": sum(verdict.correct is True for verdict in verdicts) / len(verdicts),
            "reward": low + (high - low) * sum(values) / len(values),
        }

    def audit(self, answers: list[Answered]) -> None:
        """Show what the verifier decides, for a person to look over before a long run."""
        if self.folder is None or self.display is None:
            return
        golds = {problem.id: problem.answer for problem in self.evaluation.problems}
        items = [Item(answer.response, golds[answer.id], not answer.ended) for answer in answers]
        rows = audit(items, [answer.verdict for answer in answers])
        files.replace(self.folder.path / "audit.json", files.encode(rows))
        self.display.note(f"what the verifier decided on the first {len(items)} answers (audit.json):")
        for row in rows:
            self.display.note(f"  {row['count']:4d} {row['outcome']:8s} by {row['path']}: {shown(row['examples'][0])}")

    def report_routing(self) -> None:
        """Of a mixture of experts: how often the engine sends a token to other experts than the trainer."""
        shared = self.learner.engine
        if not isinstance(shared, DistributedEngine):
            return
        check, config = shared.sync_check, self.learner.model.config.get_text_config()
        if check is None or self.display is None or not getattr(config, "num_experts_per_tok", None):
            return
        from pmdkit.llm.engines.vllm.colocate import ColocatedEngine
        from pmdkit.llm.engines.vllm.outputs import routing_mismatch

        if self.process_group.size > 1 or not isinstance(shared.engine, ColocatedEngine):
            self.display.note(
                "how often the engine takes other experts than the trainer is measured in one process only"
            )
            return
        try:
            share = routing_mismatch(shared.engine, self.learner.model, check.prompts, check.responses)
        except EnvironmentLacks as reason:
            self.display.note(f"how often the engine takes other experts than the trainer is not measured: {reason}")
            return
        self.display.note(
            f"the engine sends {share:.2%} of fixed tokens to other experts than the trainer, over all layers"
        )

    def finished(self) -> list[tuple[int, float]]:
        """Step and pass rate of the evaluations on disk, oldest first."""
        if self.folder is None:
            return []
        found = [
            json.loads(path.read_text()) for path in self.folder.evaluations.glob(f"{self.evaluation.name}-*.json")
        ]
        done = [(entry["step"], entry["scores"]["pass_rate"]) for entry in found]
        return sorted((step, rate) for step, rate in done if step <= self.learner.version and rate is not None)


class ResponsesCallback(TrainerCallback):
    """Writes every response of every k-th step as text, with its verdict and reward, to rollouts/step-N.jsonl.

    Args:
        task: of the run; remembers the verdicts of its last step.
        every: k.
    """

    def __init__(self, task: MathTask, every: int) -> None:
        self.task = task
        self.every = every

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Record the step if it is its turn."""
        if run.backend.process_group.is_main_process and result.step % self.every == 0:
            self.record(run.folder.rollouts / f"step-{result.step}.jsonl", result.rollouts, result.groups)

    def record(self, path: Path, rollouts: Rollouts, groups: Groups) -> None:
        """Every response of a step as text, with its verdict and reward."""
        assert self.task.last is not None
        size = rollouts.mass.shape[1]
        numbers, lengths = rollouts.prompts.tolist(), rollouts.mask.sum(1).tolist()
        rewards = groups.reward.flatten().tolist()
        lines = []
        for n, (item, verdict) in enumerate(zip(self.task.last.items, self.task.last.verdicts, strict=True)):
            problem = self.task.problems.problem(numbers[n // size])
            lines.append(
                {
                    "id": problem.id,
                    "k": n % size,
                    "problem": problem.problem,
                    "answer": problem.answer,
                    "response": item.response,
                    "tokens": lengths[n],
                    "reward": rewards[n] if verdict.scored else None,
                    "extracted": verdict.extracted,
                    "path": verdict.path,
                    "reason": verdict.reason,
                }
            )
        files.make_folder(path.parent)
        files.replace(path, b"".join(json.dumps(line).encode() + b"\n" for line in lines))


CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [pmdkit, reinforcement-learning, policy-mirror-descent]
---

# {name}, step {step}

A `{architecture}` of {weights:,} weights, trained from {origin} with the objective `{objective}` on `{env}`.

| | |
|---|---|
| Objective | {options} |
| Rewards | {scale}, graded by `{grade}` |
| Schedule | step {step} of {steps}: {prompts} prompts x {group} responses, {ministeps} ministeps, learning rate {lr} |
| Responses | at most {width} tokens, temperature {temperature} |
| Seed | {seed} |

{measured}

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")
```

The rewards say nothing about how the model behaves elsewhere. `pmdkit eval` measures it with intervals.
"""


class ModelFilesCallback(TrainerCallback):
    """Adds config, tokenizer and model card to each checkpoint, which makes it a folder that transformers loads.

    Args:
        spec: of the run.
        model, tokenizer: whose configuration does not change while weights do.
        evaluations: what has been measured.
    """

    def __init__(
        self, spec: Spec, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, evaluations: EvaluationCallback
    ) -> None:
        self.spec = spec
        self.model = model
        self.evaluations = evaluations
        self.tokenizer = tokenizer

    @cached_property
    def fixed(self) -> dict[str, bytes]:
        """The files that no step changes, made in the run's folder: what a kill leaves there is found again."""
        if self.evaluations.folder is None:  # of a field test, which has no run
            with tempfile.TemporaryDirectory() as folder:
                return self.saved(Path(folder))
        place = self.evaluations.folder.path / ".beside.part"
        shutil.rmtree(place, ignore_errors=True)
        found = self.saved(place)
        shutil.rmtree(place)
        return found

    def saved(self, folder: Path) -> dict[str, bytes]:
        """What transformers writes to a folder."""
        self.model.config.save_pretrained(folder)
        if self.model.generation_config is not None:
            self.model.generation_config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}

    def on_save(self, run: RunContext, extra_files: dict[str, bytes]) -> None:
        """The files of the present step."""
        extra_files.update(self.files())

    def files(self) -> dict[str, bytes]:
        """Config, tokenizer and card as bytes, by file name."""
        return {**self.fixed, "README.md": self.card().encode()}

    def card(self) -> str:
        """What the model is, where it comes from and what was measured of it."""
        spec, schedule = self.spec, self.spec.schedule
        options = ", ".join(f"{key} = {value}" for key, value in spec.objective.items() if key != "name")
        origin = getattr(spec.model, "path", None) or f"nothing (`{getattr(spec.model, 'build', '')}`)"
        return CARD.format(
            name=spec.name,
            step=self.evaluations.learner.version,
            architecture=type(self.model).__name__,
            weights=sum(w.numel() for name, w in self.model.named_parameters() if ".lora_" not in name),
            origin=origin,
            objective=spec.objective["name"],
            env=spec.env["kind"],
            options=options,
            scale=spec.reward.scale if spec.reward else "",
            grade=spec.reward.grade if spec.reward else "",
            steps=schedule.steps,
            prompts=schedule.prompts,
            group=schedule.group,
            ministeps=schedule.ministeps,
            lr=schedule.lr,
            width=spec.rollout.width if spec.rollout else "",
            temperature=spec.rollout.temperature if spec.rollout else "",
            seed=spec.run.seed,
            measured=self.measured(),
        )

    def measured(self) -> str:
        """The evaluations that exist, oldest first."""
        rows = self.evaluations.finished()
        if not rows:
            return "Not evaluated yet."
        lines = [f"| {step} | {rate:.4f} |" for step, rate in rows]
        about = f"{len(self.evaluations.evaluation.problems)} problems ({self.evaluations.evaluation.name})"
        return f"Pass rate on {about}:\n\n| step | pass rate |\n|---|---|\n" + "\n".join(lines)


def llm_columns(learner: CausalLearner, task: MathTask, rollouts: Rollouts, groups: Groups) -> dict[str, Any]:
    """Columns of metrics.jsonl that only this tier has."""
    assert task.last is not None
    tokens = int(rollouts.mask.sum())
    logp_old = rollouts.logp_old[rollouts.mask].double().sum().item()
    return {
        "token_entropy": -logp_old / tokens,
        "unscored": sum(not verdict.scored for verdict in task.last.verdicts),
        "unanswered": sum(verdict.path == "none" for verdict in task.last.verdicts),
        "cut_off": sum(item.truncated for item in task.last.items),
        "skipped_groups": int((~groups.scored).sum()),
        **learner.mismatch,
        **learner.found,
        "engine_restarts": learner.engine.restarts if isinstance(learner.engine, DistributedEngine) else 0,
    }


def step_extras(
    learner: CausalLearner, task: MathTask, passed: float, metrics: StepMetrics, rollouts: Rollouts
) -> StepExtras:
    """What a recorded step holds of this tier: prompts as tokens and by name, and who computed its pi_old."""
    prompts = learner.prompt_tokens(rollouts.prompts)
    tensors = {
        "prompt_tokens": torch.tensor([token for prompt in prompts for token in prompt]),
        "prompt_length": torch.tensor([len(prompt) for prompt in prompts]),
        "logp_engine": learner.logp_engine,
        "logp_after": metrics.logp_after,
    }
    facts = {
        "passed": passed,
        "problems": [task.problems.problem(number).id for number in rollouts.prompts.tolist()],
        "old": learner.old,
    }
    return StepExtras(facts, tensors)


def shown(example: Mapping[str, str]) -> str:
    """One example of the audit in a line."""
    return f"said {example['said']!r} for {example['gold']!r}, {example['reason']}"


def counts(answers: list[Answered]) -> dict[str, int]:
    """What kinds of outcomes an evaluation had."""
    return {
        "responses": len(answers),
        "right": sum(answer.verdict.correct is True for answer in answers),
        "unscored": sum(not answer.verdict.scored for answer in answers),
        "cut_off": sum(not answer.ended for answer in answers),
        "tokens": sum(answer.tokens for answer in answers),
    }


class ProgressClock:
    """Shows how fast a phase is and how long it will take.

    Args:
        display: where; nowhere if it is None.
    """

    def __init__(self, display: Display | None) -> None:
        self.display = display
        self.what = ""
        self.began = 0.0

    def progress(self, what: str, done: float, total: float, tokens: int) -> None:
        """So much of a phase is done, with so many tokens written."""
        if self.display is None:
            return
        now = time.monotonic()
        if what != self.what or done == 0 == tokens:
            self.what, self.began = what, now
        spent = now - self.began
        words = []
        if tokens and spent > 0.1:
            words.append(f"{tokens:,} tokens, {tokens / spent:,.0f} per second")
        if 0 < done < total:
            words.append(f"{spent * (total - done) / done:.0f} s left")
        self.display.work(what, done, total, ", ".join(words))
