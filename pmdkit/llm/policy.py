"""The policy that is trained: a causal language model, its reference, and their log-probabilities over all processes.

Which rows share a forward pass, and in which process, is decided here; `logprobs.py` scores one forward pass.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pmdkit.llm import packing, precision, weights
from pmdkit.llm.logprobs import response_logp, scored_places, scored_tokens
from pmdkit.llm.micro_batches import shard_by_tokens
from pmdkit.llm.tokens import Tokens
from pmdkit.process_group import SINGLE, ProcessGroup


class CausalPolicy:
    """A causal language model of transformers, scored in packed forward passes.

    Args:
        model: trained in place, float32; switched to packed attention here, permanently.
        process_group: the processes that share the work. All of them call the same methods with the same arguments,
            and get the same results.
        token_budget: most tokens of one forward pass.
        bfloat16: forward and backward passes in bfloat16, see precision.py; weights stay float32.
        reference: keep a reference policy: a copy of the model or, if it has adapters, the model without them.

    Attributes:
        root: the module at which forward passes of the model begin.
        reference_root: where those of the reference policy begin; None without one.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        process_group: ProcessGroup = SINGLE,
        token_budget: int = 16_384,
        bfloat16: bool = False,
        reference: bool = False,
    ) -> None:
        packing.use_packing(model)  # its engine may have switched only a copy
        self.model = model
        self.process_group = process_group
        self.token_budget = token_budget
        self.adapters = hasattr(model, "peft_config")
        # the copy comes before the model is sharded
        self.reference = deepcopy(model).requires_grad_(False) if reference and not self.adapters else None
        self.bfloat16 = bfloat16
        dtype, sharded = torch.bfloat16 if bfloat16 else torch.float32, process_group.strategy == "fsdp2"
        self.root = process_group.wrap(ForwardRoot(model, dtype, sharded))
        self.reference_root: nn.Module | None = self.root if reference else None
        if self.reference is not None:
            self.reference_root = process_group.wrap(ForwardRoot(self.reference, dtype, sharded))

    def logp(
        self,
        prompts: Sequence[Tokens],
        responses: Sequence[Tensor],
        size: int,
        mask: Tensor,
        temperature: float = 1.0,
        root: nn.Module | None = None,
    ) -> Tensor:
        """[N, T] log-probabilities of N responses, `size` to a prompt, with gradient unless it is disabled.

        `mask` [N, T] says which tokens are the policy's. Its logits are the model's, divided by the temperature. `root`
        is that of another model than the policy's. In the precision of the head, float32 or wider; 0 off the mask.
        """
        # A gather has no gradient: with gradients enabled, each process scores all rows.
        group, root = SINGLE if torch.is_grad_enabled() else self.process_group, root or self.root
        plans = shard_by_tokens(group, prompts, responses, size, self.token_budget, whole_groups=False)
        with precision.cast_once(root):
            mine = [self.logp_of_rows(root, prompts, responses, rows, mask, temperature) for rows in plans[group.rank]]
        if not torch.is_grad_enabled() and (reshard := getattr(root, "reshard", None)):
            reshard()  # FSDP2 itself frees the root's gathered weights only after a backward pass
        # Only the scored tokens are sent. Processes have consecutive runs of rows, so these are all rows in order.
        flat = torch.cat(group.gather(torch.cat(mine).cpu()))
        places = scored_places(mask, torch.tensor([len(response) for response in responses]))
        return torch.zeros(mask.shape, dtype=flat.dtype).masked_scatter(places, flat)

    def logp_of_rows(
        self,
        root: nn.Module,
        prompts: Sequence[Tokens],
        responses: Sequence[Tensor],
        rows: Sequence[int],
        mask: Tensor,
        temperature: float = 1.0,
    ) -> Tensor:
        """Log-probabilities of the scored tokens of some rows, one row after another, from one forward pass.

        Without rows: an empty tensor, with a gradient of 0 for every weight. Such a process has to take part, since
        under FSDP2 each forward pass gathers the shards of all processes.
        """
        if not rows:
            return root(lambda model: response_logp(model, [prompts[0][:1]], [responses[0][:1].tolist()]))[:0]
        some, answers = [prompts[row] for row in rows], [responses[row].tolist() for row in rows]
        scored = scored_tokens(mask[rows], answers)
        return root(lambda model: response_logp(model, some, answers, scored=scored, temperature=temperature))

    def reset_reference(self) -> None:
        """Make the current weights the reference policy, after the warm start."""
        if self.reference is not None:
            weights.load_weights(self.reference, weights.named_weights(self.model))


class ForwardRoot(nn.Module):
    """The module whose call starts a forward pass: DDP and FSDP2 have their hooks there, and casting begins there.

    Packed scoring calls the base model and reads the head's weight separately, so the hooks of the model's own call
    would not run. The pass computes in `dtype`; where the model is `sharded`, FSDP2 casts.
    """

    kept: precision.Copies | None = None

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype = torch.float32, sharded: bool = False) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype
        self.casts = dtype != torch.float32 and not sharded
        if self.casts:
            precision.cast_blocks(model)

    def forward(self, work: Callable[[PreTrainedModel], Any]) -> Any:
        """The result of `work` on the model. A closure, since DDP would traverse every token of plain arguments."""
        if not self.casts:
            return work(self.model)
        # Blocks cast their own weights; embedding and last norm are cast here for the whole pass.
        with precision.cast_weights(precision.outside_blocks(self.model), self.dtype, self.kept):
            return work(self.model)
