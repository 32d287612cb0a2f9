"""The configuration of the loss inside verl: `policy_loss._target_`, checked once in each process."""

from dataclasses import dataclass, field
from typing import Any

from verl.workers.config import PolicyLossConfig

from pmdkit.adapters.verl.objective import objective_of, refuse
from pmdkit.errors import CheckFailed
from pmdkit.objectives import Objective

STARTED: list[bool] = []


def self_check() -> None:
    """Run the golden vectors of PMD through verl's registry, the first time this is called.

    Raises:
        CheckFailed: a loss or a gradient is off by more than 1e-6, or other code took the name of a loss.
    """
    if STARTED:
        return
    STARTED.append(True)  # before the work: the golden cases call the loss, which calls this
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


@dataclass
class PMDPolicyLossConfig(PolicyLossConfig):
    """verl's policy_loss with an objective of pmdkit. verl makes it before it starts anything, and that is the check.

    Attributes:
        loss_mode: "pmd" for pmd-mean and pmd-part, "pmdkit" for any objective.
        pmd_objective: a key of OBJECTIVES, or "my.py:MyLoss".
        pmd_tau: temperature in reward units, > 0; {"rule": "pass-rate", ...} for one per prompt; None for an objective
            without one. The only tau of the run: `algorithm.pmd.tau` points here.
        pmd_options: other fields of the objective: norm, scale, baseline, target_cap ...
        pmd_width: generation budget in tokens, for norm "max"; points at data.max_response_length.
        pmd_run: what else the run is made of, see `refusals`; every entry points at its key.
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
        """The objective, the same object for the same words."""
        return objective_of(self.pmd_objective, self.pmd_tau, self.pmd_options)
