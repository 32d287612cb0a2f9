"""The process of a vLLM server under a guard: its command, environment, port and accelerators."""

import json
import os
import re
import socket
import sys
import warnings
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from math import ceil
from pathlib import Path
from typing import Any

import torch

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import EngineConfig
from pmdkit.llm.engines.vllm.arguments import check_free, engine_arguments, on_accelerator
from pmdkit.llm.engines.vllm.plugin import FILE, OF_A_RUN
from pmdkit.processes import GuardedProcess, exit_reason

BATCHED_TOKENS = 8192  # prompt tokens at a time on a CPU
UNSET = {"VLLM_API_KEY", "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_PORT"}  # for engines in this process, or others
UNSET |= {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK"}
RANK_PREFIXES = ("ACCELERATE_", "TORCHELASTIC_")  # a server is not a rank of the trainer
ERROR_LINE = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Interrupt)\b: *\S")
PREFIX = re.compile(r"^(?:\(\w+[^)]*\) )?(?:(?:INFO|WARNING|ERROR|CRITICAL) [\d:. -]+\[[^\]]*\] )?")


class ServerProcess(GuardedProcess):
    """A running command under a guard, with all that it starts. It ends when this process does, however that ends.

    Args:
        command: argument list; no shell sees it.
        environment: all of it.
        log: its output is appended to this file.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        super().__init__(command, environment, log)
        self.log = log

    @property
    def ended(self) -> bool:
        """Whether the server has ended, by itself or killed."""
        return not self.alive

    @property
    def how(self) -> str:
        """How it ended, and the last informative line that it printed."""
        code = self.exit_code
        if code is None:
            return "is still running"
        end = exit_reason(code if code <= 128 else code - 256)  # a guard's code is that of the server modulo 256
        words = "" if "SIGKILL" in end else last_words(self.log)  # a killed process cannot say why
        return f"{end}; its last words: {words}" if words else end


def last_words(log: Path, most: int = 300) -> str:
    """The last line of a log that names an error, else the last line of all."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 2**18))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    # an error that follows from another one refers to its root cause: the latter is more informative
    telling = [line for line in lines if ERROR_LINE.search(line) and "root cause" not in line]
    line = (telling or lines or [""])[-1]
    return PREFIX.sub("", line)[:most]


def find_port(host: str, port: int) -> int:
    """A port that nothing listens on: this one, or any free one for 0.

    Raises:
        EnvironmentLacks: it is taken, or there is no such address here.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OSError as problem:
        raise EnvironmentLacks(
            f"a server cannot listen on {host}, port {port}: {problem.strerror}; set vllm.port to another one, or to 0 "
            "for a free one"
        ) from problem


def server_command(config: EngineConfig, folder: Path, transfer: str, host: str, port: int, model: str) -> list[str]:
    """The argument list of one server, with weights by "file" or "nccl", under a unique model name.

    Raises:
        UsageError: vllm.options sets an argument that is set here.
    """
    table = config.vllm
    given = engine_arguments(config, folder, BATCHED_TOKENS) | {
        "served_model_name": model,
        "host": host,
        "port": port,
        "data_parallel_size": table.data_parallel,
        "disable_uvicorn_access_log": True,
        "weight_transfer_config": {"backend": FILE if transfer == "file" else transfer},
    }
    check_free(table.options, given)
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *flags(given | table.options)]


def flags(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments by their Python names, as command-line flags."""
    line: list[str] = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            line.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            line += [f"--{flag}", json.dumps(value) if isinstance(value, dict | list) else str(value)]
    return line


def server_environment(config: EngineConfig, accelerators: Sequence[str]) -> dict[str, str]:
    """All environment variables of one server."""
    own = {k: value for k, value in os.environ.items() if k not in UNSET and not k.startswith(RANK_PREFIXES)}
    own |= {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", OF_A_RUN: "1"}
    own.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    own.setdefault("TOKENIZERS_PARALLELISM", "false")
    if on_accelerator(config):
        own["CUDA_VISIBLE_DEVICES"] = ",".join(accelerators)
    else:
        own["VLLM_CPU_KVCACHE_SPACE"] = str(ceil(config.vllm.cache_gib))
        own.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
        # by default every server binds its threads to the same first cores
        own.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    return own


def server_accelerators(config: EngineConfig) -> list[list[str]]:
    """The accelerators of each server: the last ones of this machine that no rank of the trainer uses.

    Raises:
        EnvironmentLacks: there are too few.
    """
    table = config.vllm
    if not on_accelerator(config):
        return [[] for _ in range(table.servers)]
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = given.split(",") if given else [str(number) for number in range(torch.cuda.device_count())]
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", config.size))
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
    """Refuse to listen on every network; warn if others may reach the server.

    A server accepts weights from anyone who reaches it (VLLM_SERVER_DEV_MODE has no authentication).
    """
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if address is not None and address.is_unspecified:
        raise UsageError(
            f"vllm.host is {host}, every network of this machine; anyone who reaches a server can replace its weights: "
            "name the address of one private network, or take 127.0.0.1"
        )
    if host != "localhost" and (address is None or not address.is_loopback):
        warnings.warn(
            f"vLLM servers listen on {host}: anyone who reaches them can replace their weights; private networks only",
            stacklevel=2,
        )
