"""The callback that keeps the model with the best evaluation."""

from pmdkit.fit import RunContext, StepResult, TrainerCallback
from pmdkit.llm.callbacks.evaluation import EvaluationCallback
from pmdkit.llm.callbacks.model_files import ModelFilesCallback
from pmdkit.observe import files


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
