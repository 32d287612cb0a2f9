"""The table of model families in docs/use/llm.md: a small model of each is built, sampled, trained and compared.

`python docs/generate/families.py` rewrites it; a test fails if it differs from what is measured.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pmdkit.errors import PmdkitError
from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.logprobs import response_logp

ROOT = Path(__file__).parents[2]
PAGE = "docs/use/llm.md"
BEGIN, END = "<!-- families: python docs/generate/families.py -->\n", "<!-- end of the families -->"
VOCABULARY, EOS, WINDOW = 97, 2, 8
PROMPTS = [[5, 9, 3, 11, 12], [7, 7]]
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": EOS,
    "pad_token_id": 0,
}
TOLERANCE = 1e-4  # nats, float32; the error of a wrong mask is a thousand times as large
WINDOWED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
GROUPED = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}


@dataclass(frozen=True)
class Family:
    """A row of the table.

    Attributes:
        name: the common name.
        kind: `model_type` of its configuration.
        options: of the configuration, in addition to the sizes.
    """

    name: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)


FAMILIES = [
    Family("Llama 2, 3", "llama"),
    Family("Qwen2, Qwen2.5", "qwen2"),
    Family("Qwen2-MoE", "qwen2_moe", {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 16}),
    Family("Qwen3", "qwen3", {"head_dim": 16}),
    Family("Qwen3-MoE", "qwen3_moe", {**EXPERTS, "num_experts": 4, "head_dim": 8}),
    Family("Qwen3-Next", "qwen3_next", {**EXPERTS, **LINEAR, "num_experts": 4, "shared_expert_intermediate_size": 16}),
    Family("Qwen3.5", "qwen3_5_text", LINEAR),
    Family("Mistral", "mistral", {"sliding_window": None}),
    Family("Mistral with a window", "mistral", {"sliding_window": WINDOW}),
    Family("Ministral", "ministral", {**WINDOWED, "head_dim": 8}),
    Family("Mixtral", "mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    Family("Gemma", "gemma", {"head_dim": 8}),
    Family("Gemma 2", "gemma2", {**WINDOWED, "head_dim": 8}),
    Family("Gemma 3", "gemma3_text", {**WINDOWED, "head_dim": 8}),
    Family("Phi 1, 2", "phi"),
    Family("Phi 3, 4", "phi3"),
    Family("Phi 3.5-MoE", "phimoe", {"num_local_experts": 4}),
    Family("OLMo", "olmo"),
    Family("OLMo 2", "olmo2"),
    Family("OLMo 3", "olmo3", WINDOWED),
    Family("OLMoE", "olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    Family("gpt-oss", "gpt_oss", {**WINDOWED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}),
    Family("DeepSeek-V2", "deepseek_v2", {**LATENT, **EXPERTS, **GROUPED}),
    Family("DeepSeek-V3, R1", "deepseek_v3", {**LATENT, **EXPERTS, **GROUPED}),
    Family("GLM-4", "glm4", {"head_dim": 8}),
    Family("GLM-4.5", "glm4_moe", {**EXPERTS, **GROUPED, "head_dim": 8, "num_key_value_heads": 2}),
    Family("Granite", "granite", {"logits_scaling": 8.0, "embedding_multiplier": 12.0, "residual_multiplier": 0.22}),
    Family("SmolLM3", "smollm3"),
    Family("StarCoder2", "starcoder2", {"sliding_window": WINDOW}),
    Family("StableLM", "stablelm"),
    Family("Cohere Command R", "cohere"),
    Family("Seed-OSS", "seed_oss", {"head_dim": 8}),
    Family("EXAONE 4", "exaone4", WINDOWED),
    Family("ERNIE 4.5", "ernie4_5", {"head_dim": 8}),
    Family("Nemotron", "nemotron"),
    Family("GPT-NeoX, Pythia", "gpt_neox"),
    Family("GPT-2", "gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    Family("Mamba", "mamba"),
]


def build(family: Family) -> PreTrainedModel:
    """A small model with random weights, whose logits differ by about a nat."""
    sizes = {} if family.kind == "gpt2" else SIZES
    config = AutoConfig.for_model(
        family.kind, **{"vocab_size": VOCABULARY, "eos_token_id": EOS, **sizes, **family.options}
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "sinks" in name:
                    weight.normal_()
                elif weight.ndim > 1:
                    weight.normal_(0, 0.2)
    return model.eval()


def stock_logp(model: PreTrainedModel, prompt: list[int], response: list[int]) -> torch.Tensor:
    """[T] log-probabilities by transformers' own forward pass."""
    out = model(torch.tensor([[*prompt, *response]]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    return out.double().log_softmax(-1)[torch.arange(len(response)), response]


class Found(NamedTuple):
    """The result of a family.

    Attributes:
        refused: the error message that refuses it, or "".
        engine: largest difference between log-probabilities of engine and trainer, in nats.
        stock: the same between trainer and transformers.
        gradient: difference between the gradients of trainer and transformers, relative to the norm of the latter.
    """

    refused: str
    engine: float = 0.0
    stock: float = 0.0
    gradient: float = 0.0

    @property
    def works(self) -> bool:
        """Whether all three agree."""
        return not self.refused and max(self.engine, self.stock, self.gradient) < TOLERANCE


def measure(family: Family) -> Found:
    """Let the engine write responses twice as long as the window; score them by the trainer and by transformers."""
    stock, model = build(family), build(family)
    stock.set_attn_implementation("eager")
    try:
        engine = TransformersEngine(model, EOS)
        found = engine.generate(PROMPTS, 2, np.arange(4, dtype=np.uint64), Sampling(2 * WINDOW + 3))
        lengths = found.mask.sum(1).tolist()
        prompts = [prompt for prompt in PROMPTS for _ in range(2)]
        responses = [row[:length] for row, length in zip(found.tokens.tolist(), lengths, strict=True)]
        ours = response_logp(model, prompts, responses)
    except PmdkitError as problem:
        return Found(str(problem))
    theirs = torch.cat([stock_logp(stock, *pair) for pair in zip(prompts, responses, strict=True)])
    gradients = []
    for some, logp in ((model, ours), (stock, theirs)):
        (logp.double() * torch.linspace(-1, 1, len(logp))).sum().backward()
        gradients.append(torch.cat([w.grad.flatten() for w in some.parameters() if w.grad is not None]).double())
    return Found(
        "",
        float((ours - found.logp[found.mask]).abs().max()),
        float((ours - theirs).abs().max()),
        float((gradients[0] - gradients[1]).norm() / gradients[1].norm()),
    )


def line(family: Family, found: Found) -> str:
    """The table row of a family."""
    extras = []
    if family.options.get("sliding_window"):
        extras.append("sliding window")
    if family.kind == "gpt_oss":
        extras.append("sinks")
    if any("expert" in name for name in family.options):
        extras.append("experts")
    if "q_lora_rank" in family.options:
        extras.append("latent attention")
    if "linear_attention" in family.options.get("layer_types", ()):
        extras.append("linear attention")
    # the size of the difference varies between machines
    refused = re.sub(r" by \S+ \(relative[^)]*\)", "", found.refused)
    verdict = "works" if found.works else f"refused: {refused}"
    return f"| {family.name} | `{family.kind}` | {', '.join(extras)} | {verdict} |"


def table(lines: list[str]) -> str:
    """The whole table."""
    return "\n".join(["| family | `model_type` | with | here |", "|---|---|---|---|", *lines]) + "\n"


def main() -> None:
    """Measure all families and write the table into the page."""
    path = ROOT / PAGE
    head, rest = path.read_text().split(BEGIN)
    rows = [(family, measure(family)) for family in FAMILIES]
    path.write_text(head + BEGIN + "\n" + table([line(*row) for row in rows]) + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
