"""A decoder-only transformer in the Llama architecture, written to be read. Sampling and scoring are next door.

Shapes: N rows, S tokens read now, C tokens in all, d dimension, H heads, D = d / H, F inner width, V vocabulary.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmdkit.randomness import derive
from pmdkit.toy.cache import Cache
from pmdkit.toy.memory import keep_freed_memory


@dataclass(frozen=True)
class ModelConfig:
    """Size of a transformer.

    Attributes:
        vocabulary: V, number of tokens.
        context: most tokens of prompt and response together.
        dimension: d, width of the residual stream.
        layers: number of blocks.
        heads: H; d / H must be even. Engines for large models want it to be at least 32.
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
        if self.dimension % (2 * self.heads):
            raise ValueError(
                f"model.dimension is {self.dimension} with {self.heads} heads; expected a multiple of "
                f"{2 * self.heads}: each head turns its coordinates in pairs"
            )


class Transformer(nn.Module):
    r"""Next-token logits from the tokens so far.

    $$ h \leftarrow h + \mathrm{attention}(\mathrm{norm}(h)), \qquad h \leftarrow h + \mathrm{feed}(\mathrm{norm}(h)) $$

    Source: arXiv:2302.13971 (Llama): RMSNorm before each block, rotary positions, SwiGLU, no biases.
    Differs: q, k and v are one matrix, gate and up another; a pair of coordinates that turns is a complex number, so
    neighbours turn together. `llama` reorders the rows for others. Qwen2 is the same with biases on q, k and v.

    Attributes:
        config: sizes.
        seed: of the first weights, which depend on nothing else.

    Good values: dimension 64, two layers, two heads for modular-sum; AdamW at 1e-3.
    Watch: all rows are equally long and none is padded, so there is no attention mask to get wrong.
    """

    turn: Tensor

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        keep_freed_memory()  # every batch frees what the next one asks for
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.dimension)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = nn.RMSNorm(config.dimension, eps=config.floor)
        self.head = nn.Linear(config.dimension, config.vocabulary, bias=False)
        # kept as pairs of reals: `.to(dtype)` would drop the imaginary part of a complex buffer
        self.register_buffer("turn", torch.view_as_real(rotation(config)), persistent=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        initialise(self, seed)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [N, S, V] of the token after each of `tokens` [N, S]."""
        return self.head(self.hidden(tokens))

    def hidden(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """What the head reads, [N, S, d]. With a cache, `tokens` follow those in it, and are added to it."""
        start = 0 if cache is None else cache.length
        stop = start + tokens.shape[1]
        self.fits(stop)
        turn = torch.view_as_complex(self.turn[start:stop])
        h = self.embedding(tokens)  # [N, S, d]
        for block in self.blocks:
            h = block(h, turn, cache)
        if cache is not None:
            cache.advance(tokens.shape[1])
        return self.norm(h)

    def prefill(self, prompts: Tensor, room: int) -> tuple[Tensor, Cache]:
        """Read prompts [P, L]: logits [P, V] of the next token, and a cache that goes on, to `room` tokens at most."""
        self.fits(room)  # else the last token is refused after all others were read
        cache = Cache()
        return self.head(self.hidden(prompts, cache)[:, -1]), cache

    def step(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Read one more token [N] per row: logits [N, V] of the next. The cache grows by one."""
        return self.head(self.hidden(tokens[:, None], cache)[:, 0])

    def fits(self, count: int) -> None:
        """Refuse rows of more tokens than the context, before the first is read."""
        if count > self.config.context:
            raise ValueError(
                f"a row has {count} tokens; the model has a context of {self.config.context}: "
                "shorten the prompt or the response, or raise model.context"
            )


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

    def forward(self, h: Tensor, turn: Tensor, cache: Cache | None) -> Tensor:
        """[N, S, d] to [N, S, d]."""
        h = h + self.attention(self.norm_attention(h), turn, cache)
        gate, up = self.gate_up(self.norm_feed(h)).chunk(2, -1)  # [N, S, F] each
        return h + self.down(F.silu(gate) * up)

    def attention(self, h: Tensor, turn: Tensor, cache: Cache | None) -> Tensor:
        """Each token looks at itself and at all before it."""
        rows, new, d = h.shape
        qkv = self.qkv(h).view(rows, new, 3, self.heads, -1, 2)  # pairs of coordinates: complex numbers
        qkv = torch.view_as_real(torch.view_as_complex(qkv) * turn).flatten(-2)  # [N, S, 3, H, D]
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
    """[context, 3, 1, D / 2] complex numbers of size one, by which queries and keys turn; values do not turn."""
    size = config.dimension // config.heads
    frequency = config.theta ** -(torch.arange(0, size, 2) / size)  # [D / 2]
    angle = torch.outer(torch.arange(config.context).float(), frequency)  # [context, D / 2]
    turn = torch.polar(torch.ones_like(angle), angle)
    return torch.stack((turn, turn, torch.ones_like(turn)), 1)[:, :, None]


@torch.no_grad()
def initialise(model: Transformer, seed: int) -> None:
    """Normal weights from the seed alone, with gain one through every matrix but the last of each part."""
    chance = torch.Generator().manual_seed(derive(seed, "weights"))
    for name, weight in model.named_parameters():
        if weight.ndim == 1:  # norms start at one
            continue
        gain = 1.0
        if weight is model.head.weight:
            gain = 0.1  # the first policy is then close to uniform, and every answer gets its chance
        elif name.endswith(("mix.weight", "down.weight")):
            gain = (2 * model.config.layers) ** -0.5  # the stream keeps its size over all that is added to it
        weight.copy_(torch.randn(weight.shape, generator=chance) * gain * weight.shape[1] ** -0.5)
