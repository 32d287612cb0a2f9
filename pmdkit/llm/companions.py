"""Parts of a run that other packages have: backends, models, and episodes with an environment.

They are found through the entry points `pmdkit.backends`, `pmdkit.models` and `pmdkit.rollouts`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pmdkit.extras import load_entry_point
from pmdkit.specs import LLMSpec

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor
    from transformers import PreTrainedModel

    from pmdkit.envs.math.problem import MathProblems, Problem
    from pmdkit.fit import Backend, TrainerCallback
    from pmdkit.llm.engines.base import Engine, Responses
    from pmdkit.llm.engines.distributed import GenerateRequest
    from pmdkit.llm.prompts import Encoder
    from pmdkit.loop import Episode
    from pmdkit.objectives import Objective

HERE = "transformers"
"The backend of a model on this machine."


class RemoteBackend(Protocol):
    """A backend whose model is trained on a server: a module with these functions, which an entry point names."""

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


class EpisodePlayer(Protocol):
    """Plays episodes in which an environment and the policy take turns, instead of drawing single responses.

    Attributes:
        callbacks: of a run with such episodes.
    """

    callbacks: "Sequence[TrainerCallback]"

    def generate(
        self, engine: "Engine", prompts: "Tensor", request: "GenerateRequest"
    ) -> "tuple[Responses, list[Episode]]":
        """Play episodes of the problems with these numbers: N rows and the episode of each, prompt-major."""

    def play(
        self, engine: "Engine", problems: "Sequence[Problem]", request: "GenerateRequest"
    ) -> "tuple[Responses, list[Episode]]":
        """Like `generate`, of the problems themselves."""

    def examples(
        self, problems: "Sequence[Problem]", pass_rate: float, end: int, rng: "np.random.Generator"
    ) -> tuple[list[list[int]], list[list[bool]]]:
        """Tokens after the prompt, and their masks, of an episode for each problem, played by a teacher.

        The teacher passes somewhat more often than `pass_rate`, which the pupil should reach.
        """


def find_turns() -> Any:
    """The module that plays episodes, with the functions check(spec) and make(...); raises as `load_entry_point`."""
    return load_entry_point("rollout", "several-turns")
