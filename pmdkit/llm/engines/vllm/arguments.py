"""Arguments, environment variables and model folder for a `vllm.LLM` in this process. vLLM is not imported here."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pmdkit.errors import UsageError
from pmdkit.llm.engines.base import EngineConfig, Sampling
from pmdkit.observe.telemetry import quietly
from pmdkit.randomness import derive

REQUIRED_ENV = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in this process: weights are handed over, not sent
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is for our own data; read when vllm is imported
}
DEFAULT_ENV = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",  # each update warns of rotary tables, which are not weights
    "TOKENIZERS_PARALLELISM": "false",
}
MAX_SEED = 2**63 - 1  # vLLM's seeds are signed
CPU_CACHE_BYTES = 2**30  # of keys and values: thousands of rows of a model that is small enough for a CPU


def set_environment() -> None:
    """Set the environment variables that vLLM reads, before it is imported."""
    late = "vllm" in sys.modules and "VLLM_LOGGING_STREAM" not in os.environ
    for name, value in REQUIRED_ENV.items():
        given = os.environ.setdefault(name, value)
        if given != value or late:
            raise UsageError(
                f"{name} was {'not set when vllm was imported' if late else given}; rollout.engine = 'vllm' needs "
                f"{value}: unset it, and import vllm after the engine was made"
            )
    for name, value in DEFAULT_ENV.items():
        os.environ.setdefault(name, value)


def llm_arguments(config: EngineConfig, folder: Path) -> dict[str, Any]:
    """Keyword arguments of `vllm.LLM`; the folder has the configuration and the tokenizer."""
    table, fast = config.options, config.device.type != "cpu"
    if config.size % table.tensor_parallel:
        raise UsageError(
            f"vllm.tensor_parallel is {table.tensor_parallel}; expected a divisor of parallel.processes, {config.size}"
        )
    longest = config.context + 1  # scoring a row of `context` tokens asks for one more
    given: dict[str, Any] = {
        "model": str(folder),
        "runner": "generate",
        "load_format": "dummy",  # weights come by publish only: nothing stale can be used
        "dtype": config.dtype,
        "max_model_len": longest,
        "logprobs_mode": "processed_logprobs",  # of the distribution that is sampled, temperature and top-p included
        "generation_config": "vllm",  # no defaults from the model's folder
        "skip_tokenizer_init": True,  # tokens in, tokens out
        "enforce_eager": table.eager or not fast,
        "seed": derive(config.seed, "vllm") % 2**31,
        "tensor_parallel_size": table.tensor_parallel,
        "disable_log_stats": True,
    }
    if fast:
        given["gpu_memory_utilization"] = table.memory
        given["enable_sleep_mode"] = sleep_enabled(config)
    else:
        given["kv_cache_memory_bytes"] = CPU_CACHE_BYTES
        # chunked prefill takes back the draw of every chunk but the last, which CPU generators cannot do
        given["enable_chunked_prefill"] = False
        given["max_num_batched_tokens"] = max(4096, longest)
    if config.rollout.in_flight:
        given["async_scheduling"] = False  # else a step is under way under the old weights when new ones are loaded
        if config.rollout.in_flight_cache == "keep":  # a prompt that begins later is read by the newer weights
            given["enable_prefix_caching"] = False
    if table.rows is not None:
        given["max_num_seqs"] = table.rows
    if config.size > 1:  # the launcher of the processes has set their ranks
        given["distributed_executor_backend"] = "external_launcher"
    if taken := sorted(given.keys() & table.options.keys()):
        raise UsageError(f"vllm.options sets {', '.join(taken)}, which pmdkit sets itself; see [vllm] and [rollout]")
    return {**given, **table.options}


def sampling_arguments(sampling: Sampling, ends: Sequence[int]) -> dict[str, Any]:
    """Sampling arguments of both engines for every row; each row has a seed of its own."""
    return {
        "max_tokens": sampling.width,
        "temperature": 0.0 if sampling.greedy else sampling.temperature,
        "top_p": 1.0 if sampling.greedy else sampling.top_p,
        "logprobs": 0,  # of the sampled token only
        "stop_token_ids": list(ends),
        "ignore_eos": True,  # only our own end tokens
    }


def sleep_enabled(config: EngineConfig) -> bool:
    """Whether the engine gives its memory back during updates; not if it generates during them."""
    return config.options.sleep and config.device.type != "cpu" and config.rollout.lag == 0


def write_folder(folder: Path, config: EngineConfig, architecture: str, longest: int) -> None:
    """Write the folder from which vLLM reads an architecture: config.json and the tokenizer's files, no weights.

    A model built from a configuration does not name its class, the architecture. `longest` row, in tokens, may be one
    more than the model supports: that one is never read.
    """
    with quietly():
        config.model.config.save_pretrained(folder)
        config.tokenizer.save_pretrained(folder)
    path = folder / "config.json"
    saved = json.loads(path.read_text(encoding="utf-8"))
    saved |= {"architectures": [architecture], "use_cache": True}
    if saved.get("max_position_embeddings") == longest - 1:
        saved["max_position_embeddings"] = longest
    path.write_text(json.dumps(saved, indent=1), encoding="utf-8")
