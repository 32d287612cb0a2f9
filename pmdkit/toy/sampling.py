"""Sample responses from a transformer, and score given ones; common prefixes are read only once.

Shapes: P prompts of L tokens, G responses each, N = P * G rows of at most T tokens, V vocabulary.
"""

import torch
from torch import Tensor

from pmdkit.errors import Diverged
from pmdkit.randomness import generator
from pmdkit.toy.model import Transformer

Samples = tuple[Tensor, Tensor, Tensor]
ROWS = 1024  # rows at a time on a CPU: at dimension 64 their activations still fit the cache of a core


def generate(
    model: Transformer, prompts: Tensor, group: int, width: int, eos: int, seed: int, greedy: bool = False
) -> Samples:
    """Sample `group` responses per prompt, token by token, until `eos` or `width` tokens.

    A row is a function of its prompt and of its own row of uniform numbers; other prompts in the batch change its
    log-probabilities by rounding only. The same call gives the same bits on the same machine and number of threads.
    Rows with a common prefix share its forward passes: the prompt is read once per group, and so is the first token
    that several of its responses have in common, and so on. A row that has ended costs nothing more, and a response
    of one token costs only the prompt.

    Args:
        model: the policy, sampled at temperature 1.
        prompts: [P, L].
        group: G.
        width: T, generation budget, tokens.
        eos: the token that ends a response and belongs to it.
        seed: of this step; `uniforms(seed, N, T)` are the draws.
        greedy: take the most likely token instead; the draws are not used.

    Returns:
        responses [N, T], `eos` after the end; logp [N, T] nats, 0 after the end; mask [N, T], True up to the end.
    """
    rows = len(prompts) * group
    uniform = uniforms(seed, rows, width)
    block = max(1, ROWS // group) if prompts.device.type == "cpu" else len(prompts)
    with torch.inference_mode():
        parts = [
            sample_tokens(model, part, uniform[start * group :][: len(part) * group].to(prompts.device), eos, greedy)
            for start, part in zip(range(0, len(prompts), block), prompts.split(block), strict=True)
        ]
    responses, logp, mask = (torch.cat(x) for x in zip(*parts, strict=True))
    return responses, logp, mask


def sample_tokens(model: Transformer, prompts: Tensor, uniform: Tensor, eos: int, greedy: bool) -> Samples:
    """The responses to some prompts, given their uniform numbers [N, T]: a walk down the tree of their prefixes."""
    rows, width = uniform.shape
    responses = torch.full_like(uniform, eos, dtype=torch.long)
    mask = torch.zeros_like(responses, dtype=torch.bool)
    logits, cache = model.prefill(prompts, max_length=prompts.shape[1] + width - 1)  # [nodes, V]; at first P nodes
    logp = logits.new_zeros((rows, width))
    active = torch.arange(rows, device=prompts.device)  # rows that have not ended
    node = active // (rows // len(prompts))  # each row's node in the tree, which indexes logits and cache
    for t in range(width):
        log_policy = logits.log_softmax(-1)
        token = log_policy.argmax(-1)[node] if greedy else inverse_cdf(log_policy, node, uniform[active, t])
        responses[active, t] = token
        logp[active, t] = log_policy[node, token]
        mask[active, t] = True
        unfinished = token != eos
        if t + 1 == width or not unfinished.any():
            break
        active = active[unfinished]
        parent, read, node = descend(node[unfinished], token[unfinished], logits.shape[1])
        cache = cache.select(parent)
        logits = model.step(read, cache)
    return responses, logp, mask


def score(model: Transformer, prompts: Tensor, responses: Tensor, mask: Tensor) -> Tensor:
    """Log-probability of each response token, [N, T] nats, with gradient; 0 where the mask is False.

    Equal responses to a prompt are read once, and the last token of a response is never read: responses of one token
    cost P forward passes and not N. The head is applied to response tokens only.

    Args:
        model: current policy.
        prompts: [P, L].
        responses: [N, T], prompt-major.
        mask: [N, T], True from the first token to the end.
    """
    if len(responses) % len(prompts):
        raise ValueError(f"responses has {len(responses)} rows for {len(prompts)} prompts; expected a multiple")
    longest = max(1, int(mask.sum(1).max()))
    logits, cache = model.prefill(prompts, max_length=prompts.shape[1] + longest - 1)
    owner = torch.arange(len(responses), device=prompts.device) // (len(responses) // len(prompts))  # [N]
    first = logits.log_softmax(-1)[owner, responses[:, 0]]  # [N]
    logp = first.new_zeros(responses.shape)
    logp[:, 0] = torch.where(mask[:, 0], first, 0.0)
    if longest > 1:
        leaf = owner  # the node of the prefix tree in which each row ends
        for token in responses[:, : longest - 1].unbind(1):
            _, _, leaf = descend(leaf, token, logits.shape[1])
        one = owner.new_empty(int(leaf.max()) + 1)  # [leaves] a row that ends there
        one[leaf] = torch.arange(len(leaf), device=leaf.device)
        hidden = model.hidden(responses[one, : longest - 1], cache.select(owner[one]))  # [leaves, longest - 1, d]
        row, before = mask[:, 1:].nonzero(as_tuple=True)  # the response tokens after the first
        later = model.head(hidden[leaf[row], before]).log_softmax(-1)
        logp[row, before + 1] = later.gather(1, responses[row, before + 1, None])[:, 0]
    return logp


def descend(node: Tensor, token: Tensor, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """One level down the tree: parent and token of each new node, and the new node of each row."""
    edge, node = torch.unique(node * vocabulary + token, return_inverse=True)
    return edge // vocabulary, edge % vocabulary, node


def uniforms(seed: int, rows: int, width: int) -> Tensor:
    """[N, T] numbers in [0, 1) for one step; the first rows do not depend on how many follow."""
    return torch.from_numpy(generator(seed, "tokens").random((rows, width)))


def inverse_cdf(log_policy: Tensor, node: Tensor, uniform: Tensor) -> Tensor:
    """[n] the first token whose cumulative probability exceeds the uniform number; never one of probability 0."""
    cdf = log_policy.double().exp().cumsum(-1)  # float64: a float32 sum would shift rare tokens by 1e-7
    if not cdf[:, -1].isfinite().all():
        raise Diverged("the model's probabilities are not numbers: an update diverged; lower lr, or raise tau")
    return torch.searchsorted((cdf / cdf[:, -1:])[node], uniform[:, None], right=True)[:, 0]
