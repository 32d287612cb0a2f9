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
    optimizer: Literal["adam", "sgd"] = "adam"
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


SECTIONS: dict[str, type[Strict] | None] = {"env": None, "objective": None, "schedule": ScheduleTable, "run": RunTable}
POSITIVE = ("steps", "prompts", "group", "ministeps", "passes", "threads", "keep", "checkpoint_every")


class Spec(Strict):
    """A resolved run: what config.json holds.

    Attributes:
        tier: "bandit", "toy" or "llm".
        name: of the spec on the shelf, or the stem of its file.
        env, objective: tables for `envs.make` and `load_objective`.
        schedule, run: see ScheduleTable and RunTable.
    """

    tier: str
    name: str
    env: dict[str, Any]
    objective: dict[str, Any]
    schedule: ScheduleTable = ScheduleTable()
    run: RunTable = RunTable()

    @classmethod
    def read(cls, name: str, tier: str) -> "Spec":
        """The spec of that name or path."""
        path = shelf.find(name, tier)
        return cls.build(shelf.read(path), tier, path.stem, path)

    @classmethod
    def build(cls, tables: dict[str, Any], tier: str, name: str, origin: Path | str = "spec") -> "Spec":
        """A spec from plain tables, every key checked."""
        for section in tables:
            if section not in SECTIONS:
                raise UsageError(f"{origin}: " + unknown("table", section, SECTIONS))
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
        )

    def override(self, changes: dict[str, Any]) -> "Spec":
        """The spec with dotted keys replaced, say {"objective.tau": 0.1}. Values given as text are read as TOML."""
        tables = deepcopy(self.model_dump(include=set(SECTIONS)))
        for key, value in changes.items():
            section, field = locate(key, tables)
            tables[section][field] = value
        return Spec.build(tables, self.tier, self.name)


def locate(key: str, tables: dict[str, Any]) -> tuple[str, str]:
    """Section and field of a dotted key; a bare key is looked up in every section."""
    section, _, field = key.partition(".")
    if field and section not in SECTIONS:
        raise UsageError(unknown("section", section, SECTIONS) + f", in option '{key}'")
    if field:
        model = SECTIONS[section]
        if model is not None and field not in model.model_fields:
            raise UsageError(unknown("option", key, (f"{section}.{name}" for name in model.model_fields)))
        return section, field
    known = {s: set(model.model_fields if model else tables[s]) for s, model in SECTIONS.items()}
    homes = [s for s, fields in known.items() if key in fields]
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
    return values
