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
        serve: accelerators that only generate, the others only train; 0 where all do both in turns.
    """

    sizes: Sizes
    work: Work
    lengths: Lengths
    cluster: Cluster
    efficiency: Efficiency = PRACTICE
    serve: int = 0

    @property
    def generators(self) -> Cluster:
        """Accelerators that generate."""
        return replace(self.cluster, count=self.serve) if self.serve else self.cluster

    @property
    def trainers(self) -> Cluster:
        """Accelerators that train."""
        return replace(self.cluster, count=self.cluster.count - self.serve)

    @property
    def engine(self) -> Engine:
        """What decoding costs."""
        return Engine(self.sizes, self.generators, self.efficiency)

    @cached_property
    def memory(self) -> Memory:
        """By phase."""
        return memory(self.engine, self.work, self.lengths, self.trainers if self.serve else None)

    @property
    def room(self) -> float:
        """Tokens whose keys and values an engine holds; a plan that does not fit is timed as if one row did."""
        return max(self.memory.room, float(self.work.longest))

    @cached_property
    def generation(self) -> Generation:
        """Of one step."""
        found = generation(self.engine, self.lengths, self.work.rows, self.work.prompt, self.room, self.work.slots)
        sent = self.sizes.width_bytes * self.sizes.weights / self.cluster.wire  # trainers and engines may be far apart
        return replace(found, sync=sent) if self.serve else found

    @cached_property
    def update(self) -> Update:
        """Of one step."""
        return update(self.sizes, self.work, self.lengths, self.trainers, self.efficiency)

    @cached_property
    def scoring(self) -> float:
        """Seconds of one step."""
        return scoring(self.sizes, self.work, self.lengths, self.trainers, self.efficiency)

    @property
    def overlaps(self) -> bool:
        """Whether generation and update run at the same time: on accelerators of their own, and one step behind."""
        return self.serve > 0 and self.work.lag > 0

    @property
    def seconds(self) -> float:
        """Of one step, verifier and evaluations left out: the verifier runs beside the engine."""
        training = self.scoring + self.update.seconds
        generating = self.generation.seconds
        return max(generating, training) if self.overlaps else generating + training

    @property
    def tokens(self) -> float:
        """Tokens of responses in a step."""
        return self.work.rows * self.lengths.mean

    @property
    def staleness(self) -> int:
        """Updates between the policy that wrote a response and the last one that learns from it."""
        return (self.work.lag + 1) * self.work.ministeps * self.work.passes - 1

    @property
    def ms_per_token(self) -> dict[str, float]:
        """Milliseconds per token of response, of the whole cluster; "overall" leaves scoring out, as the paper does."""
        parts = {"generation": self.generation.seconds, "scoring": self.scoring, "update": self.update.seconds}
        told = {name: 1e3 * seconds / self.tokens for name, seconds in parts.items()}
        together = max if self.overlaps else sum
        return {"overall": together((told["generation"], told["update"])), **told}

    @property
    def on_policy(self) -> "Prediction":
        """The same recipe with each ministep's prompts as a rollout batch of their own."""
        alone = replace(self.work, prompts=self.work.prompts / self.work.ministeps, ministeps=1, lag=0)
        return replace(self, work=alone)

    @property
    def speedup(self) -> float:
        """On-policy time per token over this recipe's: generation and update, the two columns of the paper's table."""
        return self.on_policy.ms_per_token["overall"] / self.ms_per_token["overall"]
