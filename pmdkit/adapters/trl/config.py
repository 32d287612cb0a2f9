"""GRPOConfig with an objective of pmdkit; settings that would change it are refused with a reason."""

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar

from trl import GRPOConfig

from pmdkit.errors import UsageError
from pmdkit.objectives import Objective, load_objective, objective_name, traits
from pmdkit.objectives.regulariser import added_terms

CLIP = "clipping belongs to the objective: objective='grpo' with objective_options={'clip_low': ..., 'clip_high': ...}"
ELSEWHERE = "it belongs to a loss of TRL's that is not used"
ONLY = "nothing is added to the objective's loss"

# settings of GRPOConfig: (the accepted value, why no other is accepted)
SETTINGS: dict[str, tuple[Any, str]] = {
    "loss_type": ("pmd", "`objective` says what the loss is"),
    "scale_rewards": ("none", "the objective takes rewards as they are, and standardises them itself where it does"),
    "multi_objective_aggregation": ("sum_then_normalize", "rewards are summed with their weights, as they are"),
    "importance_sampling_level": ("token", "the objective says whether it sees tokens or responses"),
    "beta": (0.0, "a KL penalty to the first model is another objective; PMD is held by pi_old, with strength tau"),
    "epsilon": (0.2, CLIP),
    "epsilon_high": (None, CLIP),
    "delta": (None, CLIP),
    "sapo_temperature_neg": (1.05, ELSEWHERE),
    "sapo_temperature_pos": (1.0, ELSEWHERE),
    "vespo_k_pos": (2.0, ELSEWHERE),
    "vespo_lambda_pos": (3.0, ELSEWHERE),
    "vespo_k_neg": (3.0, ELSEWHERE),
    "vespo_lambda_neg": (2.0, ELSEWHERE),
    "off_policy_mask_threshold": (None, "it drops responses by advantage and divergence, which biases the regression"),
    "top_entropy_quantile": (1.0, "it drops tokens, so that log-ratios are no longer those of whole responses"),
    "entropy_coef": (0.0, ONLY),
    "use_adaptive_entropy": (False, ONLY),
    "router_aux_loss_coef": (0.0, ONLY),
    "mask_truncated_completions": (
        False,
        "it keeps the reward of a cut response in its group's baseline but not its loss; let the reward function "
        "return None for it, which leaves it out of both",
    ),
    "disable_dropout": (True, "with dropout the policy that is trained is not the one that sampled"),
}

# likewise for sampling: the loss uses log-probabilities of the full distribution
SAMPLING: dict[str, Any] = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}


@dataclass
class PMDConfig(GRPOConfig):
    """Settings of `PMDTrainer`: those of GRPOConfig, and the objective.

    Attributes:
        objective: a key of OBJECTIVES, or a file and a class in it, "my.py:MyLoss".
        tau: temperature in reward units; None means the objective's default.
        objective_options: further options of the objective, such as {"norm": "none"}, or a temperature rule based on
            the group's rewards, {"tau": {"rule": "pass-rate", "scale": 0.14}}.
        passed: rewards above it count as passed in the metric `pass_rate`.
        on_policy_tolerance: largest log-ratio of a token, nats, before the first update on a rollout batch.

    Raises:
        ValueError: a setting of GRPOConfig that has no meaning here or would change the objective; an unknown objective
            or option; batch sizes that would split groups.
    """

    _VALID_DICT_FIELDS: ClassVar[list[str]] = [*GRPOConfig._VALID_DICT_FIELDS, "objective_options"]

    objective: str = field(default="pmd-mean", metadata={"help": "Objective of pmdkit, or file.py:Class."})
    tau: float | None = field(default=None, metadata={"help": "Temperature in reward units."})
    objective_options: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Further options of the objective."}
    )
    passed: float = field(default=0.5, metadata={"help": "Rewards above it count as passed in the metric pass_rate."})
    on_policy_tolerance: float = field(
        default=1e-2,
        metadata={"help": "Largest log-ratio of a token before the first update on its rollout."},
    )

    loss_type: str = field(default="pmd", metadata={"help": "Leave it: `objective` says what the loss is."})
    scale_rewards: str = field(default="none", metadata={"help": "Leave it: the objective takes rewards as they are."})
    router_aux_loss_coef: float | None = field(
        default=0.0, metadata={"help": "Leave it: nothing is added to the loss."}
    )
    disable_dropout: bool = field(default=True, metadata={"help": "Leave it: pi_old must be the policy that sampled."})
    vllm_importance_sampling_correction: bool = field(
        default=False,
        metadata={"help": "Weigh responses by pi_trainer / pi_vLLM, as vllm_importance_sampling_mode says."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self)
        check_sampling(self)
        objective = self.make_objective()
        check_objective(objective)
        check_batches(self, objective)

    def make_objective(self) -> Objective:
        """The objective with its options."""
        options = dict(self.objective_options or {})  # type: ignore[arg-type]  # a string is parsed by now
        if self.tau is not None:
            options["tau"] = self.tau
        return load_objective(self.objective, **options)


def check_settings(config: Any) -> None:
    """Stop at the first setting that would change the objective or would be ignored."""
    for name, (accepted, reason) in SETTINGS.items():
        if (found := getattr(config, name)) != accepted:
            raise UsageError(f"{name} is {found!r}; expected {accepted!r}: {reason}")
    mode = config.vllm_importance_sampling_mode
    if config.vllm_importance_sampling_correction and not mode.startswith("sequence"):
        raise UsageError(
            f"vllm_importance_sampling_mode is {mode!r}; expected sequence_truncate or sequence_mask: "
            "an objective with one loss per response takes one weight per response"
        )


def check_sampling(config: Any) -> None:
    """Stop if responses would be drawn from a policy other than the one that is scored."""
    for name, accepted in SAMPLING.items():
        if (found := getattr(config, name)) != accepted:
            raise UsageError(
                f"{name} is {found!r}; expected {accepted!r}: responses must be drawn from the policy that is trained, "
                "and log-probabilities are those of the whole distribution"
            )
    if config.generation_kwargs:
        raise UsageError(
            f"generation_kwargs is {config.generation_kwargs}; expected none: it can change how responses are drawn "
            "without the loss knowing. Temperature and lengths have settings of their own"
        )
    if config.temperature != 1.0:
        warnings.warn(
            f"temperature is {config.temperature:g}: log-probabilities are those at this temperature, so the policy "
            "that is trained, and has to be sampled later, is the one at this temperature",
            stacklevel=4,
        )


def check_objective(objective: Objective) -> None:
    """Stop if the objective needs log-probabilities that TRL's trainer does not pass to it."""
    if terms := added_terms(objective):
        raise UsageError(
            f"the objective has {' and '.join(terms)}; expected neither: they need the log-probabilities of pi_old and "
            "of a reference policy beside the rewards, which TRL does not pass on: leave them out, or train with "
            "pmdkit llm"
        )


def check_batches(config: Any, objective: Objective) -> None:
    """Stop if the rollout batch does not divide evenly into ministeps, or if they would split groups."""
    accumulation, per_rollout = config.gradient_accumulation_steps, config.steps_per_generation
    micro, size = config.per_device_train_batch_size, config.num_generations
    if per_rollout % accumulation and (accumulation % per_rollout or config.num_iterations > 1):
        raise UsageError(
            f"steps_per_generation is {per_rollout} and gradient_accumulation_steps {accumulation}; expected a "
            "multiple: ministeps = steps_per_generation / gradient_accumulation_steps"
        )
    if per_rollout > accumulation and micro * accumulation % size:
        raise UsageError(
            f"a ministep has {micro} x {accumulation} = {micro * accumulation} responses on each process (per_device_"
            f"train_batch_size x gradient_accumulation_steps); expected a multiple of num_generations {size}, so that "
            "it averages over prompts of its own"
        )
    if traits(objective).whole_groups and micro % size:
        raise UsageError(
            f"per_device_train_batch_size is {micro}; expected a multiple of num_generations {size}: "
            f"{objective_name(objective)} compares the responses of a group, so they must share a forward pass"
        )
    if config.num_generations_eval == 1:
        raise UsageError("num_generations_eval is 1; expected 2 or more: a response is compared with its peers")
