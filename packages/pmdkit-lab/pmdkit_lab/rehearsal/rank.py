"""One process of a rehearsal: three steps of pmdkit's loop at full size, on fake tensors.

It reads a list of requests from standard input as JSON, and writes what each found to standard output.
"""

import gc
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from pmdkit.errors import PmdkitError, first_line
from pmdkit.llm import accelerate_group, backend, old_logprobs, shard_loading
from pmdkit.llm import policy as policy_module
from pmdkit.llm.engines import ENGINES
from pmdkit.llm.engines import transformers as transformers_engine
from pmdkit.llm.engines.base import NO_WEIGHTS, EngineConfig, Responses
from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.engines.vllm.colocate import ColocatedEngine
from pmdkit.llm.engines.vllm.weight_names import WeightNames
from pmdkit.llm.engines.weight_sync_check import SYNC_TOKENS
from pmdkit.llm.micro_batches import shard_by_tokens
from pmdkit.llm.model import prepare_model
from pmdkit.llm.packed_attention import PackedLayout
from pmdkit.llm.policy import CausalPolicy
from pmdkit.llm.weights import full_tensor
from pmdkit.loop import Schedule, run
from pmdkit.objectives import Objective, traits
from pmdkit.observe import checkpoint
from pmdkit.process_group import SINGLE, ProcessGroup
from pmdkit.resolve import resolve
from pmdkit.specs import LLMSpec
from pmdkit.specs.llm import ParallelTable
from pmdkit_lab.planner import model_shapes
from pmdkit_lab.planner.data_sheets import GPUS
from pmdkit_lab.planner.model_size import cache_bytes
from pmdkit_lab.rehearsal import device
from pmdkit_lab.rehearsal.device import GIB
from pmdkit_lab.rehearsal.meter import CUDA, OURS, PMDKIT, Meter, caller, short

END = 0
SHORT = 16  # tokens of a response in the first step, and of the prompts of the weight-sync check
LAST = 3  # the step that is measured; it has to hold as much memory afterwards as the second did
PHASES = {
    "sync_weights": "publish",
    "score": "score",
    "with_reference": "score",
    "update": "update",
}  # the learner's phases and ours


class FakeGroup(accelerate_group.AccelerateGroup):
    """A process group without real peers: a gather returns this process's own tensor `size` times.

    `called` is told of each call in which real processes would wait for each other.
    """

    def __init__(self, table: ParallelTable, rank: int, called: Callable[[str], None] = lambda what: None) -> None:
        self.called, self.scored = called, [0] * table.processes
        device.start_group(rank, table.processes)
        self.strategy, self.replicas = table.strategy, table.replicas
        self.rank, self.size, self.device = rank, table.processes, CUDA

        self.accelerator: Any = SimpleNamespace(prepare=distributed)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """This process's tensor for every process; of log-probabilities, as many as each process scores."""
        self.called(f"gather {short(tensor.dtype)}")
        if tensor.is_floating_point() and tensor.shape == (self.scored[self.rank],):
            return [tensor.new_zeros(count) for count in self.scored]
        return [tensor] * self.size

    def shard(self, group: ProcessGroup, prompts: Any, responses: Sequence[Any], *given: Any, **named: Any) -> Any:
        """`shard_by_tokens`; records how many log-probabilities each process will send."""
        plans = shard_by_tokens(group, prompts, responses, *given, **named)
        if group is self:
            self.scored = [sum(len(responses[row]) for rows in own for row in rows) for own in plans]
        return plans

    def any_rank(self, flag: bool) -> bool:
        """This process's flag."""
        self.called("any_rank")
        return flag

    def broadcast_object(self, value: Any) -> Any:
        """This process's value."""
        self.called("broadcast_object")
        return value


def distributed(root: nn.Module) -> nn.Module:
    """DDP without accelerate, which would start NCCL."""
    return nn.parallel.DistributedDataParallel(root, gradient_as_bucket_view=True, init_sync=False)


def summed(
    state: None,
    bucket: torch.distributed.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """`accelerate_group.summed` for a group that sends nothing, so its future has no value."""
    torch.distributed.all_reduce(bucket.buffer())
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def make_task(spec: LLMSpec, objective: Objective, size: int) -> Any:
    """Task, encoder and problems of a rehearsal: per process two micro-batches, each as full as the recipe allows.

    All prompts have the same tokens, and every second response is right. Problems below 0 are those of the weight-sync
    check.
    """
    schedule, prompt, response = spec.schedule, spec.rollout.max_prompt, spec.rollout.width
    assert schedule.group is not None
    assert schedule.prompts is not None
    count, group = 2 * size, schedule.group  # a group is never split, so each is one micro-batch
    if not traits(objective).whole_groups:
        # rows of equal length that fill the budget, a single full row that exceeds it, or all rows of a ministep
        room = spec.update.token_budget - prompt
        most = -(-schedule.prompts * schedule.group // (schedule.ministeps * size))
        rows = max(1, -(-room // response))
        count, group, response = size, min(2 * rows, most), room // rows if 1 < rows <= most else response
    tokens = list(range(1, prompt + 1))
    return SimpleNamespace(
        group=group,
        response=response,
        tokenizer=SimpleNamespace(eos_token_id=END),
        train=torch.arange(-spec.rollout.canary, 0),
        data=lambda text: tokens[:SHORT],
        problem=lambda number: SimpleNamespace(number=number, problem="", answer=""),
        encode=lambda problem: tokens[:SHORT] if problem.number < 0 else tokens,
        prompts=lambda step: torch.arange(count),
        reward=lambda drawn: (torch.arange(drawn.mass.numel()).view(drawn.mass.shape) % 2).double(),
    )


class FakeVLLM:
    """The memory that `vllm.LLM` holds while awake: its weights, and keys and values up to its share."""

    def __init__(self, weights: int, share: int) -> None:
        self.sizes = {"weights": min(weights, share), "kv_cache": max(0, share - weights)}
        self.held: dict[str, Tensor] = {}
        self.wake_up(list(self.sizes))

    def wake_up(self, tags: Sequence[str]) -> None:
        """Claim memory."""
        self.held |= {tag: torch.empty(self.sizes[tag], dtype=torch.uint8, device=CUDA) for tag in tags}

    def sleep(self, level: int) -> None:
        """Free all memory, whatever the level."""
        self.held.clear()

    def collective_rpc(self, method: str, kwargs: Mapping[str, Any]) -> None:
        """Read each weight once, as vLLM's `reload_weights` does."""
        for name, weight in kwargs["weights_iterator"]:
            if isinstance(weight, DTensor):
                raise TypeError(f"{name} is published in shards, {weight.placements}; expected a whole tensor")

    update_weight_version = reset_prefix_cache = staticmethod(lambda *given: True)


class RehearsedVLLM(ColocatedEngine):
    """The engine of rollout.engine = "vllm" without vLLM itself. Servers hold no memory here."""

    def __init__(self, config: EngineConfig) -> None:
        self.config, self.version, self.latest = config, NO_WEIGHTS, {}
        self.names = WeightNames(config.model.config)
        self.asleep = self.whole = False
        weights = getattr(torch, config.dtype).itemsize * sum(weight.numel() for weight in config.model.parameters())
        there = torch.cuda.get_device_properties(0).total_memory if config.rollout.engine == "vllm" else 0
        self.llm: Any = FakeVLLM(weights // config.options.tensor_parallel, int(config.options.memory * there))

    def score(self, prompts: Sequence[Any], responses: Sequence[Any]) -> list[Tensor]:
        """What the trainer reads from a fake device: zeros."""
        return [torch.zeros(len(response)) for response in responses]


def make_engine(spec: LLMSpec, model: PreTrainedModel, task: Any, group: ProcessGroup) -> DistributedEngine:
    """The recipe's engine, which publishes weights for real and holds its cache, but draws no tokens."""
    rollout, cache = spec.rollout, 0
    # no servers here; if the trainer's weights are sharded, each process generates with a whole model
    ENGINES.update(dict.fromkeys(("vllm", "vllm-server"), f"{__name__}:{RehearsedVLLM.__name__}"))
    with patch.object(transformers_engine, "load_model", lambda path: (on_device(deepcopy(model)), None)):
        found = backend.make_engine(spec, model, task, task, group)
    engine: Any = found.engine
    if rollout.engine == "transformers":
        drawn = (spec.schedule.prompts or 1) * (spec.schedule.group or 1) / group.size
        width = getattr(torch, spec.model.dtype).itemsize
        cache = min(rollout.cache_tokens, int(drawn * (rollout.max_prompt + rollout.width)))
        cache *= cache_bytes(model.config, width)

    def generate(prompts: Sequence[Any], each: int, seeds: Any, sampling: Any, progress: Any = None) -> Responses:
        """Fake responses while a full cache is held; short in step 1, which only creates the optimizer's state."""
        held = torch.empty(cache if sampling.width > SYNC_TOKENS else 0, dtype=torch.uint8, device=CUDA)
        length = min(task.response if engine.version else SHORT, task.response, sampling.width)
        tokens = torch.ones(len(prompts) * each, length, dtype=torch.long)
        tokens[:, -1] = END
        del held
        return Responses(tokens, torch.zeros(tokens.shape), tokens >= 0, torch.ones(len(tokens)).bool(), engine.version)

    gather = found.gather

    def gather_unequal(drawn: Responses | None) -> Responses:
        """The responses of all processes, of which the last is half as long: the rows of processes are not equal.

        A longer difference would move rows between processes, and a prompt that two share is read once more.
        """
        every = gather(drawn)
        if group.size > 1:
            half = every.mask.shape[1] // 2
            every.mask[-1, half:] = False
            every.tokens[-1, half - 1 :] = END
        return every

    found.gather = gather_unequal  # type: ignore[method-assign]
    engine.generate = generate
    if rollout.engine == "transformers":
        engine.inference = torch.no_grad  # fakes are not made in inference mode
    return found


def make_model(spec: LLMSpec, sharded: bool) -> PreTrainedModel:
    """The model of a recipe, from its configuration alone; on the device unless it will be sharded."""
    shape: Any = model_shapes.shape_of(spec)
    config = shape.config() if isinstance(shape, model_shapes.ModelShape) else shape
    with TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        model = shard_loading.make_empty_model(Path(folder))
    prepare_model(model, checkpointing=spec.model.checkpointing is True)
    model._apply(lambda tensor: tensor if tensor.is_meta else tensor.to(CUDA))  # buffers, which FSDP2 does not move
    return model if sharded else on_device(model)


def on_device(model: PreTrainedModel) -> PreTrainedModel:
    """Move a model's parameters from the meta device to memory on the fake device."""
    shard_loading.allocate(model, CUDA)
    return model


def make_policy(spec: LLMSpec, objective: Objective, model: PreTrainedModel, group: ProcessGroup) -> CausalPolicy:
    """The recipe's policy on fake tensors. From then on, `shard_loading` reads no weights in this process."""
    shard_loading.fill_model = lambda *given: None  # there are no weights to read
    return backend.make_policy(spec, objective, model, group)


def shards(request: Mapping[str, Any], rank: int) -> list[tuple[Any, ...]]:
    """Name, dtype and shape of each weight as a process holds it; nothing else in its memory depends on the rank."""
    spec, objective = resolve("llm", request["recipe"], request["changes"], trust=request["trust"])
    group = FakeGroup(spec.parallel, rank)
    try:
        policy = make_policy(spec, objective, make_model(spec, group.strategy == "fsdp2"), group)
    finally:
        torch.distributed.destroy_process_group()
    return [
        (name, weight.dtype, (weight.to_local() if isinstance(weight, DTensor) else weight).shape)
        for root in (policy.root, policy.reference_root)
        for name, weight in (root.named_parameters() if root is not None else ())
    ]


def rehearse(request: Mapping[str, Any], meter: Meter) -> None:
    """Run three steps of the loop: a short step, then two of two micro-batches, of which the second is measured.

    Raises:
        MemoryKept: the third step leaves more memory behind than the second.
    """
    spec, objective = resolve("llm", request["recipe"], request["changes"], trust=request["trust"])
    group = SINGLE
    if spec.parallel.processes > 1:
        group = FakeGroup(spec.parallel, request["rank"], lambda what: meter.current["order"].append([what, caller()]))
    task = make_task(spec, objective, group.size)
    model = make_model(spec, group.strategy == "fsdp2")
    # the verdict names everything that is left out here
    spec = spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"environment": None})})
    engine = make_engine(spec, model, task, group)
    spec = spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"lag": 0})})
    accelerate_group.summed = summed
    if isinstance(group, FakeGroup):
        policy_module.shard_by_tokens = group.shard  # type: ignore[assignment, attr-defined]
    old_logprobs.SAMPLE = 2**30  # score all rows: a sample would leave some processes without rows
    policy = make_policy(spec, objective, model, group)
    learner = backend.make_learner(spec, policy, task, task, engine)
    for name, phase in PHASES.items():
        setattr(learner, name, meter.phase(phase)(getattr(learner, name)))
    optimizer: Any = learner.optimizer
    optimizer.step = meter.phase("optimizer")(optimizer.step)

    held: list[Counter[str]] = []

    def observe(step: int, *given: Any) -> None:
        gc.collect()
        held.append(+meter.by_site)
        if step < LAST:
            meter.forget()
            return
        with meter.phase("save"):  # the copies to the host that a checkpoint makes
            tensors, _ = checkpoint.split_state(learner.state_dict())
            for tensor in (tensor for part in tensors.values() for tensor in part.values()):
                whole = full_tensor(tensor)
                if group.is_main_process:
                    whole.cpu()

    with meter.phase("rollout"):
        run(objective, learner, task, Schedule(LAST, task.group, 1), [observe])
    if kept := held[-1] - held[-2]:
        (site, size), *_ = kept.most_common(1)
        raise MemoryKept(f"{size / GIB:.2g} GiB more are held after a step than after the step before", site)


class MemoryKept(Exception):
    """Memory that every step leaves behind; its arguments are a sentence and the line that allocated it."""


def place(problem: BaseException) -> str:
    """The innermost line of pmdkit in a traceback; without any, the innermost line."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(PMDKIT)]
    frame = (ours or [frame for frame in frames if not frame.filename.startswith(OURS)] or frames)[-1]
    name = os.path.relpath(frame.filename, PMDKIT) if ours else os.path.basename(frame.filename)
    return f"{name}:{frame.lineno} {frame.name}: {frame.line}"


def rehearse_rank(request: Mapping[str, Any]) -> dict[str, Any]:
    """Rehearse one process; return its phases, and the mistake that ended it if there was one.

    A process that is not the first finds nothing that the one that it is `like` does not, if their shards are equal.
    """
    began, meter = time.perf_counter(), Meter(GPUS[request["gpu"]])
    found: dict[str, Any] = {"rank": request["rank"]}
    attend, positions = PackedLayout.attend_varlen, PackedLayout.positions

    def counted(layout: PackedLayout, *given: Any) -> Tensor:
        pairs = zip(layout.heads, layout.lengths, strict=True)  # of query and key: half of the full products, or less
        meter.pairs = sum(n * len(head) + n * (n + 1) // 2 for head, n in pairs)
        return attend(layout, *given)

    def entered(layout: PackedLayout, *given: Any) -> Tensor:
        meter.current["tokens"] += sum(layout.lengths)
        return positions(layout, *given)

    watched = device.watched(meter.resized)
    try:
        packed = patch.multiple(PackedLayout, attend_varlen=counted, positions=entered)
        with packed, watched, meter, meter.phase("build"):
            same = "like" in request and shards(request, request["rank"]) == shards(request, request["like"])
            if not same:
                rehearse(request, meter)
        found |= {"like": request["like"]} if same else {}
    except MemoryKept as kept:
        words, where = kept.args
        found |= {"problem": words, "phase": "rollout", "where": where}
    except Exception as problem:
        own = isinstance(problem, PmdkitError)
        words = str(problem) if own else f"{type(problem).__name__}: {first_line(problem)}"
        found |= {"problem": words, "phase": meter.latest, "where": place(problem), "traceback": traceback.format_exc()}
        found["code"] = getattr(problem, "exit_code", None)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    return {**found, "phases": meter.phases, "seconds": time.perf_counter() - began}


def main() -> None:
    """Rehearse the requests on standard input, one process for each, and print the results as JSON."""
    requests: list[dict[str, Any]] = json.load(sys.stdin)
    device.install(GPUS[requests[0]["gpu"]].gib)
    # one process per request even on fewer cores: three at once on two cores end before two and then one
    with ProcessPoolExecutor(len(requests), multiprocessing.get_context("fork")) as pool:  # torch is imported once
        print(json.dumps(list(pool.map(rehearse_rank, requests))))
    sys.stdout.flush()
    os._exit(0)
