"""Counter-based randomness: a draw is seeded by hash(run seed, stream, step, item); there is no state to restore."""

import hashlib

import numpy as np


def derive(seed: int, *address: int | str) -> int:
    """A 63-bit seed for one address, say `derive(seed, "rollout", step)`. The same on every machine and restart."""
    text = "/".join(str(part) for part in (seed, *address))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *address: int | str) -> np.random.Generator:
    """A NumPy generator for one address. Draws of other addresses, and their order, do not touch it."""
    return np.random.Generator(np.random.Philox(derive(seed, *address)))
