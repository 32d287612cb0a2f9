"""Engines, which generate responses: one protocol, one file or folder per engine, and your own as my.py:MyEngine.

An engine is a class that is called with an `EngineConfig`, or whose class method `from_config` is. Its module is
imported on demand.
"""

from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

from pmdkit.errors import UsageError, unknown
from pmdkit.options import check_options
from pmdkit.plugins import class_from_path, is_path
from pmdkit.specs import LLMSpec

ENGINES = {
    "transformers": "pmdkit.llm.engines.transformers:TransformersEngine",
    "vllm": "pmdkit.llm.engines.vllm.colocate:ColocatedEngine",
    "vllm-server": "pmdkit.llm.engines.vllm.server:ServerEngine",
}
"Module and class of each engine."


@dataclass(frozen=True)
class EngineTraits:
    """Facts about an engine, needed before one is made. All are optional; the defaults hold where it states none.

    State one as a class variable (`central: ClassVar[bool] = True`), or as a static method of the options where it
    depends on them.

    Attributes:
        central: it exists in the main process only, which controls servers for all processes.
        own_weights: it has weights of its own; False if it may generate with the trainer's.
        sleeps: it frees its memory while the trainer scores and updates.
        span: consecutive processes that form one engine, such as its tensor-parallel ranks.
        in_flight: it takes new weights between two tokens, and says which version drew each token.
    """

    central: bool = False
    own_weights: bool = True
    sleeps: bool = False
    span: int = 1
    in_flight: bool = False


def engine_class(name: str) -> Any:
    """The class of an engine, by a name that `engine_options` has accepted."""
    if is_path(name):
        return class_from_path(name)
    module, _, kind = ENGINES[name].partition(":")
    return getattr(import_module(module), kind)


def engine_options(spec: LLMSpec) -> Any:
    """The options of a recipe's engine: [vllm], or [engine.options] as the dataclass `Options` of your class.

    A class without `Options` gets the table as it is. An unknown engine or option is a UsageError with near names.
    """
    name, given = spec.rollout.engine, spec.engine.options
    if not is_path(name):
        if name not in ENGINES:
            raise UsageError(unknown("rollout.engine", name, ENGINES) + ", or your own as my.py:MyEngine")
        if given:
            raise UsageError(f"engine.options is set for rollout.engine '{name}'; its options are in [vllm], [rollout]")
        return spec.vllm
    options = getattr(engine_class(name), "Options", dict)
    if options is not dict:
        check_options(name, options, given, "engine.options.")
    return options(**given)


def engine_traits(spec: LLMSpec) -> EngineTraits:
    """The traits of a recipe's engine: what its class states, and the defaults for the rest."""
    options, kind = engine_options(spec), engine_class(spec.rollout.engine)
    stated = {field.name: getattr(kind, field.name) for field in fields(EngineTraits) if hasattr(kind, field.name)}
    return EngineTraits(**{name: value(options) if callable(value) else value for name, value in stated.items()})


def check_engine(spec: LLMSpec) -> None:
    """Raise, before a model is loaded, if an engine cannot run: its class may have a static method `check(options)`."""
    options, kind = engine_options(spec), engine_class(spec.rollout.engine)
    if hasattr(kind, "check"):
        kind.check(options)
