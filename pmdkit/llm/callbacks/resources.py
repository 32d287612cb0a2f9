"""The callback that starts and stops what a run uses besides its learner."""

from safetensors.torch import save

from pmdkit.envs.math_answers import open_journal
from pmdkit.fit import RunContext, TrainerCallback
from pmdkit.llm.learner import CausalLearner, UpdateDiverged
from pmdkit.llm.task import MathTask
from pmdkit.observe import files


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
