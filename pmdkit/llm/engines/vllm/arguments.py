"""Arguments, environment variables and model folder for vLLM, which is not imported here."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from pmdkit.errors import UsageError
from pmdkit.llm.engines.base import EngineConfig
from pmdkit.llm.model import check_no_trust
from pmdkit.observe.console import quietly
from pmdkit.randomness import derive

REQUIRED_ENV = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in this process: weights are handed over, not sent
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
DEFAULT_ENV = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",  # each update warns of rotary tables, which are not weights
    "TOKENIZERS_PARALLELISM": "false",
}
BATCHED_TOKENS = 4096  # prompt tokens at a time on a CPU, for an engine in the trainer's process
READ_AT_IMPORT = "VLLM_LOGGING_STREAM"  # read once, when vllm is imported


def set_environment() -> None:
    """Set what vLLM reads from the environment, before it is imported.

    Raises:
        UsageError: a variable has another value already, or vllm was imported before it was set.
    """
    for name, value in REQUIRED_ENV.items():
        given = os.environ.get(name)
        if given not in (None, value):
            raise UsageError(f"{name} is {given} in the environment; rollout.engine = 'vllm' needs {value}: unset it")
        if given is None and name == READ_AT_IMPORT and "vllm" in sys.modules:
            raise UsageError(
                f"vllm was imported before {name} was set to {value}, and would print to standard output; "
                "import it after the engine was made, or set the variable first"
            )
        os.environ[name] = value
    for name, value in DEFAULT_ENV.items():
        os.environ.setdefault(name, value)


def max_model_len(context: int) -> int:
    """Tokens that vLLM must have room for: scoring a row of `context` tokens asks for one more."""
    return context + 1


def on_accelerator(config: EngineConfig) -> bool:
    """Whether the engine runs on an accelerator."""
    return config.device.type != "cpu"


def sleep_enabled(config: EngineConfig) -> bool:
    """Whether the engine gives its memory back during updates; not if it generates during them."""
    return config.vllm.sleep and on_accelerator(config) and config.rollout.lag == 0


def transfer_backend(config: EngineConfig) -> str:
    """How weights reach the engine: "file", through shared memory, or "ipc", handed over in this process."""
    transfer = config.vllm.transfer
    if transfer == "nccl":
        raise UsageError(
            "vllm.transfer is 'nccl' and rollout.engine is 'vllm', which shares the trainer's accelerator; "
            "NCCL needs two: take transfer = 'auto', or engine = 'vllm-server'"
        )
    return ("ipc" if on_accelerator(config) else "file") if transfer == "auto" else transfer


def llm_arguments(config: EngineConfig, folder: Path) -> dict[str, Any]:
    """Keyword arguments of `vllm.LLM`; the folder has the configuration and the tokenizer.

    Raises:
        UsageError: vllm.options sets an argument that is set here, or tensor_parallel does not divide the processes.
    """
    table, fast = config.vllm, on_accelerator(config)
    if config.size % table.tensor_parallel:
        raise UsageError(
            f"vllm.tensor_parallel is {table.tensor_parallel}; expected a divisor of parallel.processes, {config.size}"
        )
    given = engine_arguments(config, folder, BATCHED_TOKENS) | {"runner": "generate", "disable_log_stats": True}
    if fast:
        given["enable_sleep_mode"] = sleep_enabled(config)
    if config.size > 1:  # the launcher of the processes has set their ranks
        given["distributed_executor_backend"] = "external_launcher"
    given["weight_transfer_config"] = None  # set later, where vLLM may be imported
    check_free(table.options, given)
    return given | table.options


def engine_arguments(config: EngineConfig, folder: Path, batched_tokens: int) -> dict[str, Any]:
    """Arguments common to an engine in this process and a server; `batched_tokens` of prompts at a time on a CPU."""
    table, fast = config.vllm, on_accelerator(config)
    given: dict[str, Any] = {
        "model": str(folder),
        "load_format": "dummy",  # weights come by publish only: nothing stale can be used
        "dtype": config.dtype,
        "max_model_len": max_model_len(config.context),
        "logprobs_mode": "processed_logprobs",  # of the distribution that is sampled, temperature and top-p included
        "generation_config": "vllm",  # no defaults from the model's folder
        "skip_tokenizer_init": True,  # tokens in, tokens out
        "enforce_eager": table.eager or not fast,
        "seed": derive(config.seed, "vllm") % 2**31,
        "tensor_parallel_size": table.tensor_parallel,
    }
    if fast:
        given["gpu_memory_utilization"] = table.memory
    else:
        given["kv_cache_memory_bytes"] = int(table.cache_gib * 2**30)
        # chunked prefill takes back the draw of every chunk but the last, which CPU generators cannot do
        given["enable_chunked_prefill"] = False
        given["max_num_batched_tokens"] = max(batched_tokens, max_model_len(config.context))
    if table.rows is not None:
        given["max_num_seqs"] = table.rows
    return given


def check_free(options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse options of vLLM that pmdkit sets, in either spelling, and those that trust code from a model folder."""
    check_no_trust(options)
    ours = {*given, "tokenizer", "quantization", "enable_lora"}
    taken = sorted(name for name in options if name.replace("-", "_") in ours)
    if taken:
        raise UsageError(f"vllm.options sets {', '.join(taken)}, which pmdkit sets itself; see [vllm] and [rollout]")


def write_folder(
    folder: Path, model_config: PretrainedConfig, architecture: str, context: int, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Write the folder from which vLLM reads an architecture: config.json and the tokenizer's files, no weights.

    Args:
        model_config: of the trainer's model.
        architecture: class name in transformers; a model built from a configuration does not name it.
        context: most tokens of a row. Scoring asks for one more than the model may support; it is never read.
        tokenizer: of the model.
    """
    settings = model_config.to_dict() | {"architectures": [architecture], "use_cache": True}
    longest = settings.get("max_position_embeddings")
    if isinstance(longest, int) and longest + 1 == context:
        settings["max_position_embeddings"] = context
    with quietly():
        model_config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for key in ("architectures", "use_cache", "max_position_embeddings"):
        if key in settings:
            saved[key] = settings[key]
    (folder / "config.json").write_text(json.dumps(saved, indent=1), encoding="utf-8")
