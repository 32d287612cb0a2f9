"""The callback that writes the responses of a step as text."""

import json
from dataclasses import dataclass

from pmdkit.fit import RunContext, StepResult, TrainerCallback
from pmdkit.llm.rollouts import EngineRollouts
from pmdkit.llm.task import MathTask
from pmdkit.observe import files

COMPLETIONS = ("problem", "response", "answer", "extracted", "reward", "reason")
"Columns of the table of a step's first SHOWN responses that trackers get."
SHOWN = 32


@dataclass
class ResponsesCallback(TrainerCallback):
    """Writes every response of every k-th step as text, with its verdict and reward, to rollouts/step-N.jsonl."""

    task: MathTask
    every: int

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Record the step if it is due."""
        if not run.backend.process_group.is_main_process or result.step % self.every:
            return
        rollouts, groups = result.rollouts, result.groups
        size = rollouts.mass.shape[1]
        numbers, lengths = rollouts.prompts.tolist(), rollouts.mask.sum(1).tolist()
        versions = rollouts.versions if isinstance(rollouts, EngineRollouts) else None
        rewards, graded = groups.reward.flatten().tolist(), self.task.graded(rollouts)
        lines = []
        for n, (item, verdict) in enumerate(zip(graded.items, graded.verdicts, strict=True)):
            problem = self.task.problems.problem(numbers[n // size])
            history = [{"role": role, "content": content} for role, content in problem.history]
            parts = {name: None if bool(part[n].isnan()) else float(part[n]) for name, part in graded.parts.items()}
            line = {
                "id": problem.id,
                "k": n % size,
                "problem": problem.problem,
                **({"history": history} if history else {}),
                "answer": problem.answer or None,
                "response": item.response,
                **({} if rollouts.episodes is None else {"messages": rollouts.episodes[n].messages}),
                "tokens": lengths[n],
                **({} if versions is None else {"weight_versions": versions[n][rollouts.mask[n]].unique().tolist()}),
                "reward": rewards[n] if verdict.scored and groups.present.view(-1)[n] else None,
                **({"cut_off": item.truncated, "rewards": parts} if parts else {}),
                "extracted": verdict.extracted,
                "path": verdict.path,
                "reason": verdict.reason,
            }
            lines.append(line)
        path = run.folder.rollouts / f"step-{result.step}.jsonl"
        files.make_folder(path.parent)
        files.replace(path, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        if run.reporters is not None:
            shown = [{key: line[key] for key in COMPLETIONS} for line in lines[:SHOWN]]
            run.reporters.log_table(result.step, "completions", shown)
