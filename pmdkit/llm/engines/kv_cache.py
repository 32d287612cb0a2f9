"""The cache of keys and values while responses are generated: one slot per row, rows of different lengths."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pmdkit.llm.packed_attention import Attention, KeysValues, masked_attention

CHUNK = 32  # tokens that all slots grow by at a time
BLOCK = 32  # slots that attend together, padded to the longest of them; neighbours are of similar length


class RaggedKVCache:
    """A layout for `packing.forward_packed`: S = n tokens, one per row, each attending to the cache of its row.

    Attributes:
        lengths: [slots] tokens in each slot.
        capacity: tokens that each slot has room for.
    """

    def __init__(self, device: torch.device) -> None:
        self.layers: dict[int, KeysValues] = {}  # each [slots, heads of keys, capacity, d]
        self.lengths = torch.zeros(0, dtype=torch.long, device=device)
        self.host_lengths: list[int] = []  # lengths of the n rows, on the host
        self.capacity = 0
        self.most_slots = 0  # most slots at a time so far
        self.masks: dict[int | None, list[torch.Tensor]] = {}  # by the window of a layer
        self.slots = torch.zeros(0, dtype=torch.long, device=device)

    @property
    def n(self) -> int:
        """Number of rows that are being generated."""
        return len(self.host_lengths)

    def add(self, kept: dict[int, KeysValues], lengths: list[int], copies: list[int]) -> None:
        """Append new rows: `copies[i]` rows that continue the i-th of the packed prompts."""
        old, new = self.n, sum(copies)
        self.reserve(old + new, max(lengths) + 1, kept)
        for layer, (key, value) in kept.items():
            for store, source in zip(self.layers[layer], (key, value), strict=True):
                at = old
                for part, times in zip(source[0].split(lengths, dim=1), copies, strict=True):
                    store[at : at + times, :, : part.shape[1]] = part
                    at += times
        joined = [length for length, times in zip(lengths, copies, strict=True) for _ in range(times)]
        self.lengths[old : old + new] = torch.tensor(joined)
        self.host_lengths += joined

    def reserve(self, rows: int, tokens: int, like: dict[int, KeysValues] | None = None) -> None:
        """Make room for this many rows and tokens."""
        slots = len(self.lengths)
        if rows <= slots and tokens <= self.capacity:
            return
        capacity = max(self.capacity, -(-tokens // CHUNK) * CHUNK)
        # to make rows longer, drop empty slots; to add rows, make as many slots as at the peak, since more may come
        self.most_slots = max(self.most_slots, rows)
        rows = self.most_slots if rows > slots else max(self.n, rows)
        for layer, stores in (like or self.layers).items():
            pair = []
            for which, one in enumerate(stores):  # values may be of another size than keys
                # zeros, not uninitialized memory, because masked numbers are multiplied by 0, and 0 times NaN is NaN
                grown = one.new_empty((rows, one.shape[1], capacity, one.shape[3]))
                grown[self.n :] = 0
                grown[: self.n, :, self.capacity :] = 0
                if layer in self.layers:
                    grown[: self.n, :, : self.capacity] = self.layers[layer][which][: self.n]
                pair.append(grown)
            self.layers[layer] = pair[0], pair[1]
        self.capacity = capacity
        self.lengths = F.pad(self.lengths, (0, rows - slots))
        self.slots = torch.arange(rows, device=self.lengths.device)

    def remove(self, ended: list[int]) -> list[int]:
        """Remove rows. Returns the previous slot of each remaining row, in the new order."""
        order = list(range(self.n))
        for slot in sorted(ended, reverse=True):
            last = order.pop()
            if slot < len(order):
                order[slot] = last
        moved = [slot for slot, before in enumerate(order) if before != slot]
        if moved:
            at = torch.tensor(moved, device=self.lengths.device)
            source = torch.tensor([order[slot] for slot in moved], device=self.lengths.device)
            used = max(self.host_lengths)
            for pair in self.layers.values():
                for store in pair:
                    store[at, :, :used] = store[source, :, :used]
            self.lengths[at] = self.lengths[source]
        self.host_lengths = [self.host_lengths[before] for before in order]
        return order

    def advance(self) -> torch.Tensor:
        """Make room for one more token per row. Returns [n] the positions of the new tokens."""
        self.reserve(self.n, max(self.host_lengths) + 1)
        self.host_lengths = [length + 1 for length in self.host_lengths]
        place = self.lengths[: self.n].clone()
        self.lengths[: self.n] += 1
        self.masks = {}
        return place

    def masks_of(self, window: int | None) -> list[torch.Tensor]:
        """[b, 1, 1, length] per block of slots, True where its new tokens attend. Made once a step for all layers."""
        if window not in self.masks:
            self.masks[window] = []
            for start in range(0, self.n, BLOCK):
                longest = max(self.host_lengths[start : start + BLOCK])
                lengths = self.lengths[start : min(start + BLOCK, self.n), None]
                places = self.slots.new_tensor(range(longest))
                seen = places < lengths
                if window is not None:
                    seen &= places >= lengths - window
                self.masks[window].append(seen[:, None, None])
        return self.masks[window]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """[1, n, heads, d] from queries [1, heads, n, d]: store each row's key and value, then attend to its slot."""
        keys, values = self.layers[layer]
        place = self.lengths[: self.n] - 1
        slots = self.slots[: self.n]
        keys[slots, :, place] = key[0].transpose(0, 1)
        values[slots, :, place] = value[0].transpose(0, 1)
        heads, d = query.shape[1], query.shape[3]
        groups = heads // keys.shape[1]
        q = query[0].transpose(0, 1).reshape(self.n, keys.shape[1], groups, d)  # the queries of a key head as its rows
        window = how.window if how.window is not None and how.window < max(self.host_lengths) else None
        parts = []
        for start, mask in zip(range(0, self.n, BLOCK), self.masks_of(window), strict=True):
            stop, length = min(start + BLOCK, self.n), mask.shape[-1]
            k, v = keys[start:stop, :, :length], values[start:stop, :, :length]
            parts.append(masked_attention(q[start:stop], k, v, mask, how))
        return torch.cat(parts).reshape(1, self.n, heads, values.shape[3])
