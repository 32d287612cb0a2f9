"""The shapes of models, from which their sizes follow without weights: shipped, of the starters, of a folder.

The shapes of the models that the recipes name are stored here, so that a plan needs neither a download nor
transformers, whose model classes take longer to import than torch.
"""

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pmdkit.errors import EnvironmentLacks, UsageError, first_line
from pmdkit.hub import local_only
from pmdkit.specs import LLMSpec

if TYPE_CHECKING:
    from transformers import PretrainedConfig

DENSE, SPARSE = "qwen2", "qwen3_moe"  # the architectures of shipped shapes, as transformers names them


@dataclass(frozen=True)
class ModelShape:
    """The fields of config.json that sizes are computed from, for a Qwen2 or a Qwen3-MoE.

    Its weights are counted by arithmetic; tests compare the count with the models of transformers.
    """

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    initializer_range: float = 0.02
    head_dim: int | None = None
    moe_intermediate_size: int | None = None
    num_experts: int | None = None
    num_experts_per_tok: int = 0

    def config(self) -> "PretrainedConfig":
        """The configuration from which transformers builds the model."""
        from transformers import AutoConfig

        config: PretrainedConfig = AutoConfig.for_model(**{k: v for k, v in asdict(self).items() if v is not None})
        return config

    def count(self) -> tuple[int, int]:
        """Number of all weights, and of those that one token uses."""
        d, sparse = self.hidden_size, self.model_type == SPARSE
        head = self.head_dim or d // self.num_attention_heads
        queries, keys = self.num_attention_heads * head, self.num_key_value_heads * head
        attention = 2 * d * queries + 2 * d * keys  # q and o, k and v
        attention += 2 * head if sparse else queries + 2 * keys  # norms of q and k; biases of q, k and v
        ends = self.vocab_size * d * (1 if self.tie_word_embeddings else 2)
        common = ends + d + self.num_hidden_layers * (attention + 2 * d)
        if not sparse:
            total = common + self.num_hidden_layers * 3 * d * self.intermediate_size
            return total, total
        assert self.num_experts is not None
        assert self.moe_intermediate_size is not None
        common += self.num_hidden_layers * d * self.num_experts  # the router
        expert = self.num_hidden_layers * 3 * d * self.moe_intermediate_size
        return common + self.num_experts * expert, common + self.num_experts_per_tok * expert


def qwen2_5(dimension: int, inner: int, heads: int, kv_heads: int, **differs: Any) -> ModelShape:
    """A shape of Qwen2.5, with overrides for what differs from the common values."""
    common = {"num_hidden_layers": 28, "max_position_embeddings": 131_072, "vocab_size": 151_936}
    return ModelShape(
        model_type=DENSE,
        hidden_size=dimension,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        **{**common, "tie_word_embeddings": True, **differs},
    )


# Values from the published config.json of each model.
SHAPES: dict[str, ModelShape] = {
    "Qwen/Qwen2.5-0.5B": qwen2_5(896, 4864, 14, 2, num_hidden_layers=24, max_position_embeddings=32_768),
    "Qwen/Qwen2.5-1.5B": qwen2_5(1536, 8960, 12, 2),
    "Qwen/Qwen2.5-7B": qwen2_5(3584, 18_944, 28, 4, vocab_size=152_064, tie_word_embeddings=False),
    "Qwen/Qwen3-30B-A3B-Base": ModelShape(
        model_type=SPARSE,
        hidden_size=2048,
        intermediate_size=6144,
        moe_intermediate_size=768,
        num_hidden_layers=48,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        vocab_size=151_936,
        max_position_embeddings=32_768,
        tie_word_embeddings=False,
    ),
}

SMOLLM2: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49_152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}


def shape_of(spec: LLMSpec) -> "ModelShape | PretrainedConfig":
    """The shape of the model that the run would train: shipped, of the starter, or from its folder or the hub."""
    path = getattr(spec.model, "path", None)
    if getattr(spec.model, "build", None) == "smollm2":
        from transformers import AutoConfig

        return AutoConfig.for_model(**SMOLLM2)
    if path is None:
        from pmdkit.envs.math import make_math
        from pmdkit.llm.starter.vocabulary import SAMPLE, starter_shape, train_vocabulary

        env = dict(spec.env)
        if env["kind"] == "arithmetic":  # problems do not depend on their number: make only as many as are read
            env["problems"] = min(env.get("problems", 2 * SAMPLE), 2 * SAMPLE)
        tokens = train_vocabulary(make_math(env)).get_vocab_size()
        return ModelShape(**starter_shape(getattr(spec.model, "build", ""), tokens))
    there = os.path.exists(path)
    shipped = SHAPES.get(path)
    if shipped is not None and not there:
        return shipped
    from transformers import AutoConfig

    try:
        here = there or local_only()
        config: PretrainedConfig = AutoConfig.from_pretrained(path, trust_remote_code=False, local_files_only=here)
    except Exception as problem:  # transformers may raise anything for a bad file
        if there or isinstance(problem, ValueError):
            raise UsageError(f"model.path {path}: {first_line(problem)}") from problem
        raise EnvironmentLacks(
            f"model.path {path} is not a folder here, and the hub did not provide it; download it first, then name its "
            "folder"
        ) from problem
    return config
