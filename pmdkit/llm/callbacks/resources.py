"""The callback that starts and stops what a run uses besides its learner: verifier, engine, display."""

from pathlib import Path

from safetensors.torch import save

from pmdkit.envs.math.problem import leaks
from pmdkit.envs.math_answers import open_journal
from pmdkit.errors import Diverged
from pmdkit.llm.callbacks.progress import ProgressClock
from pmdkit.llm.evaluate import Evaluation
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.task import MathTask
from pmdkit.observe import console, files
from pmdkit.trainer import Display, RunContext, TrainerCallback


class ResourcesCallback(TrainerCallback):
    """What a run uses besides its learner: problems, the verifier's processes, the engine and the display."""

    def __init__(self, learner: CausalLearner, task: MathTask, evaluation: Evaluation) -> None:
        self.learner = learner
        self.task = task
        self.evaluation = evaluation

    def on_init_end(self, run: RunContext) -> None:
        """Set where verdicts are recorded and where progress and warnings are shown; report the problems."""
        self.task.grader.journal = open_journal(run.folder.path / "verdicts.jsonl")
        if self.task.rewards is not None:
            self.task.rewards.keep_verdicts(self.task.grader.journal)
        if type(run.display) is not console.SilentDisplay:  # its subclasses show something
            self.learner.report = ProgressClock(run.display).progress
        self.learner.warn = run.display.warn
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
