"""The spec of tier 3, a recipe: model, engine, rewards, optimizer step, evaluation, and processes."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from pmdkit.specs.spec import Spec
from pmdkit.specs.table import Count, CountOrNever, NonNegative, Positive, Share, Strict, Word, check_table
from pmdkit.specs.toy import WarmStartTable

HEAD_TOKENS = 1024  # rows of logits at a time: 0.6 GB in float32 at a vocabulary of 152k, large enough for full speed
SHIPPED_REWARDS = ("math", "soft-overlong-punishment")


class LanguageModelTable(Strict):
    """[model] of an LLM run: a folder in Hugging Face layout, a starter that phase 0 trains, or SmolLM2."""

    path: str | None = None
    "Folder or hub name of a causal language model with its tokenizer; safetensors only."
    build: Literal["starter", "starter-moe", "starter-100m", "smollm2"] | None = None
    "Instead of a path: a starter, built from scratch and taught by [warm_start]; or smollm2, downloaded once."
    dtype: Literal["float32", "bfloat16"] = "float32"
    "Precision of forward passes. Weights and optimizer stay in float32: steps of 1e-6 vanish in bfloat16."
    backend: str = "transformers"
    "transformers: the model is here. Or the name of another package's backend: a server trains it, see [remote]."
    device: str = "auto"
    "auto takes the first accelerator, else the CPU; cpu or cuda:1 names one."
    checkpointing: bool | Literal["auto"] = False
    "Recompute activations in the backward pass: less memory, a third more time. auto: where they do not fit."


class LoraTable(Strict):
    """[lora]: train low-rank adapters instead of all weights. Needs peft."""

    rank: int = Field(default=0, ge=0)
    "Rank of each adapter, W + alpha / rank B A; small ones do for RL. 0: all weights, or a remote backend's own rank."
    alpha: Positive = 32.0
    "Scale of the adapters. They learn best at ten times the usual rate: Schulman et al. 2025, LoRA Without Regret."
    targets: list[str] | None = None
    "Layers to adapt, by name suffix; by default every linear layer but the head. Fused experts must be named."


class MessageTable(Strict):
    """A [[prompt.few_shot]] message, shown before the problem."""

    role: Literal["user", "assistant"]
    "Who speaks."
    content: str
    "What is said."


class PromptTable(Strict):
    """[prompt]: the text around a problem."""

    template: str | None = None
    "The user's message, with {problem_statement} in it once; by default DAPO's."
    system: str | None = None
    "System prompt."
    few_shot: list[MessageTable] = Field(default_factory=list)
    "Messages before the problem, alternating between user and assistant."
    chat: bool | None = None
    "Format as a chat; by default if the tokenizer has a chat template. If false, messages are joined by blank lines."
    thinking: bool | None = None
    "enable_thinking of the chat template; by default the template decides."


class RolloutTable(Strict):
    """[rollout]: which engine generates the responses, and how long they may be."""

    engine: str = "transformers"
    "transformers: in the trainer's process. vllm: beside it. vllm-server: servers. Or your own as my.py:MyEngine."
    lag: int = Field(default=0, ge=0)
    "Steps by which the rollout policy lags; 0 alternates rollout and update, 1 or more overlaps them."
    in_flight: bool = False
    "Responses go on under new weights as soon as there are some; the lag is then the most that a token may be old."
    in_flight_cache: Literal["keep", "recompute"] = "keep"
    "Keys and values when weights change in flight. keep: the older ones stay. recompute: all tokens are read again."
    max_age: CountOrNever | None = None
    "In flight: responses with a token drawn more steps before their own are counted, and see too_old; by default none."
    too_old: Literal["drop", "mask"] = "drop"
    "drop: such a response is left out. mask: its tokens beyond max_age get no loss, of an objective with token losses."
    repeat_changes: str | None = None
    "In flight: metrics.jsonl of a run whose weights changed at the same tokens; by default as soon as possible."
    canary: int = Field(default=8, ge=0)
    "Prompts on which engine and trainer are compared after every publish; 0 for none."
    canary_tolerance: float | None = Field(default=None, gt=0)
    "Largest mean difference of log-probabilities on them, nats; by default 1e-3 in float32 and 0.05 in bfloat16."
    max_num_gen_batches: Count = 1
    "Rollouts per step at most, to replace groups of equal rewards by other prompts (dynamic sampling); 1 for none."
    width: Count = 1024
    "Maximum length of a response, tokens; one that has not ended by then is cut off, see `cut_off`."
    max_prompt: Count = 2048
    "Longer prompts are dropped and counted before the first step."
    environment: str | None = None
    "Takes turns with the policy: calculator, or your own as my.py:fn. Needs pmdkit-adapters; see docs/use/turns.md."
    environment_seconds: Positive = 30.0
    "Time limit of a call of the environment, by the clock."
    environment_retries: CountOrNever = 1
    "How often a call that fails is repeated. Of a class never: its state may have changed."
    environment_concurrency: Count = 64
    "Calls of the environment at once, each in a thread; 1 for a function that threads must not share."
    environment_most_failed: Share = 0.5
    "Share of a step's episodes with a failed environment above which the run stops (exit 7); one never stops it."
    max_turns: Count = 4
    "Maximum turns of the policy in an episode with an environment; an episode that needs more is cut off."
    cut_off: Literal["wrong", "mask", "score"] = "wrong"
    "Responses that did not end. wrong: always wrong. mask: ignored. score: a grader of (response, gold) still decides."
    temperature: Positive = 1.0
    "Sampling temperature. The policy at that temperature is trained: its logits are the model's, divided by it."
    cache_tokens: Count = 262_144
    "Size of the KV cache, tokens; a smaller one needs less memory and more turns."
    old: Literal["rollout", "recompute"] = "rollout"
    "pi_old: from the engine, right if engine and trainer compute alike, or from the trainer, as in the paper."
    correction: Literal["none", "token-truncate", "token-mask", "sequence-truncate", "sequence-mask"] = "none"
    "Importance weights pi_trainer / pi_engine on the loss, truncated at the cap, or 0 beyond it."
    correction_cap: Annotated[float, Field(gt=1)] = 2.0
    "Cap on those weights."
    record_every: CountOrNever = 0
    "Write every k-th step's responses to rollouts/; 0 for never."


@with_config(ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
class VLLMOptions(TypedDict, total=False):
    """[vllm.options]: arguments of vLLM's engine by vLLM's names. Only what cannot name code, a file or an address."""

    all2all_backend: Word
    async_scheduling: bool
    attention_backend: Word
    block_size: Count
    cpu_offload_gb: NonNegative
    cudagraph_capture_sizes: list[Count]
    disable_cascade_attn: bool
    disable_custom_all_reduce: bool
    enable_chunked_prefill: bool
    enable_dbo: bool
    enable_expert_parallel: bool
    enable_prefix_caching: bool
    kv_cache_dtype: Word
    linear_backend: Word
    max_num_batched_tokens: Count
    model_impl: Literal["auto", "vllm", "transformers"]
    moe_backend: Word
    num_gpu_blocks_override: Count
    numa_bind: bool
    optimization_level: CountOrNever


class VLLMTable(Strict):
    """[vllm]: the engine of rollout.engine = "vllm" or "vllm-server". Needs vllm 0.28 or later."""

    urls: list[str] = Field(default_factory=list)
    "vllm-server: addresses of running servers, such as http://127.0.0.1:8000. All get the same weights."
    folder: str | None = None
    "vllm-server: folder for weights, which trainer and servers see; by default the system's temporary folder."
    timeout: float = Field(default=600.0, gt=0)
    "vllm-server: seconds within which a server must start, generate a response, or load weights."
    tensor_parallel: int = Field(default=1, ge=1)
    "vllm: accelerators over which each matrix of an engine is split."
    memory: float = Field(default=0.45, gt=0, lt=1)
    "vllm: share of an accelerator's memory for the engine while it is awake."
    sleep: bool = True
    "vllm: release the accelerator's memory during updates."
    eager: bool = False
    "vllm: run without compiled graphs: starts faster, generates more slowly. Always so on a CPU."
    rows: int | None = Field(default=None, ge=1)
    "Maximum number of responses generated at the same time, by each engine or replica of a server."
    options: VLLMOptions = Field(default_factory=VLLMOptions)
    "vllm: further arguments of vLLM's engine, by vLLM's names; another name is answered with those that there are."


class EngineTable(Strict):
    """[engine]: your own engine, rollout.engine = "my.py:MyEngine"."""

    options: dict[str, Any] = Field(default_factory=dict)
    "[engine.options]: the fields of the dataclass `Options` of your class; without one, whatever it reads."


class RemoteTable(Strict):
    """[remote]: the server of a backend that trains the model elsewhere. Its key is never in a recipe."""

    url: str | None = None
    "Address of the server, such as http://127.0.0.1:8000; it may move between two starts of a run."
    model: str | None = None
    "Name of the model on the server; by default model.path, whose tokenizer and configuration are read here."


class RewardTerm(Strict):
    """An additional [[reward]]: its weight times its value is added to the first one."""

    grade: str = "math"
    "math: the verifier. Or your own as my.py:grade. Runs in a process pool."
    label: str | None = None
    "Its name in metrics and records; by default the function's own name. A recipe may write `name` instead."
    weight: float = 1.0
    "Factor of its value in the reward."
    seconds: Positive = 0.8
    "Time limit per answer: CPU time for math, wall time for your own function. Beyond it: unscored, not wrong."
    workers: Count = 1
    "Processes that grade answers which comparing integers does not decide."
    memory_mb: Count = 1024
    "Memory limit of a worker, MiB."
    soft_punish_cache: Count | None = None
    "soft-overlong-punishment: how many last tokens of rollout.width, over which the penalty grows from 0 to -1 (DAPO)."

    @property
    def part(self) -> str:
        """Name of this term among the parts of the reward: its label, or the name of its function."""
        return self.label or self.grade.rpartition(":")[2]


class RewardTable(RewardTerm):
    """[reward]: how answers are graded, and the scale. The first of several [[reward]] tables decides what passes."""

    scale: Literal["zero-one", "plus-minus-one"] = "zero-one"
    "Rewards of wrong and right. tau is in these units: 0.05 on zero-one is 0.1 on plus-minus-one."
    boxed: bool = False
    "Read the last \\boxed{} instead of the last 'Answer:' line."
    most_unscored: Share = 0.01
    "Share of unscored responses in a step above which the run stops (exit 7); one response never stops it."
    others: list[RewardTerm] = Field(default_factory=list)
    "The additional [[reward]] tables."


class UpdateTable(Strict):
    """[update]: how a ministep becomes an optimizer step."""

    token_budget: Count = 16_384
    "Tokens of prompts and responses in one forward pass; fewer need less memory, the update is the same."
    clip: Positive = 1.0
    "Largest norm of the gradient; larger ones are scaled down to it."
    weight_decay: NonNegative = 0.01
    "Weight decay of AdamW."
    betas: tuple[Share, Share] = Field(default=(0.9, 0.999), strict=False)  # TOML and JSON have lists
    "Betas of Adam and AdamW."
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = "constant"
    "How schedule.lr falls to 0 by the end of the run, after the warm-up; by optimizer steps, as in transformers."
    warmup_steps: CountOrNever = 0
    "Steps of the run over which the learning rate grows from 0 to schedule.lr."
    drop_equal_groups: bool = False
    "Leave out groups whose rewards are all equal. They pull back to pi_old under PMD, so this changes the objective."


class EvaluationTable(Strict):
    """[evaluation]: how the policy is evaluated before, during and after training."""

    data: str = "held-out"
    "held-out (problems of the run's own data), aime24, aime25, or a file."
    every: CountOrNever = 0
    "Steps between evaluations during training; 0 evaluates before the first and after the last update only."
    problems: Count = 256
    "Maximum number of problems."
    k: Count = 1
    "Responses per problem."
    temperature: Positive | None = None
    "Sampling temperature; by default that of [rollout], at which the policy is trained."
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    "Nucleus sampling; 0.7 in the paper's evaluations."
    width: Count | None = None
    "Maximum length of a response, tokens; by default as in [rollout]."


class ParallelTable(Strict):
    """[parallel]: how many processes train together, and what each of them holds."""

    processes: Count = 1
    "Processes on this machine, one per accelerator. `accelerate launch`, and torchrun on several machines, set it."
    strategy: Literal["ddp", "fsdp2"] = "ddp"
    "ddp: all weights in every process. fsdp2: a shard of weights, gradients and optimizer in each."
    replicas: Count = 1
    "fsdp2: copies of the model, each sharded over processes / replicas. One per machine keeps gathers inside it."
    timeout: Positive = 600.0
    "Seconds that one process waits for another; must exceed the slowest rollout. A dead one is noticed at once."


class LLMSpec(Spec):
    """A run of a causal language model of transformers on problems with checkable answers."""

    tier: Literal["llm"] = "llm"
    model: LanguageModelTable = LanguageModelTable()
    warm_start: WarmStartTable = WarmStartTable()
    prompt: PromptTable = PromptTable()
    rollout: RolloutTable = RolloutTable()
    vllm: VLLMTable = VLLMTable()
    engine: EngineTable = EngineTable()
    reward: RewardTable = RewardTable()
    update: UpdateTable = UpdateTable()
    evaluation: EvaluationTable = EvaluationTable()
    parallel: ParallelTable = ParallelTable()
    lora: LoraTable = LoraTable()
    remote: RemoteTable = RemoteTable()

    @classmethod
    def build(cls, tables: dict[str, Any], name: str, origin: Path | str = "spec") -> Self:
        """A spec from plain tables, every key checked; there may be several [[reward]] tables."""
        return super().build(joined_rewards(tables), name, origin)

    @property
    def staleness(self) -> int:
        """Optimizer steps between the policy that wrote a response and the last one fitted to it."""
        return self.schedule.ministeps * self.schedule.passes * (1 + self.rollout.lag) - 1


def joined_rewards(tables: dict[str, Any]) -> dict[str, Any]:
    """Merge several [[reward]] tables into one: the first, with the rest under `others`. Their keys are checked.

    On its own, `name = "math"` or `name = "my.py:fn"` chooses the grader; beside `grade` a name is a label.
    """
    given = tables.get("reward", {})
    rewards = given if isinstance(given, list) else [given]
    if not rewards or not all(isinstance(table, dict) for table in rewards):
        return tables  # refused with the other tables
    rewards = [named_reward(table) for table in rewards]
    nested = rewards[0].get("others", [])
    if not isinstance(nested, list):
        return tables  # refused too
    others = [*rewards[1:], *nested]
    for number, table in enumerate(others, 2):
        check_table(f"reward {number}", RewardTerm, table)
    joined = {**rewards[0], "others": others} if others else rewards[0]
    return {**tables, "reward": joined} if "reward" in tables else tables


def named_reward(table: dict[str, Any]) -> dict[str, Any]:
    """A [[reward]] table with `name` rewritten as `grade` or `label`."""
    if "name" not in table:
        return table
    rest = {key: value for key, value in table.items() if key != "name"}
    name = table["name"]
    grades = "grade" not in table and isinstance(name, str) and (name in SHIPPED_REWARDS or ":" in name)
    return {**rest, "grade" if grades else "label": name}
