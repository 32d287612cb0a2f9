"""The tables of a spec, tier by tier: a dictionary from section to the class whose fields are its keys.

What the keys of [env] and [objective] may be is the business of `envs` and `load_objective`: None here.
"""

from pmdkit.tables.common import RunTable, ScheduleTable, Strict
from pmdkit.tables.llm import (
    EvaluationTable,
    LanguageModelTable,
    LoraTable,
    ParallelTable,
    RewardTable,
    RolloutTable,
    UpdateTable,
    VLLMTable,
)
from pmdkit.tables.toy import ModelTable, WarmStartTable

__all__ = [
    "TABLES",
    "EvaluationTable",
    "LanguageModelTable",
    "LoraTable",
    "ModelTable",
    "ParallelTable",
    "RewardTable",
    "RolloutTable",
    "RunTable",
    "ScheduleTable",
    "Strict",
    "Tables",
    "UpdateTable",
    "VLLMTable",
    "WarmStartTable",
]

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
        "rollout": RolloutTable,
        "vllm": VLLMTable,
        "reward": RewardTable,
        "update": UpdateTable,
        "evaluation": EvaluationTable,
        "parallel": ParallelTable,
    },
}
