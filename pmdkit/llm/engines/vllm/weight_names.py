"""The names of a model's weights in files, which are also vLLM's.

transformers holds the experts of a layer as one tensor, files and vLLM one by one: transformers' own rules for saving
are applied to one layer at a time, so that no second copy of a model is held. vLLM silently ignores a missing or
misnamed tensor, which is why names and shapes are compared here. A tied head is sent under both of its names: on a CPU
vLLM packs it separately from the embedding, and it would silently keep its old weights.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from pmdkit.errors import Diverged, UsageError
from pmdkit.llm.weights import named_weights

Shapes = dict[str, tuple[int, ...]]


class WeightNames:
    """The names and shapes of an architecture's weights.

    Attributes:
        architecture: the name of its class in transformers.
        model_shapes: shapes by name in the model; a tied head appears once.
        aliases: maps further names of tied weights to the one in `model_shapes`.
    """

    def __init__(self, config: PretrainedConfig) -> None:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            self.skeleton = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        self.architecture = type(self.skeleton).__name__
        whole = named_weights(self.skeleton)
        self.model_shapes: Shapes = {name: tuple(tensor.shape) for name, tensor in whole.items()}
        state = self.skeleton.state_dict(keep_vars=True)
        same = {id(tensor): name for name, tensor in state.items() if name in whole}
        self.aliases = {name: same[id(tensor)] for name, tensor in state.items() if name not in whole}

    def check(self, names: Iterable[str]) -> None:
        """Refuse names that do not match those of the model one to one; tied weights may have any of their names."""
        given = set(names)
        unknown = sorted(given - set(self.model_shapes) - set(self.aliases))
        other = {own for alias, own in self.aliases.items() if alias in given}
        missing = sorted(set(self.model_shapes) - given - other)
        if unknown or missing:
            raise UsageError(
                f"published weights lack {missing[:3]} and have unknown {unknown[:3]}; expected the names of a "
                f"{self.architecture}, {len(self.model_shapes)} of them"
            )

    def stream(
        self, weights: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Names in files and tensors, one layer at a time; a tensor is accessed once, since access may gather it.

        Raises:
            UsageError: a name is missing or unknown (at once), or a shape is wrong (as the tensor is reached).
            Diverged: a weight is not finite (after the last one).
        """
        self.check(weights)
        return self.to_file_names(self.checked(weights, dtype))

    def checked(
        self, weights: Mapping[str, torch.Tensor], dtype: torch.dtype | None
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Each weight once, by its own name. Raises as `stream`: Diverged at the end, since a check waits for a GPU."""
        largest: dict[str, torch.Tensor] = {}
        for name in weights:
            target = self.aliases.get(name, name)
            if target != name and target in weights:
                continue
            tensor = weights[name].detach()
            if tuple(tensor.shape) != self.model_shapes[target]:
                raise UsageError(f"{name} has shape {list(tensor.shape)}; expected {list(self.model_shapes[target])}")
            if dtype is not None:
                tensor = tensor.to(dtype)
            largest[name] = torch.linalg.vector_norm(tensor, torch.inf).float()  # NaN if there is one
            yield target, tensor
        if not bool(torch.isfinite(torch.stack(list(largest.values()))).all()):
            name = next(name for name, value in largest.items() if not bool(torch.isfinite(value)))
            raise Diverged(f"{name} has entries that are not finite, and is not published: lower lr")

    def to_file_names(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Rename the weights as in files, by transformers' rules for saving."""
        from transformers.core_model_loading import revert_weight_conversion

        def converted(some: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
            """One layer; nothing here outlives it, so that it is freed before the next one is gathered."""
            together = dict(some)
            together |= {alias: together[own] for alias, own in self.aliases.items() if own in together}
            return revert_weight_conversion(self.skeleton, together)

        for _, some in groupby(weights, key=lambda pair: layer(pair[0])):
            yield from converted(some).items()


def layer(name: str) -> str:
    """Everything up to the first number: `model.layers.3.mlp.experts.down_proj` belongs to `model.layers.3`."""
    parts = name.split(".")
    number = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return "" if number is None else ".".join(parts[: number + 1])
