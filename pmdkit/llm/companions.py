"""Backends and models of other packages, found through the entry points `pmdkit.backends` and `pmdkit.models`."""

from typing import TYPE_CHECKING, Any, Protocol

from pmdkit.extras import load_entry_point
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
    return load_entry_point("model", name)
