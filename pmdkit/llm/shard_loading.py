"""Load a model whose weights are divided among processes: make it on the meta device, shard it, then fill it.

The main process loads the weights as transformers does and sends them, one tensor at a time; each process keeps its own
rows. That takes memory for the whole model on the host of the main process, and for one tensor on the others.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from pmdkit import untrusted
from pmdkit.errors import UsageError, first_line
from pmdkit.llm.model_folder import ADVICE
from pmdkit.llm.weights import copy_weights, named_weights
from pmdkit.process_group import SINGLE, ProcessGroup


def make_empty_model(folder: Path) -> PreTrainedModel:
    """The model of a folder in float32: parameters on the meta device, buffers, which are computed, in memory."""
    from accelerate import init_empty_weights

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    with init_empty_weights(include_buffers=False):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    model.tie_weights()  # parameters move to the meta device one by one, so two names of one would part
    if (path := folder / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_dict(dict(untrusted.read_json(path, numbers=False)))
    model.name_or_path = model.config._name_or_path = str(folder)
    return model.eval()


def fill_model(wanted: Mapping[str, Tensor], folder: Path, process_group: ProcessGroup = SINGLE) -> None:
    """Read the weights of a folder into a model's tensors by their stock names, each process its own rows of each.

    Raises:
        UsageError: in every process, if a weight is in no file, has another shape, or contains NaN.
    """
    weights: Mapping[str, Tensor] = wanted  # other processes read no source

    def read() -> str | None:
        nonlocal weights
        try:
            weights = named_weights(load_whole(folder, local=True))
            if other := [name for name in wanted if name not in weights or weights[name].shape != wanted[name].shape]:
                raise UsageError(f"the weights of {folder} are not those of its config.json ({other[0]}); {ADVICE}")
        except Exception as caught:  # any error of transformers about the files
            return first_line(caught)
        return None

    problem = process_group.run_in(process_group.is_main_process, read)
    if problem := process_group.broadcast_object(problem):
        raise UsageError(f"model.path {folder} does not load: {problem}")
    copy_weights(wanted, {name: weights[name] for name in wanted}, process_group)


def load_whole(path: Path | str, local: bool, meta: bool = False) -> PreTrainedModel:
    """The model of a folder, or of a name on the hub unless `local`, in float32; on the meta device no number is read.

    Raises:
        UsageError: a weight is in no file, or contains NaN.
    """
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, use_safetensors=True, trust_remote_code=False, local_files_only=local,
        output_loading_info=True, device_map="meta" if meta else None,
    )  # fmt: skip
    model: PreTrainedModel = loaded[0]
    if missing := sorted(loaded[1]["missing_keys"]):  # they have random values now
        raise UsageError(f"the config.json of {path} asks for weights that no file holds ({missing[0]}); {ADVICE}")
    if not meta:
        untrusted.check_numbers(model.state_dict(), str(path))
    return model


def allocate(root: nn.Module, device: torch.device | str) -> None:
    """Allocate memory on a device for parameters on the meta device, for this process's rows where they are sharded.

    The memory is uninitialized until `fill_model`. Two names of one parameter stay one.
    """
    made: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # keeps the old ones, or another would get their id
    for module in root.modules():
        for name, weight in list(module._parameters.items()):
            if weight is None or not weight.is_meta:
                continue
            if id(weight) not in made:
                new: Tensor
                if isinstance(weight, DTensor):
                    local = torch.empty_like(weight.to_local(), device=device)
                    cut = weight.device_mesh, weight.placements
                    new = DTensor.from_local(local, *cut, run_check=False, shape=weight.shape, stride=weight.stride())
                else:
                    new = torch.empty_like(weight, device=device)
                made[id(weight)] = weight, nn.Parameter(new, requires_grad=weight.requires_grad)
            module._parameters[name] = made[id(weight)][1]
    if made:
        root._apply(lambda tensor: tensor)  # FSDP2 looks at the parameters again
