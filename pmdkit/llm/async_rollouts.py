"""Asynchronous rollouts: a queue of requests that an engine processes while the trainer updates.

Only runs with a lag build it. Without a lag the loop generates rollouts on demand, see `pmdkit.loop.inline`.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import explain_out_of_memory
from pmdkit.llm.engines.base import Engine, Responses, Tokens
from pmdkit.llm.engines.distributed import DistributedEngine, GenerateRequest
from pmdkit.llm.engines.weight_sync_check import ExpectedLogp
from pmdkit.llm.in_flight import NewestPolicy, WeightChange
from pmdkit.llm.mismatch import mismatch_metrics
from pmdkit.llm.old_logprobs import SAMPLE
from pmdkit.loop import Rollouts, Schedule, Stream, Task
from pmdkit.randomness import derive

FLAGS = ("mask", "ended")
CLOSING = 5.0  # seconds that the thread may take to notice that no caller waits for it


def async_rollouts(lag: int) -> Stream:
    """A stream in which the rollouts of step s are from the policy after step s - 1 - lag, or the initial one.

    The lag is exact, whichever side is faster. In flight it is a bound: each policy is offered to the engine as soon
    as it exists, and draws the next token. A checkpoint holds the rollouts that are ahead of it. A run that is
    extended beyond its planned last step refills the queue: its first steps lag less, as `policy_version` shows.

    Args:
        lag: at least 1. The learner must have a `RolloutQueue`, and submit to it.
    """

    def stream(learner: Any, task: Task, schedule: Schedule, start: int) -> Iterator[tuple[int, Rollouts]]:
        requests: dict[int, RolloutRequest] = {}
        for step in range(start + 1, schedule.steps + 1):
            began = perf_counter()
            learner.offer()
            # Requests go out before step s is waited for: those of s + 1 to s + lag are drawn by the weights after
            # step s - 1 while step s is graded and updated on.
            for later in range(step, min(step + lag, schedule.steps) + 1):
                if later not in requests:
                    seed = derive(schedule.seed, "rollout", later)
                    requests[later] = learner.submit(task.prompts(later), schedule.group, seed)
            rollouts = learner.collect(requests.pop(step))
            yield step, replace(rollouts, seconds=perf_counter() - began)

    return stream


@dataclass(eq=False)
class RolloutRequest:
    """A requested rollout.

    Attributes:
        version: of the weights that generate it.
        prompts: [P] numbers of the problems.
        responses: of all processes, once they have arrived; `share` are those of this process.
        measured: measurements under these weights: the weight-sync check, the mismatch.
        awaited: the trainer waits for this rollout and does nothing else.
        changes: of the weights while it is generated, in flight; by this process, and once finished by all.
    """

    seed: int
    version: int
    prompts: Tensor
    responses: Responses | None = None
    measured: Mapping[str, float] = field(default_factory=dict)
    share: Future[Responses | None] = field(default_factory=Future)
    awaited: bool = False
    changes: list[WeightChange] = field(default_factory=list)


@dataclass(frozen=True)
class SampleRows:
    """A few responses of the step that was collected last: [p] prompts by number, and [n, T] tokens and their mask.

    When weights are published, trainer and engine score them under these weights, which measures the mismatch. The
    responses that the weights will write cannot be used: the trainer has moved on when they arrive.
    """

    prompts: Tensor
    tokens: Tensor
    mask: Tensor

    @property
    def responses(self) -> list[Tensor]:
        """[T_n] the tokens of each response."""
        return [row[on] for row, on in zip(self.tokens, self.mask, strict=True)]


@dataclass(frozen=True)
class PolicySnapshot:
    """The policy of one version.

    Attributes:
        weights: on the host; empty once the engine has loaded them, which frees the memory.
        expected: the numbers that the sync check expects.
        scored: prompts, responses, and their [n, T] log-probabilities by the trainer, at temperature 1.
    """

    weights: dict[str, Tensor]
    expected: ExpectedLogp | None
    scored: tuple[Sequence[Tokens], SampleRows, Tensor] | None = None

    def mismatch(self, engine: Engine) -> dict[str, float]:
        """`mismatch_metrics` of the sample; the engine must have this snapshot's weights."""
        if self.scored is None:
            return {}
        prompts, sample, trainer = self.scored
        flat = torch.cat(engine.score(prompts, [row.tolist() for row in sample.responses])).cpu()
        scores = flat.new_zeros(trainer.shape).masked_scatter(sample.mask, flat)
        return mismatch_metrics(trainer, scores, sample.mask)


class RolloutQueue:
    """Rollouts that are requested ahead, collected in the order of the requests.

    A request carries a copy of the weights, until the engine has them. A thread processes the requests one after
    another while the trainer updates, so each is generated by exactly the weights it was submitted with, or in flight
    by the newest from there on.
    """

    def __init__(self, engine: DistributedEngine, newest_policy: "NewestPolicy[PolicySnapshot] | None" = None) -> None:
        self.engine, self.newest_policy = engine, newest_policy
        self.pending: dict[int, RolloutRequest] = {}  # not yet collected, by the seed of their step
        self.restored: dict[int, RolloutRequest] = {}  # generated before an interruption, not yet requested again
        self.newest: tuple[int, PolicySnapshot] | None = None  # the last version that was requested: several may be
        self.sample: SampleRows | None = None
        self.measured: dict[str, float] = {}  # under the engine's weights: the sync check, the mismatch
        self.jobs: SimpleQueue[tuple[RolloutRequest, Callable[[], Responses | None]] | None] = SimpleQueue()
        self.closing = False
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        # a daemon, so that a run which fails never waits for it to exit
        self.thread = threading.Thread(target=self.work, args=(device,), name="rollout", daemon=True)
        self.thread.start()

    def submit(
        self,
        prompts: Tensor,
        seed: int,
        version: int,
        call: GenerateRequest,
        snapshot: Callable[[SampleRows | None], PolicySnapshot],
    ) -> RolloutRequest:
        """Request a rollout of [P] prompts; it is generated after all earlier requests.

        `snapshot` copies the policy that generates it; it is not called for a rollout that an interruption left
        finished.
        """
        request = self.restored.pop(seed, None)
        if request is None:
            request = RolloutRequest(seed, version, prompts)
            newest = self.offer(version, snapshot)
            self.jobs.put((request, partial(self.write, request, call, newest)))
        request.prompts = prompts
        self.pending[seed] = request
        return request

    def offer(self, version: int, snapshot: Callable[[SampleRows | None], PolicySnapshot]) -> PolicySnapshot:
        """Copy the policy of a version, once; in flight the engine may take it before the next token."""
        if self.newest is None or self.newest[0] != version:
            self.newest = version, snapshot(self.sample)
            if self.newest_policy is not None:
                self.newest_policy.offer(*self.newest)
        return self.newest[1]

    def collect(self, request: RolloutRequest) -> Responses:
        """The responses, in every process. Earlier requests are finished first."""
        for one in self.pending.values():
            responses = self.finish(one)
            if one is request:
                break
        del self.pending[request.seed]
        group = len(responses.mask) // len(request.prompts)
        prompts = max(1, SAMPLE // group)
        rows = slice(0, prompts * group)
        self.sample = SampleRows(request.prompts[:prompts], responses.tokens[rows].cpu(), responses.mask[rows].cpu())
        return responses

    def finish(self, request: RolloutRequest) -> Responses:
        """Wait for a request, and gather the shares of all processes."""
        if request.responses is None:
            request.awaited = True
            request.responses = self.engine.gather(request.share.result())
            if self.newest_policy is not None:
                every = self.engine.process_group.gather(torch.tensor(request.changes, dtype=torch.long).view(-1, 3))
                request.changes = [tuple(change) for part in every for change in part.tolist()]
        return request.responses

    def publish(self, weights: Mapping[str, Tensor], version: int, expected: ExpectedLogp | None) -> dict[str, float]:
        """Give the engine weights while it does not generate; returns what the sync check measured."""
        synced = self.engine.publish(weights, version, expected)
        self.measured = self.measured | synced  # the rollouts of these weights carry it
        return synced

    def drain(self) -> None:
        """Wait until every requested rollout has arrived, in every process."""
        if self.newest_policy is not None:
            self.newest_policy.allow_waiting(False)
        for request in (self.restored | self.pending).values():
            self.finish(request)
        if self.newest_policy is not None:
            self.newest_policy.allow_waiting(True)

    def close(self) -> None:
        """Abandon the requests in flight, then close the engine; a thread that does not stop ends with the process."""
        self.closing = True
        self.jobs.put(None)
        self.thread.join(CLOSING)
        if not self.thread.is_alive():
            self.engine.close()

    def work(self, device: int | None) -> None:
        """The body of the thread; errors are raised again in `finish`."""
        if device is not None:
            torch.cuda.set_device(device)  # each thread has its own current device
        for request, job in iter(self.jobs.get, None):
            try:
                request.share.set_result(job())
            except BaseException as problem:
                request.share.set_exception(problem)
            del request, job  # with the copy of the weights

    def write(self, request: RolloutRequest, call: GenerateRequest, snapshot: PolicySnapshot) -> Responses | None:
        """Generate the share of this process."""

        def progress(tokens: int, ended: int) -> None:
            if self.closing:
                raise RuntimeError("the run is over, and nobody waits for this rollout")
            if self.newest_policy is not None and self.engine.engine is not None:
                newest = self.newest_policy.take(request.seed, tokens, self.engine.version)
                if newest is not None:
                    self.load(*newest)
                if newest is not None or not request.changes:
                    request.changes.append((self.engine.process_group.rank, tokens, self.engine.version))
                request.measured = self.measured
            if call.progress is not None and request.awaited:  # before that the display shows the update
                call.progress(tokens, ended)

        progress(0, 0)
        if self.newest_policy is None:
            self.load(request.version, snapshot)
            request.measured = self.measured
        with explain_out_of_memory("rollout", "schedule.prompts"):
            return self.engine.generate_share(replace(call, progress=progress))

    def load(self, version: int, snapshot: PolicySnapshot) -> None:
        """Give the engine of this process a policy, unless it has it."""
        if self.engine.version != version:
            self.publish(snapshot.weights, version, snapshot.expected)
        if self.engine.engine is not None and snapshot.weights:  # the first request of this version
            snapshot.weights.clear()
            self.measured = self.measured | snapshot.mismatch(self.engine.engine)

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """The sample, and `pending`: the responses of every request, by the seed of its step. Waits for them.

        The weights that generate them are gone when a later step is checkpointed, so they could not be generated again.
        """
        tensors = {}
        if self.sample is not None:
            tensors = {"sample.prompts": self.sample.prompts, "sample.tokens": self.sample.tokens}
            tensors["sample.mask"] = self.sample.mask.to(torch.uint8)
        self.drain()
        for seed, request in (self.restored | self.pending).items():
            responses = self.finish(request)
            for name in ("tokens", "logp", "mask", "ended", "versions"):
                if (value := getattr(responses, name)) is not None:
                    tensors[f"{seed}.{name}"] = value.cpu().to(torch.uint8) if name in FLAGS else value.cpu()
            tensors[f"{seed}.version"] = torch.tensor([responses.version])
            if request.changes:
                tensors[f"{seed}.changes"] = torch.tensor(request.changes)
            # one tensor for each number: the first requests lack some, and NaN in a checkpoint is damage
            for key, value in request.measured.items():
                tensors[f"{seed}.found.{key}"] = torch.tensor([value], dtype=torch.float64)
        return {"pending": tensors}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore the requests that `state_dict` saved, in every process; only the main one needs the values."""
        self.newest = None
        found: dict[str, dict[str, Tensor]] = {}
        for key, source in sorted(state.get("pending", {}).items()):
            seed, _, name = key.partition(".")
            target = torch.empty(source.shape, dtype=source.dtype)
            self.engine.process_group.broadcast(source, target)
            found.setdefault(seed, {})[name] = target
        if (sample := found.pop("sample", None)) is not None:
            self.sample = SampleRows(sample["prompts"], sample["tokens"], sample["mask"].bool())
        for step_seed, held in ((int(seed), held) for seed, held in found.items()):
            version = int(held["version"][0])
            flags = held["mask"].bool(), held["ended"].bool()
            responses = Responses(held["tokens"], held["logp"], *flags, version, held.get("versions"))
            changes = [tuple(change) for change in held.get("changes", torch.empty(0)).tolist()]
            measured = {key.removeprefix("found."): x.item() for key, x in held.items() if key.startswith("found.")}
            # the prompts come when the step is requested again
            self.restored[step_seed] = RolloutRequest(
                step_seed, version, torch.empty(0), responses, measured, changes=changes
            )
