"""What starts a server: its arguments, its environment, its accelerators. Not the process itself, nor its health."""

import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from math import ceil
from pathlib import Path
from typing import Any

import torch

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.vllm.arguments import accelerated, check_free, max_model_len
from pmdkit.llm.engines.vllm.plugin import FILE
from pmdkit.llm.engines.vllm.versions import API
from pmdkit.llm.engines.wanted import Wanted
from pmdkit.randomness import derive

EXTENSION = "pmdkit.llm.engines.vllm.serve_extension.Reloading"
UNSET = ("VLLM_API_KEY", "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_PORT")  # of engines in this process, or of others


def command(wanted: Wanted, folder: Path, api: API, transfer: str, host: str, port: int, model: str) -> list[str]:
    """The argument list of one server.

    Args:
        wanted: what the engine is made from.
        folder: of configuration and tokenizer.
        api: how it takes weights.
        transfer: "file" or "nccl".
        host, port: where it listens.
        model: name under which it serves, known to nobody else.

    Raises:
        UsageError: vllm.options sets what is set here.
    """
    table, fast = wanted.vllm, accelerated(wanted)
    given: dict[str, Any] = {
        "model": str(folder),
        "served_model_name": model,
        "host": host,
        "port": port,
        "load_format": "dummy",  # weights come by publish only: nothing stale can be used
        "dtype": wanted.dtype,
        "max_model_len": max_model_len(wanted.context),
        "logprobs_mode": "processed_logprobs",  # of the distribution that is sampled, temperature and top-p included
        "generation_config": "vllm",  # no defaults from the model's folder
        "enforce_eager": table.eager or not fast,
        "seed": derive(wanted.seed, "vllm") % 2**31,
        "tensor_parallel_size": table.tensor_parallel,
        "data_parallel_size": table.data_parallel,
        "disable_uvicorn_access_log": True,
    }
    if fast:
        given["gpu_memory_utilization"] = table.memory
    else:
        # a row with a seed of its own cannot be read in parts: a generator on a CPU cannot be set back
        given["enable_chunked_prefill"] = False
        given["max_num_batched_tokens"] = max(8192, max_model_len(wanted.context))
    if api == "native":
        given["skip_tokenizer_init"] = True  # tokens in, tokens out
    if api == "native" and not fast:
        given["kv_cache_memory_bytes"] = int(table.cache_gib * 2**30)
    if table.rows is not None:
        given["max_num_seqs"] = table.rows
    if api == "reload":
        given["worker_extension_cls"] = EXTENSION
    else:
        given["weight_transfer_config"] = {"backend": FILE if transfer == "file" else transfer}
    check_free(table.options, given)
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *flags(given | table.options)]


def flags(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments by their names in Python as a command line holds them."""
    line: list[str] = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            line.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            line += [f"--{flag}", json.dumps(value) if isinstance(value, dict | list) else str(value)]
    return line


def environment(wanted: Wanted, accelerators: Sequence[str]) -> dict[str, str]:
    """All environment variables of one server."""
    own = {name: value for name, value in os.environ.items() if name not in UNSET}
    # a server is no rank of the trainer's team
    own = {name: value for name, value in own.items() if not name.startswith(("ACCELERATE_", "TORCHELASTIC_"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK"):
        own.pop(name, None)
    own |= {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    own.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    own.setdefault("TOKENIZERS_PARALLELISM", "false")
    if accelerated(wanted):
        own["CUDA_VISIBLE_DEVICES"] = ",".join(accelerators)
    else:
        own["VLLM_CPU_KVCACHE_SPACE"] = str(ceil(wanted.vllm.cache_gib))
        own.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
        # by default every server binds its threads to the same first cores
        own.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    return own


def divide(wanted: Wanted) -> list[list[str]]:
    """The accelerators of each server: the last ones of this machine that no rank of the trainer has.

    Raises:
        EnvironmentLacks: there are fewer.
    """
    table = wanted.vllm
    if not accelerated(wanted):
        return [[] for _ in range(table.servers)]
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = given.split(",") if given else [str(number) for number in range(torch.cuda.device_count())]
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", wanted.size))
    each = table.tensor_parallel * table.data_parallel
    free, need = seen[ranks:], table.servers * each
    if len(free) < need:
        raise EnvironmentLacks(
            f"{table.servers} servers of {each} accelerators need {need}; {len(seen)} are seen here, and the trainer "
            f"has {ranks} of them: set vllm.servers, tensor_parallel and data_parallel to what is free, start servers "
            "elsewhere and give vllm.urls, or take rollout.engine = 'vllm', which shares them"
        )
    first = len(free) - need
    return [free[first + at * each : first + (at + 1) * each] for at in range(table.servers)]


def check_host(host: str) -> None:
    """Refuse to listen everywhere; warn where others may reach the server.

    A server that takes weights takes them from anyone who reaches it (VLLM_SERVER_DEV_MODE has no keys).
    """
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if address is not None and address.is_unspecified:
        raise UsageError(
            f"vllm.host is {host}, every network of this machine; whoever reaches a server can replace its weights: "
            "name the address of one private network, or take 127.0.0.1"
        )
    if host != "localhost" and (address is None or not address.is_loopback):
        warnings.warn(
            f"vLLM servers listen on {host}: whoever reaches them can replace their weights; private networks only",
            stacklevel=2,
        )
