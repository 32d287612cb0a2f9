"""Counter-based randomness: draws are seeded by hash(run seed, stream, step, item); no state to restore."""

import hashlib

import numpy as np
from numpy.typing import NDArray


def derive(seed: int, *address: int | str) -> int:
    """A 63-bit seed for one address, say `derive(seed, "rollout", step)`. The same on every machine and restart."""
    text = "/".join(map(str, (seed, *address)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *address: int | str) -> np.random.Generator:
    """A NumPy generator for one address. It does not depend on draws at other addresses or their order."""
    return np.random.Generator(np.random.Philox(derive(seed, *address)))


def uniforms(seeds: NDArray[np.uint64], position: int | NDArray[np.integer]) -> NDArray[np.float64]:
    """[N] numbers in [0, 1), one per row seed, for one position or one each: hash(seed, position), no state.

    Source: the finaliser of SplitMix64 (Steele, Lea and Flood 2014), on the seed and again with the position, so that
    neighbouring seeds at neighbouring positions have nothing in common.
    """
    place = np.asarray(position).astype(np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is intended
        hashed = mixed(mixed(seeds.astype(np.uint64)) + (place + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    return (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: a bijection of 64-bit words in which every input bit affects every output bit."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
