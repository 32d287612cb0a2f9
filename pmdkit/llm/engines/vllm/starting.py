"""A vLLM in this process, begun and ended so that the trainer notices nothing: its random numbers, its threads, its
process group and its standard output stay its own."""

import gc
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.vllm.quiet import to_stderr


def start(arguments: dict[str, Any], architecture: str, version: str, ours: bool) -> Any:
    """A `vllm.LLM`.

    Args:
        arguments: of it.
        architecture: the trainer's class in transformers.
        version: of vLLM, for messages.
        ours: see `end`.

    Raises:
        UsageError: this vLLM does not know the architecture, or an option of [vllm.options].
        EnvironmentLacks: vLLM does not come up: memory, kernels, a build for other hardware.
    """
    with to_stderr(), untouched():
        try:
            from vllm import LLM, ModelRegistry
        except (ImportError, OSError) as problem:
            raise EnvironmentLacks(f"vLLM {version} does not load: {first_line(problem)}; install it anew") from problem
        known = ModelRegistry.get_supported_archs()
        if architecture not in known:
            raise UsageError(
                f"vLLM {version} cannot serve a {architecture}; take rollout.engine = 'transformers', or a model of "
                "another architecture"
            )
        try:
            return LLM(**arguments)
        except (TypeError, ValueError, RuntimeError, NotImplementedError, AssertionError, OSError) as problem:
            end_groups(ours)
            raise EnvironmentLacks(
                f"vLLM {version} does not start with a {architecture}: {first_line(problem)}; see [vllm] for its "
                "memory and options, or take rollout.engine = 'transformers'"
            ) from problem


def end(llm: Any, ours: bool) -> None:
    """Free everything. `ours`: the process group of torch was vLLM's, not the trainer's.

    Part by part: vLLM's own shutdown, which its finalizer would call too, takes the trainer's process group along.
    """
    with to_stderr():
        client = llm.llm_engine.engine_core
        finalizer = getattr(client, "_finalizer", None)
        if finalizer is not None:
            finalizer.detach()
        core = client.engine_core
        core.structured_output_manager.clear_backend()
        core.model_executor.shutdown()
        core.scheduler.shutdown()
        end_groups(ours)


def end_groups(ours: bool) -> None:
    """Leave vLLM's process groups, and torch's default one where vLLM made it."""
    from vllm.distributed import parallel_state

    parallel_state.destroy_model_parallel()
    if ours:
        parallel_state.destroy_distributed_environment()
    elif parallel_state._WORLD is not None:
        parallel_state._WORLD.destroy()
        parallel_state._WORLD = None


def collect() -> None:
    """Give back what nobody refers to any more."""
    gc.unfreeze()  # vLLM freezes what is there when it has started
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def untouched() -> Iterator[None]:
    """Global random numbers and the setting of threads, as they were: vLLM seeds all of them and disables the other.

    What vLLM's own parts warn each other of is no user's concern.
    """
    kept, numbers, threads = random.getstate(), np.random.get_state(), torch.set_num_threads
    count = torch.get_num_threads()
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random.setstate(kept)
            np.random.set_state(numbers)
            torch.set_num_threads = threads
            torch.set_num_threads(count)


def first_line(problem: BaseException) -> str:
    """The beginning of somebody else's error; pydantic's first line says how many there are."""
    lines = (str(problem).strip() or type(problem).__name__).splitlines()
    return " ".join(line.strip() for line in lines[: 3 if "validation error" in lines[0] else 1])[:300]
