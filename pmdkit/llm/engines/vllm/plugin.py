"""What vLLM loads in each of its processes, by the entry point vllm.general_plugins: our ways to receive weights.

Nothing heavy is imported here. vLLM imports weights_receiver.py itself when a backend of these names is asked for.
"""

from importlib.util import find_spec

FILE, TENSORS = "pmdkit-file", "pmdkit-handed"  # the names by which a server's settings know them
RECEIVERS = {FILE: "FileReceiver", TENSORS: "TensorReceiver"}


def register() -> None:
    """Add our backends to vLLM's weight transfer. A second call changes nothing; without vLLM nothing is done."""
    if find_spec("vllm") is None or find_spec("vllm.distributed.weight_transfer") is None:
        return
    from vllm.distributed.weight_transfer import factory

    engines = getattr(factory, "WeightTransferEngineFactory", None)
    if engines is None or not hasattr(engines, "register_engine"):
        return
    for name, receiver in RECEIVERS.items():
        if name not in engines._registry:
            engines.register_engine(name, "pmdkit.llm.engines.vllm.weights_receiver", receiver)
