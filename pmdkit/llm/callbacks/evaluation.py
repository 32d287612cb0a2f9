"""The callback that evaluates during a run, and does not repeat evaluations finished before an interruption."""

from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Any

from pmdkit import untrusted
from pmdkit.errors import printable
from pmdkit.fit import Display, RunContext, StepResult, TrainerCallback
from pmdkit.llm.evaluate import Answered, Evaluation, encode_answers, read_record
from pmdkit.llm.learner import EngineLearner, Report
from pmdkit.llm.task import MathTask
from pmdkit.observe import files, run_folder
from pmdkit.process_group import SINGLE, ProcessGroup
from strict_answers import Item, audit

AUDITED = 200  # answers
SHOWN, LETTERS = 4, 120  # problems whose answers are shown at the end, and characters of each
RATES = dict.fromkeys(("pass_rate", "reward"), untrusted.Number | None)
SCORES = untrusted.table(step=untrusted.Count, scores=untrusted.table(**RATES))


@dataclass
class EvaluationCallback(TrainerCallback):
    """Evaluates during a run, each step once: a finished evaluation is read from disk, not drawn again.

    `every` is in steps between evaluations; 0 for the first and last only.
    """

    learner: EngineLearner
    task: MathTask
    evaluation: Evaluation
    progress: Report
    every: int = 0
    process_group: ProcessGroup = field(default=SINGLE, init=False)
    folder: run_folder.RunFolder | None = field(default=None, init=False)  # in the main process, once the run has begun
    display: Display | None = field(default=None, init=False)

    def on_init_end(self, run: RunContext) -> None:
        """Take the run's folder, in the main process only; all processes evaluate together."""
        self.process_group, self.display = run.backend.process_group, run.display
        self.folder = run.folder if self.process_group.is_main_process else None

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Evaluate every k-th step and the last one, before the checkpoint is saved, whose card shows the result."""
        last = run.backend.schedule.steps
        if result.step == last or (self.every and result.step % self.every == 0):
            self.evaluate()

    def on_train_end(self, run: RunContext, error: BaseException | None) -> None:
        """Show one answer before the first and after the last step, to one problem of each kind that the ids name.

        The last checkpoint is saved by then: a damaged record of answers costs nothing.
        """
        if error is not None or self.folder is None or self.display is None:
            return
        names = (f"{self.evaluation.name}-step-{step}.jsonl" for step in (0, run.backend.schedule.steps))
        places = [self.folder.evaluations / name for name in names]
        before, after = (read_record(place, self.evaluation.k) for place in places)
        kinds = {problem.id.rpartition("-")[0]: problem for problem in reversed(self.evaluation.problems)}
        for problem in list(kinds.values())[:SHOWN]:
            if problem.id in before and problem.id in after:
                self.display.note(f"{printable(problem.problem)[:LETTERS]!r}, answer {printable(problem.answer)!r}")
                for name, answers in (("before", before), ("after", after)):
                    self.display.note(f"  {name}: {printable(answers[problem.id][0].response)[:LETTERS]!r}")

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
            files.make_folder(record.parent)
            files.replace(record, encode_answers(answers))
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
        paths = (
            [] if self.folder is None else self.folder.evaluations.glob(f"{escape(self.evaluation.name)}-step-*.json")
        )
        rates = {found["step"]: found["scores"]["pass_rate"] for found in map(read_scores, paths)}
        return {step: rates[step] for step in sorted(rates) if step <= self.learner.version and rates[step] is not None}


def read_scores(path: Path) -> dict[str, Any]:
    """Step and scores of a finished evaluation."""
    advice = "delete the file, and the evaluation is repeated"
    return untrusted.check_fields(untrusted.read_json(path, advice=advice), SCORES, path, advice)
