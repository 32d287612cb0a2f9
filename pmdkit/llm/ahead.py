"""Rollouts ahead of the updates: a stream of the loop in which generation and update overlap. Not another loop."""

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

from pmdkit.learner import Learner, Rollouts, Task
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.pending import Ordered
from pmdkit.loop import Schedule, Stream
from pmdkit.randomness import derive


def ahead(lag: int) -> Stream:
    """A stream in which step s answers with the policy after step s - 1 - lag, the first one where there is none.

    The lag is exact, whoever is faster. A checkpoint holds the rollouts that are ahead of it. A run that is taken
    beyond its planned last step fills the line anew: its first steps lag less, as `policy_version` says.

    Args:
        lag: 0 rolls out when the loop asks, as `loop.inline`.
    """

    def stream(learner: Learner, task: Task, schedule: Schedule, start: int) -> Iterator[tuple[int, Rollouts]]:
        assert isinstance(learner, CausalLearner)
        ordered: dict[int, Ordered] = {}
        for step in range(start + 1, schedule.steps + 1):
            began = perf_counter()
            for later in range(step, min(step + lag, schedule.steps) + 1):
                if later not in ordered:
                    seed = derive(schedule.seed, "rollout", later)
                    ordered[later] = learner.order(task.prompts(later), schedule.group, seed)
            rollouts = learner.collect(ordered.pop(step))
            yield step, replace(rollouts, seconds=perf_counter() - began)

    return stream
