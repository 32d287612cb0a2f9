"""A learner of language models that tells the recorder which rows a forward pass holds, and what the engine said."""

from typing import Any

import torch
from torch import Tensor

from pmdkit.learner import Rollouts
from pmdkit.llm.engines.protocol import Tokens
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.pending import Ordered
from pmdkit.llm.task import MathTask
from pmdkit.objectives import Objective
from pmdkit.objectives.vocabulary import Batch
from pmdkit.recording.recorder import Remarks
from pmdkit.recording.witness import Witness


class WatchedLearner(CausalLearner):
    """The same learner; of a response-level loss the witness sees sums per response, and no token by itself."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.drawn: Rollouts | None = None  # as the engine gave them, before pi_old was settled
        self.collecting = False

    def collect(self, ordered: Ordered) -> Rollouts:
        """The rollout that was ordered; where the trainer's pi_old replaces the engine's, that one is kept aside."""
        self.drawn, self.collecting = None, True
        try:
            return super().collect(ordered)
        finally:
            self.collecting = False

    def logp(self, rollouts: Rollouts) -> Tensor:
        """[N, T] log-probabilities under the current policy."""
        if self.collecting and self.provenance[0] == "recompute":
            self.drawn = rollouts
        return super().logp(rollouts)

    def some_loss(
        self, objective: Objective, prompts: list[Tokens], responses: list[Tokens], rows: list[int], batch: Batch
    ) -> Tensor:
        """The loss of some rows of a ministep's batch, in one forward pass."""
        if not isinstance(objective, Witness) or not rows:
            return super().some_loss(objective, prompts, responses, rows, batch)
        with objective.looking_at(rows, batch):
            return super().some_loss(objective, prompts, responses, rows, batch)


def remarks(learner: CausalLearner, task: MathTask, passed: float, rollouts: Rollouts) -> Remarks:
    """Prompts as tokens and by name, and whose log-probabilities pi_old are."""
    asked = learner.prompt_tokens(rollouts.prompts)
    tensors = {
        "prompt_tokens": torch.tensor([token for prompt in asked for token in prompt]),
        "prompt_length": torch.tensor([len(prompt) for prompt in asked]),
    }
    if isinstance(learner, WatchedLearner) and learner.drawn is not None:
        tensors["logp_engine"] = learner.drawn.logp_old
    facts = {
        "passed": passed,
        "problems": [task.problems.problem(number).id for number in rollouts.prompts.tolist()],
        "old": learner.provenance[0],
    }
    return Remarks(facts, tensors)
