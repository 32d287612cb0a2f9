"""What a run on a language model does besides its steps: evaluations with a done-marker, and records of responses."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save

from pmdkit.envs.math.leaks import leaks
from pmdkit.envs.math_answers import Item, audit
from pmdkit.envs.math_answers.journal import Journal
from pmdkit.errors import Diverged, EnvironmentLacks
from pmdkit.learner import Learner, Rollouts
from pmdkit.llm.evaluate import Answered, Evaluation, append
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.task import MathTask
from pmdkit.objectives import Groups
from pmdkit.objectives.vocabulary import Batch
from pmdkit.observe import files
from pmdkit.observe.folder import RunFolder
from pmdkit.session import Display
from pmdkit.team import ALONE, Team

AUDITED = 200  # answers


class Stages:
    """Lives as long as a run.

    Args:
        learner, task: of the run.
        evaluation: the fixed evaluation.
        last: step of the run; its evaluation is done before its checkpoint, whose card tells it.
        every: steps between evaluations, 0 for first and last only.
        record_every: steps between records of responses, 0 for none.
        team: evaluates together; the main process alone looks into the folder.
    """

    def __init__(
        self,
        learner: CausalLearner,
        task: MathTask,
        evaluation: Evaluation,
        last: int,
        every: int = 0,
        record_every: int = 0,
        team: Team = ALONE,
    ) -> None:
        self.team = team
        self.learner = learner
        self.task = task
        self.evaluation = evaluation
        self.last = last
        self.every = every
        self.record_every = record_every
        self.folder: RunFolder | None = None
        self.display: Display | None = None

    @contextmanager
    def workplace(self, folder: RunFolder, display: Display) -> Iterator[None]:
        """For the whole run: where records go and who is told; the verifier's processes end with it."""
        self.folder, self.display = (folder if self.team.main else None), display
        self.task.grader.journal = Journal(folder.path / "verdicts.jsonl")
        if self.team.main:
            self.tell_data(folder, display)
        clock = Clock(display)
        self.learner.report = clock.work
        self.learner.engine.warn = display.warn
        try:
            yield
        except Diverged:
            if self.team.main:
                self.save_last(folder.path / "diverged.safetensors")
            raise
        finally:
            self.task.grader.close()
            self.learner.writer.close()

    def tell_data(self, folder: RunFolder, display: Display) -> None:
        """Say, and write down, how many problems there are and what reading dropped, repaired or merged."""
        problems, evaluation = self.task.problems, self.evaluation
        told = {
            "problems": problems.name,
            "train": len(problems.train),
            "held_out": len(problems.held_out),
            "counts": dict(problems.counts),
            "evaluation": evaluation.name,
            "evaluated": len(evaluation.problems),
        }
        files.replace(folder.path / "data.json", files.encode(told))
        if problems.counts:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in problems.counts.items())
            display.note(f"{problems.name}: {len(problems.train):,} problems to train on; {reasons} (data.json)")
        if evaluation.name == "held-out":  # another part of the same problems, without copies
            return
        texts = (problems.problem(int(number)).problem for number in problems.train)
        leaked = leaks(texts, (problem.problem for problem in evaluation.problems))
        if leaked:
            display.warn(f"{leaked} of {len(evaluation.problems)} problems of {evaluation.name} are trained on as well")

    def evaluate(self) -> dict[str, float | None]:
        """`pass_rate` and `reward` of the present policy. One that is done already is read, not drawn again."""
        step = self.learner.version
        marker = None if self.folder is None else self.folder.evaluations / f"{self.evaluation.name}-step-{step}.json"
        done = json.loads(marker.read_text())["scores"] if marker is not None and marker.exists() else None
        found: dict[str, float | None] | None = self.team.tell(done)
        if found is not None:
            return found
        answers = self.draw(None if marker is None else marker.with_suffix(".jsonl"))
        if step == 0:
            self.audit(answers[:AUDITED])
            self.tell_routes()
        scores = self.scores(answers)
        if marker is not None:
            files.replace(marker, files.encode({"step": step, "scores": scores, "counts": counts(answers)}))
        return scores

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

    def tell_routes(self) -> None:
        """Of a mixture of experts: how often the engine sends a token to other experts than the trainer."""
        canary, engine = self.learner.engine.canary, self.learner.engine.engine
        config = self.learner.model.config.get_text_config()
        if canary is None or self.display is None or not getattr(config, "num_experts_per_tok", None):
            return
        from pmdkit.llm.engines.vllm.inside import InsideEngine
        from pmdkit.llm.engines.vllm.routing import mismatch

        if self.team.size > 1 or not isinstance(engine, InsideEngine):
            self.display.note(
                "how often the engine takes other experts than the trainer is measured in one process only"
            )
            return
        try:
            share = mismatch(engine, self.learner.model, canary.prompts, canary.responses)
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

    def draw(self, record: Path | None) -> list[Answered]:
        """All responses of the evaluation, with progress. A team writes the record when it is complete."""
        self.learner.publish()
        self.learner.engine.enter("rollout")
        clock = Clock(self.display)
        answers = self.evaluation(
            self.learner.engine,
            record if self.team.size == 1 else None,  # a part of it would have to be known to all
            lambda done, total, tokens: clock.work("evaluation", done, total, tokens),
        )
        if record is not None and self.team.size > 1:
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

    def observe(
        self,
        step: int,
        learner: Learner,
        rollouts: Rollouts,
        groups: Groups,
        batch: Batch,
        updates: list[dict[str, float]],
    ) -> None:
        """After a finished step, before its checkpoint."""
        if self.folder is not None and self.record_every and step % self.record_every == 0:
            self.record(self.folder.rollouts / f"step-{step}.jsonl", rollouts, groups)
        if step == self.last or (self.every and step % self.every == 0):
            self.evaluate()

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

    def save_last(self, path: Path) -> None:
        """The batch that the last update saw, to look at afterwards."""
        if self.learner.last is None:
            return
        rollouts, batch = self.learner.last
        tensors = {"prompts": rollouts.prompts, "responses": rollouts.responses, "logp_old": rollouts.logp_old}
        tensors |= {name: getattr(batch, name) for name in ("mask", "advantage", "weight", "tau", "mass", "group")}
        files.replace(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}))


def more_columns(learner: CausalLearner, task: MathTask, rollouts: Rollouts, groups: Groups) -> dict[str, Any]:
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
        "engine_restarts": learner.engine.restarts,
    }


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


class Clock:
    """Tells a display how fast a phase is and how long it will take.

    Args:
        display: told; nobody where it is None.
    """

    def __init__(self, display: Display | None) -> None:
        self.display = display
        self.what = ""
        self.began = 0.0

    def work(self, what: str, done: float, total: float, tokens: int) -> None:
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
