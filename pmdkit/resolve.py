"""Turn a spec and changes into a run that can start: all options explicit, the objective, and the tier's backend."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from pmdkit import untrusted
from pmdkit.errors import UsageError, short, unknown
from pmdkit.fit import Backend
from pmdkit.objectives import TAUS, Objective, load_objective, objective_name, regulariser
from pmdkit.observe import input_digests
from pmdkit.observe.run_folder import RunFolder
from pmdkit.optimizer import check_optimizer
from pmdkit.plugins import NOTHING, Trust, Trusted, code_files, code_inputs
from pmdkit.specs import SPECS, LLMSpec, Spec, from_record

AnySpec = TypeVar("AnySpec", bound=Spec)
BACKENDS = {"bandit": "pmdkit.bandit", "toy": "pmdkit.toy", "llm": "pmdkit.llm"}


@overload
def resolve(
    tier: Literal["llm"], env: str, changes: Mapping[str, Any], trust: Trust = ()
) -> tuple[LLMSpec, Objective]: ...


@overload
def resolve(tier: str, env: str, changes: Mapping[str, Any], trust: Trust = ()) -> tuple[Spec, Objective]: ...


def resolve(tier: str, env: str, changes: Mapping[str, Any], trust: Trust = ()) -> tuple[Spec, Objective]:
    """The spec of a new run, every option explicit, and its objective.

    Args:
        tier: "bandit", "toy" or "llm".
        env: name of a spec on the tier's shelf, or the path of a .toml file.
        changes: dotted keys and their values, as the user gave them: code that they name may run.
        trust: files whose code may run if the spec names them.
    """
    return resolve_spec(read_spec(tier, env, Trusted.of(trust, changes)), changes)


def read_spec(tier: str, env: str, trusted: Trusted) -> Spec:
    """Read a spec by name from a tier's shelf, or by path, without resolving it."""
    if tier not in SPECS:
        raise UsageError(unknown("backend", tier, SPECS))
    return SPECS[tier].read(env, trusted)


def with_objective(spec: AnySpec, changes: Mapping[str, Any], given: Objective | None = None) -> AnySpec:
    """Apply the objective in `changes`; a different objective keeps the environment's tau if it has that option."""
    known = named(spec.objective)
    name = named({"name": changes.get("objective.name", known)})
    if name == known:
        return spec
    takes_tau = "tau" in describe(given or load_objective(name))
    kept = {key: value for key, value in spec.objective.items() if key == "tau" and takes_tau}
    return spec.model_copy(update={"objective": {"name": name, **kept}})


def resolve_spec(
    spec: AnySpec, changes: Mapping[str, Any], given: Objective | None = None
) -> tuple[AnySpec, Objective]:
    """Apply the changes, then write out the objective's defaults and the backend's choices."""
    spec = with_objective(spec, changes, given).override(dict(changes))
    objective = given or objective_of(spec)
    spec = spec.model_copy(update={"objective": describe(objective, spec.objective)})
    check_optimizer(spec.schedule.optimizer)
    resolved: AnySpec = import_module(BACKENDS[spec.tier]).resolve_config(spec, objective)
    return resolved, objective


def build(spec: Spec, given: Objective | None = None) -> tuple[Objective, Backend]:
    """The objective, which is `given` or the spec's, and the backend of a resolved spec."""
    objective = given or objective_of(spec)
    return objective, import_module(BACKENDS[spec.tier]).make_backend(spec, objective)


def objective_of(spec: Spec) -> Objective:
    """The objective of a spec; the error for a misspelt option gives its dotted name."""
    name = named(spec.objective)
    options = {key: value for key, value in spec.objective.items() if key != "name"}
    known = dict.fromkeys(["name", *describe(load_objective(name)), *regulariser.OPTIONS])
    for key in options:
        if key not in known:
            raise UsageError(unknown("option", f"objective.{key}", (f"objective.{option}" for option in known)))
    return load_objective(name, **options)


def named(table: Mapping[str, Any]) -> str:
    """The objective's name in an [objective] table."""
    name = table.get("name")
    if not isinstance(name, str):
        got = "not set" if name is None else short(name)
        raise UsageError(f"objective.name is {got}; expected one of pmdkit objectives, or your own as file.py:Class")
    return name


def describe(objective: Objective, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An objective as a table: its name and every field, temperature rules as {"rule": name, ...}.

    The names of a user's own class and rule are those in `given`, the table that the objective was built from.
    """
    given = given or {}
    table: dict[str, Any] = {"name": named(given) if given else objective_name(objective)}
    for field in fields(objective):  # type: ignore[arg-type]
        value = getattr(objective, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            rule = given.get(field.name)
            own = rule.get("rule") if isinstance(rule, Mapping) else rule
            ours = next((name for name, factory in TAUS.items() if factory is type(value)), type(value).__name__)
            table[field.name] = {
                "rule": own if isinstance(own, str) else ours,
                **{f.name: plain(getattr(value, f.name)) for f in fields(value)},
            }
        else:
            table[field.name] = plain(value)
    return table


def plain(value: Any) -> Any:
    """A value that survives a round trip through JSON; a function is recorded by its name."""
    if isinstance(value, tuple):
        return list(value)
    return getattr(value, "__qualname__", repr(value)) if callable(value) else value


@dataclass(frozen=True)
class StoredRun:
    """A run on disk, read once: its folder, and the configuration that it was started with."""

    folder: RunFolder
    spec: Spec


def read_run(path: Path, trusted: Trusted = NOTHING, accept_changes: bool = False) -> StoredRun | None:
    """The run in a folder; None if the folder holds none, but perhaps a model.

    Code that it names runs only if the user names it too (else a UsageError), and only if it is unchanged (else
    ResumeRefused) or `accept_changes` says so; `fit` records the change.
    """
    folder = RunFolder(path)
    advice = "give the folder of a run or of a model"
    config = untrusted.read_json(folder.config, untrusted.LARGE, advice, numbers=False) if folder.started else None
    if not isinstance(config, dict) or "tier" not in config:
        return None
    try:
        untrusted.check_values(config, numbers=True)  # a model's configuration may have Infinity
        spec = from_record(config, trusted)
    except UsageError:
        raise
    except (ValueError, TypeError) as problem:
        raise UsageError(f"{folder.config} is not the configuration of a run; give another --out") from problem
    if not accept_changes and any(code_files(spec.record())):
        input_digests.refuse_changes(folder, input_digests.read_inputs(folder)["digests"], code_inputs(spec.record()))
    return StoredRun(folder, spec)
