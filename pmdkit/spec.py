"""A run = a spec from the shelf + overrides. Hand-written TOML in, one resolved dictionary out; unknown keys stop here.

What the tables are and which keys they have: `pmdkit.tables`.
"""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import field_validator, model_validator

from pmdkit import shelf
from pmdkit.errors import UsageError
from pmdkit.nearest import nearest, unknown
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
from pmdkit.tables.plain import check_plain, short

NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")
LABEL = 100  # characters; file systems take 255 bytes


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
        cls.check_name(name)
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

    @field_validator("name")
    @classmethod
    def check_name(cls, name: str) -> str:
        """A name becomes a part of the names of folders; that of a run from elsewhere may be any."""
        if name in ("", ".", "..") or not NAME.fullmatch(name):
            raise UsageError(f"the name of a spec is {short(name)}; expected one without slashes or controls")
        return name

    @property
    def label(self) -> str:
        """Name and objective as the name of a folder: letters, digits and . _ - alone."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{self.name}-{self.objective['name']}")[:LABEL].rstrip(".-")

    def tables(self) -> dict[str, Any]:
        """The tables of the tier as plain values."""
        return self.model_dump(include=set(TABLES[self.tier]))

    def record(self) -> dict[str, Any]:
        """What config.json holds."""
        return {"tier": self.tier, "name": self.name, **self.tables()}

    def override(self, changes: dict[str, Any]) -> "Spec":
        """The spec with keys replaced, dotted or bare, say {"objective.tau": 0.1}; a key has one value."""
        tables = deepcopy(self.tables())
        seen: dict[tuple[str, str], tuple[str, Any]] = {}
        for key, value in changes.items():
            section, field = locate(key, tables, TABLES[self.tier])
            name, given = seen.setdefault((section, field), (key, value))
            if given is not value and given != value:  # nan is not even itself
                told = f"as {name} = {short(given)} and as {key} = {short(value)}"
                raise UsageError(f"{section}.{field} is given twice, {told}; leave one out")
            replace(tables[section], field, value, key)
        return Spec.build(tables, self.tier, self.name)


def replace(table: dict[str, Any], field: str, value: Any, key: str) -> None:
    """Set a field of a table in place; "tau.scale" is the option `scale` of the rule that `tau` names."""
    name, dot, option = field.partition(".")
    if not dot:
        table[name] = value
        return
    rule = table.get(name)
    if rule is None and name != "tau":  # a slip in a key: who knows all keys of the table says so
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
        if nearest(section, tables) is None:
            raise UsageError(unknown("option", key, options))
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
        raise UsageError(unknown("option", key, options))
    return homes[0], key
