"""GRPOTrainer with an objective of pmdkit: credit on whole groups, rows in the paper's order.

TRL samples, calls the rewards, shards and steps. Four of its methods are overridden: those that gather rewards, make a
rollout batch, cut it, and compute the loss.
"""

from typing import Any, ClassVar

import torch
from trl import GRPOTrainer

from pmdkit.adapters.trl import rows
from pmdkit.adapters.trl.config import PMDConfig, check_batches, check_objective
from pmdkit.errors import CheckFailed, UsageError
from pmdkit.objectives import Batch, Objective, load_objective

TITLE = (
    "Approximation of Log-Partition Function in Policy Mirror Descent Induces Implicit Regularization for LLM "
    "Post-Training"
)
PAPER = {
    "title": TITLE,
    "id": "2602.05933",
    "citation": f"""@article{{xu2026approximation,
    title = {{{{{TITLE}}}}},
    author = {{Zhenghao Xu and Qin Lu and Changlong Yu and Tuo Zhao}},
    year = 2026,
    eprint = {{arXiv:2602.05933}},
}}""",
}


class PMDTrainer(GRPOTrainer):
    """Train with any objective of pmdkit in TRL.

    Args:
        model, reward_funcs, and all others except the two below: as for GRPOTrainer. A response that gets None or NaN
            from every function has no verdict: it has mass 0, in the baseline and in the loss.
        args: a PMDConfig.
        objective: an instance or a name, instead of `args.objective` and its options.

    Raises:
        ValueError: args of another class, images, or what PMDConfig refuses.
        CheckFailed: before the first update on a rollout batch the policy is not pi_old.

    Source: arXiv:2602.05933; the objectives are those of `pmdkit.objectives`, unchanged.
    """

    _buffered_inputs: Any
    _tag_names: ClassVar[list[str]] = ["trl", "pmd"]
    _name = "PMD"
    _paper: ClassVar[dict[str, str]] = PAPER  # for the card of a saved model

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: PMDConfig | None = None,
        *more: Any,
        objective: Objective | str | None = None,
        **options: Any,
    ) -> None:
        if args is None:
            args = PMDConfig()
        if not isinstance(args, PMDConfig):
            raise UsageError(
                f"args is a {type(args).__name__}; expected a PMDConfig: from pmdkit.adapters.trl import it"
            )
        if objective is not None and (args.tau is not None or args.objective_options or args.objective != "pmd-mean"):
            raise UsageError(
                "an objective is given, and objective, tau or objective_options in args; say it in one place: "
                "an instance has its options"
            )
        if isinstance(objective, str):
            objective = load_objective(objective)
        self.objective: Objective = objective or args.make_objective()
        check_objective(self.objective)
        check_batches(args, self.objective)
        self.pmd_rewards = torch.zeros(0)
        self.pmd_range = rows.RolloutRange()
        super().__init__(model, reward_funcs, args, *more, **options)

    def _calculate_rewards(self, *given: Any, **options: Any) -> torch.Tensor:
        """Keep the weighted sum of the rewards of all processes; NaN where no function gave one."""
        each: torch.Tensor = super()._calculate_rewards(*given, **options)
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
        groups = rows.groups_of(self.pmd_rewards, size)
        length = self.accelerator.gather(rows.response_mask(scored).sum(1))
        credit = rows.credited(self.objective, groups, length, self.max_completion_length)
        count = len(scored["completion_ids"])
        mine = slice(self.accelerator.process_index * count, (self.accelerator.process_index + 1) * count)
        scored |= {name: value[mine] for name, value in credit.items()}
        scored[rows.ROW] = torch.arange(count, device=length.device)
        scored["advantages"] = scored[rows.PREFIX + "advantage"]
        for _ in range(min(len(length), len(self._logs["advantages"]))):  # TRL's own, which no loss uses
            self._logs["advantages"].pop()
        self._logs["advantages"].extend(credit[rows.PREFIX + "advantage"].tolist())
        for name, value in rows.rollout_metrics(groups, self.args.passed).items():
            self._metrics[mode][name].append(value)
        return scored

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """The next micro-batch; a new rollout batch is first put in the order of its prompts."""
        before = self._buffered_inputs
        micro_batch: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if self.model.training and self._buffered_inputs is not before:
            self._buffered_inputs = rows.in_order(self._buffered_inputs)
            micro_batch = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return micro_batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """The micro-batch's share of the loss."""
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        width = inputs["completion_ids"].shape[1]
        logp, _, _ = self._get_per_token_logps_and_entropies(model, ids, attention, width)
        batch = rows.batch_of(inputs, logp)
        processes = self.accelerator.num_processes
        if not self.model.training:
            return rows.rows_loss(self.objective, batch, 1, 1, processes)
        self.watch(batch, inputs.get("sampling_per_token_logps"))
        accumulation = self.current_gradient_accumulation_steps
        return rows.rows_loss(self.objective, batch, accumulation, self.args.steps_per_generation, processes)

    def watch(self, batch: Batch, sampled: torch.Tensor | None = None) -> None:
        """Record how far the policy has moved, and in the first pass how far the engine's numbers are from TRL's.

        Before the first update the policy must not have moved.
        """
        visits = self.args.steps_per_generation * self.num_iterations
        visit = self._step % visits
        if visit == 0:
            off = batch.log_ratio.detach().abs().max()
            worst = float(self.accelerator.gather(off[None]).max())  # over all processes, so that they stop together
            if not worst <= self.args.on_policy_tolerance:
                raise CheckFailed(
                    f"before the first update on these responses a token's log-ratio is {worst:.2g} nats; expected at "
                    f"most on_policy_tolerance {self.args.on_policy_tolerance:g}: what scores pi_old is not what is "
                    "trained. Look for layers that draw at random, or lower precision"
                )
        if sampled is not None and visit < self.args.steps_per_generation:
            for name, value in rows.engine_mismatch(sampled, batch).items():
                self._metrics["train"][name].append(value)
        self.pmd_range.add(batch)
        if visit == visits - 1:
            for name, value in self.pmd_range.taken(self.accelerator).items():
                self._metrics["train"][name].append(value)
