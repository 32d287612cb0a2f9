"""The whole prediction of a recipe on a cluster, and the best division of the cluster between engines and trainer."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from pmdkit.planner.hardware import NODE, PRACTICE, Cluster, Efficiency
from pmdkit.planner.memory import Memory, memory
from pmdkit.planner.timing import EngineSize, Generation, Update, generation, scoring, update
from pmdkit.planner.workload import ResponseLengths, Sizes, Workload


@dataclass(frozen=True)
class Prediction:
    """What a step costs.

    Attributes:
        sizes, work, lengths, cluster, efficiency: what it rests on.
        serve: accelerators that only generate, the others only train; 0 where all do both in turns.
    """

    sizes: Sizes
    work: Workload
    lengths: ResponseLengths
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
    def engine(self) -> EngineSize:
        """What decoding costs."""
        return EngineSize(self.sizes, self.generators, self.efficiency)

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
        milliseconds = {name: 1e3 * seconds / self.tokens for name, seconds in parts.items()}
        together = max if self.overlaps else sum
        return {"overall": together((milliseconds["generation"], milliseconds["update"])), **milliseconds}

    @property
    def on_policy(self) -> "Prediction":
        """The same recipe with each ministep's prompts as a rollout batch of their own."""
        alone = replace(self.work, prompts=self.work.prompts / self.work.ministeps, ministeps=1, lag=0)
        return replace(self, work=alone)

    @property
    def speedup(self) -> float:
        """On-policy time per token over this recipe's: generation and update, the two columns of the paper's table."""
        return self.on_policy.ms_per_token["overall"] / self.ms_per_token["overall"]


# How to divide accelerators between engines and trainer: the division whose step is shortest, of those that fit.


def divisions(prediction: Prediction) -> Iterator[Prediction]:
    """The same with other numbers of accelerators that only generate; whole machines where there are several."""
    whole = prediction.cluster
    unit = max(whole.tensor, whole.expert)
    if whole.count > 2 * NODE and NODE % unit == 0:
        unit = NODE
    for serve in range(unit, whole.count, unit):
        yield replace(prediction, serve=serve)


def best(prediction: Prediction) -> Prediction | None:
    """The fastest division that fits; with rollout.lag = 0 the two wait for each other in any.

    With a lag this is the balanced one, since a step lasts as long as the slower side.
    """
    fitting = [one for one in divisions(prediction) if one.memory.fits]
    # where one side does not get faster, the other takes what it has no use for
    return min(fitting, key=lambda d: (d.seconds, d.generation.seconds + d.update.seconds), default=None)
