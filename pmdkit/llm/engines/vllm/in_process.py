"""Start and shut down vLLM in the trainer's process, without side effects on it.

The trainer's random state, number of threads, process group and standard output stay as they are.
"""

import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch

from pmdkit.errors import EnvironmentLacks, UsageError, first_line


def start_vllm(options: dict[str, Any], architecture: str, version: str, owns_group: bool) -> Any:
    """Start a `vllm.LLM` with these arguments for a class of transformers; `owns_group`: see `shut_down_vllm`."""
    with stdout_to_stderr(), preserve_globals():
        try:
            from vllm import LLM, ModelRegistry
        except (ImportError, OSError) as problem:
            raise EnvironmentLacks(f"vLLM {version} does not load: {first_line(problem)}; reinstall it") from problem
        if architecture not in ModelRegistry.get_supported_archs():
            raise UsageError(
                f"vLLM {version} cannot serve a {architecture}; take rollout.engine = 'transformers', or a model of "
                "another architecture"
            )
        try:
            return LLM(**options)
        except (TypeError, ValueError, RuntimeError, NotImplementedError, AssertionError, OSError) as problem:
            destroy_groups(owns_group)
            raise EnvironmentLacks(
                f"vLLM {version} does not start with a {architecture}: {first_line(problem)}; see [vllm] for its "
                "memory and options, or take rollout.engine = 'transformers'"
            ) from problem


def shut_down_vllm(llm: Any, owns_group: bool) -> None:
    """Free everything. `owns_group`: torch's process group was made by vLLM, not by the trainer.

    This is done part by part: vLLM's own shutdown, which its finalizer would also call, destroys the trainer's process
    group as well.
    """
    with stdout_to_stderr():
        client = llm.llm_engine.engine_core
        finalizer = getattr(client, "_finalizer", None)
        if finalizer is not None:
            finalizer.detach()
        core = client.engine_core
        core.structured_output_manager.clear_backend()
        core.model_executor.shutdown()
        core.scheduler.shutdown()
        destroy_groups(owns_group)


def destroy_groups(owns_group: bool) -> None:
    """Leave vLLM's process groups, and torch's default one where vLLM made it."""
    from vllm.distributed import parallel_state

    parallel_state.destroy_model_parallel()
    if owns_group:
        parallel_state.destroy_distributed_environment()
    elif parallel_state._WORLD is not None:
        parallel_state._WORLD.destroy()
        parallel_state._WORLD = None


@contextmanager
def preserve_globals() -> Iterator[None]:
    """Preserve the global random states and `torch.set_num_threads`: vLLM seeds the former and disables the latter.

    Warnings are ignored: those among vLLM's own parts do not concern the user.
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


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Whatever this process writes to file descriptor 1 inside the block, from any thread, is written to 2.

    Standard output is for our own data, but vLLM and its C++ parts print there.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        with suppress(ValueError):  # a stream that a test runner closed
            sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
