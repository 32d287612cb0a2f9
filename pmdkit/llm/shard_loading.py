"""Sharded loading: a model is made on the meta device, and each process reads only its own rows of weights.

Parameters have no memory until they are sharded; buffers, which are small and computed, are made at once. Where names
in the files differ from the model's, as for experts, transformers' own conversion is applied to the rows needed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from pmdkit import foreign
from pmdkit.errors import UsageError
from pmdkit.llm import model_folder
from pmdkit.llm.sharded_checkpoint import local_rows
from pmdkit.observe import shards
from pmdkit.observe.shards import StoredTensor


def make_empty_model(folder: Path) -> PreTrainedModel:
    """The model of a folder in float32, its parameters on the meta device."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    with parameters_on_meta():
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    model.tie_weights()  # parameters move to the meta device one by one, so two names of one would part
    if (path := folder / "generation_config.json").exists():
        found = foreign.read_json(path, numbers=False, advice=model_folder.ADVICE)
        model.generation_config = GenerationConfig.from_dict(dict(found))
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


def fill_model(model: PreTrainedModel, wanted: Mapping[str, Tensor], folder: Path) -> None:
    """Read the weights of a folder into a model, each process its own rows of every weight.

    Args:
        model: of the folder's class; it may have adapters.
        wanted: its weights by the names that they have without adapters.
        folder: in Hugging Face layout, or a sharded checkpoint.

    Raises:
        UsageError: a weight is in no file, has another shape, or contains values that are not numbers.
    """
    stored = shards.read_folder(folder, "model", model_folder.ADVICE)
    sources = find_sources(model, wanted, stored)
    if missing := sorted(wanted.keys() - sources.keys()):
        raise UsageError(
            f"model.path {folder}: config.json asks for weights that no file holds ({missing[0]} and "
            f"{len(missing) - 1} more); {model_folder.ADVICE}"
        )
    for name, target in wanted.items():
        with torch.no_grad():
            local, first, _ = local_rows(target)
            if local.numel():
                sources[name].copy_to(local, model, name, tuple(target.shape), first)
                for some in local.reshape(-1).split(shards.BLOCK):  # not all at once: the result takes memory too
                    foreign.check_numbers({name: some}, str(folder))


@dataclass
class WeightSource:
    """The stored tensors that make up a weight: one, or lists of them that a converter of transformers joins."""

    key: str
    converter: Any = None
    tensors: dict[str, list[tuple[str, StoredTensor]]] = field(default_factory=dict)

    def copy_to(self, target: Tensor, model: PreTrainedModel, name: str, shape: tuple[int, ...], first: int) -> None:
        """Fill a tensor with the rows of the weight from `first` on; `shape` is that of the whole weight."""
        if self.converter is None:
            ((_, stored),) = self.tensors[""]
            self.check(name, stored.shape, shape)
            stored.copy_to(target, first)
        elif self.merges_rows(shape):
            for row in range(len(target)):
                found = self.convert(model, name, slice(first + row, first + row + 1))
                self.check(name, tuple(found.shape), (1, *shape[1:]))
                target[row : row + 1].copy_(found)
        else:
            found = self.convert(model, name, slice(None))
            self.check(name, tuple(found.shape), shape)
            target.copy_(found[first : first + len(target)])

    def convert(self, model: PreTrainedModel, name: str, some: slice) -> Tensor:
        """The converter's result for some tensors of each list."""
        converter = deepcopy(self.converter)
        for pattern, held in self.tensors.items():
            for source, stored in held[some]:
                converter.add_tensor(self.key, source, pattern, stored.read())
        made: Tensor | list[Tensor] = converter.convert(self.key, model=model, config=model.config)[name]
        return made[0] if isinstance(made, list) else made

    def merges_rows(self, shape: tuple[int, ...]) -> bool:
        """Whether each row comes from one tensor of each list, as for experts: then the others need not be read."""
        first, others = self.converter.operations[0], self.converter.operations[1:]
        merged = type(first).__name__ == "MergeModulelist" and first.dim == 0
        joined = all(type(step).__name__ == "Concatenate" and step.dim != 0 for step in others)
        return merged and joined and all(len(held) == shape[0] for held in self.tensors.values())

    def check(self, name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        """Refuse a tensor of another shape."""
        if tuple(found) != tuple(wanted):
            raise UsageError(
                f"the files hold {name} with the shape {list(found)}, and config.json asks for {list(wanted)}; "
                f"{model_folder.ADVICE}"
            )


def find_sources(
    model: PreTrainedModel, wanted: Mapping[str, Tensor], stored: Mapping[str, StoredTensor]
) -> dict[str, WeightSource]:
    """The sources of each weight of a model, by transformers' rules for its kind of model."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    rules = get_model_conversion_mapping(model)
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
    of_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    found: dict[str, WeightSource] = {}
    for key in sorted(stored, key=natural_order):
        name, pattern = key, None
        if key not in wanted:
            name, pattern = rename_source_key(key, renamings, converters, model.base_model_prefix, dict(wanted))
        if name not in wanted:
            continue  # a second name of a tied weight, or a part that this class does not have
        source = found.setdefault(name, WeightSource(name, of_pattern.get(pattern or "")))
        source.tensors.setdefault(pattern or "", []).append((key, stored[key]))
        targets: list[str] = source.converter.target_patterns if source.converter else []
        for other in targets[1:]:
            found.setdefault(name.replace(targets[0], other), source)
    return found


def natural_order(name: str) -> list[tuple[int, str]]:
    """A sort key that puts expert 10 after expert 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]
