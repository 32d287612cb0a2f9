"""A decoder-only transformer in the Llama architecture, written to be read.

Shapes: N rows, S tokens read now, C tokens in all, d dimension, H heads, D = d / H, F inner width, V vocabulary.
"""

from dataclasses import dataclass, field
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmdkit.randomness import derive

FREED_BLOCK = 31 * 2**20  # bytes; glibc adapts to blocks of up to 32 MiB


@dataclass(frozen=True)
class ModelConfig:
    """Size of a transformer.

    Attributes:
        vocabulary: V, number of tokens.
        context: maximum tokens of prompt and response together.
        dimension: d, width of the residual stream.
        layers: number of blocks.
        heads: H; d / H must be even. Engines for large models need at least 32.
        inner: F, width inside the feed-forward block; 8/3 d gives it as many weights as 4 d without a gate.
        tied: whether the output head is the token embedding.
        theta: wavelength base of the rotary positions.
        floor: added to mean squares before the root in RMSNorm.
    """

    vocabulary: int
    context: int = 64
    dimension: int = 64
    layers: int = 2
    heads: int = 2
    inner: int = 176
    tied: bool = False
    theta: float = 10000.0
    floor: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("vocabulary", "context", "dimension", "layers", "heads", "inner"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} is {getattr(self, name)}; expected at least 1")
        check_heads(self.dimension, self.heads)


def check_heads(dimension: int, heads: int) -> None:
    """Require that every head gets the same even number of coordinates, since they rotate in pairs."""
    if dimension % (2 * heads):
        raise ValueError(f"model.dimension is {dimension} with {heads} heads; expected a multiple of {2 * heads}")


@dataclass
class KVCache:
    """The key-value cache of a transformer: keys and values of the `length` tokens read so far, in every layer.

    Every row has read equally many tokens, so there is no padding and no mask. Rows are copied when a layer reads
    further tokens; without gradients, they are copied straight to their place before the new tokens.
    """

    layers: dict[int, Tensor] = field(default_factory=dict)  # each [M, length, 2, H, D]: keys, then values
    length: int = 0
    index: Tensor | None = None  # [N] the row of `layers` that each row continues from; None: its own

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
        """Record that every layer has read `count` more tokens."""
        self.length, self.index = self.length + count, None

    def select(self, index: Tensor) -> "KVCache":
        """Select rows in the order of `index`, which may repeat them. Tokens that they read later are not shared."""
        return KVCache(self.layers.copy(), self.length, index if self.index is None else self.index[index])


class Transformer(nn.Module):
    r"""Next-token logits from the tokens so far.

    $$ h \leftarrow h + \mathrm{attention}(\mathrm{norm}(h)), \qquad h \leftarrow h + \mathrm{feed}(\mathrm{norm}(h)) $$

    Source: arXiv:2302.13971 (Llama): RMSNorm before each block, rotary positions, SwiGLU, no biases.
    Differs: q, k and v are one matrix, gate and up another; a pair of rotated coordinates is a complex number, so
    neighbours rotate together. `pmdkit_adapters.toy_hf` reorders the rows. Qwen2 is the same with biases on q, k and v.

    Attributes:
        config: sizes.
        seed: of the initial weights, which depend on nothing else.

    Good values: dimension 64, two layers, two heads for modular-sum; AdamW at 1e-3.
    Watch: all rows are equally long and none is padded, so there is no attention mask to get wrong.
    """

    rotary: Tensor

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        keep_freed_memory()  # every batch frees memory that the next one asks for
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.dimension)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = nn.RMSNorm(config.dimension, eps=config.floor)
        self.head = nn.Linear(config.dimension, config.vocabulary, bias=False)
        # kept as pairs of reals: `.to(dtype)` would drop the imaginary part of a complex buffer
        self.register_buffer("rotary", torch.view_as_real(rotation(config)), persistent=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        initialise(self, seed)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [N, S, V] of the token after each of `tokens` [N, S]."""
        return self.head(self.hidden(tokens))

    def hidden(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """The input of the head, [N, S, d]. With a cache, `tokens` follow those in it, and are added to it."""
        start = 0 if cache is None else cache.length
        stop = start + tokens.shape[1]
        self.check_context(stop)
        rotary = torch.view_as_complex(self.rotary[start:stop])
        h = self.embedding(tokens)  # [N, S, d]
        for block in self.blocks:
            h = block(h, rotary, cache)
        if cache is not None:
            cache.advance(tokens.shape[1])
        return self.norm(h)

    def prefill(self, prompts: Tensor, max_length: int) -> tuple[Tensor, KVCache]:
        """Read prompts [P, L]: logits [P, V] of the next token, and a cache for up to `max_length` tokens in all."""
        self.check_context(max_length)  # otherwise only the last token would be refused, after all others were read
        cache = KVCache()
        return self.head(self.hidden(prompts, cache)[:, -1]), cache

    def step(self, tokens: Tensor, cache: KVCache) -> Tensor:
        """Read one more token [N] per row: logits [N, V] of the next. The cache grows by one."""
        return self.head(self.hidden(tokens[:, None], cache)[:, 0])

    def check_context(self, count: int) -> None:
        """Refuse rows of more tokens than the context, before the first is read."""
        if count > self.config.context:
            raise ValueError(f"a row has {count} tokens; the model has a context of {self.config.context}")


class Block(nn.Module):
    """Attention, then a gated feed-forward layer, each added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        d, self.heads, self.layer = config.dimension, config.heads, layer
        self.norm_attention = nn.RMSNorm(d, eps=config.floor)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.mix = nn.Linear(d, d, bias=False)
        self.norm_feed = nn.RMSNorm(d, eps=config.floor)
        self.gate_up = nn.Linear(d, 2 * config.inner, bias=False)
        self.down = nn.Linear(config.inner, d, bias=False)

    def forward(self, h: Tensor, rotary: Tensor, cache: KVCache | None) -> Tensor:
        """[N, S, d] to [N, S, d]."""
        h = h + self.attention(self.norm_attention(h), rotary, cache)
        gate, up = self.gate_up(self.norm_feed(h)).chunk(2, -1)  # [N, S, F] each
        return h + self.down(F.silu(gate) * up)

    def attention(self, h: Tensor, rotary: Tensor, cache: KVCache | None) -> Tensor:
        """Causal attention: each token attends to itself and to all before it."""
        rows, new, d = h.shape
        qkv = self.qkv(h).view(rows, new, 3, self.heads, -1, 2)  # pairs of coordinates: complex numbers
        qkv = torch.view_as_real(torch.view_as_complex(qkv) * rotary).flatten(-2)  # [N, S, 3, H, D]
        q, pair = qkv.split_with_sizes((1, 2), 2)
        if cache is not None:
            pair = cache.append(self.layer, pair)  # [N, C, 2, H, D]
        q, k, v = (x.transpose(1, 2) for x in (q.squeeze(2), *pair.unbind(2)))  # [N, H, S or C, D]
        read = k.shape[2]
        if new == 1 or new == read:
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=new > 1)
        else:
            visible = torch.ones(new, read, dtype=torch.bool, device=h.device).tril(read - new)
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.mix(seen.transpose(1, 2).reshape(rows, new, d))


def rotation(config: ModelConfig) -> Tensor:
    """[context, 3, 1, D / 2] complex numbers of modulus one that rotate queries and keys; values do not rotate."""
    size = config.dimension // config.heads
    frequency = config.theta ** -(torch.arange(0, size, 2) / size)  # [D / 2]
    angle = torch.outer(torch.arange(config.context).float(), frequency)  # [context, D / 2]
    turn = torch.polar(torch.ones_like(angle), angle)
    return torch.stack((turn, turn, torch.ones_like(turn)), 1)[:, :, None]


@torch.no_grad()
def initialise(model: Transformer, seed: int) -> None:
    """Draw normal weights from the seed alone: gain 1, less for the head and for each sublayer's output."""
    rng = torch.Generator().manual_seed(derive(seed, "weights"))
    for name, weight in model.named_parameters():
        if weight.ndim == 1:  # norms start at one
            continue
        gain = 1.0
        if weight is model.head.weight:
            gain = 0.1  # the first policy is then close to uniform, and every answer is drawn sometimes
        elif name.endswith(("mix.weight", "down.weight")):
            gain = (2 * model.config.layers) ** -0.5  # the residual stream keeps its scale over all layers
        weight.copy_(torch.randn(weight.shape, generator=rng) * gain * weight.shape[1] ** -0.5)


@cache
def keep_freed_memory() -> None:
    """Have glibc keep up to twice `FREED_BLOCK` bytes of freed memory, from now on in this process.

    By default it hands tensors of some hundred kilobytes back to the kernel, which then has to clear every page that
    the next tensor touches. It stops doing so once a larger block has been freed: see `M_MMAP_THRESHOLD` in mallopt(3).
    This block is never touched, so it costs no memory. Without glibc, or if the environment sets
    `MALLOC_TRIM_THRESHOLD_` or the like, nothing changes. No result depends on it.
    """
    torch.empty(FREED_BLOCK, dtype=torch.uint8, device="cpu")
