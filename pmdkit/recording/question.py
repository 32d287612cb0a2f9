"""Which objective a replay asks: the recorded one, that one with other options, or another; and in which order."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from pmdkit.errors import UsageError
from pmdkit.nearest import unknown
from pmdkit.objectives import Objective
from pmdkit.objectives.load import load_objective
from pmdkit.randomness import generator
from pmdkit.recording.format import Recording
from pmdkit.recording.gradient import Order


@dataclass(frozen=True)
class Question:
    """Attributes: objective and its name; the order of updates, and its name."""

    objective: Objective
    name: str
    order: Order
    order_name: str

    @property
    def table(self) -> dict[str, Any]:
        """The objective with all its options, as values that JSON can hold."""
        options = {field.name: getattr(self.objective, field.name) for field in fields(self.objective)}  # type: ignore[arg-type]
        plain = (str, int, float, bool, type(None))
        return {"name": self.name, **{k: v if isinstance(v, plain) else repr(v) for k, v in options.items()}}


def ask(
    recording: Recording,
    objective: str | None = None,
    options: Mapping[str, Any] | None = None,
    ministeps: int | None = None,
    order: str | int = "recorded",
) -> Question:
    """A question to a recorded step; what is not given is as recorded.

    Args:
        recording: of the step.
        objective: a name of OBJECTIVES or "my.py:MyLoss"; another one keeps the recorded tau if it has one.
        options: of the objective.
        ministeps: updates of the step.
        order: of the prompts: "recorded", "reversed", or a seed that shuffles them.

    Raises:
        UsageError: the recorded objective cannot be loaded again, an unknown option, or too many ministeps.
    """
    table = dict(recording.about["objective"])
    recorded = table.pop("name")
    name = objective or recorded
    if name == recorded:
        chosen = table | dict(options or {})
    else:
        known = {field.name for field in fields(load_objective(name))}  # type: ignore[arg-type]
        chosen = {key: table[key] for key in ("tau",) if key in table and key in known} | dict(options or {})
    try:
        loaded = load_objective(name, **chosen)
    except ValueError as problem:
        if objective is None and not options:
            raise UsageError(
                f"the recorded objective cannot be loaded again ({problem}); name one with --objective"
            ) from problem
        raise
    prompts = len(recording["mass"])
    count = recording.about["ministeps"] if ministeps is None else ministeps
    if not 1 <= count <= prompts:
        raise UsageError(
            f"ministeps is {count} for {prompts} prompts; expected 1 to {prompts}: each update needs its own prompt"
        )
    return Question(loaded, name, Order(count, prompts_in(order, prompts)), str(order))


def prompts_in(order: str | int, count: int) -> torch.Tensor:
    """[P] prompts in an order."""
    if order == "recorded":
        return torch.arange(count)
    if order == "reversed":
        return torch.arange(count).flip(0)
    if isinstance(order, int) or order.isdigit():
        return torch.from_numpy(generator(int(order), "order").permutation(count))
    raise UsageError(unknown("order", order, ("recorded", "reversed")) + ", or a seed such as 7 for a shuffle")
