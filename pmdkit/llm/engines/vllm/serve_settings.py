"""What servers must be like: how weights reach them, and what is asked of those that others started."""

from importlib.metadata import entry_points
from typing import Any

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.vllm.arguments import accelerated, max_model_len
from pmdkit.llm.engines.vllm.http import Server
from pmdkit.llm.engines.vllm.plugin import FILE
from pmdkit.llm.engines.vllm.versions import API
from pmdkit.llm.engines.wanted import Wanted

SOON = 10.0  # seconds in which a server that works answers what costs it nothing
PLUGINS = "vllm.general_plugins"
START = (
    "start it with VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs "
    '--generation-config vllm, and from 0.32 on --weight-transfer-config \'{"backend": "%s"}\''
)


def chosen(wanted: Wanted, api: API) -> str:
    """How weights reach servers: "file" or "nccl".

    Raises:
        UsageError: by a way that no server knows.
        EnvironmentLacks: by one that this vLLM does not know.
    """
    asked = wanted.vllm.transfer
    if asked == "ipc":
        raise UsageError("vllm.transfer is 'ipc', which works in one process; servers take 'nccl', 'file' or 'auto'")
    if asked == "nccl" and api == "reload":
        raise EnvironmentLacks("vllm.transfer is 'nccl' and vLLM is 0.24, whose servers take files: set 'file'")
    if asked == "auto":
        return "nccl" if accelerated(wanted) and api == "native" else "file"
    return asked


def check_plugin() -> None:
    """vLLM finds our backend by an entry point, which only an installed pmdkit has.

    Raises:
        EnvironmentLacks: there is none.
    """
    if not any(point.value == "pmdkit.llm.engines.vllm.plugin:register" for point in entry_points(group=PLUGINS)):
        raise EnvironmentLacks(
            f"vLLM does not know pmdkit, which is not installed here with its entry point {PLUGINS}: install it with "
            "pip (in a checkout: pip install -e .), also where servers run"
        )


def check_settings(server: Server, wanted: Wanted, api: API, transfer: str) -> None:
    """Of one server of others: log-probabilities, context, and the way weights take.

    Raises:
        EnvironmentLacks: something is otherwise than it must be, with how to start it.
    """
    backend = FILE if transfer == "file" else transfer
    try:
        info = server.call("GET", "/server_info?config_format=json", seconds=SOON).get("vllm_config")
    except UsageError as problem:
        raise EnvironmentLacks(f"{problem}; {START % backend}") from problem
    if not isinstance(info, dict):
        raise EnvironmentLacks(f"the server at {server.url} does not tell its settings; {START % backend}")
    model: dict[str, Any] = info.get("model_config") or {}
    wrong = []
    if model.get("logprobs_mode") != "processed_logprobs":
        wrong.append(f"logprobs_mode {model.get('logprobs_mode')}")
    if (model.get("max_model_len") or 0) < max_model_len(wanted.context):
        wrong.append(f"max_model_len {model.get('max_model_len')} of {max_model_len(wanted.context)} needed")
    if api == "native" and (info.get("weight_transfer_config") or {}).get("backend") != backend:
        wrong.append(f"weight_transfer_config {info.get('weight_transfer_config')}")
    if wrong:
        raise EnvironmentLacks(f"the server at {server.url} has {', '.join(wrong)}; {START % backend}")
