"""The configuration of the loss inside verl, `policy_loss._target_`, and the settings that it refuses.

Each error names the key to change.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl.workers.config import PolicyLossConfig

from pmdkit.errors import UsageError
from pmdkit.objectives import Objective, load_objective, traits
from pmdkit.objectives.regulariser import added_terms

# entry of pmd_run: its key in verl's configuration, the accepted value, why no other is
FIXED = {
    "adv_estimator": ("algorithm.adv_estimator", "pmd", "the loss reads the advantage of its own objective"),
    "use_kl_loss": ("actor_rollout_ref.actor.use_kl_loss", False, "it adds another term to the loss"),
    "entropy_coeff": ("actor_rollout_ref.actor.entropy_coeff", 0, "it adds another term to the loss"),
    "distillation": ("distillation.enabled", False, "verl would replace the loss"),
    "use_v1": ("trainer.use_v1", True, "the older trainers overwrite loss_mode in bypass mode"),
}


@dataclass
class PMDPolicyLossConfig(PolicyLossConfig):
    """verl's policy_loss with an objective of pmdkit. verl builds it before it starts anything, which checks the run.

    Attributes:
        loss_mode: "pmd".
        pmd_objective: a key of OBJECTIVES, or "my.py:MyLoss".
        pmd_tau: temperature in reward units, > 0; None for an objective without one.
        pmd_options: other fields of the objective: norm, scale, baseline, target_cap ...
        pmd_group: responses to each prompt; points at rollout.n.
        pmd_width: generation budget in tokens, for norm "max"; points at data.max_response_length.
        pmd_run: other settings of the run that decide the loss; every entry points at its key.
    """

    loss_mode: str = "pmd"
    pmd_objective: str = "pmd-mean"
    pmd_tau: float | None = None
    pmd_options: dict[str, Any] = field(default_factory=dict)
    pmd_group: int | None = None
    pmd_width: int | None = None
    pmd_run: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.loss_mode != "pmd":
            raise UsageError(f"policy_loss.loss_mode is {self.loss_mode}; expected pmd beside PMDPolicyLossConfig")
        objective_of(self)
        if missing := {*FIXED, "rollout_correction"} - self.pmd_run.keys():
            raise UsageError(f"policy_loss.pmd_run lacks {', '.join(sorted(missing))}; start from +pmd=mean")
        for name, (key, wanted, reason) in FIXED.items():
            if (found := self.pmd_run[name]) != wanted:
                raise UsageError(f"{key} is {found}; expected {wanted}: {reason}")
        # weights and rejection by response only: a masked token would drop out of the response's sum
        correction = self.pmd_run["rollout_correction"] or {}
        for name in ("rollout_is", "rollout_rs"):
            if "token" in str(found := correction.get(name)):
                wanted = "sequence" if name == "rollout_is" else "seq_*"
                raise UsageError(f"algorithm.rollout_correction.{name} is {found}; expected {wanted}, whole responses")


def objective_of(settings: PMDPolicyLossConfig | DictConfig) -> Objective:
    """The objective of a policy loss, or of verl's node for it; UsageError if verl cannot give it what it needs."""
    options = settings.pmd_options
    plain = OmegaConf.to_container(options, resolve=True) if isinstance(options, DictConfig) else dict(options)
    if settings.pmd_tau is not None:
        plain["tau"] = settings.pmd_tau
    return build(settings.pmd_objective, json.dumps(plain, sort_keys=True))


@cache
def build(name: str, options: str) -> Objective:
    """Build the objective, once for each configuration."""
    objective = load_objective(name, **json.loads(options))
    if hasattr(objective, "tau") and "tau" not in json.loads(options):
        raise UsageError(f"{name} got no tau; set actor_rollout_ref.actor.policy_loss.pmd_tau, in reward units")
    facts, terms = traits(objective), added_terms(objective)
    lacks = {
        "compares the responses of a group, and verl's micro-batches cut groups": facts.whole_groups,
        "compares all responses of a step, of which verl's trainers may pass on a part": facts.whole_batch,
        "reads a reference policy, and verl's policy losses are given none": facts.uses_reference,
        f"has {' and '.join(terms)}, for which verl's estimators are given no log-probabilities": bool(terms),
        "has norm 'tokens', and verl's losses know the tokens of a mini-batch only": objective.norm == "tokens",
        "has a rule as tau, and verl's policy losses do not know which rows share a prompt": callable(
            getattr(objective, "tau", None)
        ),
    }
    for reason, holds in lacks.items():
        if holds:
            raise UsageError(f"{name} {reason}; take another objective or option, or train with pmdkit llm")
    return objective
