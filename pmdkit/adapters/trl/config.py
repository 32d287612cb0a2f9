"""GRPOConfig with an objective of pmdkit, and without the settings that would change it behind its back."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from trl import GRPOConfig

from pmdkit.adapters.trl.refused import check_batches, check_sampling, check_settings
from pmdkit.objectives import Objective, load_objective


@dataclass
class PMDConfig(GRPOConfig):
    """Settings of `PMDTrainer`: those of GRPOConfig, and the objective.

    Attributes:
        objective: a key of OBJECTIVES, or a file and a class in it, "my.py:MyLoss".
        tau: temperature in reward units; None is the objective's default.
        objective_options: further options of the objective, such as {"norm": "none"}, or a rule of the group's rewards
            as temperature, {"tau": {"rule": "pass-rate", "base": 0.02}}.
        passed: rewards above it count as passed in the metric `pass_rate`.
        on_policy_tolerance: largest log-ratio of a token, nats, before the first update on a rollout batch.

    Raises:
        ValueError: a setting of GRPOConfig that has no meaning here or would change the objective; an unknown objective
            or option; a batch that is cut within groups.
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
        check_batches(self, self.make_objective())

    def make_objective(self) -> Objective:
        """The objective with its options."""
        options = dict(self.objective_options or {})  # type: ignore[arg-type]  # a string is parsed by now
        if self.tau is not None:
            options["tau"] = self.tau
        return load_objective(self.objective, **options)
