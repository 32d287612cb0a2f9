"""The workload of a recipe: the sizes of its model, its batch, and its response lengths."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from pmdkit.errors import UsageError, unknown
from pmdkit.llm.engines import engine_traits
from pmdkit.randomness import generator
from pmdkit.specs import LLMSpec
from pmdkit.specs.llm import HEAD_TOKENS
from pmdkit_lab.planner.cluster import NODE


@dataclass(frozen=True)
class Sizes:
    """A model in numbers.

    Attributes:
        weights, active: number of all weights, and of those that one token uses.
        experts: weights inside experts; 0 in a dense model.
        choices, chosen: experts of a layer, and how many a token visits; 1 and 1 in a dense model.
        lookup: weights of the embedding, which are looked up and not multiplied; 0 if the head shares them.
        layers, vocabulary, dimension: as in the configuration.
        attention: query heads times their size.
        kv_bytes: bytes of the keys and values of one token over all layers, in the dtype of the engine.
        kv_heads: the largest number of accelerators that keys and values can be split over.
        kept_bytes: bytes per token that all layers keep for the backward pass, without checkpointing.
        head_tokens: rows of logits that exist at a time.
        width_bytes: bytes of one number in a forward pass, 2 or 4.
        trained: weights with gradient and moments; fewer with adapters.
        merged: weights of experts that have adapters, which are merged for a forward pass.
        silu_bytes: bytes per token that layers would keep as well, if silu had no kernel of its own.
    """

    weights: int
    active: int
    experts: int
    choices: int
    chosen: int
    lookup: int
    layers: int
    vocabulary: int
    dimension: int
    attention: int
    kv_bytes: int
    kv_heads: int
    kept_bytes: int
    head_tokens: int
    width_bytes: int
    trained: int
    merged: int = 0
    silu_bytes: int = 0

    @property
    def products(self) -> int:
        """Weights that one token is multiplied with: 2 FLOPs each in a forward pass."""
        return self.active - self.lookup

    @property
    def block(self) -> float:
        """Weights of one layer."""
        ends = self.lookup + self.vocabulary * self.dimension
        return (self.weights - ends) / self.layers


def sizes_of(spec: LLMSpec) -> Sizes:
    """Sizes of the model of a resolved recipe, from its configuration alone.

    Raises:
        EnvironmentLacks: the configuration is neither shipped, nor in a folder, nor available from the hub.
    """
    from pmdkit_lab.planner.model_shapes import shape_of
    from pmdkit_lab.planner.model_size import activations, adapters, cache_bytes, count

    config = shape_of(spec)
    weights, active = count(config)
    width = 2 if spec.model.dtype == "bfloat16" else 4
    adapter, merged = adapters(spec, config)
    choices = int(getattr(config, "num_experts", None) or 1)
    chosen = int(config.num_experts_per_tok) if choices > 1 else 1
    heads = config.num_attention_heads
    kept, silu = activations(config, width)
    return Sizes(
        weights=weights + adapter,
        active=active + adapter,
        experts=round((weights - active) / (1 - chosen / choices)) if choices > chosen else 0,
        choices=choices,
        chosen=chosen,
        lookup=0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size,
        layers=config.num_hidden_layers,
        vocabulary=config.vocab_size,
        dimension=config.hidden_size,
        attention=heads * (getattr(config, "head_dim", None) or config.hidden_size // heads),
        kv_bytes=cache_bytes(config, width),
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        kept_bytes=kept,
        head_tokens=HEAD_TOKENS,
        width_bytes=width,
        trained=adapter or weights,
        merged=merged,
        silu_bytes=silu,
    )


@dataclass(frozen=True)
class Workload:
    """The work that a recipe gives the accelerators in one step.

    Attributes:
        prompts: per step, P; may be a fraction if it stands for a ministep of another recipe.
        group: responses to each, G.
        ministeps, passes: updates per step, M times passes.
        token_budget: tokens in one forward and backward pass.
        prompt: tokens of a typical prompt.
        longest: tokens of the longest prompt and response together.
        checkpointing: share of the layers' products that a backward pass repeats: 0 or 1 in recipes.
        fsdp2, recompute: as in the recipe.
        lag: whole-batch updates that a rollout's policy lags behind, `rollout.lag`.
        in_flight: the lag is the most that a token's policy lags behind, `rollout.in_flight`.
        sleeps: the engine frees its memory while the trainer scores and updates.
        share: share of an accelerator's memory that the engine may use; None takes what the trainer leaves.
        slots: most responses that an engine generates at the same time; None for as many as memory holds.
        reserve: tokens that the embedded engine's rows may take at full length, `rollout.cache_tokens`; None for vLLM.
        width: tokens of the longest response; 0 if there are enough rows to fill any budget.
        own: the engine has weights of its own; in float32 the embedded one may generate with the trainer's.
        replicas: copies of the model that fsdp2 shards, each on its share of the accelerators.
        optimizer: name of the optimizer; your own is taken for Adam.
        experts_alone: the accelerator has no kernel for all experts of a layer, so each is a product and a host sync.
    """

    prompts: float
    group: int
    ministeps: int
    passes: int
    token_budget: int
    prompt: int
    longest: int
    checkpointing: float
    fsdp2: bool
    recompute: bool
    lag: int = 0
    in_flight: bool = False
    sleeps: bool = False
    share: float | None = None
    slots: int | None = None
    reserve: int | None = None
    experts_alone: bool = False
    width: int = 0
    own: bool = True
    replicas: int = 1
    optimizer: str = "adamw"

    @property
    def rows(self) -> float:
        """Responses per step."""
        return self.prompts * self.group

    @property
    def head_buffers(self) -> int:
        """Buffers of the size of the head's gradient: a loss per response needs a second one for long responses."""
        return 2 if self.width > HEAD_TOKENS else 1

    def moments(self, sizes: Sizes) -> int:
        """Numbers that the optimizer keeps between steps."""
        if self.optimizer == "sgd":
            return 0
        if self.optimizer == "muon":  # one for each weight, and AdamW's second for embedding and head
            ends = sizes.lookup + sizes.vocabulary * sizes.dimension
            return sizes.trained + (ends if sizes.trained == sizes.weights else 0)
        return 2 * sizes.trained


VLLM = ("vllm", "vllm-server")
PROMPT = 170  # tokens: problems of DAPO-Math-17k have 500 characters with the paper's template, about 3 per token


def work_of(spec: LLMSpec, prompt: int | None = None) -> Workload:
    """The workload of a resolved recipe; `prompt` is the mean number of prompt tokens."""
    if prompt is not None and prompt < 1:
        raise UsageError(f"--prompt-length is {prompt}; expected at least 1 token")
    schedule, rollout, update = spec.schedule, spec.rollout, spec.update
    assert schedule.prompts is not None
    assert schedule.group is not None
    vllm, fsdp2 = spec.vllm if rollout.engine in VLLM else None, spec.parallel.strategy == "fsdp2"
    engine = engine_traits(spec)
    return Workload(
        prompts=schedule.prompts,
        group=schedule.group,
        ministeps=schedule.ministeps,
        passes=schedule.passes,
        token_budget=update.token_budget,
        prompt=min(prompt or PROMPT, rollout.max_prompt),
        longest=rollout.max_prompt + rollout.width,
        checkpointing=spec.model.checkpointing is True,  # auto: see planner/checkpointing.py
        fsdp2=fsdp2,
        recompute=rollout.old == "recompute",
        lag=rollout.lag,
        in_flight=rollout.in_flight,
        width=rollout.width,
        own=engine.own_weights or spec.model.dtype != "float32" or fsdp2 or rollout.lag > 0,
        replicas=spec.parallel.replicas,
        optimizer=schedule.optimizer,
        sleeps=engine.sleeps,
        share=vllm.memory if vllm is not None else None,
        slots=vllm.rows if vllm is not None else None,
        reserve=rollout.cache_tokens if rollout.engine == "transformers" else None,
    )


def serving(spec: LLMSpec) -> tuple[int, int]:
    """Accelerators of one engine, and of all servers together; the second is 0 if the trainer generates itself.

    A recipe does not say how many engines an address has. Where the trainer has whole machines, an address is one too,
    with as many engines as fit, as `servers.sbatch` starts it.
    """
    engine = engine_traits(spec)
    if spec.rollout.engine == "vllm-server":  # its traits say nothing about the accelerators of servers
        span = spec.vllm.tensor_parallel
        return span, max(1, len(spec.vllm.urls)) * (
            NODE // span * span if spec.parallel.processes % NODE == 0 else span
        )
    return engine.span, engine.span if engine.central else 0


Array = NDArray[np.float64]
Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class ResponseLengths:
    """A distribution of response lengths.

    Attributes:
        alive: [width], P(length > t) for t = 0 .. width - 1; not increasing, alive[0] = 1.
    """

    alive: Array

    @property
    def width(self) -> int:
        """The largest response length, tokens."""
        return len(self.alive)

    @property
    def mean(self) -> float:
        """E[length], tokens."""
        return float(self.alive.sum())

    @property
    def square(self) -> float:
        """E[length^2], tokens^2: the sum of (2 t + 1) P(length > t)."""
        return float(((2 * np.arange(self.width) + 1) * self.alive).sum())

    def longest(self, rows: float) -> float:
        """E[the longest of `rows` independent responses], tokens."""
        return float(any_alive(self.alive, rows).sum())

    def quantile(self, uniform: Array) -> Tokens:
        """Lengths, 1 to width, at these quantiles between 0 and 1, in their shape; uniform numbers draw responses."""
        dead = 1 - self.alive  # P(length <= t); the quantile is the first t at which this exceeds the number
        return np.searchsorted(dead, uniform, side="right").clip(1, self.width)


def any_alive(alive: Array, rows: float) -> Array:
    """P(at least one of `rows` independent responses is longer than t)."""
    gone = np.clip(1 - alive, 0, 1)
    return np.asarray(1 - gone**rows, float)


def from_quantiles(quantiles: Array, width: int) -> ResponseLengths:
    """The distribution with a piecewise linear quantile function through these, in tokens; longer ones are cut off."""
    inside = np.interp(np.arange(width), quantiles, np.linspace(0, 1, len(quantiles)), left=0.0, right=1.0)
    return ResponseLengths(1 - inside)


def lengths(shape: str, width: int, mean: float | None = None) -> ResponseLengths:
    """A measured shape at this width; with a mean, rescaled until the lengths, after the cut-off, have that mean.

    Without a mean the lengths are the measured shares of the width: a model that is allowed to write more does so.
    """
    if shape not in QUANTILES:
        raise UsageError("--lengths: " + unknown("shape", shape, QUANTILES))
    quantiles = np.asarray(QUANTILES[shape]) * width
    if mean is None:
        return from_quantiles(quantiles, width)
    if not 1 <= mean <= 0.95 * width:
        raise UsageError(f"--mean-length is {mean:g} at a width of {width}; expected 1 to {0.95 * width:.0f} tokens")
    low, high = 1e-6, 1e6
    for _ in range(80):  # the mean grows with the scale: halve the interval of its logarithm
        middle = (low * high) ** 0.5
        low, high = (middle, high) if from_quantiles(quantiles * middle, width).mean < mean else (low, middle)
    return from_quantiles(quantiles * high, width)


# Intraclass correlation of normal scores among responses to one problem: 4,768 distinct responses of
# DeepSeek-R1-Distill-Qwen-1.5B to 596 problems, 8 each. Source: zacksifakis/task-hardness-analysis, token counts.
ALIKE = 0.59


def draw(lengths: ResponseLengths, prompts: int, group: int, seed: int, step: int, alike: float = ALIKE) -> Tokens:
    """Lengths of `group` responses to each prompt of one step, [prompts, group], tokens.

    Args:
        lengths: distribution of a single response's length, whatever `alike` is.
        prompts, group: P and G.
        seed, step: identify the random stream.
        alike: correlation of the normal scores of two responses to one prompt; 0 makes them independent.
    """
    normal = generator(seed, "response lengths", step)
    shared, own = normal.standard_normal((prompts, 1)), normal.standard_normal((prompts, group))
    return lengths.quantile(ndtr(np.sqrt(alike) * shared + np.sqrt(1 - alike) * own))


# Measured response lengths as 41 evenly spaced quantiles, in units of the width at which responses were cut off.
#
# `direct`: 7,000 responses of a 3B model after RL, no long thinking, to AIME 2024 and AMC 2023, cut at 2,048 tokens.
# Source: open-thought/reasoning-gym-eval (Apache-2.0), lengths in characters; 2.32 characters per token puts the peak
# of truncated responses, at 4,750 characters, at the width. The scale is accurate to 20 %: 2.7 would make the mean
# 0.26 of the width.
#
# `thinking`: 7,744 responses of DeepSeek-R1-Distill-Qwen-1.5B to AIME 1983 to 2024, cut at 16,000 tokens.
# Source: zacksifakis/task-hardness-analysis, token counts.

QUANTILES: dict[str, tuple[float, ...]] = {
    "direct": (
        *(0.0735, 0.1242, 0.1387, 0.1486, 0.1579, 0.1654, 0.1724, 0.1787, 0.1852, 0.1903, 0.1958, 0.2008, 0.2055),
        *(0.2109, 0.2156, 0.2206, 0.2256, 0.2298, 0.2345, 0.2396, 0.2448, 0.2512, 0.2571, 0.2634, 0.2703, 0.2775),
        *(0.2848, 0.2940, 0.3034, 0.3131, 0.3249, 0.3384, 0.3524, 0.3708, 0.3925, 0.4232, 0.4649, 0.5222, 0.6664),
        *(0.9853, 1.0),
    ),
    "thinking": (
        *(0.0403, 0.1313, 0.1530, 0.1696, 0.1861, 0.2019, 0.2176, 0.2344, 0.2471, 0.2637, 0.2785, 0.2941, 0.3101),
        *(0.3261, 0.3446, 0.3633, 0.3796, 0.3981, 0.4166, 0.4344, 0.4547, 0.4744, 0.4911, 0.5043, 0.5238, 0.5440),
        *(0.5620, 0.5803, 0.5985, 0.6175, 0.6357, 0.6581, 0.6761, 0.7033, 0.7238, 0.7501, 0.7809, 0.8222, 0.8766),
        *(0.9730, 1.0),
    ),
}
