"""The common part of the specs of all tiers: the tables [env], [objective], [schedule] and [run], and overriding.

A run is a spec from the shelf plus overrides: hand-written TOML in, one resolved dictionary out. The keys of [env] and
[objective] are checked by those who build from them, every other key is checked here.
"""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator

from pmdkit.errors import UsageError, short, unknown
from pmdkit.plugins import NOTHING, Trusted
from pmdkit.specs import find
from pmdkit.specs.table import Count, Positive, Strict, check_plain, check_table

NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")
LABEL = 100  # most characters of a label; file systems take 255 bytes
Tables = dict[str, type[Strict] | None]
SHORT = {
    "objective": "objective.name",
    "tau": "objective.tau",
    "norm": "objective.norm",
    "steps": "schedule.steps",
    "prompts": "schedule.prompts",
    "group": "schedule.group",
    "ministeps": "schedule.ministeps",
    "passes": "schedule.passes",
    "lr": "schedule.lr",
    "seed": "run.seed",
}
"Keys that the command line, sweeps and comparisons know by a short name."


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
    optimizer: str = "adam"
    "Optimizer of gradient updates: adam, adamw, sgd, muon, or your own as my.py:MyOptimizer."
    update: Literal["auto", "exact", "regression", "gradient"] = "auto"
    "exact: the population solution in closed form. regression: Newton on the full expectation. gradient: optimizer."
    passes: Count = 1
    "Optimizer steps on each ministep; many passes on the full support show where gradient descent fails."

    def check_batch(self, prompts: int, needs_peers: bool, full_support: bool = False) -> None:
        """Refuse a ministep without a prompt, and a group without peers for a baseline that needs them."""
        if self.ministeps > prompts:
            got = f"schedule.ministeps is {self.ministeps} for {prompts} prompts per step"
            raise UsageError(f"{got}; each ministep needs a prompt of its own: raise --prompts")
        if self.group == 1 and needs_peers:
            remedy = "raise --group" + (", or leave it out to use the full support" if full_support else "")
            raise UsageError(f"schedule.group is 1 with a leave-one-out baseline; expected at least 2: {remedy}")


MOST_THREADS = 1024  # more only on a larger machine; libraries crash where the system gives no more


class RunTable(Strict):
    """[run]: options that do not change the mathematics."""

    seed: int = 0
    "Seed of every draw."
    threads: int = Field(default=1, ge=1, le=MOST_THREADS)
    "CPU threads, at most one for each core; fixed so that a resumed run ends with the same bits."
    keep: Count = 2
    "Checkpoints to keep."
    checkpoint_every: Count = 1
    "Steps between checkpoints; the last step always writes one."
    record: int = Field(default=0, ge=0)
    "Keep every k-th step in rollouts/step-N.safetensors for `pmdkit replay`; 0 for never."
    max_time: Positive | None = None
    "Time limit, seconds: the run stops after a whole step, in time to save it, as on request (exit 75)."
    callbacks: list[str] = Field(default_factory=list)
    "Your own callbacks as my.py:MyCallback, subclasses of pmdkit.fit.TrainerCallback."
    report_to: list[Literal["tensorboard", "wandb", "trackio"]] = Field(default_factory=list)
    "Trackers that also receive the metrics; metrics.jsonl is always written."


class Spec(Strict):
    """A run with every option explicit, as in config.json. Each tier has a subclass with its own tables.

    Attributes:
        tier: "bandit", "toy" or "llm".
        name: of the spec on the shelf, or the stem of its file.
        env, objective: tables for `envs` and `load_objective`.
        schedule, run: see there.
    """

    tier: str
    name: str
    env: dict[str, Any]
    objective: dict[str, Any]
    schedule: ScheduleTable = ScheduleTable()
    run: RunTable = RunTable()

    @classmethod
    def known_tables(cls) -> Tables:
        """The tables of the tier in the order of config.json; None for those whose keys are checked elsewhere."""
        fields = {name: field.annotation for name, field in cls.model_fields.items() if name not in ("tier", "name")}
        return {
            name: kind if isinstance(kind, type) and issubclass(kind, Strict) else None for name, kind in fields.items()
        }

    @classmethod
    def read(cls, name: str, trusted: Trusted = NOTHING) -> Self:
        """The spec with this name on the tier's shelf, or at this path; code that it names must be trusted."""
        path = find.spec_file(name, cls.model_fields["tier"].default)
        tables = find.read(path)
        trusted.require(tables)
        return cls.build(tables, path.stem, path)

    @classmethod
    def build(cls, tables: dict[str, Any], name: str, origin: Path | str = "spec") -> Self:
        """A spec from plain tables, every key checked."""
        known = cls.known_tables()
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
        return cls(name=name, **checked)

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

    @property
    def staleness(self) -> int:
        """Optimizer steps between the policy that wrote a response and the last one fitted to it."""
        return self.schedule.ministeps * self.schedule.passes - 1

    def tables(self) -> dict[str, Any]:
        """The tables of the tier as plain values."""
        return self.model_dump(exclude={"tier", "name"})

    def record(self) -> dict[str, Any]:
        """The contents of config.json."""
        return {"tier": self.tier, "name": self.name, **self.tables()}

    def override(self, changes: dict[str, Any]) -> Self:
        """The spec with keys replaced, dotted or bare, say {"objective.tau": 0.1}; no key may get two values."""
        tables = deepcopy(self.tables())
        seen: dict[tuple[str, str], tuple[str, Any]] = {}
        for key, value in changes.items():
            section, field = locate(key, tables, self.known_tables())
            name, given = seen.setdefault((section, field), (key, value))
            if given is not value and given != value:  # NaN does not equal itself
                told = f"as {name} = {short(given)} and as {key} = {short(value)}"
                raise UsageError(f"{section}.{field} is given twice, {told}; leave one out")
            table, (name, dot, option) = tables[section], field.partition(".")
            rule = table.get(name)
            if not dot:
                table[name] = value
            elif rule is None and name != "tau":
                table[field] = value  # a misspelt key: the check that knows all keys of the table reports it
            elif isinstance(rule, str | dict):  # "tau.scale" is the option `scale` of the rule that `tau` names
                table[name] = {**({"rule": rule} if isinstance(rule, str) else rule), option: value}
            else:
                got = "not set" if rule is None else f"{rule}, a value without options"
                wanted = "the name of a rule, such as --tau pass-rate"
                raise UsageError(f"option '{key}': {name} is {got}; expected {wanted}")
        return self.build(tables, self.name)


class BanditSpec(Spec):
    """A run of tier 1, which needs no further tables: logits, or logits linear in features, on a contextual bandit."""

    tier: Literal["bandit"] = "bandit"


def locate(key: str, tables: dict[str, Any], known: Tables) -> tuple[str, str]:
    """Section and field of a dotted key; a bare key is looked up in every section."""
    section, _, field = key.partition(".")
    fields = {s: list(model.model_fields if model else tables[s]) for s, model in known.items()}
    options = [f"{s}.{name}" for s, names in fields.items() for name in names]
    if field:
        # the keys of [env] and [objective] are checked by those who build from them
        if section in tables and (known[section] is None or field in fields[section]):
            return section, field
        near = [option for option in options if option.startswith(f"{section}.")]
        raise UsageError(unknown("option", key, near or options))
    homes = [s for s, names in fields.items() if key in names]
    for section in ("schedule", "run"):  # lr is also a key of the warm start, and seed one of many environments
        if section in homes:
            return section, key
    if len(homes) != 1:
        raise UsageError(unknown("option", key, options))
    return homes[0], key
