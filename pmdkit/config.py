"""A run's configuration: where specs are found, their tables and keys, and the resolved Spec.

A run is a spec from the shelf plus overrides: hand-written TOML in, one resolved dictionary out; unknown keys are
refused here. The keys of [env] and [objective] are checked by `envs` and `load_objective`.
"""

import json
import math
import os
import re
import tomllib
from collections.abc import Callable
from copy import deepcopy
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from pmdkit import foreign
from pmdkit.errors import UsageError, did_you_mean, short, unknown

SHELVES = {"bandit": "envs/bandit", "toy": "envs/toy", "llm": "llm/recipes"}
LARGEST = 1_000_000  # bytes of a spec
HEAD_TOKENS = 1024  # rows of logits at a time: 0.6 GB in float32 at a vocabulary of 152k, large enough for full speed
WORDS = {"bandit": "bandit environment", "toy": "toy environment", "llm": "recipe"}


def root() -> Path:
    """The folder that holds the shelves: the checkout pmdkit is imported from, else the wheel's data."""
    package = Path(__file__).parent
    checkout = package.parent
    return checkout if (checkout / "envs" / "bandit").is_dir() else package / "shelves"


def names(tier: str) -> list[str]:
    """Names of the specs of a tier, sorted."""
    return sorted(path.stem for path in (root() / SHELVES[tier]).glob("*.toml"))


def find(name: str, tier: str) -> Path:
    """The file of a spec, by name or path; the error for a misspelt name suggests the nearest."""
    if name.endswith(".toml"):
        if not os.path.isfile(name):  # Path.is_file raises for some impossible names
            what = "is not a file" if os.path.lexists(name) else "does not exist"
            raise UsageError(f"spec file {name[:200]} {what}; give a name ({', '.join(names(tier))}) or a .toml file")
        return Path(name)
    if name not in names(tier):
        raise UsageError(unknown(WORDS[tier], name, names(tier)) + ". Or give the path of a .toml file")
    return root() / SHELVES[tier] / f"{name}.toml"


def read(path: Path) -> dict[str, Any]:
    """Read the tables of a TOML file. A leading byte order mark, as written on Windows, is dropped."""
    data = foreign.read_bytes(path, LARGEST, "give another .toml file")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise UsageError(f"spec {path} nests values too deeply; expected tables of keys and values") from None
    except ValueError as problem:  # also for bytes that are not UTF-8, and integers of thousands of digits
        raise UsageError(f"spec {path} is not valid TOML: {problem}; fix that line") from problem


MOST = 2**31 - 1  # more than any run needs; not far above, sizes of arrays overflow
DEEPEST = 8  # levels of [env] and [objective]; a rule's options inside an objective's table are three
SHOWN = 80  # characters of a key in an error
NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")
LABEL = 100  # characters; file systems take 255 bytes

Table = TypeVar("Table", bound="Strict")


def expects(wanted: str, holds: Callable[[Any], bool]) -> AfterValidator:
    """The allowed range of an option; a value outside is refused with `TABLE.KEY is VALUE; expected WANTED`."""

    def check(value: Any) -> Any:
        if not holds(value):
            shown = list(value) if isinstance(value, tuple) else value  # as TOML writes it
            raise PydanticCustomError("range", "expected {wanted}", {"wanted": wanted, "value": shown})
        return value

    return AfterValidator(check)


Count = Annotated[
    int,
    expects("an integer >= 1", lambda n: n >= 1),
    expects(f"an integer of at most {MOST:,}", lambda n: n <= MOST),
]
CountOrNever = Annotated[int, expects(f"an integer from 0 (never) to {MOST:,}", lambda n: 0 <= n <= MOST)]
Positive = Annotated[float, expects("a finite number > 0", lambda x: math.isfinite(x) and x > 0)]
NonNegative = Annotated[float, expects("a number >= 0", lambda x: x >= 0)]
Share = Annotated[float, expects("a share from 0 to below 1", lambda x: 0 <= x < 1)]


class Strict(BaseModel):
    """A table of a spec: its fields are the allowed keys, and values are never converted.

    A number in quotes, true for 1, or 3.0 for 3 is more likely a mistake than intended. An integer where a float is
    expected is fine.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ScheduleTable(Strict):
    """[schedule]: length, batch sizes, staleness, and how the policy is fitted."""

    steps: Count = 50
    "Rollout batches in the whole run."
    prompts: Count | None = None
    "Prompts per step; by default every context of the environment."
    group: Count | None = None
    "Responses per prompt; without it the full support is enumerated and expectations are exact."
    ministeps: Count = 1
    "Updates per rollout batch."
    lr: Positive = 0.05
    "Learning rate of gradient updates."
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    "Optimizer of gradient updates."
    update: Literal["auto", "exact", "regression", "gradient"] = "auto"
    "exact: the population solution in closed form. regression: Newton on the full expectation. gradient: optimizer."
    passes: Count = 1
    "Optimizer steps on each ministep; many passes on the full support show where gradient descent fails."

    def check_batch(self, prompts: int, needs_peers: bool, full_support: bool = False) -> None:
        """Refuse a ministep without a prompt, and a group without peers for a baseline that needs them.

        Args:
            prompts: prompts per step, after the tier's default.
            needs_peers: the objective has a leave-one-out baseline, so that a group needs two.
            full_support: the tier can always enumerate it instead of drawing a group.
        """
        if self.ministeps > prompts:
            raise UsageError(
                f"schedule.ministeps is {self.ministeps} for {prompts} prompts per step; expected at most {prompts}: "
                "each ministep needs a prompt of its own, raise --prompts"
            )
        if self.group == 1 and needs_peers:
            raise UsageError(
                "schedule.group is 1 with a leave-one-out baseline; expected at least 2: raise --group"
                + (", or leave it out to use the full support" if full_support else "")
            )


class RunTable(Strict):
    """[run]: options that do not change the mathematics."""

    seed: int = 0
    "Seed of every draw."
    threads: Count = 1
    "CPU threads, fixed so that a resumed run ends with the same bits."
    keep: Count = 2
    "Checkpoints to keep."
    max_disk: Positive | None = None
    "Limit for all checkpoints, GiB: old ones are deleted before the next is written, but never the newest."
    checkpoint_every: Count = 1
    "Steps between checkpoints; the last step always writes one."
    record: int = Field(default=0, ge=0)
    "Keep every k-th step in rollouts/step-N.safetensors for `pmdkit replay`; 0 for never."
    max_time: Positive | None = None
    "Time limit, seconds: the run stops after a whole step, in time to save it, as on request (exit 75)."
    profile: CountOrNever = 0
    "Steps after the first one to record with torch's profiler, in profile/; 0 for none."
    callbacks: list[str] = []
    "Your own callbacks as my.py:MyCallback, subclasses of pmdkit.trainer.TrainerCallback."
    report_to: list[Literal["tensorboard", "wandb", "trackio"]] = []
    "Trackers that also receive the metrics; metrics.jsonl is always written."


class ModelTable(Strict):
    """[model] of a toy run: the size of the transformer."""

    dimension: Count = 64
    "Width of the residual stream."
    layers: Count = 2
    "Blocks."
    heads: Count = 2
    "Attention heads. The dimension must be a multiple of twice their number; vLLM needs 32 or more per head."
    path: str | None = None
    "Start from the model in this folder instead of from random weights."


class WarmStartTable(Strict):
    """[warm_start]: phase 0, supervised learning on right answers up to a chosen pass rate."""

    pass_rate: Annotated[float, expects("a number from 0 (no warm start) to below 1", lambda x: 0 <= x < 1)] = 0.0
    "Target p0, measured on the evaluation problems; 0 for no warm start."
    max_steps: Count = 2000
    "Maximum number of supervised steps; not reaching the target by then is an error."
    look: Count = 20
    "Supervised steps between measurements; fewer stop closer to the target but measure more often."
    batch: Count = 128
    "Problems per supervised step."
    lr: Positive = 2e-3
    "Learning rate."


class LanguageModelTable(Strict):
    """[model] of an LLM run: a folder in Hugging Face layout, or a starter model that phase 0 builds and trains."""

    path: str | None = None
    "Folder or hub name of a causal language model with its tokenizer; safetensors only."
    build: Literal["starter", "starter-moe", "starter-100m"] | None = None
    "Build this model from scratch instead; [warm_start] then trains it."
    dtype: Literal["float32", "bfloat16"] = "float32"
    "Precision of forward passes. Weights and optimizer stay in float32: steps of 1e-6 vanish in bfloat16."
    device: str = "auto"
    "auto takes the first accelerator, else the CPU; cpu or cuda:1 names one."
    checkpointing: bool = False
    "Recompute activations in the backward pass: less memory, a third more time."


class LoraTable(Strict):
    """[lora]: train low-rank adapters instead of all weights. Needs peft."""

    rank: int = Field(default=0, ge=0)
    "Rank of each adapter, W + alpha / rank B A; 0 trains all weights. Small ones do for RL (Schulman et al. 2025)."
    alpha: float = Field(default=32.0, gt=0, allow_inf_nan=False)
    "Scale of the adapters. Their best learning rate is about ten times that of full training (same source)."
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
    few_shot: list[MessageTable] = []
    "Messages before the problem, alternating between user and assistant."
    chat: bool | None = None
    "Format as a chat; by default if the tokenizer has a chat template. If false, messages are joined by blank lines."
    thinking: bool | None = None
    "enable_thinking of the chat template; by default the template decides."


class RolloutTable(Strict):
    """[rollout]: which engine generates the responses, and how long they may be."""

    engine: Literal["transformers", "vllm", "vllm-server"] = "transformers"
    "transformers: in the trainer's process, no other package. vllm: beside it. vllm-server: separate processes."
    lag: int = Field(default=0, ge=0)
    "Steps by which the rollout policy lags; 0 alternates rollout and update, 1 or more overlaps them."
    canary: int = Field(default=8, ge=0)
    "Prompts on which engine and trainer are compared after every publish; 0 for none."
    canary_tolerance: float | None = Field(default=None, gt=0)
    "Largest mean difference of log-probabilities on them, nats; by default 1e-3 in float32 and 0.05 in bfloat16."
    silence: float = Field(default=300.0, gt=0)
    "Seconds without a new token, or spent on a publish, after which an engine counts as hung."
    width: Count = 1024
    "Maximum length of a response, tokens; one that has not ended by then is cut off, see `cut_off`."
    max_num_gen_batches: Count = 1
    "Maximum rollouts per step to replace groups of equal rewards with other prompts (dynamic sampling); 1 for none."
    log: str | None = None
    "Train on the responses in this run folder, recorded step or .jsonl instead of drawing any (--rollouts)."
    max_prompt: Count = 2048
    "Longer prompts are dropped and counted before the first step."
    environment: str | None = None
    "Takes turns with the policy: calculator, or your own function as my.py:fn; see docs/use/turns.md."
    max_turns: Count = 4
    "Maximum turns of the policy in an episode with an environment; an episode that needs more is cut off."
    cut_off: Literal["wrong", "mask", "score"] = "wrong"
    "Responses that did not end. wrong: always wrong. mask: ignored. score: a grader of (response, gold) still decides."
    temperature: Positive = 1.0
    "Sampling temperature. With values other than 1 the policy that draws is not the one that is scored."
    cache_tokens: Count = 262_144
    "Size of the KV cache, tokens; a smaller one needs less memory and more turns."
    old: Literal["rollout", "recompute"] = "rollout"
    "pi_old: from the engine, right if engine and trainer compute alike, or from the trainer, as in the paper."
    correction: Literal["none", "token-truncate", "token-mask", "sequence-truncate", "sequence-mask"] = "none"
    "Importance weights pi_trainer / pi_engine on the loss, truncated at the cap, or 0 beyond it."
    correction_cap: Annotated[float, expects("a finite number above 1, such as 2", lambda x: 1 < x < math.inf)] = 2.0
    "Cap on those weights."
    record_every: CountOrNever = 0
    "Write every k-th step's responses to rollouts/; 0 for never."


class VLLMTable(Strict):
    """[vllm]: the engine of rollout.engine = "vllm" or "vllm-server". Needs vllm 0.28 or later."""

    urls: list[str] = Field(default_factory=list)
    "vllm-server: running servers, such as http://127.0.0.1:8000; if empty, servers are started here."
    servers: int = Field(default=1, ge=1)
    "vllm-server: how many to start here, each on its own accelerators."
    host: str = "127.0.0.1"
    "Where started servers listen. Anyone who can reach it can replace the weights: use a private network at most."
    port: int = Field(default=0, ge=0, le=65535)
    "Port of the first started server, the others take the next ones; 0 takes free ports."
    tensor_parallel: int = Field(default=1, ge=1)
    "Accelerators over which each matrix of an engine is split."
    data_parallel: int = Field(default=1, ge=1)
    "vllm-server: copies of the model within one server."
    transfer: Literal["auto", "file", "ipc", "nccl"] = "auto"
    "How weights reach the engine. auto: on accelerators nccl to servers and ipc (handed over) in process, else file."
    folder: str | None = None
    "Folder for file transfers, visible to trainer and engine; by default /dev/shm, or the system's temporary folder."
    memory: float = Field(default=0.45, gt=0, lt=1)
    "Share of an accelerator's memory for the engine: 0.45 beside a trainer, 0.9 alone."
    cache_gib: float = Field(default=1.0, gt=0)
    "On a CPU: size of the KV cache, GiB."
    sleep: bool = True
    "vllm: release the accelerator's memory during updates."
    eager: bool = False
    "Run without compiled graphs: starts faster, generates more slowly. Always so on a CPU."
    rows: int | None = Field(default=None, ge=1)
    "Maximum number of responses generated at the same time."
    start: float = Field(default=600.0, gt=0)
    "Seconds within which a starting engine must answer."
    options: dict[str, Any] = Field(default_factory=dict)
    "Further arguments of vLLM's engine, by vLLM's names; those that pmdkit sets itself are refused."


ENVIRONMENTS = ("calculator",)
SHIPPED_REWARDS = ("math", "soft-overlong-punishment", "reasoning-gym")


class RewardTerm(Strict):
    """An additional [[reward]]: its weight times its value is added to the first one."""

    grade: str = "math"
    "math: the verifier. reasoning-gym: its data set's grader. Or your own as my.py:grade. Runs in a process pool."
    label: str | None = None
    "Its name in metrics and records; by default the function's own name. A recipe may write `name` instead."
    weight: Annotated[float, expects("a finite number", math.isfinite)] = 1.0
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
        """The name of its part of the reward."""
        return self.label or self.grade.rpartition(":")[2]


class RewardTable(RewardTerm):
    """[reward]: how answers are graded, and the scale. The first of several [[reward]] tables decides what passes."""

    scale: Literal["zero-one", "plus-minus-one"] = "zero-one"
    "Rewards of wrong and right. tau is in these units: 0.05 on zero-one is 0.1 on plus-minus-one."
    boxed: bool = False
    "Read the last \\boxed{} instead of the last 'Answer:' line."
    most_unscored: Share = 0.01
    "Share of unscored responses in a step above which the run stops (exit 7); one response never stops it."
    others: list[RewardTerm] = []
    "The additional [[reward]] tables."


class UpdateTable(Strict):
    """[update]: how a ministep becomes an optimizer step."""

    token_budget: Count = 16_384
    "Tokens of prompts and responses in one forward pass; fewer need less memory, the update is the same."
    clip: Positive = 1.0
    "Largest norm of the gradient; larger ones are scaled down to it."
    weight_decay: NonNegative = 0.01
    "Weight decay of AdamW."
    betas: Annotated[
        tuple[float, float], expects("two numbers from 0 to below 1", lambda x: all(0 <= b < 1 for b in x))
    ] = Field(default=(0.9, 0.999), strict=False)  # TOML and JSON have lists
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
    keep_best: bool = False
    "Keep the model with the best evaluation in the run's best/ folder, beside the checkpoints."
    problems: Count = 256
    "Maximum number of problems."
    k: Count = 1
    "Responses per problem."
    temperature: Positive = 1.0
    "Sampling temperature."
    top_p: Annotated[float, expects("a number above 0, at most 1", lambda x: 0 < x <= 1)] = 1.0
    "Nucleus sampling; 0.7 in the paper's evaluations."
    width: Count | None = None
    "Maximum length of a response, tokens; by default as in [rollout]."


class ParallelTable(Strict):
    """[parallel]: how many processes train together, and what each of them holds."""

    processes: Count = 1
    "Processes on this machine, one per accelerator. `accelerate launch`, and torchrun on several machines, set it."
    strategy: Literal["ddp", "fsdp2"] = "ddp"
    "ddp: all weights in every process. fsdp2: a shard of weights, gradients and optimizer in each."
    timeout: Positive = 600.0
    "Seconds that one process waits for another; must exceed the slowest rollout. A dead one is noticed at once."
    restarts: int = Field(default=0, ge=0)
    "How often a run of several processes resumes by itself from its last checkpoint after one of them dies."


Tables = dict[str, type[Strict] | None]

COMMON: Tables = {"env": None, "objective": None, "schedule": ScheduleTable, "run": RunTable}
TABLES: dict[str, Tables] = {
    "bandit": COMMON,
    "toy": COMMON | {"model": ModelTable, "warm_start": WarmStartTable},
    "llm": COMMON
    | {
        "model": LanguageModelTable,
        "lora": LoraTable,
        "warm_start": WarmStartTable,
        "prompt": PromptTable,
        "rollout": RolloutTable,
        "vllm": VLLMTable,
        "reward": RewardTable,
        "update": UpdateTable,
        "evaluation": EvaluationTable,
        "parallel": ParallelTable,
    },
}


class Spec(Strict):
    """A resolved run: what config.json holds.

    Attributes:
        tier: "bandit", "toy" or "llm".
        name: of the spec on the shelf, or the stem of its file.
        env, objective: tables for `envs` and `load_objective`.
        schedule, run and the rest: see `pmdkit.config`; None where the tier has no such table.
    """

    tier: str
    name: str
    env: dict[str, Any]
    objective: dict[str, Any]
    schedule: ScheduleTable = ScheduleTable()
    run: RunTable = RunTable()
    model: ModelTable | LanguageModelTable | None = None
    warm_start: WarmStartTable | None = None
    prompt: PromptTable | None = None
    rollout: RolloutTable | None = None
    vllm: VLLMTable | None = None
    reward: RewardTable | None = None
    update: UpdateTable | None = None
    evaluation: EvaluationTable | None = None
    parallel: ParallelTable | None = None
    lora: LoraTable | None = None

    @model_validator(mode="before")
    @classmethod
    def complete(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Fill in tables that the tier has and the values lack, as in an older run folder, with defaults."""
        known = TABLES.get(values.get("tier", ""), {})
        return {section: table() for section, table in known.items() if table is not None} | values

    @classmethod
    def read(cls, name: str, tier: str) -> "Spec":
        """The spec of that name or path."""
        path = find(name, tier)
        return cls.build(read(path), tier, path.stem, path)

    @classmethod
    def build(cls, tables: dict[str, Any], tier: str, name: str, origin: Path | str = "spec") -> "Spec":
        """A spec from plain tables, every key checked."""
        known = TABLES[tier]
        cls.check_name(name)
        tables = joined_rewards(tables)
        for section in tables:
            if section not in known:
                raise UsageError(f"{origin}: " + unknown("table", section, known))
        for section in ("env", "objective"):
            if section not in tables:
                raise UsageError(f"{origin} has no [{section}] table; expected one")
            check_plain(section, tables[section])
        checked: dict[str, Any] = {
            section: tables[section] if model is None else check_table(section, model, tables.get(section, {}))
            for section, model in known.items()
        }
        return cls(tier=tier, name=name, **checked)

    @field_validator("tier")
    @classmethod
    def check_tier(cls, tier: str) -> str:
        """Refuse an unknown tier, as a run from elsewhere may have."""
        if tier not in TABLES:
            raise UsageError(unknown("tier", tier, TABLES))
        return tier

    @field_validator("name")
    @classmethod
    def check_name(cls, name: str) -> str:
        """Refuse a name that cannot be part of a folder name; a run from elsewhere may have any name."""
        if name in ("", ".", "..") or not NAME.fullmatch(name):
            raise UsageError(f"the name of a spec is {short(name)}; expected one without slashes or control characters")
        return name

    @property
    def label(self) -> str:
        """Name and objective as a folder name: only letters, digits and . _ -"""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{self.name}-{self.objective['name']}")[:LABEL].rstrip(".-")

    def tables(self) -> dict[str, Any]:
        """The tables of the tier as plain values."""
        return self.model_dump(include=set(TABLES[self.tier]))

    def record(self) -> dict[str, Any]:
        """What config.json holds."""
        return {"tier": self.tier, "name": self.name, **self.tables()}

    def override(self, changes: dict[str, Any]) -> "Spec":
        """The spec with keys replaced, dotted or bare, say {"objective.tau": 0.1}; no key may get two values."""
        tables = deepcopy(self.tables())
        seen: dict[tuple[str, str], tuple[str, Any]] = {}
        for key, value in changes.items():
            section, field = locate(key, tables, TABLES[self.tier])
            name, given = seen.setdefault((section, field), (key, value))
            if given is not value and given != value:  # NaN does not equal itself
                told = f"as {name} = {short(given)} and as {key} = {short(value)}"
                raise UsageError(f"{section}.{field} is given twice, {told}; leave one out")
            replace(tables[section], field, value, key)
        return Spec.build(tables, self.tier, self.name)


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


def replace(table: dict[str, Any], field: str, value: Any, key: str) -> None:
    """Set a field of a table in place; "tau.scale" is the option `scale` of the rule that `tau` names."""
    name, dot, option = field.partition(".")
    if not dot:
        table[name] = value
        return
    rule = table.get(name)
    if rule is None and name != "tau":  # a misspelt key: the check that knows all keys of the table reports it
        table[field] = value
        return
    if not isinstance(rule, str | dict):
        given = "not set" if rule is None else f"{rule}, a value without options"
        raise UsageError(f"option '{key}': {name} is {given}; expected the name of a rule, such as --tau pass-rate")
    table[name] = {**({"rule": rule} if isinstance(rule, str) else rule), option: value}


def locate(key: str, tables: dict[str, Any], known: Tables) -> tuple[str, str]:
    """Section and field of a dotted key; a bare key is looked up in every section."""
    section, _, field = key.partition(".")
    options = [f"{s}.{name}" for s, model in known.items() for name in (model.model_fields if model else tables[s])]
    if field and section not in tables:
        if did_you_mean(section, tables) is None:
            raise UsageError(unknown("option", key, options))
        raise UsageError(unknown("section", section, tables) + f", in option '{key}'")
    if field:
        model = known[section]
        if model is not None and field not in model.model_fields:
            raise UsageError(unknown("option", key, (f"{section}.{name}" for name in model.model_fields)))
        return section, field
    fields = {s: set(model.model_fields if model else tables[s]) for s, model in known.items()}
    homes = [s for s, names in fields.items() if key in names]
    for section in ("schedule", "run"):  # lr is also a key of the warm start, and seed one of many environments
        if section in homes:
            return section, key
    if len(homes) != 1:
        raise UsageError(unknown("option", key, options))
    return homes[0], key


def check_table(section: str, model: type[Table], table: dict[str, Any]) -> Table:
    """Validate the keys, types and ranges of a table."""
    check_plain(section, table)
    for key in table:
        if key not in model.model_fields:
            raise UsageError(
                unknown("option", f"{section}.{key}", (f"{section}.{name}" for name in model.model_fields))
            )
    try:
        return model(**table)
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join([section, *map(str, first["loc"])])
        value = first.get("ctx", {}).get("value", first["input"])
        raise UsageError(f"{key} is {short(value)}; {first['msg'][0].lower() + first['msg'][1:]}") from None


def check_plain(section: str, table: Any) -> None:
    """Refuse values that are not a table, and tables with dates, NaN, integers beyond 64 bits or deep nesting.

    Raises:
        UsageError: it names the dotted key.
    """
    if not isinstance(table, dict):
        raise UsageError(f"{section} is {short(table)}; expected a table: [{section}], its keys below")
    rest = [(f"{section}.{key}", value, 1) for key, value in table.items()]
    while rest:
        key, value, depth = rest.pop()
        if depth > DEEPEST:
            raise UsageError(f"{key[:SHOWN]} is nested more than {DEEPEST} deep; expected a value, a list or a table")
        if isinstance(value, dict):
            rest += [(f"{key}.{inner}", part, depth + 1) for inner, part in value.items()]
        elif isinstance(value, list | tuple):
            rest += [(key, part, depth + 1) for part in value]
        elif isinstance(value, date | time):  # a datetime is a date
            raise UsageError(f"{key} is the date or time {value}; expected a number, text, true or false")
        elif isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{key} is {value}; expected a finite number")
        elif isinstance(value, int) and value.bit_length() > 63:
            raise UsageError(f"{key} is {short(value)}; expected an integer of at most 63 bits")


def to_toml(tables: dict[str, Any]) -> str:
    """Tables of a spec as the text of a .toml file for `Spec.read`; keys that are not set are left out."""

    def block(head: str, table: dict[str, Any]) -> str:
        set_keys = {key: value for key, value in table.items() if value is not None and key != "others"}
        return "\n".join([head, *(f"{key_of(key)} = {to_value(value)}" for key, value in set_keys.items())])

    blocks = []
    for section, table in tables.items():
        if table is not None:
            others = table.get("others", [])
            blocks.append(block(f"[[{section}]]" if others else f"[{section}]", table))
            blocks += [block(f"[[{section}]]", other) for other in others]
    return "\n\n".join(blocks) + "\n"


def key_of(key: str) -> str:
    """A TOML key, in quotes where it needs them."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def to_value(value: Any) -> str:
    """A TOML value; strings are quoted as in JSON, whose escapes TOML shares."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{key_of(key)} = {to_value(part)}" for key, part in value.items() if part is not None)
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)
