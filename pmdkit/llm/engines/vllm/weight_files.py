"""Send weights to vLLM servers through files, which they load with vLLM's own `reload_weights`."""

import tempfile
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.engines.vllm.client import Server, call_each
from pmdkit.llm.engines.vllm.weight_names import WeightNames, layer


def send_weights(
    servers: Sequence[Server],
    names: WeightNames,
    weights: Mapping[str, Tensor],
    dtype: torch.dtype,
    folder: str | None,
) -> None:
    """Write all weights, one file per layer; then pause the servers and let all of them load at the same time.

    Weights that are not finite or not those of the model are refused before any server is touched. `folder` is visible
    to trainer and servers; None is the system's folder for temporary files. The servers stay paused.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="pmdkit-weights-", dir=folder) as place:
            stream = names.stream(weights, dtype)
            for number, (_, some) in enumerate(groupby(stream, key=lambda pair: layer(pair[0]))):
                # tied tensors share memory, which safetensors does not write
                tensors = {name: tensor.cpu().clone(memory_format=torch.contiguous_format) for name, tensor in some}
                save_file(tensors, Path(place, f"model-{number:05}.safetensors"))

            def load(server: Server) -> None:
                server.post("/pause?mode=abort")
                # a server that began with dummy weights would not read files
                overrides = {"load_config": {"load_format": "safetensors"}}
                server.post("/collective_rpc", {"method": "update_config", "kwargs": {"overrides": overrides}})
                server.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": place}})

            call_each(servers, load)
    except OSError as problem:
        place = folder or tempfile.gettempdir()
        raise EnvironmentLacks(f"no weights in {place}: {problem}; make room, or set vllm.folder") from problem
