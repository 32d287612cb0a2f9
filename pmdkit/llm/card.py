"""The files beside the weights that make a checkpoint a folder of transformers, a model card among them."""

import shutil
import tempfile
from functools import cached_property
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.llm.stages import Stages
from pmdkit.spec import Spec

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [pmdkit, reinforcement-learning, policy-mirror-descent]
---

# {name}, step {step}

A `{architecture}` of {weights:,} weights, trained from {origin} with the objective `{objective}` on `{env}`.

| | |
|---|---|
| Objective | {options} |
| Rewards | {scale}, graded by `{grade}` |
| Schedule | step {step} of {steps}: {prompts} prompts x {group} responses, {ministeps} ministeps, learning rate {lr} |
| Responses | at most {width} tokens, temperature {temperature} |
| Seed | {seed} |

{measured}

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")
```

The rewards say nothing about how the model behaves elsewhere. `pmdkit eval` measures it with intervals.
"""


class Beside:
    """Called at each checkpoint: config, tokenizer and card as bytes by file name.

    Args:
        spec: of the run.
        model, tokenizer: whose configuration does not change while weights do.
        stages: knows what has been measured.
    """

    def __init__(self, spec: Spec, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, stages: Stages) -> None:
        self.spec = spec
        self.model = model
        self.stages = stages
        self.tokenizer = tokenizer

    @cached_property
    def fixed(self) -> dict[str, bytes]:
        """The files that no step changes, made in the run's folder: what a kill leaves there is found again."""
        if self.stages.folder is None:  # a field test, which has no run
            with tempfile.TemporaryDirectory() as folder:
                return self.made(Path(folder))
        place = self.stages.folder.path / ".beside.part"
        shutil.rmtree(place, ignore_errors=True)
        found = self.made(place)
        shutil.rmtree(place)
        return found

    def made(self, folder: Path) -> dict[str, bytes]:
        """What transformers writes to a folder."""
        self.model.config.save_pretrained(folder)
        if self.model.generation_config is not None:
            self.model.generation_config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}

    def __call__(self) -> dict[str, bytes]:
        """The files of the present step."""
        return {**self.fixed, "README.md": self.card().encode()}

    def card(self) -> str:
        """What the model is, where it comes from and what was measured of it."""
        spec, schedule = self.spec, self.spec.schedule
        options = ", ".join(f"{key} = {value}" for key, value in spec.objective.items() if key != "name")
        origin = getattr(spec.model, "path", None) or f"nothing (`{getattr(spec.model, 'build', '')}`)"
        return CARD.format(
            name=spec.name,
            step=self.stages.learner.version,
            architecture=type(self.model).__name__,
            weights=sum(w.numel() for name, w in self.model.named_parameters() if ".lora_" not in name),
            origin=origin,
            objective=spec.objective["name"],
            env=spec.env["kind"],
            options=options,
            scale=spec.reward.scale if spec.reward else "",
            grade=spec.reward.grade if spec.reward else "",
            steps=schedule.steps,
            prompts=schedule.prompts,
            group=schedule.group,
            ministeps=schedule.ministeps,
            lr=schedule.lr,
            width=spec.rollout.width if spec.rollout else "",
            temperature=spec.rollout.temperature if spec.rollout else "",
            seed=spec.run.seed,
            measured=self.measured(),
        )

    def measured(self) -> str:
        """The evaluations that exist, oldest first."""
        rows = self.stages.finished()
        if not rows:
            return "Not evaluated yet."
        lines = [f"| {step} | {rate:.4f} |" for step, rate in rows]
        about = f"{len(self.stages.evaluation.problems)} problems ({self.stages.evaluation.name})"
        return f"Pass rate on {about}:\n\n| step | pass rate |\n|---|---|\n" + "\n".join(lines)
