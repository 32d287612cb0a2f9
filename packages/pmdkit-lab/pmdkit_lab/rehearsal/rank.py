"""One process of a rehearsal: two steps of pmdkit's loop at full size, with tensors on the device that are fake.

It reads a list of what to rehearse from standard input as JSON, and writes what it found to standard output.
"""

import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, TypedDict
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from pmdkit.distributed import SINGLE, ProcessGroup
from pmdkit.errors import PmdkitError, first_line
from pmdkit.llm import backend, collectives, old_logprobs, shard_loading
from pmdkit.llm.engines import transformers as transformers_engine
from pmdkit.llm.engines.base import NO_WEIGHTS, EngineConfig, Responses
from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.engines.vllm.colocate import ColocatedEngine
from pmdkit.llm.engines.vllm.weight_names import WeightNames
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.model import prepare_model
from pmdkit.llm.packed_attention import PackedLayout
from pmdkit.llm.policy import CausalPolicy
from pmdkit.llm.weights import full_tensor
from pmdkit.loop import Rollouts, Schedule, run
from pmdkit.objectives import Objective, traits
from pmdkit.observe import checkpoint
from pmdkit.resolve import resolve
from pmdkit.specs import LLMSpec
from pmdkit.specs.llm import ParallelTable
from pmdkit_lab.planner.model_shapes import ModelShape, shape_of
from pmdkit_lab.rehearsal import device
from pmdkit_lab.rehearsal.meter import CUDA, OURS, Meter

END = 0
SHORT = 16  # tokens of a response in the first step


class Request(TypedDict):
    """What to rehearse.

    `recipe`, `changes` and `trust` as for `resolve`; `gib` of one accelerator; `layers` of the model, or None for all.
    """

    recipe: str
    changes: dict[str, Any]
    trust: list[str]
    rank: int
    gib: float
    layers: int | None


class FakeGroup(collectives.AccelerateGroup):
    """The process group of one process whose peers do not exist: what it gathers is its own tensor, `size` times."""

    def __init__(self, table: ParallelTable, rank: int) -> None:
        device.start_group(rank, table.processes)
        self.strategy, self.replicas = table.strategy, table.replicas
        self.rank, self.size, self.device = rank, table.processes, CUDA

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """This process's tensor for every process."""
        return [tensor] * self.size

    def any_rank(self, flag: bool) -> bool:
        """This process's flag."""
        return flag

    def broadcast_object(self, value: Any) -> Any:
        """This process's value."""
        return value

    def wrap(self, root: nn.Module) -> nn.Module:
        """As in a run; of DDP without accelerate, which would start NCCL."""
        if self.strategy == "fsdp2" or not any(weight.requires_grad for weight in root.parameters()):
            return super().wrap(root)
        wrapped = nn.parallel.DistributedDataParallel(root, gradient_as_bucket_view=True, init_sync=False)
        wrapped.register_comm_hook(None, summed)
        wrapped.logger = SimpleNamespace(set_runtime_stats_and_log=lambda: None)  # torch's own has a timer of CUDA
        return wrapped


def summed(
    state: None,
    bucket: torch.distributed.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """`collectives.summed`, whose future has no value where nothing is sent."""
    torch.distributed.all_reduce(bucket.buffer())
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class FullRows:
    """The rows of a rehearsal: per process two micro-batches, each as full as the recipe allows.

    Attributes:
        prompts: in all.
        prompt, response: tokens of each.
        group: responses to each prompt.
    """

    def __init__(self, spec: LLMSpec, objective: Objective, size: int) -> None:
        schedule, self.prompt, self.response = spec.schedule, spec.rollout.max_prompt, spec.rollout.width
        assert schedule.group is not None
        assert schedule.prompts is not None
        if traits(objective).whole_groups:  # never split, however long: a group is a micro-batch
            self.group, self.prompts = schedule.group, 2 * size
        else:  # equally long rows that fill the budget, one of full length that exceeds it, or all that a ministep has
            room = spec.update.token_budget - self.prompt
            most = -(-schedule.prompts * schedule.group // (schedule.ministeps * size))
            rows = max(1, -(-room // self.response))
            if 1 < rows <= most:
                self.response = room // rows
            self.group, self.prompts = min(2 * rows, most), size
        self.tokens = list(range(1, self.prompt + 1))

    def answer(self, prompts: int, group: int, version: int) -> Responses:
        """Equally long responses; short ones in the first step, which only gives the optimizer its state."""
        length = self.response if version else min(self.response, SHORT)
        tokens = torch.ones(prompts * group, length, dtype=torch.long)
        tokens[:, -1] = END
        ended = torch.ones(len(tokens), dtype=torch.bool)
        return Responses(tokens, torch.full(tokens.shape, -1.0), tokens >= 0, ended, version)


class RehearsedTask:
    """Prompts by number; every second response is right."""

    def __init__(self, count: int) -> None:
        self.count = count

    def prompts(self, step: int) -> Tensor:
        """[P] the same prompts in every step."""
        return torch.arange(self.count)

    def reward(self, rollouts: Rollouts) -> Tensor:
        """[P, G] 0 and 1 in turn."""
        return (torch.arange(rollouts.mass.numel()).view(rollouts.mass.shape) % 2).double()


class PromptsByNumber:
    """Problems are their numbers, and all prompts have the same tokens."""

    tokenizer = SimpleNamespace(eos_token_id=END)

    def __init__(self, batch: FullRows) -> None:
        self.batch = batch

    def problem(self, number: int) -> int:
        """The problem of this number."""
        return number

    def encode(self, problem: int) -> Sequence[int]:
        """The tokens of its prompt."""
        return self.batch.tokens


class FakeVLLM:
    """What `vllm.LLM` holds on the device while it is awake: its weights, and keys and values up to its share."""

    def __init__(self, weights: int, share: int) -> None:
        self.sizes = {"weights": min(weights, share), "kv_cache": max(0, share - weights)}
        self.held: dict[str, Tensor] = {}
        self.wake_up(list(self.sizes))

    def wake_up(self, tags: Sequence[str]) -> None:
        """Claim memory."""
        self.held |= {tag: torch.empty(self.sizes[tag], dtype=torch.uint8, device=CUDA) for tag in tags}

    def sleep(self, level: int) -> None:
        """Give all memory back."""
        self.held.clear()

    def collective_rpc(self, method: str, kwargs: Mapping[str, Any]) -> None:
        """Take each weight once, as vLLM's `reload_weights` does."""
        for name, weight in kwargs["weights_iterator"]:
            if isinstance(weight, DTensor):
                raise TypeError(f"{name} is published in shards, {weight.placements}; expected a whole tensor")

    def update_weight_version(self, version: str) -> None:
        """Versions are in responses, which are not drawn here."""

    def reset_prefix_cache(self) -> bool:
        """Nothing is being written."""
        return True


class RehearsedVLLM(ColocatedEngine):
    """The engine of rollout.engine = "vllm" with everything but vLLM itself; with servers it holds nothing here."""

    def __init__(self, config: EngineConfig, batch: FullRows, gib: float) -> None:
        self.config, self.batch = config, batch
        self.ends, self.version, self.on_finished = list(config.ends), NO_WEIGHTS, None
        self.names = WeightNames(config.model.config)
        self.asleep = self.whole = False
        width = getattr(torch, config.dtype).itemsize
        weights = sum(width * prod(shape) for shape in self.names.model_shapes.values())
        share = int(config.vllm.memory * gib * device.GIB)
        self.llm: Any = FakeVLLM(weights // config.vllm.tensor_parallel, share)

    def generate(self, prompts: Any, group: int, seeds: Any, sampling: Any, progress: Any = None) -> Responses:
        """Responses of full length."""
        self.check_ready(len(prompts[0]) + sampling.width)
        return self.batch.answer(len(prompts), group, self.version)


class RehearsedTransformers(TransformersEngine):
    """The embedded engine with its real weights and publish; it holds its cache, and draws nothing."""

    batch: FullRows
    cache: int

    def generate(self, prompts: Any, group: int, seeds: Any, sampling: Any, progress: Any = None) -> Responses:
        """Responses of full length, beside a cache as large as the recipe's rows need."""
        cache = torch.empty(self.cache, dtype=torch.uint8, device=CUDA)
        found = self.batch.answer(len(prompts), group, self.version)
        del cache
        return found


def make_engine(
    spec: LLMSpec, model: PreTrainedModel, batch: FullRows, group: ProcessGroup, gib: float
) -> DistributedEngine:
    """The engine of a recipe, as `backend.make_engine` makes it, with the stand-ins of this file."""
    rollout, vllm = spec.rollout, spec.vllm
    config = EngineConfig(
        model=model,
        tokenizer=None,  # type: ignore[arg-type]  # nothing is read as text
        ends=(END,),
        rollout=rollout,
        vllm=vllm,
        dtype=spec.model.dtype,
        context=rollout.max_prompt + rollout.width,
        device=CUDA,
        own=group.strategy == "fsdp2" or rollout.lag > 0,
        size=group.size,
        seed=spec.run.seed,
    )
    engine: Any
    if rollout.engine == "transformers":
        module: Any = transformers_engine
        module.TransformersEngine = RehearsedTransformers
        # where the trainer's weights are shards, each process generates with a whole model
        module.load_model = lambda path: (on_device(deepcopy(model)), None)
        engine = module.make(config)
        engine.batch, engine.cache = batch, cache_bytes(spec, model, group.size)
    else:
        engine = RehearsedVLLM(config, batch, gib)
    span = vllm.tensor_parallel if rollout.engine == "vllm" else 1
    return DistributedEngine(engine, group, END, span=span)


def cache_bytes(spec: LLMSpec, model: PreTrainedModel, size: int) -> int:
    """Bytes of keys and values that the embedded engine holds at most: all rows of this process, within its limit."""
    config, schedule, rollout = model.config, spec.schedule, spec.rollout
    rows = (schedule.prompts or 1) * (schedule.group or 1) / size
    tokens = min(rollout.cache_tokens, int(rows * (rollout.max_prompt + rollout.width)))
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * tokens * config.num_hidden_layers * heads * width * getattr(torch, spec.model.dtype).itemsize)


def make_model(spec: LLMSpec, sharded: bool, layers: int | None) -> PreTrainedModel:
    """The model of a recipe, from its configuration alone; on the device unless it will be sharded."""
    shape = shape_of(spec)
    config: Any = shape.config() if isinstance(shape, ModelShape) else shape
    if layers is not None:
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
    with TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        model = shard_loading.make_empty_model(Path(folder))
    prepare_model(model, checkpointing=spec.model.checkpointing)
    for module in model.modules():
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.to(CUDA)
    return model if sharded else on_device(model)


def on_device(model: PreTrainedModel) -> PreTrainedModel:
    """The model with memory on the device for its parameters, which are on the meta device."""
    shard_loading.allocate(model, CUDA)
    return model


def make_learner(
    spec: LLMSpec, policy: CausalPolicy, batch: FullRows, engine: DistributedEngine, meter: Meter
) -> CausalLearner:
    """The learner of a recipe, whose phases are counted."""

    class RehearsedLearner(CausalLearner):
        """A learner that says in which phase it is."""

        def sync_weights(self) -> None:
            with meter.phase("publish"):
                super().sync_weights()

        def score(self, rollouts: Rollouts) -> Tensor:
            with meter.phase("score"):
                return super().score(rollouts)

        def with_reference(self, rollouts: Any) -> Any:
            with meter.phase("score"):
                return super().with_reference(rollouts)

        def update(self, *given: Any) -> dict[str, float]:
            with meter.phase("update"):
                return super().update(*given)

    module: Any = backend
    module.CausalLearner = RehearsedLearner
    old_logprobs.SAMPLE = 2**30  # all rows: a sample would leave processes without any
    encoder: Any = PromptsByNumber(batch)
    learner = backend.make_learner(spec, policy, encoder, encoder, engine)
    stack = ExitStack()
    learner.optimizer.register_step_pre_hook(lambda *given: stack.enter_context(meter.phase("optimizer")) and None)
    learner.optimizer.register_step_post_hook(lambda *given: stack.close())
    return learner


def save(state: dict[str, Any], group: ProcessGroup) -> None:
    """What a checkpoint copies to the host; nothing is written."""
    tensors, _ = checkpoint.split_state(state)
    for part in tensors.values():
        for tensor in part.values():
            whole = full_tensor(tensor)
            if group.is_main_process:
                whole.cpu()


def rehearse(request: Request, meter: Meter) -> None:
    """Two steps of the loop: a short one, and one of two micro-batches, which is counted."""
    spec, objective = resolve("llm", request["recipe"], request["changes"], trust=request["trust"])
    size, table = spec.parallel.processes, spec.parallel
    # what cannot be rehearsed is left out here, and named by `skipped`
    rollout = spec.rollout.model_copy(update={"lag": 0, "environment": None, "canary": 0})
    group = SINGLE if size == 1 else FakeGroup(table, request["rank"])
    batch = FullRows(spec, objective, size)
    model = make_model(spec, group.strategy == "fsdp2", request["layers"])
    engine = make_engine(spec, model, batch, group, request["gib"])
    spec = spec.model_copy(update={"rollout": rollout})
    shard_loading.fill_model = lambda *given: None  # there are no weights to read
    policy = backend.make_policy(spec, objective, model, group)
    learner = make_learner(spec, policy, batch, engine, meter)

    def observe(step: int, *given: Any) -> None:
        with meter.phase("save"):
            save(learner.state_dict(), group)
        if step == 1:
            meter.forget()

    with meter.phase("rollout"):
        run(objective, learner, RehearsedTask(batch.prompts), Schedule(2, batch.group, 1), [observe])


@contextmanager
def counting_pairs(meter: Meter) -> Iterator[None]:
    """Let the meter know how many pairs of query and key the next attention has: half of the full products, or less."""
    attend = PackedLayout.attend_varlen

    def counted(layout: PackedLayout, *given: Any) -> Tensor:
        pairs = zip(layout.heads, layout.lengths, strict=True)
        meter.pairs = sum(n * len(head) + n * (n + 1) // 2 for head, n in pairs)
        return attend(layout, *given)

    with patch.object(PackedLayout, "attend_varlen", counted):
        yield


def place(problem: BaseException) -> str:
    """The innermost line of pmdkit in a traceback that is not the rehearsal's, or the innermost of all."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if "/pmdkit/" in frame.filename and not frame.filename.startswith(OURS)]
    frame = (ours or frames)[-1]
    name = frame.filename.partition("/pmdkit/")[2] if ours else os.path.basename(frame.filename)
    return f"{name}:{frame.lineno} {frame.name}: {frame.line}"


def rehearse_rank(request: Request) -> dict[str, Any]:
    """What one process finds: its phases, and the mistake that ended it, if there was one."""
    began = time.perf_counter()
    found: dict[str, Any] = {"rank": request["rank"]}
    meter = Meter()
    try:
        with counting_pairs(meter), meter, meter.phase("build"):
            rehearse(request, meter)
    except PmdkitError as problem:
        found |= {"problem": str(problem), "code": problem.exit_code, "where": place(problem)}
    except Exception as problem:
        found |= {"problem": f"{type(problem).__name__}: {first_line(problem)}", "where": place(problem)}
        found["traceback"] = traceback.format_exc()
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    if "problem" in found:
        found["phase"] = meter.latest
    found["phases"] = {name: vars(one) for name, one in meter.phases.items()}
    return {**found, "seconds": time.perf_counter() - began}


def main() -> None:
    """Rehearse what standard input asks for, and print what was found as JSON; a process for each request."""
    requests: list[Request] = json.load(sys.stdin)
    device.install(requests[0]["gib"])
    workers = min(len(requests), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:  # torch is imported once
        print(json.dumps(list(pool.map(rehearse_rank, requests))))
    sys.stdout.flush()
    os._exit(0)
