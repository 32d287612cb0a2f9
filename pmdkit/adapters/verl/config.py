"""The configuration of the loss inside verl, `policy_loss._target_`, and the settings that it refuses.

Each error names the key to change. The loss itself is checked once in each process.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl.workers.config import PolicyLossConfig

from pmdkit.errors import CheckFailed, UsageError
from pmdkit.objectives import Objective, load_objective, traits
from pmdkit.objectives.regulariser import added_terms

OBJECTIVE_OF = {"pmd_mean": "pmd-mean", "pmd_part": "pmd-part"}
SYNC_TRAINER, ADAPTIVE_TRAINER = "sync", "pmd_sync"
RUN = (
    "adv_estimator",
    "estimator",
    "use_kl_loss",
    "entropy_coeff",
    "distillation",
    "rollout_correction",
    "use_v1",
    "trainer_mode",
)
STARTED: list[bool] = []


@dataclass
class PMDPolicyLossConfig(PolicyLossConfig):
    """verl's policy_loss with an objective of pmdkit. verl builds it before it starts anything, which runs the checks.

    Attributes:
        loss_mode: "pmd" for pmd-mean and pmd-part, "pmdkit" for any objective.
        pmd_objective: a key of OBJECTIVES, or "my.py:MyLoss".
        pmd_tau: temperature in reward units, > 0; {"rule": "pass-rate", ...} for one per prompt; None for an objective
            without one. The only tau of the run: `algorithm.pmd.tau` points here.
        pmd_options: other fields of the objective: norm, scale, baseline, target_cap ...
        pmd_width: generation budget in tokens, for norm "max"; points at data.max_response_length.
        pmd_run: other settings of the run, checked by `refuse`; every entry points at its key.
    """

    loss_mode: str = "pmd"
    pmd_objective: str = "pmd-mean"
    pmd_tau: Any = None
    pmd_options: dict[str, Any] = field(default_factory=dict)
    pmd_width: int | None = None
    pmd_run: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse(self.loss_mode, self.pmd_objective, self.pmd_tau, self.pmd_options, self.pmd_run)
        self_check()

    def objective(self) -> Objective:
        """The objective; the same settings give the same object."""
        return objective_of(self.pmd_objective, self.pmd_tau, self.pmd_options)


def self_check() -> None:
    """Run the golden vectors of PMD through verl's registry, the first time this is called.

    Raises:
        CheckFailed: a loss or a gradient is off by more than 1e-6, or other code registered a loss under its name.
    """
    if STARTED:
        return
    STARTED.append(True)  # first, since the golden cases call the loss, which calls this
    from pmdkit.adapters.verl.golden import path
    from pmdkit.testing.golden import TOLERANCE, cases, largest_error

    found = {}
    for case in cases():
        if case["objective"] in ("pmd-mean", "pmd-part") and (result := path(case)) is not None:
            found[case["name"]] = largest_error(*result, case)
    worst = max(found, key=lambda name: found[name])
    if not found[worst] <= TOLERANCE:
        STARTED.clear()
        raise CheckFailed(
            f"the loss registered in verl is off by {found[worst]:.1e} in the recorded case '{worst}', more than "
            f"{TOLERANCE:g}; expected the versions of verl and pmdkit that are tested together, and no other plug-in "
            "that registers a loss called pmd"
        )


def plain(value: Any) -> Any:
    """OmegaConf's containers as dicts and lists."""
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True)
    return dict(value) if isinstance(value, Mapping) else value


def objective_of(objective: str, tau: Any, options: Any) -> Objective:
    """The objective for these settings.

    Args:
        objective: a key of OBJECTIVES, or "my.py:MyLoss".
        tau: temperature in reward units; {"rule": name, ...} for one per prompt; None for an objective without one.
        options: other fields of the objective: norm, scale, baseline, target_cap ...

    Raises:
        UsageError: verl cannot give this objective what it needs.
        ValueError: a name or an option that does not exist.
    """
    words = {**plain(options or {}), **({} if tau is None else {"tau": plain(tau)})}
    return build(objective, json.dumps(words, sort_keys=True))


@cache
def build(name: str, words: str) -> Objective:
    """Build the objective, once for each configuration."""
    options = json.loads(words)
    objective = load_objective(name, **options)
    if hasattr(objective, "tau") and "tau" not in options:
        raise UsageError(f"{name} got no tau; set actor_rollout_ref.actor.policy_loss.pmd_tau, in reward units")
    facts = traits(objective)
    if facts.whole_groups:
        raise UsageError(
            f"{name} compares the responses of a group, and verl's micro-batches cut groups; "
            "expected an objective that looks at one response, such as pmd-mean"
        )
    if facts.uses_reference:
        raise UsageError(
            f"{name} reads a reference policy; verl's policy losses are given none: take another objective"
        )
    if terms := added_terms(objective):
        raise UsageError(
            f"{name} has {' and '.join(terms)}; expected neither: verl's advantage estimators are not given the "
            "log-probabilities that they need: leave them out, or train with pmdkit llm"
        )
    if objective.norm == "tokens":
        raise UsageError(
            f"{name} has norm 'tokens', which divides by the tokens of the rollout batch; verl's losses know those of "
            "a mini-batch only: set pmd_options.norm to length, none or max"
        )
    return objective


def estimator_objective(algorithm: DictConfig) -> tuple[Objective, int]:
    """The objective of an advantage estimator, and the responses per prompt, from verl's `algorithm` node."""
    node = algorithm.get("pmd", None) if algorithm is not None else None
    if node is None:
        raise UsageError("algorithm.pmd is missing; add +pmd=mean to verl's overrides, see docs/use/verl.md")
    return objective_of(node.objective, node.tau, node.options), int(node.group)


def refuse(loss_mode: str, objective: str, tau: Any, options: Any, run: Mapping[str, Any]) -> None:
    """Refuse a run whose loss would not be the objective's.

    Args:
        loss_mode, objective, tau, options: of PMDPolicyLossConfig.
        run: the rest of the configuration, one entry for each of RUN.

    Raises:
        UsageError, ValueError: names the value found, the value expected and the key to change.
    """
    lacking = [name for name in RUN if name not in run]
    if lacking:
        raise UsageError(
            f"policy_loss.pmd_run lacks {', '.join(lacking)}; start from +pmd=mean, which points each at its key, see "
            "docs/use/verl.md"
        )
    refuse_names(loss_mode, objective, str(run["adv_estimator"]))
    built = objective_of(objective, tau, options)
    refuse_two_taus(objective, tau, options, plain(run["estimator"]))
    for name, wanted in (("use_kl_loss", False), ("entropy_coeff", 0)):
        if run[name] != wanted:
            raise UsageError(
                f"actor_rollout_ref.actor.{name} is {run[name]}; expected {wanted}: it adds another term to the loss"
            )
    if run["distillation"]:
        raise UsageError("distillation.enabled is true; expected false: verl would replace the loss")
    if not run["use_v1"]:
        raise UsageError(
            "trainer.use_v1 is false; expected true: the older trainers overwrite loss_mode in bypass mode"
        )
    refuse_corrections(plain(run["rollout_correction"]) or {})
    if traits(built).whole_batch and run["trainer_mode"] not in (SYNC_TRAINER, ADAPTIVE_TRAINER):
        raise UsageError(
            f"{objective} compares all responses of a step and trainer.v1.trainer_mode is {run['trainer_mode']}; "
            f"expected {SYNC_TRAINER}, whose estimator is given the whole batch: of other trainers that is not tested"
        )
    if callable(getattr(built, "tau", None)) and run["trainer_mode"] != ADAPTIVE_TRAINER:
        raise UsageError(
            f"tau is a rule and trainer.v1.trainer_mode is {run['trainer_mode']}; expected {ADAPTIVE_TRAINER}, the "
            "trainer that carries one tau per prompt to the loss: take +pmd=mean_adaptive, or give tau a number"
        )


def refuse_names(loss_mode: str, objective: str, estimator: str) -> None:
    """Refuse names of loss, estimator and objective that do not belong together."""
    if loss_mode not in ("pmd", "pmdkit"):
        raise UsageError(f"policy_loss.loss_mode is {loss_mode}; expected pmd or pmdkit beside PMDPolicyLossConfig")
    if loss_mode == "pmd" and objective not in OBJECTIVE_OF.values():
        raise UsageError(f"loss_mode is pmd and pmd_objective {objective}; expected pmd-mean or pmd-part, or +pmd=any")
    if estimator != "pmdkit" and OBJECTIVE_OF.get(estimator) != objective:
        fitting = [name for name, of in OBJECTIVE_OF.items() if of == objective] or ["pmdkit"]
        raise UsageError(
            f"algorithm.adv_estimator is {estimator} and policy_loss.pmd_objective {objective}; expected {fitting[0]}"
        )


def refuse_two_taus(objective: str, tau: Any, options: Any, estimator: Any) -> None:
    """Refuse an estimator whose settings differ from the loss's."""
    mine = {"objective": objective, "tau": plain(tau), "options": plain(options or {})}
    theirs = {name: (estimator or {}).get(name) for name in mine}
    theirs["options"] = theirs["options"] or {}
    for name, wanted in mine.items():
        if theirs[name] != wanted:
            raise UsageError(
                f"algorithm.pmd.{name} is {theirs[name]} and policy_loss.pmd_{name} is {wanted}; expected one value: "
                f"set actor_rollout_ref.actor.policy_loss.pmd_{name} alone, algorithm.pmd.{name} points at it"
            )


def refuse_corrections(correction: Mapping[str, Any]) -> None:
    """Allow importance weights and rejection per response only: a masked token would drop out of the response's sum."""
    prefix = "algorithm.rollout_correction"
    if correction.get("rollout_is") == "token":
        raise UsageError(
            f"{prefix}.rollout_is is token; expected sequence or null: the loss is one number per response"
        )
    rejection = [word.strip() for word in str(correction.get("rollout_rs") or "").split(",") if word.strip()]
    by_token = [word for word in rejection if word.startswith("token")]
    if by_token:
        raise UsageError(
            f"{prefix}.rollout_rs is {','.join(rejection)}; expected seq_* only: a masked token leaves the sum"
        )
