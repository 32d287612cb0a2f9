"""pmdkit's weight receivers as a plugin that vLLM loads in each process (entry point vllm.general_plugins).

Nothing heavy is imported here. vLLM imports weights_receiver.py itself when a backend with one of these names is
requested. The processes of a server that a run started are also made to end with the process that started them.
"""

import multiprocessing
import os
from importlib.util import find_spec

from pmdkit.processes import die_with_parent

OF_A_RUN = "PMDKIT_SERVER_OF_A_RUN"  # in the environment of a server that a run started
FILE, TENSORS = "pmdkit-file", "pmdkit-handed"  # their names in a server's settings
RECEIVERS = {FILE: "FileReceiver", TENSORS: "TensorReceiver"}


def register() -> None:
    """Add our backends to vLLM's weight transfer. A second call changes nothing; without vLLM nothing is added."""
    end_with_server()
    if find_spec("vllm") is None or find_spec("vllm.distributed.weight_transfer") is None:
        return
    from vllm.distributed.weight_transfer import factory

    engines = getattr(factory, "WeightTransferEngineFactory", None)
    if engines is None or not hasattr(engines, "register_engine"):
        return
    for name, receiver in RECEIVERS.items():
        if name not in engines._registry:
            engines.register_engine(name, "pmdkit.llm.engines.vllm.weights_receiver", receiver)


def end_with_server() -> None:
    """Let the kernel end this process of a server together with its parent.

    A server's guard ends all of its processes. If guard and trainer are killed at the same moment, as by
    `pkill -9 python`, nothing is left to end engine and workers, which have other process names and hold the
    accelerator. An engine that has not reached this point ends after the five minutes that vLLM waits for a server.
    """
    parent = multiprocessing.parent_process()
    if os.environ.get(OF_A_RUN) and parent is not None and parent.pid is not None:
        die_with_parent(parent.pid)
