"""Room 1: the mathematics of the losses. Torch and nothing else; this dict is the table of contents."""

from typing import Any

from pmdkit.objectives.chi2_po import Chi2PO
from pmdkit.objectives.cispo import CISPO
from pmdkit.objectives.credit import coefficient, credit, cut, parts, response_loss, total
from pmdkit.objectives.dro import DRO
from pmdkit.objectives.grpo import DAPO, GRPO, DrGRPO
from pmdkit.objectives.gspo import GSPO
from pmdkit.objectives.load import load_objective, objective_name
from pmdkit.objectives.pmd_mean import PMDMean
from pmdkit.objectives.pmd_part import PMDPart
from pmdkit.objectives.rebel import REBEL
from pmdkit.objectives.rloo import RLOO
from pmdkit.objectives.tb import TB
from pmdkit.objectives.temperature import TAUS, make_tau
from pmdkit.objectives.temperature_budgets import Chi2Budget, KLBudget
from pmdkit.objectives.temperature_rates import Contraction, PassRate
from pmdkit.objectives.traits import Traits, traits
from pmdkit.objectives.vocabulary import Batch, Groups, Norm, Objective, Tau, expect, log_expect_exp, row_weight

OBJECTIVES: dict[str, Any] = {
    "pmd-mean": PMDMean,
    "pmd-part": PMDPart,
    "rloo": RLOO,
    "grpo": GRPO,
    "dr-grpo": DrGRPO,
    "dapo": DAPO,
    "gspo": GSPO,
    "cispo": CISPO,
    "chi2-po": Chi2PO,
    "rebel": REBEL,
    "tb": TB,
    "dro": DRO,
}

# last, because importing the file temperature.py binds its module to the name of this function
from pmdkit.objectives.credit import temperature  # noqa: E402

__all__ = [
    "CISPO",
    "DAPO",
    "DRO",
    "GRPO",
    "GSPO",
    "OBJECTIVES",
    "REBEL",
    "RLOO",
    "TAUS",
    "TB",
    "Batch",
    "Chi2Budget",
    "Chi2PO",
    "Contraction",
    "DrGRPO",
    "Groups",
    "KLBudget",
    "Norm",
    "Objective",
    "PMDMean",
    "PMDPart",
    "PassRate",
    "Tau",
    "Traits",
    "coefficient",
    "credit",
    "cut",
    "expect",
    "load_objective",
    "log_expect_exp",
    "make_tau",
    "objective_name",
    "parts",
    "response_loss",
    "row_weight",
    "temperature",
    "total",
    "traits",
]
