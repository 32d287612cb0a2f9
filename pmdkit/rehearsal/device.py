"""A CUDA device for fake tensors on a machine without one: every private name of torch that the rehearsal uses.

`compile_device` runs before torch is imported, which asks once whether there is a device; `install` after it.
"""

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pmdkit.errors import EnvironmentLacks, first_line

SOURCE = Path(__file__).with_name("device.cpp")
COMPILERS = ("c++", "g++", "clang++")
GIB = 2**30


def compile_device() -> Path:
    """The compiled device.cpp for this version of torch, in the user's cache; compiled by the system's compiler once.

    Raises:
        EnvironmentLacks: there is no C++ compiler, or it fails.
    """
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    torch = Path(found.origin).parent
    key = hashlib.sha256(SOURCE.read_bytes() + version("torch").encode() + str(torch).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pmdkit"
    library = cache / f"rehearsal-{key}.so"
    if library.exists():
        return library
    compiler = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CXX"), *COMPILERS)))), None)
    if compiler is None:
        raise EnvironmentLacks(
            "a rehearsal compiles 50 lines of C++ once, and no compiler was found (c++, g++, clang++ or $CXX); install "
            "one: apt install g++, dnf install gcc-c++, or xcode-select --install"
        )
    part = library.with_suffix(f".{os.getpid()}")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        command = [compiler, "-O1", "-std=c++20", "-shared", "-fPIC", f"-I{torch / 'include'}", str(SOURCE)]
        command += [f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}", "-lc10", "-ltorch_cpu", "-o", str(part)]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            lines = [line for line in made.stderr.splitlines() if "error" in line] or [f"exit {made.returncode}"]
            raise EnvironmentLacks(
                f"{compiler} does not compile {SOURCE.name} for torch {version('torch')}: {lines[0][:200]}; install a "
                "compiler with C++20, such as g++ 10 or later, or name one in CXX"
            )
        part.replace(library)
    except OSError as problem:
        raise EnvironmentLacks(f"{cache} cannot be written ({first_line(problem)}); set XDG_CACHE_HOME") from problem
    return library


def load(library: str) -> None:
    """Load a compiled device; torch must not have been imported."""
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)


class Stream:
    """A stream, or an event, on which everything has already happened."""

    device_index = stream_id = cuda_stream = 0
    device_type = 1

    def __init__(self, *args: Any, **options: Any) -> None:
        import torch

        self.device = torch.device("cuda", 0)

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


class Properties:
    """What torch.cuda.get_device_properties answers."""

    major, minor, multi_processor_count, L2_cache_size = 9, 0, 132, 50 * 2**20
    name = "rehearsed"

    def __init__(self, gib: float) -> None:
        self.total_memory = int(gib * GIB)


def install(gib: float) -> None:
    """Make torch.cuda say that there is a device of so much memory; what is computed on it must be fake.

    Raises:
        EnvironmentLacks: this version of torch has other names.
    """
    import torch

    try:
        built = torch.version.cuda is not None
        patch_cuda(gib)
        register_kernels()
        from torch._subclasses.fake_tensor import FakeTensorMode

        FakeTensorMode.avoid_device_init = True  # or it would start the device
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(1, device="cuda") is made there, not copied
        if built:  # it has a guard, which is left out where it finds no driver
            torch._C._ensureCUDADeviceGuardSet()
        give_addresses()
        replace_apply()
        import torch.distributed._tools.fake_collectives  # registers collectives for fake tensors

        with watched(lambda storage: None, nullcontext):
            torch.UntypedStorage(1)._cdata  # noqa: B018
    except (AttributeError, ImportError) as problem:
        raise EnvironmentLacks(
            f"the rehearsal does not know torch {torch.__version__} ({first_line(problem)}); take the version in "
            "constraints.txt"
        ) from problem


def patch_cuda(gib: float) -> None:
    """The answers of torch.cuda and torch.accelerator, as far as FSDP2, AdamW and pmdkit ask."""
    import torch

    memory, stream, device = Properties(gib), Stream(), torch.device("cuda", 0)
    answers: dict[str, Any] = {
        **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), True),
        **dict.fromkeys(("is_current_stream_capturing", "is_capturing"), False),
        **dict.fromkeys(("current_device", "memory_allocated", "max_memory_allocated"), 0),
        **dict.fromkeys(("init", "_lazy_init", "set_device", "synchronize", "empty_cache", "set_stream"), None),
        **dict.fromkeys(("manual_seed", "manual_seed_all", "set_rng_state", "reset_peak_memory_stats"), None),
        **dict.fromkeys(("current_stream", "default_stream"), stream),
        **dict.fromkeys(("stream", "device", "StreamContext"), nullcontext()),
        "device_count": 8,
        "get_device_capability": (memory.major, memory.minor),
        "get_device_properties": memory,
        "get_device_name": memory.name,
        "mem_get_info": (memory.total_memory, memory.total_memory),
        "get_rng_state": torch.zeros(16, dtype=torch.uint8),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *args, _answer=answer, **options: _answer)
    torch.cuda.Stream = torch.cuda.Event = Stream  # type: ignore[assignment,misc]
    torch.version.cuda = torch.version.cuda or "12.8"
    torch.backends.cuda.is_flash_attention_available = lambda: True
    for name, answer in {
        "is_available": True, "device_count": 8, "current_accelerator": device, "current_device_index": 0,
        "current_stream": stream, "synchronize": None,
    }.items():  # fmt: skip
        setattr(torch.accelerator, name, lambda *args, _answer=answer, **options: _answer)


def give_addresses() -> None:
    """Give fake tensors addresses that differ where their memory does; torch says 0."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    address = torch.UntypedStorage.data_ptr

    def data_ptr(storage: Any) -> int:
        return storage_key(storage) if storage.device.type != "cpu" else int(address(storage))

    torch.UntypedStorage.data_ptr = data_ptr  # type: ignore[method-assign]
    FakeTensor.data_ptr = lambda tensor: storage_key(tensor.untyped_storage())  # type: ignore[method-assign]


KERNELS: list[Any] = []
"Keeps the registrations alive."


def register_kernels() -> None:
    """Give the device a kernel of each operator that has one on the CPU although it could be composed of others.

    A build with CUDA has them. Without them the dispatcher composes the operator before any mode sees it: the gradient
    of silu becomes seven operators and four buffers.
    """
    import torch

    has, library = torch._C._dispatch_has_kernel_for_dispatch_key, torch.library.Library("aten", "IMPL")

    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("a kernel of the rehearsed device was called outside of the rehearsal")

    for name in torch._C._dispatch_get_all_op_names():
        composed = name.startswith("aten::") and has(name, "CompositeImplicitAutograd")
        if composed and has(name, "CPU") and not has(name, "CUDA"):
            library.impl(name.removeprefix("aten::"), never, "CUDA")
    KERNELS.append(library)


def start_group(rank: int, size: int) -> None:
    """Join a process group of `size` whose other processes do not exist: its collectives move nothing."""
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())


def fake_mode() -> Any:
    """The mode in which operators compute shapes, dtypes and devices only."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def is_fake(value: Any) -> bool:
    """Whether this is a fake tensor."""
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def storage_key(storage: Any) -> int:
    """A number that two tensors share if they share memory."""
    key: int = storage._cdata
    return key


def schema(operator: Any) -> str:
    """The name of an operator, such as aten::mm."""
    name: str = operator._schema.name
    return name


def packet(operator: Any) -> Any:
    """The operator of an overload, by which torch's formulas of FLOPs are found."""
    return operator._overloadpacket


@contextmanager
def watched(resized: Callable[[Any], None], pause: Callable[[], Any]) -> Iterator[None]:
    """Within the block `resized` is called with each storage that is resized: FSDP2 frees gathered weights that way.

    And the shapes of whole DTensors, which torch computes on tensors that no process has, are computed in `pause()`.
    """
    import torch
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    resize, propagate = torch.UntypedStorage.resize_, ShardingPropagator._propagate_tensor_meta_non_cached

    def resize_(storage: Any, size: int) -> Any:
        out = resize(storage, size)
        resized(storage)
        return out

    def propagate_paused(*args: Any, **options: Any) -> Any:
        with pause():
            return propagate(*args, **options)

    with (
        patch.object(torch.UntypedStorage, "resize_", resize_),
        patch.object(ShardingPropagator, "_propagate_tensor_meta_non_cached", propagate_paused),
    ):
        yield


def replace_apply() -> None:
    """Have `Module.to` and the like put new parameters in place: those of fake tensors cannot be swapped."""
    from torch import nn

    def apply(module: nn.Module, change: Callable[[Any], Any], recurse: bool = True) -> nn.Module:
        for child in module.children() if recurse else ():
            child._apply(change)
        for name, weight in module._parameters.items():
            if weight is not None and (new := change(weight.detach())).device != weight.device:
                module._parameters[name] = nn.Parameter(new, requires_grad=weight.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = change(buffer)
        return module

    nn.Module._apply = apply  # type: ignore[method-assign,assignment]
