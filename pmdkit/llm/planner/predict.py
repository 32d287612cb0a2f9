"""The whole prediction of a recipe on a cluster, and of its own ministep as a rollout batch: the on-policy twin."""

from dataclasses import dataclass, replace
from functools import cached_property

from pmdkit.llm.planner.efficiency import PRACTICE, Efficiency
from pmdkit.llm.planner.generation import Engine, Generation, generation
from pmdkit.llm.planner.gpus import Cluster
from pmdkit.llm.planner.lengths import Lengths
from pmdkit.llm.planner.memory import Memory, memory
from pmdkit.llm.planner.sizes import Sizes, Work
from pmdkit.llm.planner.update import Update, scoring, update


@dataclass(frozen=True)
class Prediction:
    """What a step costs.

    Attributes:
        sizes, work, lengths, cluster, efficiency: what it rests on.
    """

    sizes: Sizes
    work: Work
    lengths: Lengths
    cluster: Cluster
    efficiency: Efficiency = PRACTICE

    @property
    def engine(self) -> Engine:
        """What decoding costs."""
        return Engine(self.sizes, self.cluster, self.efficiency)

    @cached_property
    def memory(self) -> Memory:
        """By phase."""
        return memory(self.engine, self.work, self.lengths)

    @cached_property
    def generation(self) -> Generation:
        """Of one step."""
        room = max(self.memory.room, float(self.work.longest))  # a plan that does not fit is timed as if one row did
        return generation(self.engine, self.lengths, self.work.rows, self.work.prompt, room)

    @cached_property
    def update(self) -> Update:
        """Of one step."""
        return update(self.sizes, self.work, self.lengths, self.cluster, self.efficiency)

    @cached_property
    def scoring(self) -> float:
        """Seconds of one step."""
        return scoring(self.sizes, self.work, self.lengths, self.cluster, self.efficiency)

    @property
    def seconds(self) -> float:
        """Of one step, verifier and evaluations left out: the verifier runs beside the engine."""
        return self.generation.seconds + self.scoring + self.update.seconds

    @property
    def tokens(self) -> float:
        """Tokens of responses in a step."""
        return self.work.rows * self.lengths.mean

    @property
    def staleness(self) -> int:
        """Updates between the policy that wrote a response and the last one that learns from it."""
        return self.work.ministeps * self.work.passes - 1

    @property
    def ms_per_token(self) -> dict[str, float]:
        """Milliseconds per token of response, of the whole cluster."""
        parts = {"generation": self.generation.seconds, "scoring": self.scoring, "update": self.update.seconds}
        told = {name: 1e3 * seconds / self.tokens for name, seconds in parts.items()}
        return {"overall": told["generation"] + told["update"], **told}

    @property
    def on_policy(self) -> "Prediction":
        """The same recipe with each ministep's prompts as a rollout batch of their own."""
        alone = replace(self.work, prompts=self.work.prompts / self.work.ministeps, ministeps=1)
        return replace(self, work=alone)

    @property
    def speedup(self) -> float:
        """On-policy time per token over this recipe's: generation and update, the two columns of the paper's table."""
        return self.on_policy.ms_per_token["overall"] / self.ms_per_token["overall"]
