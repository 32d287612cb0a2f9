"""A CUDA device for fake tensors on a machine without one: every private name of torch that the rehearsal uses."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import torch
import torch.distributed._tools.fake_collectives  # registers collectives for fake tensors
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

GIB = 2**30
__all__ = ["GIB", "FakeTensor", "FakeTensorMode", "install", "made_again", "result_of", "start_group", "watched"]


class Stream:
    """A stream, or an event, with no work left to wait for."""

    device_index = stream_id = cuda_stream = 0
    device_type = 1
    device = torch.device("cuda", 0)

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("record", "record_event"):
            return lambda *args, **options: Stream()
        return lambda *args, **options: name == "query"  # a stream that is_capturing() would change what FSDP2 does

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *problem: object) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0


def install(gib: float) -> None:
    """Register a fake CUDA device with this much memory; every tensor on it must be fake."""
    if torch.version.cuda is not None:  # a guard of its own replaces the compiled one; this makes it do nothing
        torch._C._ensureCUDADeviceGuardSet()
    patch_cuda(gib)
    register_kernels()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(1, device="cuda") is made there, not copied
    # give fakes distinct addresses for distinct memory (torch returns 0), and set their parameters in place
    # instead of by swapping, which fakes do not support
    address = torch.UntypedStorage.data_ptr
    kinds = (FakeTensorMode, FakeTensor, torch.UntypedStorage, nn.Module)
    mode, fake, storage, module = (cast(Any, kind) for kind in kinds)
    storage.data_ptr = lambda x: address(x) if x.device.type == "cpu" else x._cdata
    fake.data_ptr = lambda x: x.untyped_storage()._cdata
    module._apply = apply
    mode.avoid_device_init = True  # initialisation would look for a real device
    mode.__deepcopy__ = lambda self, memo: self  # a copied tensor with a mode of its own would be faked once more


def patch_cuda(gib: float) -> None:
    """Replace the functions of torch.cuda and torch.accelerator that FSDP2, AdamW and pmdkit call."""
    bytes_, stream = int(gib * GIB), Stream()
    card = SimpleNamespace(
        major=9, minor=0, multi_processor_count=132, L2_cache_size=50 * 2**20, name="rehearsed", total_memory=bytes_
    )
    answers: dict[str, Any] = {
        **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), True),
        **dict.fromkeys(("is_current_stream_capturing", "is_capturing"), False),
        **dict.fromkeys(("current_device", "memory_allocated", "max_memory_allocated"), 0),
        **dict.fromkeys(("init", "_lazy_init", "set_device", "synchronize", "empty_cache", "set_stream"), None),
        **dict.fromkeys(("manual_seed", "manual_seed_all", "set_rng_state", "reset_peak_memory_stats"), None),
        **dict.fromkeys(("current_stream", "default_stream"), stream),
        **dict.fromkeys(("stream", "device", "StreamContext"), nullcontext()),
        "device_count": 8,
        "get_device_capability": (card.major, card.minor),
        "get_device_properties": card,
        "get_device_name": card.name,
        "mem_get_info": (bytes_, bytes_),
        "get_rng_state": torch.zeros(16, dtype=torch.uint8),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *args, _answer=answer, **options: _answer)
    for name in ("is_available", "device_count", "current_stream", "synchronize"):
        setattr(torch.accelerator, name, getattr(torch.cuda, name))
    torch.accelerator.current_accelerator = lambda *args, **options: stream.device
    torch.accelerator.current_device_index = lambda: 0
    torch.cuda.Stream = torch.cuda.Event = Stream  # type: ignore[assignment,misc]
    torch.version.cuda = torch.version.cuda or "12.8"
    torch.backends.cuda.is_flash_attention_available = lambda: True


LIBRARY = torch.library.Library("aten", "IMPL")
GPU_ONLY = {"aten::_fused_rms_norm"}  # composite operators whose own kernels CPUs lack


def register_kernels() -> None:
    """Register a kernel on the device for each composite operator that has its own kernel on the CPU or a GPU.

    A build with CUDA has them. Without them the dispatcher composes the operator before any mode sees it: the gradient
    of silu becomes seven operators and four buffers.
    """
    has = torch._C._dispatch_has_kernel_for_dispatch_key

    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("a kernel of the rehearsed device was called outside of the rehearsal")

    for name in torch._C._dispatch_get_all_op_names():
        composed = name.startswith("aten::") and has(name, "CompositeImplicitAutograd")
        if composed and (has(name, "CPU") or name in GPU_ONLY) and not has(name, "CUDA"):
            LIBRARY.impl(name.removeprefix("aten::"), never, "CUDA")


def apply(module: nn.Module, change: Callable[[Any], Any], recurse: bool = True) -> nn.Module:
    """Replace `Module._apply`, the basis of `Module.to`."""
    for child in module.children() if recurse else ():
        child._apply(change)
    for name, weight in module._parameters.items():
        if weight is not None and (new := change(weight.detach())).device != weight.device:
            module._parameters[name] = nn.Parameter(new, requires_grad=weight.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = change(buffer)
    return module


def start_group(rank: int, size: int) -> None:
    """Join a process group of `size` whose other processes do not exist: its collectives move nothing."""
    torch.distributed.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())


@contextmanager
def watched(resized: Callable[[Any], None]) -> Iterator[None]:
    """Call `resized` with every storage that is resized inside the block; FSDP2 frees gathered weights by a resize.

    And the shapes of whole DTensors, which torch computes on tensors that no process has, are computed unseen.
    """
    resize, propagate = torch.UntypedStorage.resize_, ShardingPropagator._propagate_tensor_meta_non_cached

    def resize_(storage: Any, size: int) -> Any:
        out = resize(storage, size)
        resized(storage)
        return out

    def unseen(*args: Any, **options: Any) -> Any:
        with _disable_current_modes():
            return propagate(*args, **options)

    seen, hidden = (torch.UntypedStorage, "resize_"), (ShardingPropagator, "_propagate_tensor_meta_non_cached")
    with patch.object(*seen, resize_), patch.object(*hidden, unseen):
        yield


@dataclass(frozen=True)
class Made:
    """The recipe of an operator's fake result: an input, a view of an input's memory, or new memory.

    Attributes:
        base: the number of that input; None for new memory.
        layout: dtype, shape, stride, offset and device; None for the input itself.
    """

    base: int | None
    layout: tuple[Any, ...] | None = None

    def again(self, mode: FakeTensorMode, given: Sequence[FakeTensor]) -> FakeTensor:
        """Make the tensor again, for inputs of the same layout."""
        if self.layout is None:
            return given[cast(int, self.base)]
        dtype, shape, stride, offset, place = self.layout
        if self.base is None:
            return FakeTensor(mode, torch.empty_strided(shape, stride, dtype=dtype, device="meta"), place)
        part = torch.empty(0, dtype=dtype, device="meta")
        part.set_(given[self.base].untyped_storage(), offset, shape, stride)
        return FakeTensor(mode, part, place)


def result_of(out: Any, given: Sequence[FakeTensor]) -> Any:
    """Replace the tensors of a result by `Made`, so that inputs of the same layout can get an equal result.

    torch remembers results of fake tensors too, but takes five times as long to find one.

    Raises:
        LookupError: this result cannot be made again.
    """
    if isinstance(out, (list, tuple)):
        inputs = {x.untyped_storage()._cdata for x in given}
        made = [x.untyped_storage()._cdata for x in out if isinstance(x, FakeTensor)]
        if any(made.count(memory) > 1 for memory in set(made) - inputs):  # two results share new memory
            raise LookupError
        return type(out)(result_of(x, given) for x in out)
    if out is None:
        return None
    if not isinstance(out, FakeTensor) or out.constant is not None or out.requires_grad:
        raise LookupError
    memory = out.untyped_storage()
    bases = [number for number, x in enumerate(given) if x.untyped_storage()._cdata == memory._cdata]
    layout = out.dtype, out.shape, out.stride(), out.storage_offset(), out.fake_device
    for number in bases:
        if given[number] is out:
            return Made(number)
    kept = Made(bases[0] if bases else None, layout)
    again, keys = kept.again(out.fake_mode, given), torch._C._dispatch_key_set
    if len(bases) > 1 or again.untyped_storage().nbytes() != memory.nbytes() or keys(again) != keys(out):
        raise LookupError
    return kept


def made_again(result: Any, mode: FakeTensorMode, given: Sequence[FakeTensor]) -> Any:
    """Build an operator's result from what `result_of` recorded."""
    if isinstance(result, (list, tuple)):
        return type(result)(made_again(x, mode, given) for x in result)
    return result.again(mode, given) if isinstance(result, Made) else result
