"""Low-rank adapters (LoRA) through peft: which layers get an adapter, and how adapters are merged.

Only adapters are trained. Merged weights have stock names.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from pmdkit.errors import UsageError
from pmdkit.extras import need
from pmdkit.llm import weights
from pmdkit.randomness import derive
from pmdkit.specs.llm import LoraTable

ADAPTER = "default"  # its name in peft


def inject_adapters(model: PreTrainedModel, table: LoraTable, seed: int) -> PreTrainedModel:
    """Put adapters into a float32 model, in place, and freeze everything else.

    The model keeps its class and its forward pass. B is 0, so it is exactly the base policy; A is drawn as peft draws
    it, but from `seed`, so that a run can be repeated.

    Raises:
        UsageError: a target names nothing that can have an adapter.
        EnvironmentLacks: peft is missing.
    """
    need("peft", "[lora]")
    from peft import LoraConfig, inject_adapter_in_model

    linear, fused = target_modules(model, table.targets)
    config = LoraConfig(
        r=table.rank,
        lora_alpha=table.alpha,  # type: ignore[arg-type]  # peft divides it by the rank, and takes any number
        target_modules=linear,
        target_parameters=fused or None,
        task_type="CAUSAL_LM",
        base_model_name_or_path=model.name_or_path or None,
    )
    training = model.training
    with torch.random.fork_rng(devices=[]):  # peft draws A from torch's own generator
        inject_adapter_in_model(config, model, ADAPTER)
    model.train(training)
    draw_adapters(model, seed)
    return model


def draw_adapters(model: PreTrainedModel, seed: int) -> None:
    """Draw A and set B to 0 in every adapter. A process whose weights are sharded draws all and keeps its rows."""
    chance = torch.Generator().manual_seed(derive(seed, "lora"))
    with torch.no_grad():
        for layer in adapter_layers(model).values():
            weight = layer.lora_A[ADAPTER].weight
            drawn = nn.init.kaiming_uniform_(torch.empty(weight.shape), a=math.sqrt(5), generator=chance)
            if isinstance(weight, DTensor):
                drawn = distribute_tensor(
                    drawn.to(weight.device), weight.device_mesh, weight.placements, src_data_rank=None
                )
            weight.copy_(drawn)
            layer.lora_B[ADAPTER].weight.zero_()


def target_modules(model: PreTrainedModel, names: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Full names of the linear layers, and of the experts' weights, that get an adapter.

    A name matches every layer whose name equals it or ends with it, as in peft; None is every linear layer but the
    head, whose weight is read without a call. Where experts are one tensor per block, as in transformers 5, each gets
    an adapter if that tensor is named, say "experts.down_proj".
    """
    head = model.get_output_embeddings()
    linear = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and layer is not head]
    if names is None:
        return linear, []
    fused = [name for name, weight in model.named_parameters() if weight.ndim == 3]

    def matching(full: list[str], names: Sequence[str]) -> list[str]:
        return [x for x in full if any(f".{x}".endswith(f".{name}") for name in names)]

    # a name that matches both means the linear layers: some models have blocks with and without experts
    others = [name for name in names if not matching(linear, [name])]
    if (missing := [name for name in others if not matching(fused, [name])]) or not names:
        kinds = sorted({x.rpartition(".")[2] for x in linear} | {".".join(x.split(".")[-2:]) for x in fused})
        raise UsageError(
            f"lora.targets has {', '.join(missing) or 'no name'}, which {type(model).__name__} has no place for; "
            f"expected names among {', '.join(kinds)}"
        )
    return matching(linear, names), matching(fused, others)


def adapter_layers(model: PreTrainedModel) -> dict[str, Any]:
    """The layers of peft that have an adapter, by name."""
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


@contextmanager
def adapters_disabled(model: PreTrainedModel) -> Iterator[None]:
    """Within the block the model has no adapters: the base policy, bit for bit. Not for gradients."""
    some = adapter_layers(model).values()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    for layer in some:
        layer.enable_adapters(False)
    for weight in trained:
        weight.requires_grad_(True)  # peft disables it; FSDP2 remembers what it sees in its first pass
    try:
        yield
    finally:
        for layer in some:
            layer.enable_adapters(True)


def base_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The weights under the adapters, by the names that they have without adapters."""
    named = weights.named_weights(model)
    return {stock_name(name): tensor for name, tensor in named.items() if ".lora_" not in name}


class MergedWeights(weights.LazyWeights):
    """Weights by the names that the model has without adapters; W + alpha / rank B A is computed on access."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(base_weights(model))
        self.layers = {
            f"{stock_name(name)}.{getattr(layer, 'parameter_name', 'weight')}": layer
            for name, layer in adapter_layers(model).items()
        }

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.layers:
            return self.source[name]
        with torch.no_grad():
            base, delta = self.source[name], self.layers[name].get_delta_weight(ADAPTER)
            if isinstance(base, DTensor):  # B A of experts comes out sharded along another axis
                delta = delta.redistribute(placements=base.placements)
            merged: Tensor = base + delta
        return merged


def stock_name(name: str) -> str:
    """The name of a layer or weight in the model without adapters."""
    return ".".join(part for part in name.split(".") if part != "base_layer")


def adapter_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The adapters' tensors alone, detached, by the names that peft gives them in files."""
    named = {name: tensor for name, tensor in weights.named_weights(model).items() if ".lora_" in name}
    return {name.replace(f".{ADAPTER}.", "."): tensor for name, tensor in named.items()}
