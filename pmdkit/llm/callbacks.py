"""Callbacks of a language-model run, in the order in which the run meets them.

First come the resources that it starts and stops: verifier, engine, progress display. Then come its records of data and
steps, the evaluations, which an interruption does not repeat, and the files that let transformers load a checkpoint.
"""

import json
import shutil
import tempfile
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from pmdkit import foreign
from pmdkit.config import Spec
from pmdkit.distributed import SINGLE
from pmdkit.envs.math.problem import leaks
from pmdkit.errors import Diverged, EnvironmentLacks
from pmdkit.llm.evaluate import Answered, Evaluation, append
from pmdkit.llm.export import export
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.task import MathTask
from pmdkit.llm.turns import gauges
from pmdkit.loop import Rollouts
from pmdkit.objectives import Groups
from pmdkit.observe import console, files, metrics, run_folder
from pmdkit.recording import StepExtras
from pmdkit.trainer import Display, RunContext, StepResult, TrainerCallback
from strict_answers import Item, audit, pool

AUDITED = 200  # answers
COMPLETIONS = ("problem", "response", "answer", "extracted", "reward", "reason")
"Columns of the table of a step's first SHOWN responses that trackers get."
SHOWN = 32


class ResourcesCallback(TrainerCallback):
    """What a run uses besides its learner: problems, the verifier's processes, the engine and the display."""

    def __init__(self, learner: CausalLearner, task: MathTask, evaluation: Evaluation) -> None:
        self.learner = learner
        self.task = task
        self.evaluation = evaluation

    def on_init_end(self, run: RunContext) -> None:
        """Set where verdicts are recorded and where progress and warnings are shown; report the problems."""
        self.task.grader.journal = pool.VerdictJournal(run.folder.path / "verdicts.jsonl")
        if self.task.rewards is not None:
            self.task.rewards.keep_verdicts(self.task.grader.journal)
        if type(run.display) is not console.SilentDisplay:  # its subclasses show something
            self.learner.report = ProgressClock(run.display).progress
        self.learner.warn = self.learner.engine.warn = run.display.warn
        if run.backend.process_group.is_main_process:
            self.report_problems(run.folder.path / "data.json", run.display)

    def on_train_end(self, run: RunContext, error: BaseException | None) -> None:
        """Close the verifier's processes and the engine. If the run diverged, keep its last batch."""
        try:
            if isinstance(error, Diverged) and run.backend.process_group.is_main_process:
                self.save_last(run.folder.path / "diverged.safetensors")
        finally:
            self.task.grader.close()
            if self.task.rewards is not None:
                self.task.rewards.close()
            (self.learner.queue or self.learner.engine).close()

    def report_problems(self, path: Path, display: Display) -> None:
        """Report the problems, and what reading dropped, repaired or merged; warn if evaluated ones are trained on."""
        problems, evaluation = self.task.problems, self.evaluation
        about = {
            "problems": problems.name,
            "train": len(problems.train),
            "held_out": len(problems.held_out),
            "counts": dict(problems.counts),
            "evaluation": evaluation.name,
            "evaluated": len(evaluation.problems),
        }
        files.replace(path, files.encode(about))
        if problems.counts:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in problems.counts.items())
            display.note(f"{problems.name}: {len(problems.train):,} problems to train on; {reasons} (data.json)")
        if evaluation.name == "held-out":  # another part of the same problems, without copies
            return
        texts = (problems.problem(int(number)).problem for number in problems.train)
        leaked = leaks(texts, (problem.problem for problem in evaluation.problems))
        if leaked:
            display.warn(f"{leaked} of {len(evaluation.problems)} problems of {evaluation.name} are also trained on")

    def save_last(self, path: Path) -> None:
        """Save the batch that the last update saw, for inspection."""
        if self.learner.last is None:
            return
        rollouts, batch = self.learner.last
        tensors = {"prompts": rollouts.prompts, "responses": rollouts.responses, "logp_old": rollouts.logp_old}
        tensors |= {name: getattr(batch, name) for name in ("mask", "advantage", "weight", "tau", "mass", "group")}
        files.replace(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}))


class ProgressClock:
    """Shows how fast a phase is and how long it will take; without a display it does nothing."""

    def __init__(self, display: Display | None) -> None:
        self.display = display
        self.what = ""
        self.began = 0.0

    def progress(self, what: str, done: float, total: float, tokens: int) -> None:
        """Show how much of a phase is done, with how many tokens written."""
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
        **({} if task.rewards is None else task.rewards.columns(task.last.verdicts)),
        **task.sampling,
        **({} if rollouts.episodes is None else gauges(rollouts.episodes, int(rollouts.extent.sum()) - tokens)),
        **learner.mismatch,
        **learner.found,
        "engine_restarts": learner.engine.restarts,
    }


def step_extras(
    learner: CausalLearner, task: MathTask, passed: float, measured: metrics.StepMetrics, rollouts: Rollouts
) -> StepExtras:
    """What this tier adds to a recorded step: prompts as tokens and by id, and who computed its pi_old."""
    prompts = learner.prompt_tokens(rollouts.prompts)
    tensors = {
        "prompt_tokens": torch.tensor([token for prompt in prompts for token in prompt]),
        "prompt_length": torch.tensor([len(prompt) for prompt in prompts]),
        "logp_engine": learner.logp_engine,
        "logp_after": measured.logp_after,
        "episode": None if rollouts.episodes is None else rollouts.responses,  # others: masked tokens only
    }
    facts = {
        "passed": passed,
        "problems": [task.problems.problem(number).id for number in rollouts.prompts.tolist()],
        "old": learner.old,
    }
    return StepExtras(facts, tensors)


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
            run.reporters.log_table(result.step, "completions", shown)

    def record(self, path: Path, rollouts: Rollouts, groups: Groups) -> list[dict[str, Any]]:
        """Write every response of a step as text, with its verdict and reward; returns the lines."""
        assert self.task.last is not None
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

    Args:
        learner, task: of the run.
        evaluation: the fixed evaluation.
        every: steps between evaluations; 0 for the first and last only.
    """

    def __init__(self, learner: CausalLearner, task: MathTask, evaluation: Evaluation, every: int = 0) -> None:
        self.learner = learner
        self.task = task
        self.evaluation = evaluation
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
            self.report_routing()
        scores = self.scores(answers)
        if marker is not None:
            counts = {
                "responses": len(answers),
                "right": sum(answer.verdict.correct is True for answer in answers),
                "unscored": sum(not answer.verdict.scored for answer in answers),
                "cut_off": sum(not answer.ended for answer in answers),
                "tokens": sum(answer.tokens for answer in answers),
            }
            files.replace(marker, files.encode({"step": step, "scores": scores, "counts": counts}))
        return scores

    def draw(self, record: Path | None) -> list[Answered]:
        """All responses of the evaluation, with progress. With several processes, only a complete record is written."""
        self.learner.sync_weights()
        self.learner.engine.enter("rollout")
        clock = ProgressClock(self.display)
        answers = self.evaluation(
            self.learner.engine,
            record if self.process_group.size == 1 else None,  # every process would have to know a partial one
            lambda done, total, tokens: clock.progress("evaluation", done, total, tokens),
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

    def report_routing(self) -> None:
        """Report, for a mixture of experts, how often the engine sends a token to other experts than the trainer."""
        check, config = self.learner.engine.sync_check, self.learner.model.config.get_text_config()
        if check is None or self.display is None or not getattr(config, "num_experts_per_tok", None):
            return
        from pmdkit.llm.engines.vllm.colocate import ColocatedEngine
        from pmdkit.llm.engines.vllm.outputs import routing_mismatch

        about = "the share of tokens that the engine sends to other experts than the trainer is"
        engine = getattr(self.learner.engine, "engine", None)  # this process's own
        if self.process_group.size > 1 or not isinstance(engine, ColocatedEngine):
            self.display.note(f"{about} measured in one process only")
            return
        try:
            share = routing_mismatch(engine, self.learner.model, check.prompts, check.responses)
        except EnvironmentLacks as reason:
            self.display.note(f"{about} not measured: {reason}")
            return
        self.display.note(
            f"the engine sends {share:.2%} of fixed tokens to other experts than the trainer, over all layers"
        )

    def finished(self) -> list[tuple[int, float]]:
        """Step and pass rate of the evaluations on disk, oldest first."""
        if self.folder is None:
            return []
        paths = self.folder.evaluations.glob(f"{self.evaluation.name}-*.json")
        found = [read_scores(path) for path in paths]
        done = [(entry["step"], entry["scores"]["pass_rate"]) for entry in found]
        return sorted((step, rate) for step, rate in done if step <= self.learner.version and rate is not None)


def read_scores(path: Path) -> dict[str, Any]:
    """Step and scores of a finished evaluation."""
    advice = "delete the file, and the evaluation is repeated"
    found = foreign.check_fields(
        foreign.read_json(path, advice=advice), {"step": foreign.is_count, "scores": foreign.is_table}, path, advice
    )
    rates = dict.fromkeys(("pass_rate", "reward"), foreign.none_or(foreign.is_number))
    foreign.check_fields(found["scores"], rates, path, advice)
    return found


CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [pmdkit, reinforcement-learning, policy-mirror-descent]
---

# {spec.name}, step {step}

A `{architecture}` of {weights:,} weights, trained from {origin} \
with the objective `{spec.objective[name]}` on `{spec.env[kind]}`.

| | |
|---|---|
| Objective | {options} |
| Rewards | {spec.reward.scale}, graded by {graders} |
| Schedule | step {step} of {schedule.steps}: {schedule.prompts} prompts x {schedule.group} responses, \
{schedule.ministeps} ministeps, learning rate {schedule.lr} |
| Responses | at most {spec.rollout.width} tokens, temperature {spec.rollout.temperature} |
| Seed | {spec.run.seed} |

{measured}

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")
```

The rewards say nothing about how the model behaves elsewhere. `pmdkit eval` measures it with intervals.
"""


class BestModelCallback(TrainerCallback):
    """Keeps the model with the best evaluation in the run's best/ folder, whatever happens to the checkpoints.

    transformers loads the folder, which has best.json beside the weights; it is no checkpoint: a run cannot resume
    from it. Among equal evaluations the first wins, step 0 included, so nothing is written until the run improves.

    Args:
        evaluations: must precede this one in the list of callbacks.
        model_files: config, tokenizer and card.
    """

    def __init__(self, evaluations: EvaluationCallback, model_files: "ModelFilesCallback") -> None:
        self.evaluations = evaluations
        self.model_files = model_files

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Compare the step's evaluation, if there was one, with all before it; the main process decides."""
        rates = dict(self.evaluations.finished())
        rate = rates.pop(result.step, None)
        better = rate is not None and all(rate > earlier for earlier in rates.values())
        group, place = run.backend.process_group, run.folder.path / "best"
        if not group.broadcast_object(better):
            return
        aside, old = place.with_name(".best.part"), place.with_name(".best.old")
        if group.is_main_process:
            files.remove(aside)
            files.make_folder(aside)
        self.evaluations.learner.save_pretrained(aside)  # all processes gather the weights together
        if group.is_main_process:
            for name, data in self.model_files.files().items():
                files.replace(aside / name, data)
            files.replace(aside / "best.json", files.encode({"step": result.step, "pass_rate": rate}))
            files.remove(old)
            if place.exists():
                place.rename(old)
            aside.rename(place)
            files.remove(old)


class ModelFilesCallback(TrainerCallback):
    """Adds config, tokenizer and model card to each checkpoint, so that transformers can load the folder.

    Args:
        spec: of the run.
        evaluations: for the measurements and the learner, whose configuration stays the same while weights change.
    """

    def __init__(self, spec: Spec, evaluations: EvaluationCallback) -> None:
        self.spec = spec
        self.evaluations = evaluations
        self.learner = evaluations.learner

    @cached_property
    def fixed(self) -> dict[str, bytes]:
        """The files that no step changes, made in the run's folder, where the next call removes leftovers of a kill."""
        if self.evaluations.folder is None:  # in a field test, which has no run
            with tempfile.TemporaryDirectory() as folder:
                return self.saved(Path(folder))
        place = self.evaluations.folder.path / ".beside.part"
        shutil.rmtree(place, ignore_errors=True)
        found = self.saved(place)
        shutil.rmtree(place)
        return found

    def saved(self, folder: Path) -> dict[str, bytes]:
        """The files that transformers writes to a folder."""
        model = self.learner.model
        model.config.save_pretrained(folder)
        if model.generation_config is not None:
            model.generation_config.save_pretrained(folder)
        self.learner.tokenizer.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}

    def on_save(self, run: RunContext, extra_files: dict[str, bytes]) -> None:
        """Add the files of the current step."""
        extra_files.update(self.files())

    def on_train_end(self, run: RunContext, error: BaseException | None) -> None:
        """Merge the shards of several processes into the run's model/ folder; one process writes whole checkpoints."""
        group, last = run.backend.process_group, run.folder.checkpoints / f"step-{self.learner.version}"
        if error is None and group.size > 1 and group.is_main_process and last.is_dir():
            export(last, run.folder.path / "model")

    def files(self) -> dict[str, bytes]:
        """Config, tokenizer and card as bytes, by file name."""
        return {**self.fixed, "README.md": self.card().encode()}

    def card(self) -> str:
        """The model card: what the model is, where it comes from and how it was evaluated."""
        spec, model = self.spec, self.learner.model
        assert spec.reward is not None
        options = ", ".join(f"{key} = {value}" for key, value in spec.objective.items() if key != "name")
        origin = getattr(spec.model, "path", None) or f"scratch (`{getattr(spec.model, 'build', '')}`)"
        return CARD.format(
            spec=spec,
            schedule=spec.schedule,
            step=self.learner.version,
            architecture=type(model).__name__,
            weights=sum(weight.numel() for name, weight in model.named_parameters() if ".lora_" not in name),
            origin=origin,
            options=options,
            graders=" and ".join(f"`{term.grade}`" for term in (spec.reward, *spec.reward.others)),
            measured=self.measured(),
        )

    def measured(self) -> str:
        """The finished evaluations as a table, oldest first."""
        rows = self.evaluations.finished()
        if not rows:
            return "Not evaluated yet."
        lines = [f"| {step} | {rate:.4f} |" for step, rate in rows]
        about = f"{len(self.evaluations.evaluation.problems)} problems ({self.evaluations.evaluation.name})"
        return f"Pass rate on {about}:\n\n| step | pass rate |\n|---|---|\n" + "\n".join(lines)
