"""What a transformer remembers of the tokens it has read: keys and values per layer."""

import torch
from torch import Tensor


class Cache:
    """Keys and values of `length` tokens in every layer.

    Every row has read equally many tokens, so there is no padding and no mask. A copy of rows is made when a layer
    reads on; where no gradient is wanted, it goes straight to its place before the new tokens.
    """

    def __init__(self, layers: dict[int, Tensor] | None = None, length: int = 0, index: Tensor | None = None) -> None:
        self.layers = layers or {}  # each [M, length, 2, H, D]: keys, then values
        self.length = length
        self.index = index  # [N] the row of `layers` that each row goes on from; None: its own

    def append(self, layer: int, pair: Tensor) -> Tensor:
        """Add the keys and values [N, S, 2, H, D] of new tokens; returns those of all C tokens, [N, C, 2, H, D]."""
        past = self.layers.get(layer)
        if past is None:
            whole = pair
        elif self.index is None:
            whole = torch.cat((past, pair), 1)
        elif pair.requires_grad:  # no gradient flows back through `out`
            whole = torch.cat((past.index_select(0, self.index), pair), 1)
        else:
            whole = pair.new_empty((len(pair), self.length + pair.shape[1], *pair.shape[2:]))
            torch.index_select(past, 0, self.index, out=whole[:, : self.length])
            whole[:, self.length :] = pair
        self.layers[layer] = whole
        return whole

    def advance(self, count: int) -> None:
        """Every layer has read `count` more tokens."""
        self.length, self.index = self.length + count, None

    def rows(self, index: Tensor) -> "Cache":
        """Some rows, in the order of `index` and as often as it names them. What they read on is theirs alone."""
        return Cache(self.layers.copy(), self.length, index if self.index is None else self.index[index])
