"""Keys and values of the rows that are being written, and the attention of one new token per row to its own.

Rows stand in slots 0 to n - 1. One that ends gives its slot to the last one, so that it costs nothing from then on.
"""

import torch
import torch.nn.functional as F

from pmdkit.llm.packing import KeysValues

CHUNK = 32  # tokens that all slots grow by at a time
BLOCK = 32  # slots that attend together: as long as the longest of them, and neighbours are of similar length


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
        self.most_slots = 0  # slots at a time so far
        self.masks: list[torch.Tensor] = []
        self.slots = torch.zeros(0, dtype=torch.long, device=device)

    @property
    def n(self) -> int:
        """Rows that are being written."""
        return len(self.host_lengths)

    @property
    def longest(self) -> int:
        """Of all rows with their new token, tokens."""
        return max(self.host_lengths)

    def add(self, kept: dict[int, KeysValues], lengths: list[int], copies: list[int]) -> None:
        """New rows behind the others: `copies[i]` rows that go on from the i-th of the packed prompts."""
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
        """Room for so many rows and tokens."""
        slots = len(self.lengths)
        if rows <= slots and tokens <= self.capacity:
            return
        capacity = max(self.capacity, -(-tokens // CHUNK) * CHUNK)
        # longer rows: slots that stand empty are not taken along. More rows: as there have been, more may follow
        self.most_slots = max(self.most_slots, rows)
        rows = self.most_slots if rows > slots else max(self.n, rows)
        for layer, (one, _) in (like or self.layers).items():
            pair = []
            for which in range(2):
                # zeros and not whatever stood there: what the mask hides is multiplied by 0, and 0 times NaN is NaN
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
        """Take rows out. Returns which slot each remaining row stood in before, in the new order."""
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
        """Room for one more token per row, the masks for it, and [n] the places of the new tokens."""
        self.reserve(self.n, max(self.host_lengths) + 1)
        self.host_lengths = [length + 1 for length in self.host_lengths]
        place = self.lengths[: self.n].clone()
        self.lengths[: self.n] += 1
        self.masks = []
        for start in range(0, self.n, BLOCK):
            longest = max(self.host_lengths[start : start + BLOCK])
            lengths = self.lengths[start : min(start + BLOCK, self.n), None]
            self.masks.append((self.slots.new_tensor(range(longest)) < lengths)[:, None, None])  # [b, 1, 1, length]
        return place

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None
    ) -> torch.Tensor:
        """Each row's new token attends to its slot, in which it is written first."""
        keys, values = self.layers[layer]
        place = self.lengths[: self.n] - 1
        slots = self.slots[: self.n]
        keys[slots, :, place] = key[0].transpose(0, 1)
        values[slots, :, place] = value[0].transpose(0, 1)
        heads, d = query.shape[1], query.shape[3]
        groups = heads // keys.shape[1]
        q = query[0].transpose(0, 1).reshape(self.n, keys.shape[1], groups, d)  # the queries of a key head as its rows
        parts = []
        for start, mask in zip(range(0, self.n, BLOCK), self.masks, strict=True):
            stop, length = min(start + BLOCK, self.n), mask.shape[-1]
            k, v = keys[start:stop, :, :length], values[start:stop, :, :length]
            parts.append(F.scaled_dot_product_attention(q[start:stop], k, v, attn_mask=mask, scale=scaling))
        return torch.cat(parts).reshape(1, self.n, heads, d)
