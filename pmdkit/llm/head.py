"""The head over the vocabulary: from hidden states [M, d] to log-probabilities, a chunk of rows at a time.

`head_logp` recomputes the logits in the backward pass; it and the fused loss are built on `ChunkedHead`.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedModel

from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.fused_kernels import logit_gradient, logit_statistics
from pmdkit.specs.llm import HEAD_TOKENS


def head_weight(model: PreTrainedModel) -> Tensor:
    """[V, d] the weight of the model's head."""
    layer: Any = model.get_output_embeddings()
    if not isinstance(layer, nn.Linear) or layer.bias is not None:
        raise EnvironmentLacks(f"the head of {type(model).__name__} is {layer}; expected a linear layer without a bias")
    return layer.weight


def head_logp(
    states: Tensor, weight: Tensor, targets: Tensor, head_tokens: int = HEAD_TOKENS, temperature: float = 1.0
) -> Tensor:
    """[M] log-probability of each target, from states [M, d] and the head's weight [V, d], in chunks of rows.

    The logits are divided by the temperature, as for draws. Four matrix products. A loss per response needs only three:
    `pmdkit.llm.fused_loss`.
    """
    logp: Tensor = HeadLogp.apply(states, weight, targets, head_tokens, temperature)
    return logp


class ChunkedHead:
    r"""Forward and backward pass of the head for one chunk of rows at a time, with one buffer of logits.

    In half precision, on GPUs, two kernels read the logits; else seven passes change them in place. With states $x$,
    weight $W$, temperature $T$, logits $z = x W^\top / T$ and targets $y$:

    $$ \log p(y) = z_y - \max z - \log s, \quad s = \textstyle\sum_v e_v, \quad e = \exp(z - \max z) $$

    $$ \frac{\partial}{\partial (T z)} \sum_i c_i \log p_i(y_i)
       = \frac{c}{T}\,(1_y - e / s) = -\frac{c}{T s}\,(e - s\,1_y) $$

    Args:
        states: [M, d].
        weight: [V, d] in the precision of the states.
        targets: [M].
        chunk: rows of logits that are held at once.
        temperature: T, > 0.
        gradients: allocate them; without this `backward` cannot be called.

    Attributes:
        grad_states: [M, d]; `backward` writes the rows of its chunk.
        grad_weight: [V, d], in float32 if states are in half precision, since it sums thousands of rows.
    """

    def __init__(
        self,
        states: Tensor,
        weight: Tensor,
        targets: Tensor,
        chunk: int,
        temperature: float = 1.0,
        gradients: bool = True,
    ) -> None:
        self.states, self.weight, self.targets = states, weight, targets
        self.temperature = temperature
        self.half = states.dtype in (torch.bfloat16, torch.float16)
        self.wide = torch.float32 if self.half else states.dtype
        self.buffer = torch.empty(min(chunk, len(states)), len(weight), dtype=self.wide, device=states.device)
        if gradients:
            self.grad_states = torch.zeros_like(states)
            self.grad_weight = torch.zeros_like(weight, dtype=self.wide)
        self.largest = self.sums = self.buffer[:, 0]

    def forward(self, rows: slice) -> Tensor:
        """[m] log-probabilities of the targets of some rows. `backward` needs the buffer: e, or z in half precision."""
        x, y = self.states[rows], self.targets[rows]
        # z = x W^T / T
        z = self.buffer[: len(x)]
        if self.half:
            torch.mm(x, self.weight.T, out_dtype=self.wide, out=z)
            self.largest, self.sums, logp = logit_statistics(z, y, self.temperature)
            return logp
        torch.mm(x, self.weight.T, out=z)
        if self.temperature != 1:
            z.div_(self.temperature)
        # log p(y) = z_y - max z - log s, and z becomes e = exp(z - max z) in place: the buffer of [m, V] is by far the
        # largest tensor of a step, and a second one would not fit. z_y is taken before it is overwritten.
        z_y = z.gather(1, y[:, None])[:, 0]
        largest = z.amax(1)
        self.sums = z.sub_(largest[:, None]).exp_().sum(1)
        return z_y - largest - self.sums.log()

    def backward(self, rows: slice, coefficient: Tensor, grad_weight: Tensor) -> None:
        """The gradient of sum(coefficient * logp) over the m rows that `forward` saw last. It uses up the buffer.

        Args:
            coefficient: [m].
            grad_weight: [V, d] that the weight's part is added to; that of the states goes to `grad_states`.
        """
        x, y = self.states[rows], self.targets[rows]
        e = self.buffer[: len(x)]
        scale = (-coefficient.to(self.wide) / (self.temperature * self.sums))[:, None]
        # d(T z) = -(c / (T s)) (e - s 1_y),  dx = d(T z) W,  dW = d(T z)^T x
        if self.half:
            dz = logit_gradient(e, y, self.largest, self.sums, scale[:, 0], self.temperature, x.dtype)
            torch.mm(dz, self.weight, out=self.grad_states[rows])
            torch.addmm(grad_weight, dz.T, x, out_dtype=self.wide, out=grad_weight)
        else:
            e.scatter_add_(1, y[:, None], -self.sums[:, None])  # e - s 1_y, in place
            # a row's factor is applied to its d numbers instead of its V logits
            torch.mm(e, self.weight, out=self.grad_states[rows])
            self.grad_states[rows].mul_(scale)
            grad_weight.addmm_(e.T, x * scale)


class HeadLogp(torch.autograd.Function):
    """[M] log-probability of each target, M >= 1; the backward pass recomputes the logits of each chunk.

    Arguments: states [M, d], weight [V, d], targets [M], the rows of a chunk, and the temperature. Gradients come back
    in the precision of the first two, not of the product.
    """

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, head_tokens: int, temperature: float
    ) -> Tensor:
        ctx.head_tokens, ctx.temperature, ctx.dtypes = head_tokens, temperature, (states.dtype, weight.dtype)
        states, weight = matmul_operands(states, weight)
        ctx.save_for_backward(states, weight, targets)
        chunked = ChunkedHead(states, weight, targets, head_tokens, temperature, gradients=False)
        return torch.cat([chunked.forward(rows) for rows in chunks(slice(0, len(states)), head_tokens)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        states, weight, targets = ctx.saved_tensors
        chunked = ChunkedHead(states, weight, targets, ctx.head_tokens, ctx.temperature)
        for rows in chunks(slice(0, len(states)), ctx.head_tokens):
            chunked.forward(rows)
            chunked.backward(rows, grad[rows], chunked.grad_weight)
        of_states, of_weight = ctx.dtypes
        return chunked.grad_states.to(of_states), chunked.grad_weight.to(of_weight), *[None] * 3


def chunks(rows: slice, size: int) -> list[slice]:
    """Runs of at most `size` rows."""
    return [slice(start, min(start + size, rows.stop)) for start in range(rows.start, rows.stop, size)]


def logits(states: Tensor, weight: Tensor) -> Tensor:
    """[m, V] logits of states [m, d] and a weight [V, d] as `head_operand` gives it, in float32 or wider; no gradient.

    Not in bfloat16, whose rounding shifts the log-probability of a response by tenths of a nat.
    """
    if states.is_cuda and states.dtype == weight.dtype and states.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(states, weight.T, out_dtype=torch.float32)
    wide = torch.float64 if states.dtype == torch.float64 else torch.float32
    return F.linear(states.to(wide), weight.to(wide))


def matmul_operands(states: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The operands of the product: in the states' precision, but at least float32 on a CPU, to be exact."""
    weight = weight.to(states.dtype)
    if states.is_cuda or states.dtype == torch.float64:
        return states, weight
    return states.float(), weight.float()


def head_operand(weight: Tensor) -> Tensor:
    """The head's weight as `logits` takes it: on a CPU already in float32 or wider, so that it is converted once."""
    return weight if weight.is_cuda or weight.dtype == torch.float64 else weight.float()
