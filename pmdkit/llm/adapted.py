"""A model with adapters as others need it: merged weights under stock names, the base policy, the adapter alone.

Everything here takes a model without adapters too. How a model gets them is lora.py.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.errors import ResumeRefused
from pmdkit.llm import weights
from pmdkit.llm.shards import whole
from pmdkit.team import ALONE, Team

NAME = "default"  # of the adapter, in peft
DRIFT = 1e-5  # relative to the largest entry: B A differs by rounding between an accelerator and a CPU


def layers(model: PreTrainedModel) -> dict[str, Any]:
    """Name to layer of peft, for each that has an adapter."""
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


def is_adapted(model: PreTrainedModel) -> bool:
    """Whether the model has adapters."""
    return any(hasattr(module, "lora_A") for module in model.modules())


@contextmanager
def switched_off(model: PreTrainedModel) -> Iterator[None]:
    """The model without its adapters for a while: the base policy, bit by bit. Not for gradients."""
    some = layers(model).values()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    for layer in some:
        layer.enable_adapters(False)
    for weight in trained if some else ():
        weight.requires_grad_(True)  # peft switches it off; FSDP2 remembers what it sees in its first pass
    try:
        yield
    finally:
        for layer in some:
            layer.enable_adapters(True)


class Merged(Mapping[str, Tensor]):
    """Weights by the names that the model has without adapters; W + alpha / rank B A is formed when it is looked at.

    Args:
        model: of which nothing is changed.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.base = {stock(name): tensor for name, tensor in weights.named(model).items() if ".lora_" not in name}
        self.layers = {
            f"{stock(name)}.{getattr(layer, 'parameter_name', 'weight')}": layer
            for name, layer in layers(model).items()
        }

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.layers:
            return self.base[name]
        with torch.no_grad():
            merged: Tensor = self.base[name] + self.layers[name].get_delta_weight(NAME)
        return merged

    def __contains__(self, name: object) -> bool:
        return name in self.base  # Mapping's own would look at the weight

    def unseen(self, name: str) -> Tensor:
        """Of the right shape, without being merged."""
        return self.base[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.base)

    def __len__(self) -> int:
        return len(self.base)


def stock(name: str) -> str:
    """The name of a layer or weight in the model without adapters."""
    return ".".join(part for part in name.split(".") if part != "base_layer")


def merged(model: PreTrainedModel) -> dict[str, Tensor]:
    """Every weight by its stock name, as `weights.named` where there is no adapter."""
    return dict(Merged(model))


def for_engine(model: PreTrainedModel, engine: Any) -> Mapping[str, Tensor]:
    """What is published: an engine that runs this very model has the adapters; any other gets merged weights."""
    inner = engine
    while inner is not None and getattr(inner, "model", None) is not model:
        inner = getattr(inner, "engine", None)  # engines that share work hold another one
    return weights.named(model) if inner is not None else Merged(model)


def adapter(model: PreTrainedModel) -> dict[str, Tensor]:
    """Name to tensor of the adapters alone, detached, named as peft names them in files."""
    named = {name: tensor for name, tensor in weights.named(model).items() if ".lora_" in name}
    return {name.replace(f".{NAME}.", "."): tensor for name, tensor in named.items()}


def state(model: PreTrainedModel) -> dict[str, dict[str, Tensor]]:
    """What a checkpoint holds of the model: merged weights, and the adapter where there is one."""
    own = adapter(model)
    return {"model": merged(model), "adapter": own} if own else {"model": merged(model)}


def restore(model: PreTrainedModel, found: Mapping[str, Any], team: Team = ALONE) -> None:
    """Put back what `state` gave. The base is not in it, but what it makes with the adapter is, and is compared.

    Raises:
        ResumeRefused: the checkpoint is of another model, or of a base that is not this one.
    """
    if not is_adapted(model):
        weights.load(model, found["model"], team)
        return
    weights.fill(adapter(model), found.get("adapter", {}), team)
    made = Merged(model)
    other = [name for name in sorted(made.keys() | found["model"].keys()) if not same(name, made, found["model"])]
    if team.any(team.main and bool(other)):
        raise ResumeRefused(
            f"the base model is not the one that this run began with: {len(other)} weights differ from the "
            f"checkpoint's, {', '.join(other[:3])}; put the old model back at model.path, or start again with "
            "another --out"
        )


def same(name: str, made: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> bool:
    """Whether a merged weight is the checkpoint's, up to the rounding of another machine."""
    if name not in made or name not in found:
        return False
    here, there = whole(made[name]), found[name]
    if here.shape != there.shape or there.is_meta:
        return here.shape == there.shape
    there = there.to(here)
    return bool((here - there).abs().max() <= DRIFT * there.abs().max()) if here.numel() else True


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Write the adapter alone, as `peft.PeftModel.from_pretrained` reads it; nothing where there is none."""
    if not is_adapted(model):
        return
    folder.mkdir(parents=True, exist_ok=True)
    model.peft_config[NAME].save_pretrained(str(folder))
    tensors = {f"base_model.model.{name}": tensor.contiguous() for name, tensor in adapter(model).items()}
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
