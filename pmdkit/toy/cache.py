"""What a transformer remembers of the tokens it has read: keys and values per layer, with room for more."""

from torch import Tensor


class Cache:
    """Keys and values of `length` tokens in every layer.

    Every row has read equally many tokens, so there is no padding and no mask. Gradients flow through a cache whose
    layers are written once, which is how `score` uses it: the prompts' cache, and a copy that the responses extend.
    """

    def __init__(self, layers: list[Tensor], length: int = 0) -> None:
        self.layers = layers  # each [N, room, 2, H, D]: keys, then values
        self.length = length

    def append(self, layer: int, pair: Tensor) -> Tensor:
        """Write the keys and values [N, S, 2, H, D] of new tokens; returns those of all C tokens, [N, C, 2, H, D]."""
        stop = self.length + pair.shape[1]
        self.layers[layer][:, self.length : stop] = pair
        return self.layers[layer][:, :stop]

    def rows(self, index: Tensor) -> "Cache":
        """Copies of some rows, in the order of `index` and as often as it names them."""
        return Cache([table.index_select(0, index) for table in self.layers], self.length)
