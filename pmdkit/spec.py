"""A run = a spec from the shelf + overrides. Hand-written TOML in, one resolved dictionary out; unknown keys stop here.

What the tables are and which keys they have: `pmdkit.tables`.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import model_validator

from pmdkit import shelf
from pmdkit.errors import UsageError
from pmdkit.nearest import unknown
from pmdkit.tables import (
    TABLES,
    EvaluationTable,
    LanguageModelTable,
    LoraTable,
    ModelTable,
    ParallelTable,
    RewardTable,
    RolloutTable,
    RunTable,
    ScheduleTable,
    Strict,
    Tables,
    UpdateTable,
    VLLMTable,
    WarmStartTable,
)
from pmdkit.tables.check import check_table


class Spec(Strict):
    """A resolved run: what config.json holds.

    Attributes:
        tier: "bandit", "toy" or "llm".
        name: of the spec on the shelf, or the stem of its file.
        env, objective: tables for `envs` and `load_objective`.
        schedule, run and the rest: see `pmdkit.tables`; None where the tier has no such table.
    """

    tier: str
    name: str
    env: dict[str, Any]
    objective: dict[str, Any]
    schedule: ScheduleTable = ScheduleTable()
    run: RunTable = RunTable()
    model: ModelTable | LanguageModelTable | None = None
    warm_start: WarmStartTable | None = None
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
        """A table that the tier has and the values lack, as those of an older run folder may, is one of defaults."""
        known = TABLES.get(values.get("tier", ""), {})
        return {section: table() for section, table in known.items() if table is not None} | values

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
        checked: dict[str, Any] = {
            section: tables[section] if model is None else check_table(section, model, tables.get(section, {}))
            for section, model in known.items()
        }
        return cls(tier=tier, name=name, **checked)

    def tables(self) -> dict[str, Any]:
        """The tables of the tier as plain values."""
        return self.model_dump(include=set(TABLES[self.tier]))

    def record(self) -> dict[str, Any]:
        """What config.json holds."""
        return {"tier": self.tier, "name": self.name, **self.tables()}

    def override(self, changes: dict[str, Any]) -> "Spec":
        """The spec with dotted keys replaced, say {"objective.tau": 0.1}. Values given as text are read as TOML."""
        tables = deepcopy(self.tables())
        for key, value in changes.items():
            section, field = locate(key, tables, TABLES[self.tier])
            replace(tables[section], field, value, key)
        return Spec.build(tables, self.tier, self.name)


def replace(table: dict[str, Any], field: str, value: Any, key: str) -> None:
    """Set a field of a table in place; "tau.scale" is the option `scale` of the rule that `tau` names."""
    name, dot, option = field.partition(".")
    if not dot:
        table[name] = value
        return
    rule = table.get(name)
    if not isinstance(rule, str | dict):
        given = "not set" if rule is None else f"{rule}, a value without options"
        raise UsageError(f"option '{key}': {name} is {given}; expected the name of a rule, such as --tau pass-rate")
    table[name] = {**({"rule": rule} if isinstance(rule, str) else rule), option: value}


def locate(key: str, tables: dict[str, Any], known: Tables) -> tuple[str, str]:
    """Section and field of a dotted key; a bare key is looked up in every section."""
    section, _, field = key.partition(".")
    if field and section not in tables:
        raise UsageError(unknown("section", section, tables) + f", in option '{key}'")
    if field:
        model = known[section]
        if model is not None and field not in model.model_fields:
            raise UsageError(unknown("option", key, (f"{section}.{name}" for name in model.model_fields)))
        return section, field
    fields = {s: set(model.model_fields if model else tables[s]) for s, model in known.items()}
    homes = [s for s, names in fields.items() if key in names]
    for section in ("schedule", "run"):  # lr is a key of the warm start too, seed one of many problems
        if section in homes:
            return section, key
    if len(homes) != 1:
        raise UsageError(unknown("option", key, (f"{s}.{name}" for s, names in fields.items() for name in names)))
    return homes[0], key
