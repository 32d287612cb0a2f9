"""The sizes of a model and of a recipe that the planner's arithmetic needs, read once from configuration and spec."""

from dataclasses import dataclass, replace

from pmdkit.errors import UsageError
from pmdkit.spec import Spec


@dataclass(frozen=True)
class Sizes:
    """A model in numbers.

    Attributes:
        weights, active: all of them; those that one token meets.
        experts: weights inside experts; 0 in a dense model.
        choices, chosen: experts of a layer, and how many a token visits; 1 and 1 in a dense model.
        lookup: weights of the embedding, which are looked up and not multiplied; 0 where the head uses them too.
        layers, vocabulary, dimension: as in the configuration.
        attention: query heads times their size.
        kv_bytes: keys and values of one token over all layers, in the dtype of the engine.
        kv_heads: over so many accelerators keys and values can be cut.
        kept_bytes, kept_bytes_checkpointed: what the backward pass needs of one token.
        head_tokens: rows of logits that exist at a time.
        width_bytes: of one number in a forward pass, 2 or 4.
        trained: weights with gradient and moments; fewer with adapters.
        merged: weights of experts that have adapters, which are put together for a visit.
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
    kept_bytes_checkpointed: int
    head_tokens: int
    width_bytes: int
    trained: int
    merged: int = 0

    @property
    def products(self) -> int:
        """Weights that one token is multiplied with: 2 FLOPs each, forward."""
        return self.active - self.lookup

    @property
    def block(self) -> float:
        """Weights of one layer."""
        ends = self.lookup + self.vocabulary * self.dimension
        return (self.weights - ends) / self.layers


def sizes_of(spec: Spec) -> Sizes:
    """Sizes of the model of a resolved recipe, from its configuration alone.

    Raises:
        EnvironmentLacks: the configuration is neither shipped, nor in a folder, nor given by the hub.
    """
    from pmdkit.llm.plan import activations, adapters, cache_bytes, count, shape_of
    from pmdkit.llm.scoring import HEAD_TOKENS

    config = shape_of(spec)
    weights, active = count(config)
    width = 2 if getattr(spec.model, "dtype", "float32") == "bfloat16" else 4
    adapter, merged = adapters(spec, config)
    choices = int(getattr(config, "num_experts", None) or 1)
    chosen = int(config.num_experts_per_tok) if choices > 1 else 1
    heads = config.num_attention_heads
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
        kept_bytes=activations(config, width, False),
        kept_bytes_checkpointed=activations(config, width, True),
        head_tokens=HEAD_TOKENS,
        width_bytes=width,
        trained=adapter or weights,
        merged=merged,
    )


@dataclass(frozen=True)
class Work:
    """What a recipe asks of the accelerators in one step.

    Attributes:
        prompts: per step, P; a fraction where a ministep of another recipe is looked at.
        group: responses to each, G.
        ministeps, passes: updates per step, M times passes.
        token_budget: tokens in one forward and backward pass.
        prompt: tokens of a typical prompt.
        longest: tokens of the longest prompt and response together.
        checkpointing, fsdp2, recompute: as in the recipe.
        lag: updates of the whole batch that a rollout's policy is behind, `rollout.lag`.
        sleeps: the engine gives its weights' memory back during updates.
        share: of an accelerator's memory that the engine may have; None takes what the trainer leaves.
        slots: responses that an engine writes at the same time, at most; None for as many as memory holds.
    """

    prompts: float
    group: int
    ministeps: int
    passes: int
    token_budget: int
    prompt: int
    longest: int
    checkpointing: bool
    fsdp2: bool
    recompute: bool
    lag: int = 0
    sleeps: bool = False
    share: float | None = None
    slots: int | None = None

    @property
    def rows(self) -> float:
        """Responses per step."""
        return self.prompts * self.group

    def ministep(self, prompts: float) -> "Work":
        """One update with the responses to so many prompts."""
        return replace(self, prompts=prompts, ministeps=1, passes=1)


PROMPT = 170  # tokens: problems of DAPO-Math-17k have 500 characters with the paper's template, at 3 a token


def work_of(spec: Spec, prompt: int | None = None) -> Work:
    """What a resolved recipe asks for, with prompts of so many tokens on average."""
    if prompt is not None and prompt < 1:
        raise UsageError(f"--prompt-length is {prompt}; expected at least 1 token")
    schedule, rollout, update = spec.schedule, spec.rollout, spec.update
    assert rollout is not None
    assert update is not None
    assert schedule.prompts is not None
    assert schedule.group is not None
    vllm = spec.vllm if rollout.engine != "transformers" else None
    return Work(
        prompts=schedule.prompts,
        group=schedule.group,
        ministeps=schedule.ministeps,
        passes=schedule.passes,
        token_budget=update.token_budget,
        prompt=min(prompt or PROMPT, rollout.max_prompt),
        longest=rollout.max_prompt + rollout.width,
        checkpointing=bool(getattr(spec.model, "checkpointing", False)),
        fsdp2=spec.parallel is not None and spec.parallel.strategy == "fsdp2",
        recompute=rollout.old == "recompute",
        lag=rollout.lag,
        sleeps=rollout.engine == "vllm" and vllm is not None and vllm.sleep,
        share=vllm.memory if vllm is not None else None,
        slots=vllm.rows if vllm is not None else None,
    )


def serving(spec: Spec) -> tuple[int, int]:
    """Accelerators of one engine, and of all servers together; 0 where the trainer's own generate."""
    assert spec.rollout is not None
    vllm = spec.vllm
    if spec.rollout.engine == "transformers" or vllm is None:
        return 1, 0
    if spec.rollout.engine == "vllm":
        return vllm.tensor_parallel, 0
    servers = len(vllm.urls) or vllm.servers
    return vllm.tensor_parallel, servers * vllm.data_parallel * vllm.tensor_parallel
