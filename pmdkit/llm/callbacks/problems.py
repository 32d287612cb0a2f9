"""The callback that reports the problems of a run before its first step."""

from dataclasses import dataclass

from pmdkit.envs.math.problem import leaks
from pmdkit.fit import RunContext, TrainerCallback
from pmdkit.llm.evaluate import Evaluation
from pmdkit.llm.task import MathTask
from pmdkit.observe import files


@dataclass
class ProblemsCallback(TrainerCallback):
    """Reports the problems, and what reading dropped, repaired or merged; warns if evaluated ones are trained on."""

    task: MathTask
    evaluation: Evaluation

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
            split = f"{len(problems.train):,} problems to train on, {len(problems.held_out):,} held out"
            run.display.note(f"{problems.name}: {split}; {reasons} (data.json)")
        if evaluation.name == "held-out":  # another part of the same problems, without copies
            return
        if leaked := leaks(problems, evaluation.problems):
            run.display.warn(
                f"{leaked} of {len(evaluation.problems)} problems of {evaluation.name} are also trained on"
            )
