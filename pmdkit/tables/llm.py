"""The tables of a run on a language model."""

from typing import Any, Literal

from pydantic import Field

from pmdkit.tables.common import Strict


class LanguageModelTable(Strict):
    """[model] of an LLM run: a folder in Hugging Face layout, or a starter model that phase 0 builds and teaches."""

    path: str | None = None
    "Folder or hub name of a causal language model with its tokenizer; safetensors only."
    build: Literal["starter", "starter-moe", "starter-100m"] | None = None
    "Build this model from nothing instead; [warm_start] then teaches it."
    dtype: Literal["float32", "bfloat16"] = "float32"
    "What forward passes compute in. Weights and optimizer stay float32: steps of 1e-6 vanish in bfloat16."
    device: str = "auto"
    "auto takes the first accelerator, else the CPU; cpu or cuda:1 names one."
    checkpointing: bool = False
    "Recompute activations in the backward pass: less memory, a third more time."


class LoraTable(Strict):
    """[lora]: train low-rank adapters instead of all weights. Needs peft."""

    rank: int = Field(default=0, ge=0)
    "Of each adapter, W + alpha / rank B A; 0 trains all weights. Small ranks do for rewards (Schulman et al. 2025)."
    alpha: float = Field(default=32.0, gt=0, allow_inf_nan=False)
    "Scale of the adapters. Their best learning rate is about ten times that of all weights (the same source)."
    targets: list[str] | None = None
    "Layers that get one, by the end of their names; by default every linear layer but the head. Name fused experts."


class RolloutTable(Strict):
    """[rollout]: who writes the responses, and how long they may be."""

    engine: Literal["transformers", "vllm", "vllm-server"] = "transformers"
    "transformers: in the trainer's process, needs nothing else. vllm: beside it. vllm-server: processes of its own."
    lag: int = Field(default=0, ge=0)
    "Updates that the policy of a rollout is behind; 0 rolls out and updates in turns, 1 and more overlap the two."
    canary: int = Field(default=8, ge=0)
    "Prompts on which engine and trainer are compared after every publish; 0 for none."
    canary_tolerance: float | None = Field(default=None, gt=0)
    "Largest mean difference of log-probabilities there, nats; by default 1e-3 in float32 and 0.05 in bfloat16."
    silence: float = Field(default=300.0, gt=0)
    "Seconds without a new token, or for a publish, after which an engine counts as hung."
    width: int = 1024
    "Tokens that a response may have; one that has not ended by then is cut off, and wrong."
    max_prompt: int = 2048
    "Longer prompts are dropped and counted before the first step."
    temperature: float = 1.0
    "Of the draws. Other values than 1 train another policy than the one that is scored."
    cache_tokens: int = 262_144
    "Tokens whose keys and values are held at once; fewer need less memory and more turns."
    old: Literal["rollout", "recompute"] = "rollout"
    "pi_old: the engine's own numbers, right where engine and trainer compute alike, or the trainer's, as in the paper."
    correction: Literal["none", "token-truncate", "token-mask", "sequence-truncate", "sequence-mask"] = "none"
    "Importance weights pi_trainer / pi_engine on the loss, truncated at the cap, or 0 beyond it."
    correction_cap: float = 2.0
    "Of those weights."
    record_every: int = 0
    "Write every k-th step's responses to rollouts/; 0 for never."


class VLLMTable(Strict):
    """[vllm]: the engine of rollout.engine = "vllm" or "vllm-server". Needs vllm 0.24, or 0.32 and later."""

    urls: list[str] = Field(default_factory=list)
    "vllm-server: servers that run already, such as http://127.0.0.1:8000; none starts them here."
    servers: int = Field(default=1, ge=1)
    "vllm-server: how many are started here, each on accelerators of its own."
    host: str = "127.0.0.1"
    "Where started servers listen. Anyone who reaches it can replace the weights: a private network at most."
    port: int = Field(default=0, ge=0, le=65535)
    "Of the first started server, the next ones follow; 0 takes free ones."
    tensor_parallel: int = Field(default=1, ge=1)
    "Accelerators over which each matrix of an engine is cut."
    data_parallel: int = Field(default=1, ge=1)
    "vllm-server: copies of the model within one server."
    transfer: Literal["auto", "file", "ipc", "nccl"] = "auto"
    "How weights reach the engine. auto: on accelerators nccl to servers and ipc (handed over) in process, else file."
    folder: str | None = None
    "Of file transfers, seen by trainer and engine; by default /dev/shm, or the system's folder for temporary files."
    memory: float = Field(default=0.45, gt=0, lt=1)
    "Share of an accelerator's memory for the engine: 0.45 beside a trainer, 0.9 alone."
    cache_gib: float = Field(default=1.0, gt=0)
    "On a CPU: keys and values, GiB."
    sleep: bool = True
    "vllm: give the accelerator's memory back during updates."
    eager: bool = False
    "Without compiled graphs: starts faster and writes slower. Always so on a CPU."
    rows: int | None = Field(default=None, ge=1)
    "Responses that are written at the same time, at most."
    start: float = Field(default=600.0, gt=0)
    "Seconds until a starting engine must answer."
    options: dict[str, Any] = Field(default_factory=dict)
    "Further arguments of vllm's engine, by their names there; what pmdkit sets itself is refused."


class RewardTable(Strict):
    """[reward]: who grades, and on which scale."""

    grade: str = "math"
    "math: the verifier. Or your own function as my.py:grade, run in the same pool of processes."
    scale: Literal["zero-one", "plus-minus-one"] = "zero-one"
    "Rewards of wrong and right. tau is in these units: 0.05 on zero-one is 0.1 on plus-minus-one."
    boxed: bool = False
    "Read the last \\boxed{} instead of the last 'Answer:' line."
    workers: int = 1
    "Processes that grade what strict integers do not decide."
    seconds: float = 0.8
    "Limit of one answer: processor time of math, time by the clock of your own function. Over it: unscored, not wrong."
    memory_mb: int = 1024
    "Memory limit of a worker, MiB."
    most_unscored: float = 0.01
    "Share of unscored responses in a step above which the run stops (exit 7); one response never stops it."


class UpdateTable(Strict):
    """[update]: how a ministep becomes an optimizer step."""

    token_budget: int = 16_384
    "Tokens of prompts and responses in one forward pass; fewer need less memory, the update is the same."
    clip: float = 1.0
    "Largest norm of the gradient; larger ones are scaled down to it."
    weight_decay: float = 0.01
    "Of AdamW."
    betas: tuple[float, float] = Field(default=(0.9, 0.999), strict=False)  # TOML and JSON have lists
    "Of Adam and AdamW."
    drop_equal_groups: bool = False
    "Leave out groups whose rewards are all equal. They pull back to pi_old under PMD, so this changes the objective."


class EvaluationTable(Strict):
    """[evaluation]: how good the policy is, before, during and after."""

    data: str = "held-out"
    "held-out problems of the run's own, aime24, aime25, or a file."
    every: int = 0
    "Steps between evaluations during training; 0 evaluates before the first and after the last update only."
    problems: int = 256
    "At most."
    k: int = 1
    "Responses to each problem."
    temperature: float = 1.0
    "Of the draws."
    top_p: float = 1.0
    "0.7 in the paper's evaluations."
    width: int | None = None
    "Tokens that a response may have; by default as in [rollout]."


class ParallelTable(Strict):
    """[parallel]: how many processes train together, and what each of them holds."""

    processes: int = 1
    "On this machine, one per accelerator. `accelerate launch` says how many itself, on several machines too."
    strategy: Literal["ddp", "fsdp2"] = "ddp"
    "ddp: all weights in every process. fsdp2: a share of weights, gradients and optimizer in each."
    timeout: float = 600.0
    "Seconds that one process waits for another: longer than the slowest rollout. A dead one is noticed at once."
    restarts: int = Field(default=0, ge=0)
    "How often a run of several processes goes on from its last checkpoint by itself after one of them died."
