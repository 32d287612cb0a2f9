"""Low-rank adapters through peft: which layers get one, and the model that has them. Only they are trained.

What is asked of a model that has adapters (merged weights, the base policy, a checkpoint) is adapted.py.
"""

import math
from collections.abc import Sequence
from importlib.util import find_spec

import torch
from torch import nn
from transformers import PreTrainedModel

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.adapted import NAME, layers
from pmdkit.randomness import derive
from pmdkit.spec import Spec
from pmdkit.tables import LoraTable

REMEDY = "pip install -c constraints.txt -e '.[lora]'"


def refuse(spec: Spec) -> None:
    """Raise where [lora] does not go with another table: a checkpoint holds the adapter, not the base below it."""
    if not asked(spec.lora):
        return
    assert spec.lora is not None
    if spec.warm_start is not None and spec.warm_start.pass_rate > 0:
        raise UsageError(
            f"lora.rank is {spec.lora.rank} and warm_start.pass_rate {spec.warm_start.pass_rate}: phase 0 teaches all "
            "weights, an adapter needs a base that stays; build the starter with `pmdkit llm-starter DIR`, then "
            "--set model.path=DIR, without model.build, and warm_start.pass_rate=0"
        )
    if spec.parallel is not None and spec.parallel.processes > 1 and spec.parallel.strategy == "fsdp2":
        raise UsageError(
            f"lora.rank is {spec.lora.rank} with parallel.strategy 'fsdp2'; expected 'ddp', where every process "
            "holds the whole base"
        )


def check(spec: Spec) -> None:
    """Raise where this machine, or another table, keeps a run from training adapters."""
    refuse(spec)
    if asked(spec.lora):
        check_peft()


def asked(table: LoraTable | None) -> bool:
    """Whether a run trains adapters."""
    return table is not None and table.rank > 0


def check_peft() -> None:
    """Raise where peft is missing, with the line that installs it."""
    if find_spec("peft") is None:
        raise EnvironmentLacks(f"[lora] needs peft; {REMEDY}")


def adapt(model: PreTrainedModel, table: LoraTable | None, seed: int) -> PreTrainedModel:
    """Put adapters into a model, in place, and freeze everything else; nothing is done at rank 0.

    The model keeps its class and its forward pass. B is 0, so it is the base policy exactly; A is drawn as peft draws
    it, but from `seed`, so that a run can be repeated.

    Args:
        model: float32.
        table: [lora].
        seed: of the run.

    Raises:
        UsageError: a target names nothing that can have an adapter.
        EnvironmentLacks: peft is missing.
    """
    if table is None or not asked(table):
        return model
    check_peft()
    from peft import LoraConfig, inject_adapter_in_model

    linear, fused = targets(model, table.targets)
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
        inject_adapter_in_model(config, model, NAME)
    model.train(training)
    chance = torch.Generator().manual_seed(derive(seed, "lora"))
    with torch.no_grad():
        for layer in layers(model).values():
            weight = layer.lora_A[NAME].weight
            drawn = nn.init.kaiming_uniform_(torch.empty(weight.shape), a=math.sqrt(5), generator=chance)
            weight.copy_(drawn)
    return model


def targets(model: PreTrainedModel, names: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Full names of the linear layers, and of the experts' weights, that get an adapter.

    A name stands for every layer whose name is it or ends with it, as in peft. Where experts are one tensor per block,
    as in transformers 5, they get an adapter each when that tensor is named, say "experts.down_proj".

    Args:
        model: may be on the meta device.
        names: None for every linear layer but the head.
    """
    linear, fused = places(model)
    if names is None:
        return list(linear), []
    found = {name: ([x for x in linear if fits(x, name)], [x for x in fused if fits(x, name)]) for name in names}
    missing = [name for name, (some, others) in found.items() if not some and not others]
    if missing or not found:
        kinds = sorted({name.rpartition(".")[2] for name in linear})
        kinds += sorted({".".join(name.split(".")[-2:]) for name in fused})
        raise UsageError(
            f"lora.targets has {', '.join(missing) or 'no name'}, which {type(model).__name__} has no place for; "
            f"expected names among {', '.join(kinds)}"
        )
    # a name of both means linear layers: some models have blocks with and without experts
    chosen = {x for some, _ in found.values() for x in some}
    experts = {x for some, others in found.values() if not some for x in others}
    return [x for x in linear if x in chosen], [x for x in fused if x in experts]


def fits(full: str, name: str) -> bool:
    """Whether a target means the layer of that full name."""
    return full == name or full.endswith(f".{name}")


def places(model: PreTrainedModel) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """What can have an adapter: linear layers, and experts in one tensor, each with sizes whose sum times the rank is
    that of its adapter. Not the head, whose weight is read without a call."""
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


def sizes(model: PreTrainedModel, table: LoraTable | None) -> tuple[int, int]:
    """Of a model without adapters, perhaps on the meta device: weights of its adapters, and of adapted experts.

    Experts in one tensor are merged anew, all of them, in each forward pass, and the backward pass holds them.
    """
    if table is None or not asked(table):
        return 0, 0
    linear, fused = places(model)
    some, others = targets(model, table.targets)
    adapters = [sum(linear[name]) for name in some] + [sum(fused[name]) for name in others]
    return table.rank * sum(adapters), sum(model.get_parameter(name).numel() for name in others)
