"""GRPOTrainer with an objective of pmdkit: credit on whole groups, rows in the paper's order.

TRL samples, calls the rewards, shards and steps. Four of its methods are overridden: those that gather rewards, make a
rollout batch, cut it, and compute the loss.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from pmdkit.errors import UsageError
from pmdkit.objectives import Batch, Groups, Objective, credit, total
from pmdkit_adapters.trl.config import PMDConfig, check_objective

CARRIED = ("length", "advantage", "weight", "tau", "mass", "group")  # fields of Batch, one number per row
TITLE = (
    "Approximation of Log-Partition Function in Policy Mirror Descent Induces Implicit Regularization for LLM "
    "Post-Training"
)


class PMDTrainer(GRPOTrainer):
    """Train with any objective of pmdkit in TRL.

    Args:
        model, reward_funcs, and all others except the two below: as for GRPOTrainer. A response that gets None or NaN
            from every function has no verdict: it has mass 0, in the baseline and in the loss.
        args: a PMDConfig.
        objective: an instance, instead of `args.objective` and its options.

    Raises:
        ValueError: args of another class, images, or what PMDConfig refuses.

    Source: arXiv:2602.05933; the objectives are those of `pmdkit.objectives`, unchanged.
    """

    _buffered_inputs: Any
    _tag_names: ClassVar[list[str]] = ["trl", "pmd"]
    _name = "PMD"
    _paper: ClassVar[dict[str, str]] = {"title": TITLE, "id": "2602.05933"}  # for the card of a saved model

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: PMDConfig | None = None,
        *more: Any,
        objective: Objective | None = None,
        **options: Any,
    ) -> None:
        args = PMDConfig() if args is None else args
        if not isinstance(args, PMDConfig):  # a GRPOConfig has other defaults, and has not been checked
            raise UsageError(f"args is a {type(args).__name__}; expected a PMDConfig of pmdkit_adapters.trl")
        if objective is not None and (args.tau is not None or args.objective_options or args.objective != "pmd-mean"):
            raise UsageError("an objective is given, and objective, tau or objective_options in args; leave those out")
        self.objective: Objective = objective or args.make_objective()
        check_objective(self.objective, args)
        self.pmd_rewards = torch.zeros(0)
        super().__init__(model, reward_funcs, args, *more, **options)

    def _calculate_rewards(self, *given: Any, **options: Any) -> Tensor:
        """Keep the weighted sum of the rewards of all processes; NaN where no function gave one."""
        each: Tensor = super()._calculate_rewards(*given, **options)
        weights = self.reward_weights.to(each.device).double()
        self.pmd_rewards = torch.where(each.isnan().all(1), torch.nan, (each.double() * weights).nansum(1))
        return each

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """The process's rows of a rollout batch, with the fields that they carry to their loss."""
        scored: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if "num_images" in scored:
            raise UsageError("the prompts have images; the adapter was written for text alone")
        mode = "train" if self.model.training else "eval"
        size = self.num_generations if mode == "train" else self.num_generations_eval
        # credit is taken over the groups of all processes; a response without a verdict has mass 0
        reward = self.pmd_rewards.view(-1, size)
        present = ~reward.isnan()
        mass = present / present.sum(1, keepdim=True).clamp_min(1).double()
        length = self.accelerator.gather(response_mask(scored).sum(1))
        mask = torch.arange(int(length.max()), device=length.device) < length[:, None]
        # `credit` reads log-probabilities only for the terms that check_objective refuses
        unread = torch.zeros((), dtype=torch.float64, device=length.device).expand(mask.shape)
        groups = Groups(torch.where(present, reward, 0.0), mass)
        batch = credit(self.objective, groups, unread, mask, width=self.max_completion_length)
        count = len(scored["completion_ids"])
        mine = slice(self.accelerator.process_index * count, (self.accelerator.process_index + 1) * count)
        scored |= {"pmd_" + name: getattr(batch, name)[mine] for name in CARRIED}
        for _ in range(min(len(length), len(self._logs["advantages"]))):  # TRL's own, which no loss uses
            self._logs["advantages"].pop()
        self._logs["advantages"].extend(batch.advantage.tolist())
        self._metrics[mode]["unscored"].append(int((~present).sum()))
        return scored

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """The next micro-batch. TRL's own shuffles the rows first: no ministep would average over its own prompts."""
        if not self.model.training:
            return self._generate_and_score_completions(generation_batch)
        parts = self.args.steps_per_generation
        if self._step % (parts * self.num_iterations) == 0 or self._buffered_inputs is None:
            self._buffered_inputs = split_tensor_dict(self._generate_and_score_completions(generation_batch), parts)
        micro_batch: dict[str, Any] = self._buffered_inputs[self._step % parts]
        return micro_batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """The micro-batch's share of the loss of its ministep."""
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        width = inputs["completion_ids"].shape[1]
        logp, _, _ = self._get_per_token_logps_and_entropies(model, ids, attention, width)
        # TRL leaves pi_old out if there is no update between a rollout and its loss: then the policy is pi_old
        old = inputs.get("old_per_token_logps")
        ratio = inputs.get("importance_sampling_ratio")
        batch = Batch(
            logp=logp,
            logp_old=logp.detach() if old is None else old,
            mask=response_mask(inputs) & (inputs["pmd_mass"] > 0)[:, None],
            correction=None if ratio is None else ratio[:, 0] if ratio.shape[1] == 1 else ratio,
            **{name: inputs["pmd_" + name] for name in CARRIED},
        )
        # The weights average over the P prompts of the rollout batch, a ministep over its own. Gradients of processes
        # are averaged afterwards, not added.
        loss = total(self.objective, batch) * self.accelerator.num_processes
        if not self.model.training:
            return loss
        change = self.accelerator.gather(batch.seq_log_ratio.detach())
        self._metrics["train"]["log_ratio"].append(change.mean().item())
        self._metrics["train"]["log_ratio_rms"].append(change.square().mean().sqrt().item())
        return loss * (self.args.steps_per_generation / self.current_gradient_accumulation_steps)


def response_mask(rows: Mapping[str, Any]) -> Tensor:
    """[n, T] boolean: tokens that the policy wrote, without padding and a tool's replies."""
    mask: Tensor = rows["completion_mask"].bool()
    return mask & rows["tool_mask"].bool() if "tool_mask" in rows else mask
