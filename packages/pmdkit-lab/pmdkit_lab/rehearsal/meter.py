"""Measurements on the rehearsed device: memory by phase and site, products, kernels, traffic, waits, predicted time.

Tensors on the device are fake; everything on the host is real, so that the code that runs need not know.
"""

import os
import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

import pmdkit
from pmdkit_lab.planner.data_sheets import GPU, GPUS
from pmdkit_lab.rehearsal import device
from pmdkit_lab.rehearsal.roofline import Clock, Work, bytes_moved, fakes, size

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
BLOCK = 512  # bytes; CUDA's caching allocator rounds up to it
VIRTUAL = 2**20  # elements; a larger copy to the host is a single zero, expanded
OURS, PMDKIT = (os.path.dirname(path) + os.sep for path in (__file__, pmdkit.__file__))
CALLERS = (PMDKIT, "/_fully_shard/", "/transformers/", "/peft/", "/torch/optim/", "/clip_grad.py")
"Files that a site names; whatever they call is named after the line that called it."
PRODUCTS = {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_grouped_mm"}
"Kernels that take their last two operands in one dtype only; torch's shape functions do not look."
EMPTY = {
    f"aten::{name}"
    for name in ("empty", "empty_like", "new_empty", "empty_strided", "detach", "alias", "_unsafe_view", "set_")
}
"Operators without a kernel: they make a tensor of what is there already, or of nothing."


def new_phase() -> dict[str, Any]:
    """Empty counts of a phase: bytes at its peak and by site, FLOPs, calls, bytes sent, waits by line, predicted time.

    `order` has each collective with its line, in order; `costs` by line and operator the seconds on the device, calls,
    FLOPs, bytes, and the seconds that fusing it with what its function did before would save. `limits` sums what limits
    each kernel, as `GPU.rate` names it; `tokens` go through the model, each once in a pass and its gradient.
    """
    counts = {kind: Counter[str]() for kind in ("products", "kernels", "traffic", "waits", "limits")}
    return {"peak": 0, "sites": {}, "tokens": 0, "seconds": 0.0, "order": [], "costs": {}} | counts


class Meter(TorchDispatchMode):
    """Run operators on the device with fake tensors and all others for real, and count both.

    Attributes:
        phases: by name, in the order in which they began.
        latest: the phase that began last.
        pairs: query and key pairs of the packed sequences that attention sees next; the caller sets it.
        clock: of the host and of the device, a `gpu`.
        lines: of the forward pass, by the number of the node that autograd recorded there.
    """

    def __init__(self, gpu: GPU = GPUS["H100"]) -> None:
        super().__init__()
        self.clock = Clock(gpu)
        self.lines: dict[int, str] = {}
        self.fake = device.FakeTensorMode(allow_non_fake_inputs=True)
        self.phases: dict[str, dict[str, Any]] = defaultdict(new_phase)
        self.current = self.phases["build"]
        self.latest = "build"
        self.live: dict[int, list[Any]] = {}  # bytes and site of each storage, what sees its end, and what filled it
        self.seen: dict[Any, tuple[Any, list[Any]]] = {}  # results and counts of operators, by their arguments
        self.held = 0
        self.by_site: Counter[str] = Counter()
        self.pairs = 0
        self.rising = False

    def forget(self) -> None:
        """Reset all phases except the first."""
        for name, phase in self.phases.items():
            if name != "build":
                phase.update(new_phase())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count everything inside the block in this phase, not in the surrounding phase."""
        before = self.current
        self.snapshot()
        before["seconds"] += self.clock.lap()
        self.current, self.rising, self.latest = self.phases[name], False, name  # a phase may begin by freeing
        yield
        self.rising = self.rising or not self.current["peak"]  # a phase that allocates nothing peaks at its start
        self.snapshot()
        self.current["seconds"] += self.clock.lap()
        self.current, self.rising = before, True

    # Memory.

    def snapshot(self) -> None:
        """Record the memory held now if it is the phase's peak; called before memory is freed."""
        if self.rising and self.held > self.current["peak"]:
            self.current |= {"peak": self.held, "sites": +self.by_site}
        self.rising = False

    def change(self, entry: list[Any], nbytes: int) -> None:
        """Record the new size of a storage, in blocks of the allocator."""
        nbytes = -(-nbytes // BLOCK) * BLOCK
        if nbytes < entry[0]:
            self.snapshot()
        else:
            self.rising = True
        self.held += nbytes - entry[0]
        self.by_site[entry[1]] += nbytes - entry[0]
        entry[0] = nbytes

    def track(self, tensor: Tensor, operator: str, line: str) -> None:
        """Count the memory of a tensor that an operator made, unless the tensor is a view."""
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if key not in self.live:
            entry: list[Any] = [0, f"{line} [{operator.split('::')[1]}]"]
            self.live[key] = entry
            entry.append(weakref.ref(storage, lambda _: self.freed(key, entry)))
            self.change(entry, storage.nbytes())

    def freed(self, key: int, entry: list[Any]) -> None:
        """Count a storage as freed."""
        if self.live.get(key) is entry:
            del self.live[key]
        self.change(entry, 0)

    def resized(self, storage: Any) -> None:
        """Record a resize in place, by which FSDP2 frees and restores gathered weights."""
        entry = self.live.get(storage.data_ptr())
        if entry is not None:
            self.change(entry, storage.nbytes())

    # Operators.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator on fakes if any of its tensors is on the device, else for real."""
        if DTensor in types:
            return NotImplemented  # DTensor first; its local tensors come back here
        kwargs, faked = kwargs or {}, list[device.FakeTensor]()
        given = func, self.pairs, described(args, faked), described(kwargs, faked)
        name = func.name().partition(".")[0]
        if given in self.seen:
            result, counts = self.seen[given]
            if result is IN_PLACE:
                return self.counted(name, args[0], counts, faked)
            return self.counted(name, device.made_again(result, self.fake, faked), counts, faked)
        if "wait_tensor" in name or "_wrap_tensor_autograd" in name:
            return args[0]  # a fake result would be a second tensor
        place = kwargs.get("device")
        to = None if place is None else torch.device(place).type
        if not faked and to != "cuda":
            return func(*args, **kwargs)
        if (answer := self.on_host(func, args, kwargs, to)) is not None:
            return answer
        factors = [x for x in args if isinstance(x, Tensor) and x.is_floating_point()]
        factors = factors[:3] if "varlen_attn" in name else factors[-2:] if name in PRODUCTS else []
        if len({x.dtype for x in factors}) > 1 or ("varlen" in name and factors[0].dtype == torch.float32):
            kinds = ", ".join(short(x.dtype) for x in factors)
            raise TypeError(f"{name}: expected operands of one dtype, half precision for flash attention; got {kinds}")
        if func is aten.index_put.default and caller() == "autograd":
            # autograd's gradient of an index is in place, except for subclasses of tensors
            counts = self.count(func, name, args, kwargs, args[0], factors, faked)
            self.seen[given] = IN_PLACE, counts
            return self.counted(name, args[0], counts, faked)
        with self.fake:
            if name == "aten::_grouped_mm" and args[0].dtype != torch.bfloat16:  # shapes are known for bfloat16 alone
                out = func(args[0].bfloat16(), args[1].bfloat16(), *args[2:], **kwargs).to(args[0].dtype)
            else:
                out = func(*args, **kwargs)
        counts = self.count(func, name, args, kwargs, out, factors, faked)
        if (described(args, []), described(kwargs, [])) == given[2:]:  # the operator changed no input's layout
            with suppress(LookupError):
                self.seen[given] = device.result_of(out, faked), counts
        return self.counted(name, out, counts, faked)

    def counted(self, name: str, out: Any, counts: list[Any], faked: list[device.FakeTensor]) -> Any:
        """Return an operator's result after counting its memory and its work."""
        line = self.line()
        for tensor in tree_leaves(out):
            if isinstance(tensor, device.FakeTensor) and tensor.device.type == "cuda":
                self.track(tensor, name, line)
        for kind, what, amount in counts:
            if kind == "work":
                self.spend(f"{line} [{name.split('::')[1]}]", amount, faked, fakes(out))
            elif kind == "traffic":
                self.collective(what, amount)
            else:
                self.current[kind][what] += amount
        return out

    def line(self) -> str:
        """The running line; for autograd's own kernels, that of the forward pass whose gradient they compute.

        The nodes of autograd are numbered in each thread, so where activations are recomputed a line may be another of
        the same block.
        """
        here, node = caller(), torch._C._current_autograd_node()
        if node is not None and here == "autograd":
            return self.lines.get(node._sequence_nr(), here) + ", backward"
        if torch.is_grad_enabled():
            self.lines[torch.autograd._get_sequence_nr() - 1] = here  # type: ignore[attr-defined]
        return here

    def spend(self, site: str, work: Work, faked: list[device.FakeTensor], made: list[device.FakeTensor]) -> None:
        """Let one kernel run on the clocks, and add it to the costs of its site.

        In one kernel with what its function computed before, it would not read those results again, and nothing would
        have written them. Products are not fused.
        """
        kept, place = 0, function_of(site)
        for tensor in faked if not work.flops else ():
            entry = self.live.get(tensor.untyped_storage().data_ptr())
            if entry is not None and entry[3:] == [place]:
                kept += 2 * size(tensor)
                entry.append(None)  # once
        for tensor in made:
            self.live[tensor.untyped_storage().data_ptr()][3:] = [] if work.flops else [place]
        cost = self.current["costs"].setdefault(site, [0.0, 0, 0, 0, 0.0])
        seconds, limit, reached = self.clock.run(work)
        self.current["limits"][limit] += reached
        saved = min(kept / self.clock.gpu.bandwidth, seconds)
        for number, amount in enumerate((seconds, 1, work.flops, work.moved, saved)):
            cost[number] += amount

    def collective(self, what: str, size: int) -> None:
        """Count one collective: what it carries, and its place in the order in which this process calls them."""
        self.current["traffic"][what] += size
        self.current["order"].append([f"{what} {size}", caller()])

    def on_host(self, func: Any, args: Any, kwargs: Any, to: str | None) -> Any:
        """Result of an operator that copies numbers to the waiting host; None for any other operator.

        A flag is True, a number 0 or 1: what is finite, and what counts.
        """
        if func is aten._local_scalar_dense.default:
            self.wait("one number")
            kind = args[0].dtype
            return kind == torch.bool or (0.0 if kind.is_floating_point else 1)
        if func is aten._to_copy.default and to == "cpu" and args[0].device.type == "cuda":
            self.wait("a copy to the host")
            kind = kwargs.get("dtype") or args[0].dtype
            if args[0].numel() > VIRTUAL:
                return torch.zeros((), dtype=kind).expand(args[0].shape)
            return torch.zeros(args[0].shape, dtype=kind)
        if func is aten.copy_.default and not isinstance(args[0], device.FakeTensor):
            self.wait("a copy to the host")
            return args[0]
        if func is aten._unique2.default:  # the count of distinct values is data: here the groups of a micro-batch, 1
            self.wait("the size of a result")
            with self.fake:
                one = args[0].new_empty(1, dtype=torch.long)
                return args[0].new_empty(1), args[0].new_empty(args[0].shape, dtype=torch.long), one
        return None

    def wait(self, what: str) -> None:
        """Count one wait of the host for the device, by its reason `what` and the line that called for it."""
        self.clock.wait()
        self.current["waits"][f"{what}: {caller()}"] += 1

    def count(
        self, func: Any, name: str, args: Any, kwargs: Any, out: Any, factors: Any, faked: Any
    ) -> list[tuple[str, str, Any]]:
        """Traffic of a collective; FLOPs, kernels and their time of anything else."""
        made = [x for x in tree_leaves(out) if isinstance(x, device.FakeTensor)]
        if name.startswith(("c10d::", "_c10d_functional::")):
            whole = max(x.numel() * x.element_size() for x in (*faked, *made))  # not its shards
            return [("traffic", f"{name.split('::')[1].strip('_')} {short(faked[0].dtype)}", whole)]
        if func.is_view or name in EMPTY or name.startswith("prim::"):  # asking a tensor for its device runs nothing
            return []
        floats = [x.dtype for x in (*faked, *made) if x.dtype.is_floating_point]
        kernel = short(max(floats, key=lambda kind: kind.itemsize)) if floats else "integer"
        flops = 0
        if "varlen_attn" in name:  # two products forward, five backward; torch's formula does not know the lengths
            _, heads, width = factors[0].shape
            flops = self.pairs * heads * width * (10 if "backward" in name else 4)
        elif name == "aten::_grouped_mm":
            flops = 2 * args[0].shape[-2] * args[0].shape[-1] * args[1].shape[-1]
        elif (formula := flop_registry.get(func.overloadpacket)) is not None:
            plain = [x for x in args if not isinstance(x, torch.dtype)]  # out_dtype is not in torch's formulas
            flops = formula(*plain, **{k: v for k, v in kwargs.items() if k != "out"}, out_val=out)
        kind = short((factors or faked)[0].dtype) if flops else kernel
        work = Work(kind, flops, bytes_moved(func._schema, args, kwargs, out), "varlen_attn" in name)
        products = [("products", kind, flops)] if flops else []
        return [("kernels", kernel, 1), *products, ("work", "", work)]


IN_PLACE = object()  # result of an operator that returns its first input


def described(value: Any, faked: list[device.FakeTensor]) -> Any:
    """Everything an operator's result depends on. Tensors on the device count by layout and are added to `faked`."""
    kind = type(value)
    if kind is device.FakeTensor and value.constant is None:
        faked.append(value)
        memory = value.untyped_storage().nbytes()
        return value.dtype, value.shape, value.stride(), value.storage_offset(), value.fake_device, memory
    if kind in (list, tuple):
        return kind, *(described(item, faked) for item in value)
    if kind is dict:
        return *value, *(described(item, faked) for item in value.values())
    if isinstance(value, Tensor):
        if isinstance(value, device.FakeTensor):
            faked.append(value)
        return object()  # real data: never equal to another call's
    return kind, value


def function_of(site: str) -> str:
    """File and function of a site, and whether it is a backward pass; without the line and the operator."""
    place, _, rest = site.partition(" [")[0].partition(" ")
    return f"{place.partition(':')[0]} {rest}"


def short(kind: torch.dtype) -> str:
    """The name of a dtype without "torch."."""
    return str(kind).removeprefix("torch.")


@cache
def is_named(file: str) -> bool:
    """Whether a site may name this file; called for every frame above every operator, so it is cached."""
    return not file.startswith(OURS) and any(mark in file for mark in CALLERS)


def caller() -> str:
    """The running line of the rehearsed code, as file.py:12 function; "autograd" if autograd itself runs."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if is_named(name):
            return f"{os.path.basename(name)}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "autograd"
