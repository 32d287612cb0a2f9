"""One visit to the head: log-probabilities of some rows and, once a coefficient is known, their gradients.

Three matrix products and one buffer of logits. Which rows are visited when is fused.py.
"""

import torch
from torch import Tensor


class Visit:
    """The head's weight, M states that read it, and the gradients that the visits fill.

    Args:
        states: [M, d].
        weight: [V, d] in the precision of the states.
        targets: [M].
        rows: of logits that are held at once.
        gradients: room for them; without it `follow` cannot be called.

    Attributes:
        grad_states: [M, d]; a row is written when it is followed.
        grad_weight: [V, d], in float32 where states are in half precision: sums of thousands of rows.
    """

    def __init__(self, states: Tensor, weight: Tensor, targets: Tensor, rows: int, gradients: bool = True) -> None:
        self.states, self.weight, self.targets = states, weight, targets
        self.half = states.dtype in (torch.bfloat16, torch.float16)
        self.wide = torch.float32 if self.half else states.dtype
        self.logits = torch.empty(min(rows, len(states)), len(weight), dtype=self.wide, device=states.device)
        if gradients:
            self.grad_states = torch.zeros_like(states)
            self.grad_weight = self.like_weight()
        self.narrow = torch.empty_like(self.logits, dtype=states.dtype) if self.half else None
        self.mass = self.logits[:, 0]

    def like_weight(self) -> Tensor:
        """[V, d] zeros to add a gradient to."""
        return torch.zeros_like(self.weight, dtype=self.wide)

    def score(self, rows: slice) -> Tensor:
        """[m] log-probabilities of the targets. The buffer keeps e^(logit - largest), and `mass` its sums."""
        states, targets = self.states[rows], self.targets[rows]
        shown = self.logits[: len(states)]
        if self.half:
            torch.mm(states, self.weight.T, out_dtype=self.wide, out=shown)
        else:
            torch.mm(states, self.weight.T, out=shown)
        picked = shown.gather(1, targets[:, None])[:, 0]
        largest = shown.amax(1)
        self.mass = shown.sub_(largest[:, None]).exp_().sum(1)
        return picked - largest - self.mass.log()

    def follow(self, rows: slice, coefficient: Tensor, into: Tensor) -> None:
        """The gradient of sum(coefficient * logp) over the m rows that were scored last.

        Args:
            rows: these rows.
            coefficient: [m].
            into: [V, d] that the weight's part is added to; that of the states goes to `grad_states`.
        """
        states, targets = self.states[rows], self.targets[rows]
        shown = self.logits[: len(states)]
        shown.scatter_add_(1, targets[:, None], -self.mass[:, None])
        scale = (-coefficient.to(self.wide) / self.mass)[:, None]
        if self.narrow is not None:
            narrow = torch.mul(shown, scale, out=self.narrow[: len(states)])
            torch.mm(narrow, self.weight, out=self.grad_states[rows])
            torch.addmm(into, narrow.T, states, out_dtype=self.wide, out=into)
        else:  # the factor on d numbers of a row instead of on V
            torch.mm(shown, self.weight, out=self.grad_states[rows])
            self.grad_states[rows].mul_(scale)
            into.addmm_(shown.T, states * scale)
