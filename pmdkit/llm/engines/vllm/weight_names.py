"""Weights as vLLM takes them: by the names that files have, of the shapes that the configuration gives, all finite.

transformers holds the experts of a layer as one tensor, files and vLLM one by one: its own rules for saving are applied
to one layer at a time, so that no second copy of a model is held. vLLM itself drops a missing or misnamed tensor
without a word, which is why everything is compared here, in trainer and engine. A tied head is sent under both of its
names: on a CPU vLLM packs it apart from the embedding, and it would keep its old weights in silence.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from pmdkit.errors import Diverged, UsageError
from pmdkit.llm.weights import named_weights

Shapes = dict[str, tuple[int, ...]]


class WeightNames:
    """The weights of an architecture.

    Args:
        config: of a causal language model.

    Attributes:
        architecture: the name of its class in transformers.
        model_shapes: names in the model to shapes; a tied head stands once.
        aliases: further names of tied weights to the one they stand under.
        file_shapes: names in files to shapes, aliases included.
    """

    def __init__(self, config: PretrainedConfig) -> None:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            self.skeleton = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        self.architecture = type(self.skeleton).__name__
        whole = named_weights(self.skeleton)
        self.model_shapes: Shapes = {name: tuple(tensor.shape) for name, tensor in whole.items()}
        same = {id(tensor): name for name, tensor in self.skeleton.state_dict(keep_vars=True).items() if name in whole}
        self.aliases = {
            name: same[id(tensor)]
            for name, tensor in self.skeleton.state_dict(keep_vars=True).items()
            if name not in whole
        }
        self.file_shapes: Shapes = {name: tuple(tensor.shape) for name, tensor in self.to_file_names(whole.items())}

    def check(self, names: Iterable[str]) -> None:
        """Refuse weights that are not those of the model, one for one; tied ones may have any of their names."""
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
        """Names in files and tensors, one layer at a time; a tensor is looked at once, since that may put it together.

        Raises:
            UsageError: a name is missing or unknown (before the first tensor), or a shape is another one.
            Diverged: a weight is not finite.
        """
        self.check(weights)
        for name, tensor in self.to_file_names(self.checked(weights)):
            yield name, tensor if dtype is None else tensor.to(dtype)

    def checked(self, weights: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
        """Each weight once, checked, by its own name."""
        for name in weights:
            target = self.aliases.get(name, name)
            if target != name and target in weights:
                continue
            tensor = weights[name].detach()
            if tuple(tensor.shape) != self.model_shapes[target]:
                raise UsageError(f"{name} has shape {list(tensor.shape)}; expected {list(self.model_shapes[target])}")
            if not bool(torch.isfinite(torch.linalg.vector_norm(tensor.float(), torch.inf))):
                raise Diverged(f"{name} has entries that are not finite; the engine keeps its older weights: lower lr")
            yield target, tensor

    def to_file_names(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """The same under the names in files, by the rules with which transformers saves."""
        from transformers.core_model_loading import revert_weight_conversion

        for _, some in groupby(weights, key=lambda pair: layer(pair[0])):
            together = dict(some)
            together |= {alias: together[own] for alias, own in self.aliases.items() if own in together}
            yield from revert_weight_conversion(self.skeleton, together).items()


def layer(name: str) -> str:
    """Everything up to the first number: `model.layers.3.mlp.experts.down_proj` is of `model.layers.3`."""
    parts = name.split(".")
    number = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return "" if number is None else ".".join(parts[: number + 1])
