"""What vLLM loads in each of its processes, by the entry point vllm.general_plugins: our ways to receive weights.

Nothing heavy is imported here. vLLM imports weights_receiver.py itself when a backend of these names is asked for. The
processes of a server that a run started also learn here to end with the process that started them.
"""

import multiprocessing
import os
from importlib.util import find_spec

from pmdkit.processes import die_with_parent

OF_A_RUN = "PMDKIT_SERVER_OF_A_RUN"  # in the environment of a server that a run started
FILE, TENSORS = "pmdkit-file", "pmdkit-handed"  # the names by which a server's settings know them
RECEIVERS = {FILE: "FileReceiver", TENSORS: "TensorReceiver"}


def register() -> None:
    """Add our backends to vLLM's weight transfer. A second call changes nothing; without vLLM nothing is done."""
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
    """Let the kernel end this process of a server with the one above it.

    A server's guard ends all of its processes. Where guard and trainer are killed in one moment, as by
    `pkill -9 python`, nobody is left to end engine and workers, which call themselves otherwise and hold the
    accelerator. An engine that has not come here yet ends after the five minutes that vLLM waits for a server.
    """
    parent = multiprocessing.parent_process()
    if os.environ.get(OF_A_RUN) and parent is not None and parent.pid is not None:
        die_with_parent(parent.pid)
