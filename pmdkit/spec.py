"""A run = a spec from the shelf + overrides. Hand-written TOML in, one resolved dictionary out; unknown keys stop here.

What the keys of [env] and [objective] may be is the business of `envs.make` and `load_objective`.
"""

import math
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pmdkit import shelf
from pmdkit.errors import UsageError
from pmdkit.nearest import unknown


class Strict(BaseModel):
    """A table of a spec: its fields are the keys it may have."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Table = TypeVar("Table", bound=Strict)


class ScheduleTable(Strict):
    """[schedule]: how long, how many, how stale, and how the policy is fitted."""

    steps: int = 50
    "Rollout batches in the whole run."
    prompts: int | None = None
    "Prompts per step; by default every context of the environment."
    group: int | None = None
    "Responses per prompt; without it the full support is enumerated and the update is exact."
    ministeps: int = 1
    "Updates per rollout batch."
    lr: float = 0.05
    "Learning rate of gradient updates."
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    "Optimizer of gradient updates."
    update: Literal["auto", "exact", "regression", "gradient"] = "auto"
    "exact: the population solution in closed form. regression: Newton on the full expectation. gradient: optimizer."
    passes: int = 1
    "Optimizer steps on each ministep; many passes on the full support show where gradient descent fails."


class RunTable(Strict):
    """[run]: what does not change the mathematics."""

    seed: int = 0
    "Every draw is derived from it."
    threads: int = 1
    "CPU threads, fixed so that a resumed run ends on the same bits."
    keep: int = 2
    "Checkpoints kept."
    checkpoint_every: int = 1
    "Steps between checkpoints; the last step always writes one."


class ModelTable(Strict):
    """[model] of a toy run: the size of the transformer."""

    dimension: int = 64
    "Width of the residual stream."
    layers: int = 2
    "Blocks."
    heads: int = 2
    "Attention heads. The dimension is a multiple of twice their number; vLLM wants 32 or more for each."
    path: str | None = None
    "Start from the model in this folder instead of from random weights."


class WarmStartTable(Strict):
    """[warm_start] of a toy run: phase 0, supervised on right answers up to a chosen pass rate."""

    pass_rate: float = 0.0
    "Target p0, measured on the evaluation problems; 0 for no warm start."
    max_steps: int = 2000
    "Supervised steps at most; not reaching the target is an error."
    look: int = 20
    "Supervised steps between two measurements; fewer stop nearer to the target and measure more often."
    batch: int = 128
    "Problems per supervised step."
    lr: float = 2e-3
    "Learning rate."


SECTIONS: dict[str, type[Strict] | None] = {
    "env": None,
    "objective": None,
    "schedule": ScheduleTable,
    "run": RunTable,
    "model": ModelTable,
    "warm_start": WarmStartTable,
}
ALWAYS = ("env", "objective", "schedule", "run")
TABLES = {"bandit": ALWAYS, "toy": (*ALWAYS, "model", "warm_start")}
POSITIVE = (
    "steps",
    "prompts",
    "group",
    "ministeps",
    "passes",
    "threads",
    "keep",
    "checkpoint_every",
    "max_steps",
    "batch",
    "dimension",
    "layers",
    "heads",
    "look",
)


class Spec(Strict):
    """A resolved run: what config.json holds.

    Attributes:
        tier: "bandit", "toy" or "llm".
        name: of the spec on the shelf, or the stem of its file.
        env, objective: tables for `envs.make` and `load_objective`.
        schedule, run, model, warm_start: see ScheduleTable and the others; the last two of a toy run only.
    """

    tier: str
    name: str
    env: dict[str, Any]
    objective: dict[str, Any]
    schedule: ScheduleTable = ScheduleTable()
    run: RunTable = RunTable()
    model: ModelTable | None = None
    warm_start: WarmStartTable | None = None

    @classmethod
    def read(cls, name: str, tier: str) -> "Spec":
        """The spec of that name or path."""
        path = shelf.find(name, tier)
        return cls.build(shelf.read(path), tier, path.stem, path)

    @classmethod
    def build(cls, tables: dict[str, Any], tier: str, name: str, origin: Path | str = "spec") -> "Spec":
        """A spec from plain tables, every key checked."""
        known = TABLES[tier]
        for section in tables:
            if section not in known:
                raise UsageError(f"{origin}: " + unknown("table", section, known))
        for section in ("env", "objective"):
            if section not in tables:
                raise UsageError(f"{origin} has no [{section}] table; expected one")
        return cls(
            tier=tier,
            name=name,
            env=tables["env"],
            objective=tables["objective"],
            schedule=check_table("schedule", ScheduleTable, tables.get("schedule", {})),
            run=check_table("run", RunTable, tables.get("run", {})),
            model=check_table("model", ModelTable, tables.get("model", {})) if "model" in known else None,
            warm_start=(
                check_table("warm_start", WarmStartTable, tables.get("warm_start", {}))
                if "warm_start" in known
                else None
            ),
        )

    def override(self, changes: dict[str, Any]) -> "Spec":
        """The spec with dotted keys replaced, say {"objective.tau": 0.1}. Values given as text are read as TOML."""
        tables = deepcopy(self.model_dump(include=set(TABLES[self.tier])))
        for key, value in changes.items():
            section, field = locate(key, tables)
            tables[section][field] = value
        return Spec.build(tables, self.tier, self.name)


def locate(key: str, tables: dict[str, Any]) -> tuple[str, str]:
    """Section and field of a dotted key; a bare key is looked up in every section."""
    section, _, field = key.partition(".")
    if field and section not in tables:
        raise UsageError(unknown("section", section, tables) + f", in option '{key}'")
    if field:
        model = SECTIONS[section]
        if model is not None and field not in model.model_fields:
            raise UsageError(unknown("option", key, (f"{section}.{name}" for name in model.model_fields)))
        return section, field
    known = {s: set(SECTIONS[s].model_fields if SECTIONS[s] else tables[s]) for s in tables}  # type: ignore[union-attr]
    homes = [s for s, fields in known.items() if key in fields]
    if "schedule" in homes:  # lr is a key of the warm start too; without a section it means the run's
        return "schedule", key
    if len(homes) != 1:
        raise UsageError(unknown("option", key, (f"{s}.{name}" for s, fields in known.items() for name in fields)))
    return homes[0], key


def check_table(section: str, model: type[Table], table: dict[str, Any]) -> Table:
    """A table of the right keys and types, with positive counts."""
    for key in table:
        if key not in model.model_fields:
            raise UsageError(
                unknown("option", f"{section}.{key}", (f"{section}.{name}" for name in model.model_fields))
            )
    try:
        values = model(**table)
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join([section, *map(str, first["loc"])])
        raise UsageError(f"{key} is {first['input']!r}; {first['msg'][0].lower() + first['msg'][1:]}") from None
    for name in POSITIVE:
        value = getattr(values, name, None)
        if value is not None and value < 1:
            raise UsageError(f"{section}.{name} is {value}; expected an integer >= 1")
    lr = getattr(values, "lr", 1.0)
    if not (math.isfinite(lr) and lr > 0):
        raise UsageError(f"{section}.lr is {lr}; expected a finite number > 0")
    rate = getattr(values, "pass_rate", 0.0)
    if not 0 <= rate < 1:
        raise UsageError(f"{section}.pass_rate is {rate}; expected a number from 0 (no warm start) to below 1")
    return values
