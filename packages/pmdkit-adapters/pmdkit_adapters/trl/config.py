"""GRPOConfig with an objective of pmdkit; settings that would change it are refused with a reason."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import trl
from trl import GRPOConfig

from pmdkit.child_processes import python_command, python_environment
from pmdkit.errors import EnvironmentLacks, UsageError, printable
from pmdkit.objectives import Objective, load_objective, objective_name, traits
from pmdkit.objectives.regulariser import added_terms

KNOWN = "1.16."  # the trainer overrides methods that TRL may change from one minor version to the next
SECONDS = 900.0  # time limit of the golden vectors, which take 15 s on an idle machine
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC_", "ACCELERATE_", "FSDP_")
"How variables begin by which a launcher makes a process one of several."
VECTORS = """
from pmdkit_adapters.trl.golden import path
from pmdkit.testing.golden import check_parity
check_parity(path)
"""

# the reason, and the settings of GRPOConfig that it allows one value only
FIXED: dict[str, dict[str, Any]] = {
    "the objective defines the loss, including any clipping": {
        "loss_type": "pmd",
        "importance_sampling_level": "token",
        "epsilon": 0.2,
        "epsilon_high": None,
        "delta": None,
    },
    "the objective takes rewards as they are, and standardises them itself where it does": {
        "scale_rewards": "none",
        "multi_objective_aggregation": "sum_then_normalize",
    },
    "nothing is added to the objective's loss; PMD is held by pi_old, with strength tau": {
        "beta": 0.0,
        "entropy_coef": 0.0,
        "use_adaptive_entropy": False,
        "router_aux_loss_coef": 0.0,
    },
    "it drops responses or tokens; a reward of None drops a response from baseline and loss alike": {
        "off_policy_mask_threshold": None,
        "top_entropy_quantile": 1.0,
        "mask_truncated_completions": False,
    },
    "responses must be drawn from the policy that is trained, whose log-probabilities are of the whole distribution": {
        "disable_dropout": True,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": None,
        "repetition_penalty": 1.0,
        "generation_kwargs": None,
    },
}


@dataclass
class PMDConfig(GRPOConfig):
    """Settings of `PMDTrainer`: those of GRPOConfig, and the objective.

    Attributes:
        objective: a key of OBJECTIVES, or a file and a class in it, "my.py:MyLoss".
        tau: temperature in reward units; None means the objective's default.
        objective_options: further options of the objective, such as {"norm": "none"}, or a temperature rule based on
            the group's rewards, {"tau": {"rule": "pass-rate", "scale": 0.14}}.

    Raises:
        ValueError: a setting of GRPOConfig that has no meaning here or would change the objective; an unknown objective
            or option; batch sizes that would split groups.
        EnvironmentLacks: the version of TRL is not known, and the golden vectors fail with it.
    """

    version_checked: ClassVar[bool] = False  # the golden vectors themselves run on any version
    _VALID_DICT_FIELDS: ClassVar[list[str]] = [*GRPOConfig._VALID_DICT_FIELDS, "objective_options"]

    objective: str = field(default="pmd-mean", metadata={"help": "Objective of pmdkit, or file.py:Class."})
    tau: float | None = field(default=None, metadata={"help": "Temperature in reward units."})
    objective_options: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Further options of the objective."}
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
        if not self.version_checked:
            check_version(trl.__version__)
        super().__post_init__()
        for reason, settings in FIXED.items():
            for name, accepted in settings.items():
                if (found := getattr(self, name)) != accepted:
                    raise UsageError(f"{name} is {found!r}; expected {accepted!r}: {reason}")
        mode = self.vllm_importance_sampling_mode
        if self.vllm_importance_sampling_correction and not mode.startswith("sequence"):
            why = "a loss per response takes one weight per response"
            raise UsageError(
                f"vllm_importance_sampling_mode is {mode!r}; expected sequence_truncate or sequence_mask: {why}"
            )
        check_objective(self.make_objective(), self)

    def make_objective(self) -> Objective:
        """The objective with its options."""
        options = dict(self.objective_options or {})  # type: ignore[arg-type]  # a string is parsed by now
        if self.tau is not None:
            options["tau"] = self.tau
        return load_objective(self.objective, **options)


@cache
def check_version(version: str) -> None:
    """Run the golden vectors through a version of TRL that is not known; EnvironmentLacks if they fail.

    In a process of its own, on the CPU: Trainer seeds the generators and decides on the device of a whole process.
    """
    if version.startswith(KNOWN):
        return
    print(f"pmdkit: trl {version} is not known here: trying the golden vectors, up to a minute", file=sys.stderr)
    given = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHED)}
    given |= python_environment() | {"PYTHONOPTIMIZE": "", "CUDA_VISIBLE_DEVICES": ""}
    try:
        ended = subprocess.run(
            python_command("-c", VECTORS), env=given, capture_output=True, text=True, timeout=SECONDS
        )
        # below the traceback is the error
        found = ended.stderr.strip().rpartition("\n")[2].removeprefix("AssertionError: ") if ended.returncode else None
    except subprocess.TimeoutExpired:
        found = f"they do not end within {SECONDS:g} s"
    if found is not None:
        raise EnvironmentLacks(
            f"trl is {version}, which the adapter does not know, and the golden vectors fail with it: "
            f"{printable(found)[:300]}; pip install trl==1.16.0"
        )


def check_objective(objective: Objective, config: PMDConfig) -> None:
    """Stop if TRL cannot give the objective what it needs, or if ministeps or micro-batches would split groups."""
    if terms := added_terms(objective):
        why = "TRL does not pass on the log-probabilities that it needs beside the rewards"
        raise UsageError(f"the objective has {' and '.join(terms)}; {why}: leave it out, or train with pmdkit llm")
    accumulation, per_rollout = config.gradient_accumulation_steps, config.steps_per_generation
    micro, size = config.per_device_train_batch_size, config.num_generations
    if per_rollout % accumulation and (accumulation % per_rollout or config.num_iterations > 1):
        got = f"steps_per_generation is {per_rollout} and gradient_accumulation_steps {accumulation}"
        raise UsageError(f"{got}; expected a multiple: their ratio is the number of ministeps")
    if per_rollout > accumulation and micro * accumulation % size:
        got = f"per_device_train_batch_size x gradient_accumulation_steps is {micro} x {accumulation}"
        raise UsageError(f"{got}; expected a multiple of num_generations {size}: a ministep has prompts of its own")
    if traits(objective).whole_groups and micro % size:
        why = f"{objective_name(objective)} compares the responses of a group, so they must share a forward pass"
        raise UsageError(
            f"per_device_train_batch_size is {micro}; expected a multiple of num_generations {size}: {why}"
        )
