"""The mathematics of the losses, in torch and nothing else. `registry.OBJECTIVES` is the table of contents."""

from pmdkit.objectives.batch import Batch, Groups, Norm, Objective, Tau, expect, log_expect_exp, row_weight
from pmdkit.objectives.chi2_po import Chi2PO
from pmdkit.objectives.cispo import CISPO
from pmdkit.objectives.credit import coefficient, credit, cut, parts, response_loss, total
from pmdkit.objectives.dro import DRO
from pmdkit.objectives.grpo import DAPO, GRPO, DrGRPO
from pmdkit.objectives.gspo import GSPO
from pmdkit.objectives.pmd_mean import PMDMean
from pmdkit.objectives.pmd_part import PMDPart
from pmdkit.objectives.rebel import REBEL
from pmdkit.objectives.registry import OBJECTIVES, load_objective, objective_name
from pmdkit.objectives.rloo import RLOO
from pmdkit.objectives.tb import TB
from pmdkit.objectives.temperature import TAUS, Chi2Budget, Contraction, KLBudget, PassRate, make_tau, temperature
from pmdkit.objectives.traits import Traits, traits

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
