"""Models that are trained elsewhere: backends of other packages, found through the entry points `pmdkit.backends`."""

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

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


class Elsewhere(Protocol):
    """What an entry point names, such as a module with these functions. `name` is a value of model.backend."""

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


def find(name: str) -> Elsewhere:
    """The backend that model.backend names.

    Raises:
        EnvironmentLacks: no installed package has one.
        UsageError: an installed package has others.
    """
    found = {point.name: point for point in entry_points(group="pmdkit.backends")}
    if name in found:
        backend: Elsewhere = found[name].load()
        return backend
    if found:
        raise UsageError(unknown("model.backend", name, [HERE, *found]))
    package = "pmdkit-adapters"
    raise EnvironmentLacks(
        f"model.backend is '{name}', and no installed package has such a backend; {package} has one: {install(package)}"
    )
