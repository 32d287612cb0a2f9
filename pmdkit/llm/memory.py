"""Memory, measured: the token budget that fits on this machine.

What it takes by arithmetic is `pmdkit.planner.memory`.
"""

import os
import resource
import sys

import torch
from transformers import PreTrainedModel

from pmdkit.config import Spec
from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.logprobs import response_logp

GIB = 2**30
SHARE = 0.8  # of the memory that the update may take: the allocator fragments, and steps differ
FIRST = 1024  # tokens
PROMPT = 32  # tokens of a trial that are not scored; the fewer, the more the head has to do


def fit_token_budget(model: PreTrainedModel, spec: Spec) -> tuple[int, list[tuple[int, float]]]:
    """The largest token budget, a power of two, whose update fits beside weights, gradients and optimizer.

    Each budget is tried, twice the one before it, until one does not fit or a whole ministep does.

    Returns:
        Tokens, and the trials: tokens and GiB at their peak.
    """
    weights = sum(weight.numel() for weight in model.parameters())
    room = SHARE * capacity(model.device) - 8 * weights  # for the moments of Adam, fewer with adapters
    trials: list[tuple[int, float]] = []
    tokens = FIRST
    while not trials or trials[-1][0] < most_tokens(spec):
        peak = trial(model, tokens, spec)
        if peak is None or peak > room:
            break
        trials.append((tokens, peak / GIB))
        tokens *= 2
    if not trials:
        raise EnvironmentLacks(
            f"{FIRST} tokens at once do not fit beside {weights:,} weights; set model.checkpointing, "
            "model.dtype to bfloat16, or take a smaller model"
        )
    return trials[-1][0], trials


def most_tokens(spec: Spec) -> int:
    """Tokens of a ministep at most: a larger budget changes nothing."""
    assert spec.rollout is not None
    assert spec.schedule.prompts is not None
    assert spec.schedule.group is not None
    prompts = -(-spec.schedule.prompts // spec.schedule.ministeps)
    return prompts * (spec.rollout.max_prompt + spec.schedule.group * spec.rollout.width)


def trial(model: torch.nn.Module, tokens: int, spec: Spec) -> int | None:
    """Bytes at the peak of one pass over that many tokens; None where they do not fit."""
    assert spec.rollout is not None
    length = min(tokens, spec.rollout.width + PROMPT)
    rows = max(1, tokens // length)
    vocabulary = int(model.get_input_embeddings().weight.shape[0])  # type: ignore[operator]
    chance = torch.Generator().manual_seed(0)
    text = torch.randint(vocabulary, (rows, length), generator=chance).tolist()
    cuda = next(model.parameters()).device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    half = getattr(spec.model, "dtype", "float32") == "bfloat16"
    try:
        with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=half):
            scores = response_logp(model, [row[:PROMPT] for row in text], [row[PROMPT:] for row in text])  # type: ignore[arg-type]
            scores.logp.sum().backward()
    except (torch.OutOfMemoryError, MemoryError):
        return None
    finally:
        model.zero_grad(set_to_none=True)
    if cuda:
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def capacity(device: torch.device) -> int:
    """Bytes that the device has for this process."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) + int(torch.cuda.memory_reserved(device))
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
