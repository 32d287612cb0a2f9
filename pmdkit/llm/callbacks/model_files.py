"""The callback that adds config, tokenizer and model card to checkpoints, so that transformers loads them."""

import shutil
import tempfile
from functools import cached_property
from pathlib import Path

from pmdkit.fit import RunContext, TrainerCallback
from pmdkit.llm.callbacks.evaluation import EvaluationCallback
from pmdkit.llm.export import export
from pmdkit.specs import LLMSpec

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


class ModelFilesCallback(TrainerCallback):
    """Adds config, tokenizer and model card to each checkpoint, so that transformers can load the folder.

    Args:
        spec: of the run.
        evaluations: for the measurements and the learner, whose configuration stays the same while weights change.
    """

    def __init__(self, spec: LLMSpec, evaluations: EvaluationCallback) -> None:
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
