"""What happens on the rehearsed device: memory by phase and site, products, kernels, traffic, waits of the host.

Tensors on the device are fake; everything on the host is real, so that the code that runs need not know.
"""

import os
import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from pmdkit_lab.rehearsal import device

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
BLOCK = 512  # bytes; CUDA's caching allocator rounds up to it
VIRTUAL = 2**20  # numbers; a larger copy to the host is one zero, expanded
OURS = os.path.dirname(__file__)
CALLERS = ("/pmdkit/", "/_fully_shard/", "/transformers/", "/peft/", "/torch/optim/", "/clip_grad.py")
"Files that a site names; whatever they call is named after the line that called it."
SAME_DTYPE = {"aten::mm": (0, 1), "aten::bmm": (0, 1), "aten::addmm": (1, 2), "aten::baddbmm": (1, 2)}
SAME_DTYPE |= {"aten::_grouped_mm": (0, 1)}
"Operands that a kernel takes in one dtype only; torch's shape functions do not look."
EMPTY = {"aten::empty", "aten::empty_like", "aten::new_empty", "aten::empty_strided", "aten::detach", "aten::alias"}


class Phase:
    """What was counted in one phase: bytes at its fullest moment, FLOPs, calls, bytes sent, and waits by line."""

    def __init__(self) -> None:
        self.peak = 0
        self.sites: dict[str, int] = {}
        self.products: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()
        self.traffic: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()


class Meter(TorchDispatchMode):
    """Fakes what touches the device, runs everything else, and counts.

    Attributes:
        phases: by name, in the order in which they began.
        latest: the phase that began last.
        pairs: query and key pairs of the packed sequences that attention sees next; the caller sets it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fake = device.FakeTensorMode(allow_non_fake_inputs=True)
        self.phases: dict[str, Phase] = defaultdict(Phase)
        self.current = self.phases["build"]
        self.latest = "build"
        self.live: dict[int, list[Any]] = {}  # bytes and site of each storage
        self.held = 0
        self.by_site: Counter[str] = Counter()
        self.pairs = 0
        self.paused = self.rising = False

    def forget(self) -> None:
        """Begin all phases anew, except the first."""
        for name, phase in self.phases.items():
            if name != "build":
                vars(phase).update(vars(Phase()))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what happens inside as part of a phase, and not of the one around it."""
        before = self.current
        self.snapshot()
        self.current, self.rising, self.latest = self.phases[name], False, name  # its first step may free
        yield
        self.snapshot()
        self.current, self.rising = before, True

    def __enter__(self) -> "Meter":
        """Begin to count."""
        self.watched = device.watched(self.resized, self.pause)
        self.watched.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        """Stop."""
        super().__exit__(*problem)
        self.watched.__exit__(*problem)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Count nothing inside."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    # Memory.

    def snapshot(self) -> None:
        """Keep what is held now if it is the most in this phase; called before anything is freed."""
        if self.rising and self.held > self.current.peak:
            self.current.peak, self.current.sites = self.held, +self.by_site
        self.rising = False

    def change(self, entry: list[Any], size: int) -> None:
        """A storage has another size now."""
        if size < entry[0]:
            self.snapshot()
        else:
            self.rising = True
        self.held += size - entry[0]
        self.by_site[entry[1]] += size - entry[0]
        entry[0] = size

    def track(self, tensor: Tensor, operator: str) -> None:
        """Count the memory of a tensor that an operator made, unless it is a part of another's."""
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if key not in self.live:
            entry = self.live[key] = [0, site(operator)]
            weakref.finalize(storage, self.freed, key, entry)
            self.change(entry, rounded(storage.nbytes()))

    def freed(self, key: int, entry: list[Any]) -> None:
        """The memory is given back."""
        if self.live.get(key) is entry:
            del self.live[key]
        self.change(entry, 0)

    def resized(self, storage: Any) -> None:
        """FSDP2 frees and restores gathered weights in place."""
        entry = self.live.get(storage.data_ptr())
        if entry is not None:
            self.change(entry, rounded(storage.nbytes()))

    # Operators.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator on fakes if any of its tensors is on the device, else for real."""
        kwargs = kwargs or {}
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor first; its local tensors come back here
        name = func.name().partition(".")[0]
        if self.paused:
            return func(*args, **kwargs)
        if "wait_tensor" in name or "_wrap_tensor_autograd" in name:
            return args[0]  # a fake result would be a second tensor
        faked = [x for x in tree_leaves((args, kwargs)) if isinstance(x, device.FakeTensor)]
        place = kwargs.get("device")
        to = None if place is None else torch.device(place).type
        if not faked and to != "cuda":
            return func(*args, **kwargs)
        if (answer := self.on_host(func, args, kwargs, to)) is not None:
            return answer
        self.check(name, args)
        if func is aten.index_put.default and next(callers(), None) is None:
            return args[0]  # autograd's gradient of an index is in place, except for subclasses of tensors
        with self.fake:
            if name == "aten::_grouped_mm" and args[0].dtype != torch.bfloat16:  # shapes are known for bfloat16 alone
                out = func(args[0].bfloat16(), args[1].bfloat16(), *args[2:], **kwargs).to(args[0].dtype)
            else:
                out = func(*args, **kwargs)
        made = [x for x in tree_leaves(out) if isinstance(x, device.FakeTensor)]
        for tensor in made:
            if tensor.device.type == "cuda":
                self.track(tensor, name)
        self.count(func, name, args, kwargs, out, faked, made)
        return out

    def on_host(self, func: Any, args: Any, kwargs: Any, to: str | None) -> Any:
        """The answer of an operator that brings numbers to the host, which waits for them; None for any other.

        A flag is True, a number 0 or 1: what is finite, and what counts.
        """
        if func is aten._local_scalar_dense.default:
            self.current.waits[waiting("one number")] += 1
            kind = args[0].dtype
            return kind == torch.bool or (0.0 if kind.is_floating_point else 1)
        if func is aten._to_copy.default and to == "cpu" and args[0].device.type == "cuda":
            self.current.waits[waiting("a copy to the host")] += 1
            kind = kwargs.get("dtype") or args[0].dtype
            if args[0].numel() > VIRTUAL:
                return torch.zeros((), dtype=kind).expand(args[0].shape)
            return torch.zeros(args[0].shape, dtype=kind)
        if func is aten.copy_.default and not isinstance(args[0], device.FakeTensor):
            self.current.waits[waiting("a copy to the host")] += 1
            return args[0]
        if func is aten._unique2.default:  # how many there are is a number: here the groups of a micro-batch, one
            self.current.waits[waiting("the size of a result")] += 1
            with self.fake:
                one = args[0].new_empty(1, dtype=torch.long)
                return args[0].new_empty(1), args[0].new_empty(args[0].shape, dtype=torch.long), one
        return None

    def check(self, name: str, args: Any) -> None:
        """Refuse what kernels refuse and shape functions accept."""
        if name in SAME_DTYPE:
            one, two = (args[place].dtype for place in SAME_DTYPE[name])
            if one != two:
                raise TypeError(f"{name}: expected both matrices in one dtype, got {one} and {two}")
        if "varlen_attn" in name:
            kinds = {x.dtype for x in args[:3] if isinstance(x, Tensor)}
            if len(kinds) > 1 or not kinds <= {torch.bfloat16, torch.float16}:
                raise TypeError(f"{name}: flash attention takes one half-precision dtype, got {kinds}")

    def count(self, func: Any, name: str, args: Any, kwargs: Any, out: Any, faked: Any, made: Any) -> None:
        """Traffic of a collective; FLOPs and kernels of anything else."""
        if name.startswith(("c10d::", "_c10d_functional::")):
            size = max(x.numel() * x.element_size() for x in (*faked, *made))  # the whole, of which others are parts
            self.current.traffic[f"{name.split('::')[1].strip('_')} {short(faked[0].dtype)}"] += size
            return
        if func.is_view or name in EMPTY:
            return
        floats = [x.dtype for x in (*faked, *made) if x.dtype.is_floating_point]
        self.current.kernels[short(max(floats, key=lambda kind: kind.itemsize)) if floats else "integer"] += 1
        formula, flops = flop_registry.get(func.overloadpacket), 0
        if formula is not None:
            plain = [x for x in args if not isinstance(x, torch.dtype)]  # out_dtype is not in torch's formulas
            flops = formula(*plain, **{k: v for k, v in kwargs.items() if k != "out"}, out_val=out)
        elif name == "aten::_grouped_mm":
            flops = 2 * args[0].shape[-2] * args[0].shape[-1] * args[1].shape[-1]
        elif "varlen_attn" in name:  # two products forward, five backward
            query = next(x for x in args if isinstance(x, Tensor) and x.ndim == 3)
            flops = self.pairs * query.shape[1] * query.shape[2] * (10 if "backward" in name else 4)
        if flops:
            self.current.products[short(args[SAME_DTYPE.get(name, (0, 0))[0]].dtype)] += flops


def rounded(size: int) -> int:
    """Bytes as the allocator hands them out."""
    return -(-size // BLOCK) * BLOCK


def short(kind: torch.dtype) -> str:
    """The name of a dtype without "torch."."""
    return str(kind).removeprefix("torch.")


def callers() -> Iterator[FrameType]:
    """Frames of the code that is rehearsed, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(OURS) and any(mark in name for mark in CALLERS):
            yield frame
        frame = frame.f_back


def line(frame: FrameType) -> str:
    """Where a frame is, as file.py:12 function."""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"


def site(operator: str) -> str:
    """The line that allocates now; autograd's own steps have none."""
    found = next(callers(), None)
    where = "autograd" if found is None else line(found)
    return f"{where} [{operator.split('::')[1]}]"


def waiting(what: str) -> str:
    """The line for which the host waits now."""
    found = next(callers(), None)
    return f"{what}: {'autograd' if found is None else line(found)}"
