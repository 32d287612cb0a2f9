"""A recipe's batch arithmetic in the words of another framework: `pmdkit plan RECIPE --as verl`.

Batch sizes, lengths, optimizer and engine are carried over. The objective is not: no key of theirs asks for it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pmdkit.errors import UsageError
from pmdkit.llm.planner import export_accelerate, export_trl, export_verl
from pmdkit.llm.planner.predict import Prediction
from pmdkit.llm.planner.words import Keys
from pmdkit.nearest import unknown
from pmdkit.spec import Spec


@dataclass(frozen=True)
class Framework:
    """How a framework is told.

    Attributes:
        write: its keys.
        versions: the release whose words these are.
    """

    write: Callable[[Spec, Prediction], Keys]
    version: str


FRAMEWORKS = {
    "accelerate": Framework(export_accelerate.keys, "accelerate 1.15"),
    "trl": Framework(export_trl.keys, "TRL 1.16 with transformers 5, GRPOConfig"),
    "verl": Framework(export_verl.keys, "verl 0.9, main_ppo"),
}


def export(name: str, spec: Spec, prediction: Prediction) -> Keys:
    """The keys of that framework, with what its batch-size words count."""
    if name not in FRAMEWORKS:
        raise UsageError("--as: " + unknown("framework", name, FRAMEWORKS))
    return FRAMEWORKS[name].write(spec, prediction)
