"""The callback that starts and stops what a run uses besides its learner."""

from dataclasses import dataclass

from pmdkit.envs.math_answers import open_journal
from pmdkit.fit import RunContext, TrainerCallback
from pmdkit.llm.learner import EngineLearner
from pmdkit.llm.task import MathTask


@dataclass
class ResourcesCallback(TrainerCallback):
    """Opens the journal of verdicts, and closes the verifier's processes and the engine."""

    learner: EngineLearner
    task: MathTask

    def on_init_end(self, run: RunContext) -> None:
        """Have the graders record their verdicts in the run's folder."""
        journal = open_journal(run.folder.path / "verdicts.jsonl")
        for grader in self.task.graders:
            grader.journal = journal

    def on_train_end(self, run: RunContext, error: BaseException | None) -> None:
        """Close the verifier's processes, and the engine together with its queue of rollouts, if it has one."""
        for grader in self.task.graders:
            grader.close()
        (self.learner.queue or self.learner.engine).close()
