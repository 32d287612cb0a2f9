"""Receive published weights in vLLM, called by its weight transfer: check everything, then load. Needs vLLM.

Until everything has been checked, the model keeps its old weights. A failure after that leaves a model that must not be
used: the exception reaches vLLM, and the trainer gives up the engine.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer import base

from pmdkit.llm.engines.base import EngineLost
from pmdkit.llm.engines.vllm.weights_file import WeightFile, WeightNames, read_weights


@dataclass
class EmptyInitInfo(base.WeightTransferInitInfo):
    """Empty: there is nothing to agree on beforehand."""


@dataclass
class FileUpdateInfo(base.WeightTransferUpdateInfo):
    """A weight file: see WeightFile."""

    path: str
    digest: str
    size: int


@dataclass
class TensorUpdateInfo(base.WeightTransferUpdateInfo):
    """The tensors themselves, in an engine that runs in the trainer's process."""

    weights: Iterable[tuple[str, torch.Tensor]] = field(default_factory=list)


class ReloadReceiver(base.WeightTransferEngine[Any, Any]):
    """Loads tensors by vLLM's layerwise reload: into the memory that compiled graphs use, repacked for the kernels."""

    init_info_cls = EmptyInitInfo

    def __init__(self, config: WeightTransferConfig, vllm_config: Any, device: torch.device, model: Any) -> None:
        super().__init__(config, vllm_config, device, model)
        self.names = WeightNames(vllm_config.model_config.hf_config)
        self.begun = False

    def init_transfer_engine(self, init_info: EmptyInitInfo) -> None:
        """Do nothing: there is nothing to agree on."""

    def start_weight_update(self) -> None:
        """Note that an update begins; nothing is touched before the weights have been checked."""
        self.begun = False

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Load the weights, and check that vLLM left none out."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        self.begun = True
        reset_moe_kernels(self.model, self.device)
        initialize_layerwise_reload(self.model)
        wanted = {name for name, _ in self.model.named_parameters()}  # now: tied ones are separate during a reload
        loaded = self.model.load_weights(weights)
        missing = sorted(wanted - loaded) if loaded is not None else []
        if missing:
            raise EngineLost(f"vLLM left out {len(missing)} weights, {missing[:3]}; restart the engine")

    def finish_weight_update(self) -> None:
        """Repack the layers that waited for their last tensor."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        if not self.begun:
            raise EngineLost("a publish ended without bringing any weights; publish again")
        finalize_layerwise_reload(self.model, self.model_config)
        self.begun = False

    def shutdown(self) -> None:
        """Do nothing: nothing is held."""


class FileReceiver(ReloadReceiver):
    """Weights from a file, for engines in any process of this machine."""

    update_info_cls = FileUpdateInfo

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        """Check the whole file, then load it."""
        file = WeightFile(update_info.path, update_info.digest, update_info.size)
        self.load(read_weights(file, self.names.file_shapes).items())


class TensorReceiver(ReloadReceiver):
    """Weights handed over in this process, one layer at a time, without a copy."""

    update_info_cls = TensorUpdateInfo

    def receive_weights(self, update_info: TensorUpdateInfo) -> None:
        """Load the weights as they arrive; the sender checks their names and shapes."""
        self.load(count_weights(update_info.weights, len(self.names.file_shapes)))


def count_weights(weights: Iterable[tuple[str, torch.Tensor]], expected: int) -> Iterator[tuple[str, torch.Tensor]]:
    """The same weights; raises if fewer or more than expected arrive."""
    arrived = 0
    for arrived, pair in enumerate(weights, 1):  # noqa: B007
        yield pair
    if arrived != expected:
        raise EngineLost(f"{arrived} weights arrived; expected {expected}: restart the engine")


def reset_moe_kernels(model: torch.nn.Module, device: torch.device) -> None:
    """Let vLLM rebuild its MoE kernels: on a CPU it packs a layer's experts when a kernel is built, not on an update.

    Without this an update fails on the padded size or, where nothing is padded, leaves the weights in another order.
    """
    if device.type != "cpu":
        return
    for module in model.modules():
        method: Any = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None
