"""Load a model whose weights are divided among processes: it is made on the meta device, sharded, and then filled.

The main process loads the weights as transformers does and sends them, one tensor at a time; each process keeps its own
rows. That takes memory for the whole model on the host of the main process, and for one tensor on the others.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from pmdkit import foreign
from pmdkit.distributed import SINGLE, ProcessGroup
from pmdkit.errors import UsageError, first_line
from pmdkit.llm.weights import copy_weights, named_weights
from pmdkit.observe import shards

ADVICE = "save the model again, or take another"


def make_empty_model(folder: Path) -> PreTrainedModel:
    """The model of a folder in float32, its parameters on the meta device, its buffers, which are computed, in memory.

    transformers' own `init_empty_weights` would leave the buffers without values too.
    """
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    with parameters_on_meta():
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    model.tie_weights()  # parameters move to the meta device one by one, so two names of one would part
    if (path := folder / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_dict(dict(foreign.read_json(path, numbers=False)))
    model.name_or_path = model.config._name_or_path = str(folder)
    return model.eval()


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Within the `with` block, parameters are put on the meta device as they are registered, without random values."""
    register = nn.Module.register_parameter

    def to_meta(module: nn.Module, name: str, weight: nn.Parameter | None) -> None:
        if weight is not None and not weight.is_meta:
            weight = nn.Parameter(weight.to("meta"), requires_grad=weight.requires_grad)
        register(module, name, weight)

    from transformers.initialization import no_init_weights

    with mock.patch.object(nn.Module, "register_parameter", to_meta), no_init_weights():
        yield


def fill_model(wanted: Mapping[str, Tensor], folder: Path, process_group: ProcessGroup = SINGLE) -> None:
    """Read the weights of a folder into tensors, each process its own rows of every weight.

    Args:
        wanted: a model's weights by the names that they have without adapters.
        folder: in Hugging Face layout, or a sharded checkpoint.
        process_group: the processes, all of which must call this.

    Raises:
        UsageError: in every process, if a weight is in no file, has another shape, or contains NaN.
    """
    found: Mapping[str, Tensor] = wanted  # other processes read no source
    problem = None
    if process_group.is_main_process:
        try:
            found = read_weights(folder)
            if other := [name for name in wanted if name not in found or found[name].shape != wanted[name].shape]:
                raise UsageError(f"the weights of {folder} are not those of its config.json ({other[0]}); {ADVICE}")
        except Exception as caught:  # whatever transformers stumbles over in the files
            problem = first_line(caught)
    if problem := process_group.broadcast_object(problem):
        raise UsageError(f"model.path {folder} does not load: {problem}")
    copy_weights(wanted, {name: found[name] for name in wanted}, process_group)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All weights of a folder in float32, by the names that they have in the model.

    Raises:
        UsageError: a weight is in no file, or contains NaN.
    """
    if shards.is_cut(folder, "model"):  # our own layout, with the model's own names; transformers cannot read it
        found = {name: stored.read() for name, stored in shards.open_folder(folder, "model")[1].items()}
    else:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, trust_remote_code=False, local_files_only=True,
            output_loading_info=True,
        )  # fmt: skip
        model, about = loaded
        if missing := sorted(about["missing_keys"]):  # they have random values now
            raise UsageError(f"config.json asks for weights that no file holds ({missing[0]}); {ADVICE}")
        found = named_weights(model)
    foreign.check_numbers(found, str(folder))
    return found
