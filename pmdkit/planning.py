"""From a spec on the shelf and some changes to a run that can start: every option explicit, learner and task built."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from pmdkit.errors import UsageError
from pmdkit.nearest import unknown
from pmdkit.objectives import Objective
from pmdkit.objectives.load import load_objective, objective_name
from pmdkit.objectives.temperature import TAUS
from pmdkit.observe.folder import RunFolder
from pmdkit.session import Setup
from pmdkit.spec import Spec
from pmdkit.tables.plain import short

BACKENDS = {"bandit": "pmdkit.bandit", "toy": "pmdkit.toy", "llm": "pmdkit.llm"}


def plan(tier: str, env: str, changes: Mapping[str, Any], given: Objective | None = None) -> tuple[Spec, Objective]:
    """The resolved spec of a new run, every option explicit, and its objective."""
    if tier not in BACKENDS:
        raise UsageError(unknown("backend", tier, BACKENDS))
    return complete(adopt(Spec.read(env, tier), changes, given).override(dict(changes)), given)


def adopt(spec: Spec, changes: Mapping[str, Any], given: Objective | None = None) -> Spec:
    """The spec with the objective of `changes`: another objective keeps the environment's tau, if it has one."""
    known = named(spec.objective)
    name = named({"name": changes.get("objective.name", known)})
    if name == known:
        return spec
    options = field_names(given or load_objective(name))
    kept = {key: value for key, value in spec.objective.items() if key == "tau" and key in options}
    return spec.model_copy(update={"objective": {"name": name, **kept}})


def complete(spec: Spec, given: Objective | None = None) -> tuple[Spec, Objective]:
    """The spec with the objective's defaults written out and the backend's choices made."""
    objective = given or objective_of(spec)
    table = describe(objective, named(spec.objective))
    spec = spec.model_copy(update={"objective": table})
    resolved: Spec = import_module(BACKENDS[spec.tier]).resolve(spec, objective)
    return resolved, objective


def build(spec: Spec, given: Objective | None = None) -> tuple[Objective, Setup]:
    """Objective and setup of a resolved spec."""
    objective = given or objective_of(spec)
    return objective, import_module(BACKENDS[spec.tier]).setup(spec, objective)


def objective_of(spec: Spec) -> Objective:
    """The objective of a spec; a misspelt option is answered with its dotted name."""
    name = named(spec.objective)
    options = {key: value for key, value in spec.objective.items() if key != "name"}
    known = ["name", *field_names(load_objective(name))]
    for key in options:
        if key not in known:
            raise UsageError(unknown("option", f"objective.{key}", (f"objective.{option}" for option in known)))
    return load_objective(name, **options)


def named(table: Mapping[str, Any]) -> str:
    """The name in an [objective] table."""
    name = table.get("name")
    if not isinstance(name, str):
        told = "not set" if name is None else short(name)
        raise UsageError(f"objective.name is {told}; expected one of pmdkit objectives, or your own as file.py:Class")
    return name


def field_names(objective: Objective) -> list[str]:
    """The options of an objective."""
    return [field.name for field in fields(objective)]  # type: ignore[arg-type]


def describe(objective: Objective, name: str | None = None) -> dict[str, Any]:
    """An objective as a table: its name and every field, temperature rules as {"rule": name, ...}."""
    table: dict[str, Any] = {"name": name or objective_name(objective)}
    for field in fields(objective):  # type: ignore[arg-type]
        value = getattr(objective, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            rules: dict[Any, str] = {factory: rule for rule, factory in TAUS.items()}
            table[field.name] = {
                "rule": rules.get(type(value), type(value).__name__),
                **{f.name: plain(getattr(value, f.name)) for f in fields(value)},
            }
        else:
            table[field.name] = plain(value)
    return table


def plain(value: Any) -> Any:
    """A value that JSON can hold and give back; a function is recorded by its name."""
    if isinstance(value, tuple):
        return list(value)
    return getattr(value, "__qualname__", repr(value)) if callable(value) else value


def stored_spec(folder: RunFolder) -> Spec:
    """The configuration that a run folder was started with."""
    try:
        return Spec(**folder.read_config())
    except (ValidationError, TypeError) as problem:
        raise UsageError(f"{folder.config} is not the configuration of a run; give another --out") from problem


def compare(old: Any, new: Any, key: str = "") -> list[tuple[str, Any, Any]]:
    """Dotted keys that differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys())
        return [d for k in keys for d in compare(old.get(k), new.get(k), f"{key}.{k}" if key else k)]
    return [] if old == new else [(key, old, new)]
