"""Backends and models of other packages, found through the entry points `pmdkit.backends` and `pmdkit.models`."""

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from pmdkit.errors import EnvironmentLacks, UsageError, unknown
from pmdkit.extras import install
from pmdkit.specs import LLMSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from pmdkit.envs.math.problem import MathProblems
    from pmdkit.fit import Backend
    from pmdkit.llm.prompts import Encoder
    from pmdkit.objectives import Objective

HERE = "transformers"
"The backend of a model on this machine."


class RemoteBackend(Protocol):
    """A backend whose model is trained on a server: a module with these functions, named by its entry point."""

    def resolve(self, spec: LLMSpec) -> LLMSpec:
        """The spec with the backend's defaults; refuses what it cannot do, before anything is paid for."""

    def costs(self, spec: LLMSpec, prompt: float) -> dict[str, int]:
        """What a run costs at most, for a dry run, with prompts of `prompt` tokens on average."""

    def make(
        self,
        spec: LLMSpec,
        objective: "Objective",
        model: "PreTrainedModel",
        encoder: "Encoder",
        problems: "MathProblems",
    ) -> "Backend":
        """Everything that a run needs; `model` has no weights."""


def find_backend(name: str) -> RemoteBackend:
    """The backend that model.backend names; raises as `load_entry_point`."""
    backend: RemoteBackend = load_entry_point("backend", name, [HERE])
    return backend


def find_model(name: str) -> Any:
    """The module that loads the model that model.build names; raises as `load_entry_point`."""
    return load_entry_point("model", name, [])


def load_entry_point(kind: str, name: str, here: list[str]) -> Any:
    """Load a backend or a model by its name; `here` are the names that pmdkit itself has.

    Raises:
        EnvironmentLacks: no installed package has a backend or model of its own.
        UsageError: installed packages have others.
    """
    points = {point.name: point for point in entry_points(group=f"pmdkit.{kind}s")}
    if name in points:
        return points[name].load()
    if points:
        raise UsageError(unknown(kind, name, [*here, *points]))
    package = "pmdkit-adapters"
    raise EnvironmentLacks(f"no installed package has the {kind} '{name}'; {package} has one: {install(package)}")
