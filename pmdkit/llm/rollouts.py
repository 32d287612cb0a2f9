"""Rollouts ahead of the updates: a queue of requests that an engine works off while the trainer updates.

Only runs with a lag build it. Without one the loop rolls out when it asks, `pmdkit.loop.inline`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter

import torch
from torch import Tensor

from pmdkit.llm.engines.base import NO_WEIGHTS, EngineLost, Finished, Responses
from pmdkit.llm.engines.distributed import DistributedEngine, GenerateRequest, WatchedCall
from pmdkit.llm.learner import CausalLearner, explain_out_of_memory
from pmdkit.llm.mismatch import SYNC_COLUMNS, ExpectedLogp
from pmdkit.loop import Learner, Rollouts, Schedule, Stream, Task
from pmdkit.randomness import derive

FLAGS = ("mask", "ended")


def async_rollouts(lag: int) -> Stream:
    """A stream in which step s answers with the policy after step s - 1 - lag, the first one where there is none.

    The lag is exact, whoever is faster. A checkpoint holds the rollouts that are ahead of it. A run that is taken
    beyond its planned last step fills the queue anew: its first steps lag less, as `policy_version` says.

    Args:
        lag: at least 1. The learner has a `RolloutQueue`.
    """

    def stream(learner: Learner, task: Task, schedule: Schedule, start: int) -> Iterator[tuple[int, Rollouts]]:
        queue: RolloutQueue = learner.queue  # type: ignore[attr-defined]
        requests: dict[int, RolloutRequest] = {}
        for step in range(start + 1, schedule.steps + 1):
            began = perf_counter()
            for later in range(step, min(step + lag, schedule.steps) + 1):
                if later not in requests:
                    seed = derive(schedule.seed, "rollout", later)
                    requests[later] = queue.submit(task.prompts(later), schedule.group, seed)
            rollouts = queue.collect(requests.pop(step))
            yield step, replace(rollouts, seconds=perf_counter() - began)

    return stream


@dataclass(eq=False)
class RolloutRequest:
    """A rollout that was asked for.

    Attributes:
        seed: of its step.
        version: of the weights that write it.
        call: what the engine is asked; None once it has answered, or after a resume.
        prompts: [P] their numbers.
        weights: a copy on the host, until it is written.
        expected: the trainer's log-probabilities of the canary's texts under them.
        responses: of all processes, once they are there.
        found: what the canary measured under its weights.
        thread: writes the share of this process.
        awaited: nothing else goes on.
    """

    seed: int
    version: int
    call: GenerateRequest | None = None
    prompts: Tensor | None = None
    weights: Mapping[str, Tensor] | None = None
    expected: ExpectedLogp | None = None
    responses: Responses | None = None
    found: Mapping[str, float] = field(default_factory=dict)
    thread: WatchedCall | None = None
    awaited: bool = False


class RolloutQueue:
    """Rollouts in flight, collected in the order in which they were asked for.

    A request carries a copy of the weights. A thread works requests off, one after another, while the trainer updates,
    so each is written by exactly the weights of its time. A lost engine is restarted in the thread that notices.

    Args:
        learner: asks and collects; its engine writes.
        silence: seconds without a new token, or for a publish, after which an engine counts as hung.
        start: seconds that an engine may need to begin anew.

    Attributes:
        grade_ahead: makes of the prompts of a request what is called with each finished response to them.
    """

    def __init__(self, learner: CausalLearner, silence: float = 300.0, start: float = 0.0) -> None:
        self.learner = learner
        if not isinstance(learner.engine, DistributedEngine):
            learner.engine = DistributedEngine(learner.engine, learner.process_group)
        self.engine = learner.engine
        self.silence = silence
        self.start = start
        self.in_flight: dict[int, RolloutRequest] = {}  # not collected, by the seed of their step
        self.restored: dict[int, RolloutRequest] = {}  # written before an interruption, not asked for again yet
        self.newest: WatchedCall | None = None
        self.grade_ahead: Callable[[Tensor], Finished] | None = None
        learner.queue = self

    def submit(self, prompts: Tensor, group: int | None, seed: int) -> RolloutRequest:
        """Ask for a rollout by the present weights; it is written behind those that were asked for before."""
        learner = self.learner
        call = learner.generate_request(prompts, group, seed)
        request = self.restored.pop(seed, None)
        if request is None:
            request = RolloutRequest(seed, learner.version, call, prompts)
            request.weights, request.expected = self.weights_on_host(), learner.expected_logp()
            request.thread = self.newest = WatchedCall(
                lambda thread: self.write(request, thread), self.silence, after=self.newest
            )
        request.prompts = prompts
        self.in_flight[seed] = request
        return request

    def weights_on_host(self) -> dict[str, Tensor]:
        """A copy of the present weights on the host, where there is an engine to take them."""
        weights = self.learner.gathered_weights().items()  # all processes look at all weights
        return {name: x.detach().to("cpu", copy=True) for name, x in weights if self.engine.engine is not None}

    def collect(self, request: RolloutRequest) -> Rollouts:
        """The rollout, in every process. What was asked for before it is finished first."""
        for one in self.in_flight.values():
            self.finish(one)
            if one is request:
                break
        del self.in_flight[request.seed]
        assert request.responses is not None
        assert request.prompts is not None
        learner = self.learner
        learner.found, learner.mismatch = request.found, {}  # the weights have moved on: only the canary could compare
        rollouts = learner.as_rollouts(request.prompts, request.seed, request.responses, request.version)
        return learner.with_reference(rollouts)

    def finish(self, request: RolloutRequest) -> None:
        """Wait for a request and put the shares of all processes together."""
        if request.thread is None:
            return
        request.awaited = True
        request.responses = self.engine.gather(request.thread.result())
        request.thread = request.weights = request.call = None

    def drain(self) -> None:
        """Until nothing is being written: everything asked for is there, in every process."""
        for request in self.in_flight.values():
            self.finish(request)

    def close(self) -> None:
        """Give up what is being written, and let the engine go; one that does not stop ends with the process."""
        for request in self.in_flight.values():
            if request.thread is not None:
                request.thread.abandoned = True
        if self.newest is None or self.newest.abandon():
            self.engine.close()

    def write(self, request: RolloutRequest, thread: WatchedCall) -> Responses | None:
        """The share of this process; a lost engine is restarted and writes again."""
        assert request.call is not None
        assert request.weights is not None
        report = request.call.progress

        def progress(tokens: int, ended: int) -> None:
            thread.heartbeat()
            if report is not None and request.awaited:  # before that the update is what a person sees
                report(tokens, ended)

        lost = False
        while True:
            thread.heartbeat(self.start if lost else 0.0)
            try:
                if lost or self.engine.version != request.version:
                    self.engine.push_weights(request.weights, request.version, request.expected, restart=lost)
                request.found = self.engine.found
                thread.heartbeat()
                if self.grade_ahead is not None and request.prompts is not None:
                    self.engine.on_finished = self.grade_ahead(request.prompts)
                with explain_out_of_memory("rollout", "rollout.cache_tokens"):
                    return self.engine.generate_share(replace(request.call, progress=progress))
            except EngineLost as problem:
                self.engine.version = NO_WEIGHTS
                self.engine.count_loss(problem)
                lost = True

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """`pending`: the responses of every request in flight, by the seed of its step; waits for them.

        The weights that write them are gone when a later step is checkpointed, so they cannot be written again.
        """
        self.drain()
        tensors = {}
        for seed, request in (self.restored | self.in_flight).items():
            assert request.responses is not None
            for name in ("tokens", "logp", "mask", "ended"):
                value = getattr(request.responses, name).cpu()
                tensors[f"{seed}.{name}"] = value.to(torch.uint8) if name in FLAGS else value
            tensors[f"{seed}.version"] = torch.tensor([request.version])
            found = [request.found[key] for key in SYNC_COLUMNS if request.found]
            tensors[f"{seed}.found"] = torch.tensor(found, dtype=torch.float64)
        return {"pending": tensors}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """The requests that `state_dict` kept, in every process; only the main one needs to have the numbers."""
        found: dict[int, dict[str, Tensor]] = {}
        for key, source in sorted(state.get("pending", {}).items()):
            seed, _, name = key.partition(".")
            target = torch.empty(source.shape, dtype=source.dtype)
            self.learner.process_group.broadcast(source, target)
            found.setdefault(int(seed), {})[name] = target
        self.restored = {seed: written(seed, tensors) for seed, tensors in found.items()}


def written(seed: int, tensors: Mapping[str, Tensor]) -> RolloutRequest:
    """A request whose responses are there, from the tensors of a checkpoint."""
    version = int(tensors["version"][0])
    mask, ended = tensors["mask"].bool(), tensors["ended"].bool()
    responses = Responses(tensors["tokens"], tensors["logp"], mask, ended, version)
    found = dict(zip(SYNC_COLUMNS, tensors["found"].tolist(), strict=False))
    return RolloutRequest(seed, version, responses=responses, found=found)
