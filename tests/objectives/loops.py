"""What the loops of equations in plain Python share: ragged draws, and the same numbers as padded tensors."""

import math

import numpy as np
import torch


def ragged(seed, prompts=3, size=5, tokens=6, signs=True):
    """Rewards of +-1, or graded ones that tie now and then."""
    random = np.random.default_rng(seed)
    reward = np.where(random.random((prompts, size)) < 0.4, 1.0, -1.0)
    reward[0] = -1.0
    reward[0, 0] = 1.0
    if not signs:
        reward = random.integers(0, 4, (prompts, size)) / 4
    lengths = random.integers(1, tokens + 1, (prompts, size))
    old = [[-2 * random.random(n) for n in row] for row in lengths]
    new, ref = ([[o + 0.5 * random.standard_normal(len(o)) for o in row] for row in old] for _ in range(2))
    return reward, new, old, ref


def tensors(reward, *policies):
    flat = [[torch.tensor(row) for prompt in policy for row in prompt] for policy in policies]
    padded = [torch.nn.utils.rnn.pad_sequence(rows, batch_first=True) for rows in flat]
    width = padded[0].shape[1]
    mask = torch.tensor([[t < len(row) for t in range(width)] for row in flat[0]])
    return torch.tensor(reward), padded, mask


def standard(r, i):
    mean = sum(r) / len(r)
    std = math.sqrt(sum((x - mean) ** 2 for x in r) / len(r))
    return (r[i] - mean) / std if std else 0.0
