"""The callback that adds config, tokenizer and model card to checkpoints, so that transformers loads them."""

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pmdkit.fit import RunContext, TrainerCallback
from pmdkit.llm.callbacks.evaluation import EvaluationCallback
from pmdkit.specs import LLMSpec

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [pmdkit, reinforcement-learning, policy-mirror-descent]
---

# {spec.name}, step {step}

A `{architecture}` of {weights:,} weights, trained from {origin} \
with the objective `{spec.objective[name]}` on `{spec.env[kind]}`.

- Objective: {options}
- Rewards: {spec.reward.scale}, graded by {graders}
- Schedule: step {step} of {schedule.steps}: {schedule.prompts} prompts x {schedule.group} responses, \
{schedule.ministeps} ministeps, learning rate {schedule.lr}, seed {spec.run.seed}
- Responses: at most {spec.rollout.width} tokens, temperature {spec.rollout.temperature}

{measured}

The rewards say nothing about how the model behaves elsewhere. `pmdkit eval` measures it with intervals.
"""


@dataclass
class ModelFilesCallback(TrainerCallback):
    """Adds config, tokenizer and model card to each checkpoint, so that transformers can load the folder."""

    spec: LLMSpec
    evaluations: EvaluationCallback

    @cached_property
    def fixed(self) -> dict[str, bytes]:
        """The files that no step changes, as transformers writes them to a folder."""
        learner = self.evaluations.learner
        model = learner.model
        with tempfile.TemporaryDirectory() as folder:
            model.config.save_pretrained(folder)
            if model.generation_config is not None:
                model.generation_config.save_pretrained(folder)
            learner.tokenizer.save_pretrained(folder)
            return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.is_file()}

    def on_save(self, run: RunContext, extra_files: dict[str, bytes]) -> None:
        """Add config, tokenizer and the card of the current step."""
        extra_files |= {**self.fixed, "README.md": self.card().encode()}

    def card(self) -> str:
        """The model card: what the model is, where it comes from and how it was evaluated, oldest first."""
        spec, learner, evaluation = self.spec, self.evaluations.learner, self.evaluations.evaluation
        rates = self.evaluations.finished()
        table = [f"Pass rate on {len(evaluation.problems)} problems ({evaluation.name}):\n", "| step | pass rate |"]
        table += ["|---|---|", *(f"| {step} | {rate:.4f} |" for step, rate in rates.items())]
        return CARD.format(
            spec=spec,
            schedule=spec.schedule,
            step=learner.version,
            architecture=type(learner.model).__name__,
            weights=sum(weight.numel() for name, weight in learner.model.named_parameters() if ".lora_" not in name),
            origin=spec.model.path or f"scratch (`{spec.model.build}`)",
            options=", ".join(f"{key} = {value}" for key, value in spec.objective.items() if key != "name"),
            graders=" and ".join(f"`{term.grade}`" for term in (spec.reward, *spec.reward.others)),
            measured="\n".join(table) if rates else "Not evaluated yet.",
        )
