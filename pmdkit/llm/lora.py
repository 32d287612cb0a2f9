"""Low-rank adapters (LoRA) through peft: which layers get one, and how they are merged, saved and loaded.

Only adapters are trained. Merged weights have stock names; every function also takes a model without adapters.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from pmdkit.distributed import SINGLE, ProcessGroup
from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.llm import weights
from pmdkit.llm.recipe_checks import check_peft, uses_lora
from pmdkit.llm.sharded_checkpoint import local_rows, read_shard
from pmdkit.observe.shards import StoredTensor
from pmdkit.randomness import derive
from pmdkit.specs.llm import LoraTable

ADAPTER = "default"  # its name in peft
DRIFT = 1e-5  # relative to the largest entry: B A differs by rounding between an accelerator and a CPU


def inject_adapters(model: PreTrainedModel, table: LoraTable | None, seed: int) -> PreTrainedModel:
    """Put adapters into a float32 model, in place, and freeze everything else; LoRA rank 0 changes nothing.

    The model keeps its class and its forward pass. B is 0, so it is exactly the base policy; A is drawn as peft draws
    it, but from `seed`, so that a run can be repeated.

    Raises:
        UsageError: a target names nothing that can have an adapter.
        EnvironmentLacks: peft is missing.
    """
    if table is None or not uses_lora(table):
        return model
    check_peft()
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
            local, first, rows = local_rows(weight)
            local.copy_(drawn[first : first + rows])
            layer.lora_B[ADAPTER].weight.zero_()


def target_modules(model: PreTrainedModel, names: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Full names of the linear layers, and of the experts' weights, that get an adapter.

    A name matches every layer whose name equals it or ends with it, as in peft. Where experts are one tensor per block,
    as in transformers 5, each gets an adapter if that tensor is named, say "experts.down_proj".

    Args:
        model: may be on the meta device.
        names: None for every linear layer but the head.
    """
    linear, fused = adaptable_layers(model)
    if names is None:
        return list(linear), []
    found = {
        name: ([x for x in linear if matches_target(x, name)], [x for x in fused if matches_target(x, name)])
        for name in names
    }
    missing = [name for name, (some, others) in found.items() if not some and not others]
    if missing or not found:
        kinds = sorted({name.rpartition(".")[2] for name in linear})
        kinds += sorted({".".join(name.split(".")[-2:]) for name in fused})
        raise UsageError(
            f"lora.targets has {', '.join(missing) or 'no name'}, which {type(model).__name__} has no place for; "
            f"expected names among {', '.join(kinds)}"
        )
    # a name that matches both means the linear layers: some models have blocks with and without experts
    chosen = {x for some, _ in found.values() for x in some}
    experts = {x for some, others in found.values() if not some for x in others}
    return [x for x in linear if x in chosen], [x for x in fused if x in experts]


def matches_target(full: str, name: str) -> bool:
    """Whether a target matches the layer with that full name."""
    return full == name or full.endswith(f".{name}")


def adaptable_layers(model: PreTrainedModel) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """What can have an adapter: linear layers, and experts in one tensor, each by name with two sizes.

    Their sum times the rank is the size of its adapter. The head is left out: its weight is read without a call.
    """
    head = model.get_output_embeddings()
    linear = {
        name: (layer.in_features, layer.out_features)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and layer is not head
    }
    fused = {
        name: (weight.shape[0] * weight.shape[1], weight.shape[0] * weight.shape[2])
        for name, weight in model.named_parameters()
        if weight.ndim == 3
    }
    return linear, fused


def adapter_sizes(model: PreTrainedModel, table: LoraTable | None) -> tuple[int, int]:
    """Weights in the adapters that a model will get, and in its adapted experts; it may be on the meta device.

    Experts in one tensor are all merged again in each forward pass, and kept for the backward pass.
    """
    if table is None or not uses_lora(table):
        return 0, 0
    linear, fused = adaptable_layers(model)
    some, others = target_modules(model, table.targets)
    adapters = [sum(linear[name]) for name in some] + [sum(fused[name]) for name in others]
    return table.rank * sum(adapters), sum(model.get_parameter(name).numel() for name in others)


def adapter_layers(model: PreTrainedModel) -> dict[str, Any]:
    """Name to peft layer, for each layer that has an adapter."""
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


def has_adapters(model: PreTrainedModel) -> bool:
    """Whether the model has adapters."""
    return any(hasattr(module, "lora_A") for module in model.modules())


@contextmanager
def adapters_disabled(model: PreTrainedModel) -> Iterator[None]:
    """Within the block the model has no adapters: the base policy, bit for bit. Not for gradients."""
    some = adapter_layers(model).values()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    for layer in some:
        layer.enable_adapters(False)
    for weight in trained if some else ():
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


def merged_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """Every weight by its stock name, like `named_weights` if there is no adapter."""
    return dict(MergedWeights(model))


def engine_weights(model: PreTrainedModel, engine: Any) -> Mapping[str, Tensor]:
    """The weights to publish: an engine that runs this very model has the adapters; any other gets merged weights."""
    inner = engine
    while inner is not None and getattr(inner, "model", None) is not model:
        inner = getattr(inner, "engine", None)  # engines that distribute work wrap another one
    return weights.named_weights(model) if inner is not None else MergedWeights(model)


def adapter_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The adapters' tensors alone, detached, by the names that peft gives them in files."""
    named = {name: tensor for name, tensor in weights.named_weights(model).items() if ".lora_" in name}
    return {name.replace(f".{ADAPTER}.", "."): tensor for name, tensor in named.items()}


def model_state(model: PreTrainedModel) -> dict[str, dict[str, Tensor]]:
    """What a checkpoint holds of the model: merged weights, and the adapter where there is one."""
    own = adapter_weights(model)
    return {"model": merged_weights(model), "adapter": own} if own else {"model": merged_weights(model)}


def load_model_state(model: PreTrainedModel, found: Mapping[str, Any], process_group: ProcessGroup = SINGLE) -> None:
    """Restore what `model_state` returned. The base is not in it, but the merged weights are, and are compared.

    Raises:
        ResumeRefused: the checkpoint is of another model, or of a base that is not this one.
    """
    if not has_adapters(model):
        weights.load_weights(model, found["model"], process_group)
        return
    weights.copy_weights(adapter_weights(model), found.get("adapter", {}), process_group)
    made = MergedWeights(model)
    other = [
        name for name in sorted(made.keys() | found["model"].keys()) if not same_weight(name, made, found["model"])
    ]
    if process_group.any_rank(bool(other)):
        raise ResumeRefused(
            f"the base model is not the one that this run began with: {len(other)} weights differ from the "
            f"checkpoint's, {', '.join(other[:3])}; put the old model back at model.path, or start again with "
            "another --out"
        )


def same_weight(name: str, made: Mapping[str, Tensor], found: Mapping[str, Any]) -> bool:
    """Whether a merged weight is the checkpoint's, up to the rounding of another machine."""
    if name not in made or name not in found:
        return False
    here, there = made[name], found[name]
    if tuple(here.shape) != tuple(there.shape):
        return False
    if isinstance(there, StoredTensor):  # each process compares its own rows
        there = torch.empty_like(here)
        read_shard(found[name], there)
    here, there = (x.to_local() if isinstance(x, DTensor) else x for x in (here, there))
    there = there.to(here)
    return bool((here - there).abs().max() <= DRIFT * there.abs().max()) if here.numel() else True


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Write the adapter alone, as `peft.PeftModel.from_pretrained` reads it; does nothing if there is none."""
    if not has_adapters(model):
        return
    folder.mkdir(parents=True, exist_ok=True)
    model.peft_config[ADAPTER].save_pretrained(str(folder))
    tensors = {f"base_model.model.{name}": tensor.contiguous() for name, tensor in adapter_weights(model).items()}
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
