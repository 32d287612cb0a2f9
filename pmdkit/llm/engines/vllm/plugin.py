"""What vLLM runs in each of its processes: the names of our ways to receive weights. Entry point vllm.general_plugins.

Nothing heavy is imported here: vLLM loads file_transfer.py when a backend of these names is asked for.
"""

from importlib.util import find_spec

FILE, HANDED = "pmdkit-file", "pmdkit-handed"
CLASSES = {FILE: "FileTransfer", HANDED: "HandedTransfer"}


def register() -> None:
    """Add our backends to vLLM's weight transfer. Again is no harm; a vLLM without the interface is left alone."""
    if find_spec("vllm") is None or find_spec("vllm.distributed.weight_transfer") is None:
        return
    from vllm.distributed.weight_transfer import factory

    engines = getattr(factory, "WeightTransferEngineFactory", None)
    if engines is None or not hasattr(engines, "register_engine"):
        return
    for name, kind in CLASSES.items():
        if name not in engines._registry:
            engines.register_engine(name, "pmdkit.llm.engines.vllm.file_transfer", kind)
