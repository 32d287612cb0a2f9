"""Arguments and environment variables of vLLM for a run. Not where they are used, and nothing of vLLM is imported."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmdkit.errors import UsageError
from pmdkit.llm.engines.vllm.versions import API
from pmdkit.llm.engines.wanted import Wanted
from pmdkit.llm.trust import check_options
from pmdkit.randomness import derive

MUST = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in this process: weights are handed over, not sent
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
MAY = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",  # each update warns of rotary tables, which are no weights
    "TOKENIZERS_PARALLELISM": "false",
}
READ_TOKENS = 4096  # of prompts, at a time on a CPU
EARLY = "VLLM_LOGGING_STREAM"  # read once, when vllm is imported


def set_environment() -> None:
    """Set what vLLM reads from the environment, before it is imported.

    Raises:
        UsageError: the user, or whoever imported vllm before, wants it otherwise.
    """
    for name, value in MUST.items():
        given = os.environ.get(name)
        if given not in (None, value):
            raise UsageError(f"{name} is {given} in the environment; rollout.engine = 'vllm' needs {value}: unset it")
        if given is None and name == EARLY and "vllm" in sys.modules:
            raise UsageError(
                f"vllm was imported before {name} was set to {value}, and would print to standard output; "
                "import it after the engine was made, or set the variable first"
            )
        os.environ[name] = value
    for name, value in MAY.items():
        os.environ.setdefault(name, value)


def max_model_len(context: int) -> int:
    """Tokens that vLLM must have room for: scoring a row of `context` tokens asks for one more."""
    return context + 1


def accelerated(wanted: Wanted) -> bool:
    """Whether the engine runs on an accelerator."""
    return wanted.device.type != "cpu"


def sleeping(wanted: Wanted) -> bool:
    """Whether the engine gives its memory back during updates: not while it writes during them."""
    return wanted.vllm.sleep and accelerated(wanted) and wanted.rollout.lag == 0


def backend(wanted: Wanted) -> str:
    """How weights reach the engine: "file" through shared memory, or "ipc": handed over in this process."""
    asked = wanted.vllm.transfer
    if asked == "nccl":
        raise UsageError(
            "vllm.transfer is 'nccl' and rollout.engine is 'vllm', which shares the trainer's accelerator; "
            "NCCL needs two: take transfer = 'auto', or engine = 'vllm-server'"
        )
    return ("ipc" if accelerated(wanted) else "file") if asked == "auto" else asked


def arguments(wanted: Wanted, folder: Path, api: API) -> dict[str, Any]:
    """Keyword arguments of `vllm.LLM`.

    Args:
        wanted: what the engine is made from.
        folder: of configuration and tokenizer.
        api: of weights.

    Raises:
        UsageError: vllm.options sets what is set here, or several processes cannot form groups of tensor_parallel.
    """
    table, fast = wanted.vllm, accelerated(wanted)
    if wanted.size % table.tensor_parallel:
        raise UsageError(
            f"vllm.tensor_parallel is {table.tensor_parallel} and parallel.processes {wanted.size}; expected a divisor"
        )
    given: dict[str, Any] = {
        "model": str(folder),
        "runner": "generate",
        "load_format": "dummy",  # weights come by publish only: nothing stale can be used
        "dtype": wanted.dtype,
        "max_model_len": max_model_len(wanted.context),
        "logprobs_mode": "processed_logprobs",  # of the distribution that is sampled, temperature and top-p included
        "generation_config": "vllm",  # no defaults from the model's folder
        "skip_tokenizer_init": True,  # tokens in, tokens out
        "enforce_eager": table.eager or not fast,
        "seed": derive(wanted.seed, "vllm") % 2**31,
        "tensor_parallel_size": table.tensor_parallel,
        "disable_log_stats": True,
    }
    if fast:
        given["gpu_memory_utilization"] = table.memory
        given["enable_sleep_mode"] = sleeping(wanted)
    else:
        given["kv_cache_memory_bytes"] = int(table.cache_gib * 2**30)
        # a prompt in pieces takes back the draw of each but the last, which generators of a CPU cannot
        given["enable_chunked_prefill"] = False
        given["max_num_batched_tokens"] = max(READ_TOKENS, max_model_len(wanted.context))
    if wanted.size > 1:  # whoever started the processes has named their ranks
        given["distributed_executor_backend"] = "external_launcher"
    if table.rows is not None:
        given["max_num_seqs"] = table.rows
    if api == "native":
        given["weight_transfer_config"] = None  # set where vLLM may be imported
    check_free(table.options, given)
    return given | table.options


def check_free(options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse options of vLLM that pmdkit sets, in either spelling, and those that trust code of a model folder."""
    check_options(options)
    ours = {*given, "tokenizer", "quantization", "enable_lora"}
    taken = sorted(name for name in options if name.replace("-", "_") in ours)
    if taken:
        raise UsageError(f"vllm.options sets {', '.join(taken)}, which pmdkit sets itself; see [vllm] and [rollout]")
