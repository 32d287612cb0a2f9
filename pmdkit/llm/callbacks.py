"""Callbacks of a run on a language model: progress, resources, problems, responses, evaluations, model files."""

import json
import tempfile
import time
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors.torch import save

from pmdkit import foreign
from pmdkit.distributed import SINGLE
from pmdkit.envs.math.problem import leaks
from pmdkit.envs.math_answers import open_journal
from pmdkit.fit import Display, RunContext, StepResult, TrainerCallback
from pmdkit.llm.evaluate import Answered, Evaluation, append
from pmdkit.llm.learner import CausalLearner, Report, UpdateDiverged
from pmdkit.llm.task import MathTask
from pmdkit.loop import Rollouts
from pmdkit.objectives import Groups
from pmdkit.observe import files, run_folder
from pmdkit.specs import LLMSpec
from strict_answers import Item, audit

COMPLETIONS = ("problem", "response", "answer", "extracted", "reward", "reason")
"Columns of the table of a step's first SHOWN responses that trackers get."
SHOWN = 32
AUDITED = 200  # answers
CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [pmdkit, reinforcement-learning, policy-mirror-descent]
---

# {spec.name}, step {step}

A `{architecture}` of {weights:,} weights, trained from {origin} \
with the objective `{spec.objective[name]}` on `{spec.env[kind]}`.

- Objective: {options}
- Rewards: {spec.reward.scale}, graded by {graders}
- Schedule: step {step} of {schedule.steps}: {schedule.prompts} prompts x {schedule.group} responses, \
{schedule.ministeps} ministeps, learning rate {schedule.lr}, seed {spec.run.seed}
- Responses: at most {spec.rollout.width} tokens, temperature {spec.rollout.temperature}

{measured}

The rewards say nothing about how the model behaves elsewhere. `pmdkit eval` measures it with intervals.
"""


class ProgressCallback(TrainerCallback):
    """Shows how fast a phase is and how long it will take; without a display it does nothing.

    The learner and the evaluation get its method `progress` before the run, and with it the display, exists.
    """

    def __init__(self) -> None:
        self.display: Display | None = None
        self.phase = ""
        self.began = 0.0

    def on_init_end(self, run: RunContext) -> None:
        """Use the display of the run, if it shows anything."""
        if type(run.display) is not Display:  # its subclasses show something
            self.display = run.display

    def progress(self, phase: str, done: float, total: float, tokens: int) -> None:
        """Show how much of a phase is done, with how many tokens written."""
        if self.display is None:
            return
        now = time.monotonic()
        if phase != self.phase or done == 0 == tokens:
            self.phase, self.began = phase, now
        spent = now - self.began
        words = []
        if tokens and spent > 0.1:
            words.append(f"{tokens:,} tokens, {tokens / spent:,.0f} per second")
        if 0 < done < total:
            words.append(f"{spent * (total - done) / done:.0f} s left")
        self.display.work(phase, done, total, ", ".join(words))


class ResourcesCallback(TrainerCallback):
    """Opens the journal of verdicts, and closes the verifier's processes and the engine."""

    def __init__(self, learner: CausalLearner, task: MathTask) -> None:
        self.learner = learner
        self.task = task

    def on_init_end(self, run: RunContext) -> None:
        """Set where verdicts are recorded."""
        self.task.grader.journal = open_journal(run.folder.path / "verdicts.jsonl")
        if self.task.rewards is not None:
            self.task.rewards.keep_verdicts(self.task.grader.journal)

    def on_train_end(self, run: RunContext, error: BaseException | None) -> None:
        """Close them. If an update diverged, keep its batch in diverged.safetensors, for inspection."""
        try:
            if isinstance(error, UpdateDiverged) and run.backend.process_group.is_main_process:
                rollouts, batch = error.rollouts, error.batch
                tensors = {"prompts": rollouts.prompts, "responses": rollouts.responses, "logp_old": rollouts.logp_old}
                tensors |= {
                    name: getattr(batch, name) for name in ("mask", "advantage", "weight", "tau", "mass", "group")
                }
                path = run.folder.path / "diverged.safetensors"
                files.replace(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}))
        finally:
            self.task.grader.close()
            if self.task.rewards is not None:
                self.task.rewards.close()
            (self.learner.queue or self.learner.engine).close()


class ProblemsCallback(TrainerCallback):
    """Reports the problems, and what reading dropped, repaired or merged; warns if evaluated ones are trained on."""

    def __init__(self, task: MathTask, evaluation: Evaluation) -> None:
        self.task = task
        self.evaluation = evaluation

    def on_init_end(self, run: RunContext) -> None:
        """Write data.json, and show its counts."""
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
                f"{leaked} of {len(evaluation.problems)} problems of {evaluation.name} are also trained on"
            )


class ResponsesCallback(TrainerCallback):
    """Writes every response of every k-th step as text, with its verdict and reward, to rollouts/step-N.jsonl."""

    def __init__(self, task: MathTask, every: int) -> None:
        self.task = task
        self.every = every

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Record the step if it is due."""
        if run.backend.process_group.is_main_process and result.step % self.every == 0:
            path = run.folder.rollouts / f"step-{result.step}.jsonl"
            lines = self.record(path, result.rollouts, result.groups)
            shown = [{key: line[key] for key in COMPLETIONS} for line in lines[:SHOWN]]
            if run.reporters is not None:
                run.reporters.log_table(result.step, "completions", shown)

    def record(self, path: Path, rollouts: Rollouts, groups: Groups) -> list[dict[str, Any]]:
        """Write every response of a step; returns the lines."""
        size = rollouts.mass.shape[1]
        numbers, lengths = rollouts.prompts.tolist(), rollouts.mask.sum(1).tolist()
        rewards, parts = groups.reward.flatten().tolist(), self.task.rewards
        lines = []
        for n, (item, verdict) in enumerate(zip(self.task.last.items, self.task.last.verdicts, strict=True)):
            problem = self.task.problems.problem(numbers[n // size])
            line = {
                "id": problem.id,
                "k": n % size,
                "problem": problem.problem,
                "answer": problem.answer,
                "response": item.response,
                **({} if rollouts.episodes is None else {"messages": rollouts.episodes[n].messages}),
                "tokens": lengths[n],
                "reward": rewards[n] if verdict.scored and groups.present.view(-1)[n] else None,
                **({} if parts is None else {"cut_off": item.truncated, "rewards": parts.of_response(n)}),
                "extracted": verdict.extracted,
                "path": verdict.path,
                "reason": verdict.reason,
            }
            lines.append(line)
        files.make_folder(path.parent)
        files.replace(path, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        return lines


class EvaluationCallback(TrainerCallback):
    """Evaluates during a run, each step once: a finished evaluation is read from disk, not drawn again.

    `every` is in steps between evaluations; 0 for the first and last only.
    """

    def __init__(
        self, learner: CausalLearner, task: MathTask, evaluation: Evaluation, progress: Report, every: int = 0
    ) -> None:
        self.learner = learner
        self.task = task
        self.evaluation = evaluation
        self.progress = progress
        self.every = every
        self.process_group = SINGLE
        self.folder: run_folder.RunFolder | None = None  # in the main process, once the run has begun
        self.display: Display | None = None

    def on_init_end(self, run: RunContext) -> None:
        """All processes evaluate together; only the main one uses the run's folder."""
        self.process_group, self.display = run.backend.process_group, run.display
        self.folder = run.folder if self.process_group.is_main_process else None

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Evaluate every k-th step and the last one, before the checkpoint is saved, whose card shows the result."""
        last = run.backend.schedule.steps
        if result.step == last or (self.every and result.step % self.every == 0):
            self.evaluate()

    def evaluate(self) -> dict[str, float | None]:
        """`pass_rate` and `reward` of the current policy. A finished evaluation is read, not drawn again."""
        step = self.learner.version
        marker = None if self.folder is None else self.folder.evaluations / f"{self.evaluation.name}-step-{step}.json"
        done = read_scores(marker)["scores"] if marker is not None and marker.exists() else None
        found: dict[str, float | None] | None = self.process_group.broadcast_object(done)
        if found is not None:
            return found
        answers = self.draw(None if marker is None else marker.with_suffix(".jsonl"))
        if step == 0:
            self.audit(answers[:AUDITED])
        scores = self.scores(answers)
        if marker is not None:
            files.replace(marker, files.encode({"step": step, "scores": scores}))
        return scores

    def draw(self, record: Path | None) -> list[Answered]:
        """All responses of the evaluation, with progress. With several processes, only a complete record is written."""
        self.learner.sync_weights()
        self.learner.engine.enter("rollout")
        answers = self.evaluation(
            self.learner.engine,
            record if self.process_group.size == 1 else None,  # every process would have to know a partial one
            lambda done, total, tokens: self.progress("evaluation", done, total, tokens),
        )
        if record is not None and self.process_group.size > 1:
            record.unlink(missing_ok=True)
            append(record, answers)
        return answers

    def scores(self, answers: list[Answered]) -> dict[str, float | None]:
        """Pass rate and mean reward; a response without a verdict counts in neither."""
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
        """Show what the verifier decides, for a person to check before a long run."""
        if self.folder is None or self.display is None:
            return
        golds = {problem.id: problem.answer for problem in self.evaluation.problems}
        items = [Item(answer.response, golds[answer.id], not answer.ended) for answer in answers]
        rows = audit(items, [answer.verdict for answer in answers])
        files.replace(self.folder.path / "audit.json", files.encode(rows))
        self.display.note(f"what the verifier decided on the first {len(items)} answers (audit.json):")
        for row in rows:
            example = row["examples"][0]
            decided = f"{row['count']:4d} {row['outcome']:8s} by {row['path']}"
            self.display.note(f"  {decided}: said {example['said']!r} for {example['gold']!r}, {example['reason']}")

    def finished(self) -> dict[int, float]:
        """The pass rate of each evaluation on disk, by its step, oldest first."""
        paths = [] if self.folder is None else self.folder.evaluations.glob(f"{self.evaluation.name}-*.json")
        rates = {found["step"]: found["scores"]["pass_rate"] for found in map(read_scores, paths)}
        return {step: rates[step] for step in sorted(rates) if step <= self.learner.version and rates[step] is not None}


def read_scores(path: Path) -> dict[str, Any]:
    """Step and scores of a finished evaluation."""
    advice = "delete the file, and the evaluation is repeated"
    found = foreign.check_fields(
        foreign.read_json(path, advice=advice), {"step": foreign.is_count, "scores": foreign.is_table}, path, advice
    )
    rates = dict.fromkeys(("pass_rate", "reward"), foreign.none_or(foreign.is_number))
    foreign.check_fields(found["scores"], rates, path, advice)
    return found


class ModelFilesCallback(TrainerCallback):
    """Adds config, tokenizer and model card to each checkpoint, so that transformers can load the folder."""

    def __init__(self, spec: LLMSpec, evaluations: EvaluationCallback) -> None:
        self.spec = spec
        self.evaluations = evaluations
        self.learner = evaluations.learner

    @cached_property
    def fixed(self) -> dict[str, bytes]:
        """The files that no step changes, as transformers writes them to a folder."""
        model = self.learner.model
        with tempfile.TemporaryDirectory() as folder:
            model.config.save_pretrained(folder)
            if model.generation_config is not None:
                model.generation_config.save_pretrained(folder)
            self.learner.tokenizer.save_pretrained(folder)
            return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.is_file()}

    def on_save(self, run: RunContext, extra_files: dict[str, bytes]) -> None:
        """Add the files of the current step."""
        extra_files.update(self.files())

    def files(self) -> dict[str, bytes]:
        """Config, tokenizer and card as bytes, by file name."""
        return {**self.fixed, "README.md": self.card().encode()}

    def card(self) -> str:
        """The model card: what the model is, where it comes from and how it was evaluated, oldest first."""
        spec, model, evaluation = self.spec, self.learner.model, self.evaluations.evaluation
        rates = self.evaluations.finished()
        table = [f"Pass rate on {len(evaluation.problems)} problems ({evaluation.name}):\n", "| step | pass rate |"]
        table += ["|---|---|", *(f"| {step} | {rate:.4f} |" for step, rate in rates.items())]
        return CARD.format(
            spec=spec,
            schedule=spec.schedule,
            step=self.learner.version,
            architecture=type(model).__name__,
            weights=sum(weight.numel() for name, weight in model.named_parameters() if ".lora_" not in name),
            origin=spec.model.path or f"scratch (`{spec.model.build}`)",
            options=", ".join(f"{key} = {value}" for key, value in spec.objective.items() if key != "name"),
            graders=" and ".join(f"`{term.grade}`" for term in (spec.reward, *spec.reward.others)),
            measured="\n".join(table) if rates else "Not evaluated yet.",
        )
