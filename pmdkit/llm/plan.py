"""What a recipe comes to before anything starts: batch arithmetic, staleness, memory by phase, files."""

import os
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.hub import local_only
from pmdkit.llm.lora import asked, refuse, sizes
from pmdkit.llm.scoring import HEAD_TOKENS
from pmdkit.llm.shapes import known
from pmdkit.spec import Spec
from pmdkit.tables import ParallelTable

GIB = 2**30
FLOAT32 = 4  # bytes


@dataclass(frozen=True)
class Plan:
    """A recipe in units with names.

    Attributes:
        batch: what a step asks, draws and updates.
        memory: GiB by phase, from shapes; the allocator and the libraries come on top.
        model: its size.
        files: what the run folder will hold.
    """

    batch: dict[str, float]
    memory: dict[str, float]
    model: dict[str, Any]
    files: dict[str, str]


def plan(spec: Spec) -> Plan:
    """The plan of a resolved recipe."""
    refuse(spec)
    config = shape_of(spec)
    weights, active = count(config)
    adapter, experts = adapters(spec, config)
    told = about(spec, config, weights, active) | ({"weights that are trained": adapter} if adapter else {})
    return Plan(batch(spec), memory(spec, config, weights, adapter, experts), told, files(spec, weights, adapter))


def batch(spec: Spec) -> dict[str, float]:
    """Prompts, responses, updates and staleness."""
    schedule, rollout = spec.schedule, spec.rollout
    assert rollout is not None
    assert schedule.prompts is not None
    assert schedule.group is not None
    responses = schedule.prompts * schedule.group
    return {
        "steps": schedule.steps,
        "prompts per step": schedule.prompts,
        "responses per prompt": schedule.group,
        "responses per step": responses,
        "tokens per response, at most": rollout.width,
        "tokens per step, at most": responses * rollout.width,
        "ministeps per step": schedule.ministeps,
        "prompts per ministep": schedule.prompts / schedule.ministeps,
        "responses per ministep": responses / schedule.ministeps,
        "optimizer steps": schedule.steps * schedule.ministeps * schedule.passes,
        "staleness of the last ministep, updates": schedule.ministeps * schedule.passes * (1 + rollout.lag) - 1,
    }


def memory(spec: Spec, config: PretrainedConfig, weights: int, adapter: int = 0, experts: int = 0) -> dict[str, float]:
    """GiB that each process holds at most in each phase; with adapters, gradients and moments are of theirs alone.

    Under fsdp2 a process has its share of weights, gradients and moments, and its engine a whole copy of the weights.
    """
    assert spec.update is not None
    assert spec.rollout is not None
    model = spec.model
    half = getattr(model, "dtype", "float32") == "bfloat16"
    width = 2 if half else FLOAT32
    trained = adapter or weights
    table = spec.parallel or ParallelTable()
    shares = table.processes if table.strategy == "fsdp2" else 1
    whole = FLOAT32 * (weights + adapter + 2 * trained)  # weights and the two moments of Adam
    always = whole / shares
    engine = width * weights if half or shares > 1 else 0  # in one float32 process it reads the trainer's own
    cache = spec.rollout.cache_tokens * cache_bytes(config, width)
    # one buffer of logits, and the gradient of the head's weight beside the one that it is added to
    head = FLOAT32 * config.vocab_size * (HEAD_TOKENS + config.hidden_size)
    kept = activations(config, width, bool(getattr(model, "checkpointing", False))) * spec.update.token_budget
    kept += FLOAT32 * experts // (config.num_hidden_layers if getattr(model, "checkpointing", False) else 1)
    parts = {
        "weights and optimizer": always,
        "rollout": always + engine + cache,
        "update": always + engine + FLOAT32 * trained / shares + kept + head,
        "checkpoint on disk": whole,
    }
    return {name: size / GIB for name, size in parts.items()}


def cache_bytes(config: PretrainedConfig, width: int) -> int:
    """Bytes of keys and values of one token."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * width)


def activations(config: PretrainedConfig, width: int, checkpointing: bool) -> int:
    """Bytes that the backward pass needs of one token: what each block's matrix products and norms keep."""
    d, layers = config.hidden_size, config.num_hidden_layers
    inner = getattr(config, "moe_intermediate_size", None)
    inner = config.intermediate_size if inner is None else inner * config.num_experts_per_tok
    block = 10 * d + 4 * inner  # inputs of norms, of q k v o and their results; gate, up, their product, silu
    return int(width * (layers * d + block if checkpointing else layers * block))


def about(spec: Spec, config: PretrainedConfig, weights: int, active: int) -> dict[str, Any]:
    """The model's size in words."""
    model = spec.model
    return {
        "from": getattr(model, "path", None) or f"{getattr(model, 'build', None)}, built here",
        "architecture": config.model_type,
        "weights": weights,
        "weights per token": active,
        "layers": config.num_hidden_layers,
        "dimension": config.hidden_size,
        "vocabulary": config.vocab_size,
        "computes in": getattr(model, "dtype", "float32"),
    }


def files(spec: Spec, weights: int, adapter: int = 0) -> dict[str, str]:
    """What the run folder will hold, and how large."""
    assert spec.rollout is not None
    assert spec.evaluation is not None
    checkpoint, run = FLOAT32 * (weights + adapter + 2 * (adapter or weights)) / GIB, spec.run
    table = {
        "config.json, env.json": "before the first step",
        "metrics.jsonl": f"a line per step, {spec.schedule.steps} in all",
        "checkpoints/step-N/": f"{checkpoint:.2f} GiB each, {run.keep} kept, every {run.checkpoint_every} steps",
        "evaluations/": "every response before the first and after the last update"
        + (f", and every {spec.evaluation.every} steps" if spec.evaluation.every else ""),
        "data.json, audit.json": "what reading dropped or repaired, what the verifier decided first",
        "verdicts.jsonl": "verdicts that took a worker",
        "summary.json": "at the end",
    }
    if spec.rollout.record_every:
        table["rollouts/step-N.jsonl"] = f"responses as text, every {spec.rollout.record_every} steps"
    if spec.run.record:
        table["rollouts/step-N.safetensors"] = f"what `pmdkit replay` needs, every {spec.run.record} steps"
    return table


def shape_of(spec: Spec) -> PretrainedConfig:
    """The configuration of the model that the run would train."""
    path = getattr(spec.model, "path", None)
    if path is None:
        from pmdkit.envs.math import make_math
        from pmdkit.llm.starter.model import build
        from pmdkit.llm.starter.tokenizer import train_tokenizer

        tokenizer = train_tokenizer(make_math(spec.env))
        with torch.device("meta"):
            return build(getattr(spec.model, "build", ""), tokenizer, 0).config
    shipped = known(path)
    if shipped is not None and not os.path.exists(path):
        return shipped
    try:
        here = os.path.exists(path) or local_only()
        return AutoConfig.from_pretrained(path, trust_remote_code=False, local_files_only=here)
    except OSError as problem:
        raise EnvironmentLacks(
            f"model.path {path} is no folder here and the hub did not give it; download it first, then name its folder"
        ) from problem
    except ValueError as problem:
        raise UsageError(f"model.path {path}: {str(problem).splitlines()[0]}") from problem


def adapters(spec: Spec, config: PretrainedConfig) -> tuple[int, int]:
    """Weights of the adapters that [lora] asks for, and of the experts that have one."""
    if not asked(spec.lora):
        return 0, 0
    with torch.device("meta"):
        return sizes(AutoModelForCausalLM.from_config(config), spec.lora)


def count(config: PretrainedConfig) -> tuple[int, int]:
    """All weights, and those that one token meets, from an empty model."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    total = sum(weight.numel() for weight in model.parameters())
    experts = getattr(config, "num_experts", None)
    if not experts:
        return total, total
    inside = sum(w.numel() for name, w in model.named_parameters() if ".experts." in name)
    return total, total - inside + inside * config.num_experts_per_tok // experts
