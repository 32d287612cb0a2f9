"""The loss functions, in plain torch. The table `OBJECTIVES` lists them all.

Load an objective by its key in that table, or from your own file as `my.py:MyLoss`.
"""

from dataclasses import fields, is_dataclass
from typing import Any

from pmdkit.errors import unknown
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau, expect, log_expect_exp, row_weight
from pmdkit.objectives.chi2_po import Chi2PO
from pmdkit.objectives.cispo import CISPO
from pmdkit.objectives.contrib.asymre import AsymRE
from pmdkit.objectives.contrib.bapo import BAPO
from pmdkit.objectives.contrib.flowrl import FlowRL
from pmdkit.objectives.contrib.gmpo import GMPO
from pmdkit.objectives.contrib.grpo_kl import GRPOKL
from pmdkit.objectives.contrib.opmd import OPMD
from pmdkit.objectives.contrib.qrpo import QRPO
from pmdkit.objectives.contrib.rec import REC
from pmdkit.objectives.contrib.reinforce_pp import ReinforcePP
from pmdkit.objectives.contrib.sapo import SAPO
from pmdkit.objectives.contrib.sppo import SPPO
from pmdkit.objectives.contrib.topr import TOPR
from pmdkit.objectives.credit import coefficient, credit, cut, parts, response_loss, total
from pmdkit.objectives.dro import DRO
from pmdkit.objectives.grpo import DAPO, GRPO, DrGRPO
from pmdkit.objectives.gspo import GSPO
from pmdkit.objectives.objective import Objective, Traits, temperature, traits
from pmdkit.objectives.pmd_between import PLACES, EasyPrompts, PMDBetween
from pmdkit.objectives.pmd_mean import PMDMean
from pmdkit.objectives.pmd_part import PMDPart
from pmdkit.objectives.pmd_score import PMDScore
from pmdkit.objectives.pmd_token import PMDToken
from pmdkit.objectives.rebel import REBEL
from pmdkit.objectives.regulariser import OPTIONS, regularised
from pmdkit.objectives.rloo import RLOO
from pmdkit.objectives.tb import TB
from pmdkit.objectives.temperatures import TAUS, Chi2Budget, Contraction, KLBudget, PassRate, make_rule, make_tau
from pmdkit.options import check_options
from pmdkit.plugins import class_from_path, is_path

__all__ = [
    "BAPO",
    "CISPO",
    "DAPO",
    "DRO",
    "GMPO",
    "GRPO",
    "GRPOKL",
    "GSPO",
    "OBJECTIVES",
    "OPMD",
    "QRPO",
    "REBEL",
    "REC",
    "RLOO",
    "SAPO",
    "SPPO",
    "TAUS",
    "TB",
    "TOPR",
    "AsymRE",
    "Batch",
    "Chi2Budget",
    "Chi2PO",
    "Contraction",
    "DrGRPO",
    "EasyPrompts",
    "FlowRL",
    "Groups",
    "KLBudget",
    "Norm",
    "Objective",
    "PMDBetween",
    "PMDMean",
    "PMDPart",
    "PMDScore",
    "PMDToken",
    "PassRate",
    "ReinforcePP",
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

OBJECTIVES: dict[str, Any] = {
    "pmd-mean": PMDMean,
    "pmd-part": PMDPart,
    "pmd-between": PMDBetween,
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
    "pmd-token": PMDToken,
    "pmd-score": PMDScore,
    "qrpo": QRPO,
    "sppo": SPPO,
    "opmd": OPMD,
    "rec": REC,
    "asymre": AsymRE,
    "topr": TOPR,
    "grpo-kl": GRPOKL,
    "sapo": SAPO,
    "gmpo": GMPO,
    "reinforce-pp": ReinforcePP,
    "bapo": BAPO,
    "flowrl": FlowRL,
}
SAME_LOSS = {"gvpo": "rebel"}
"Names of other papers for an objective above, up to a factor: arXiv:2504.19599."


def load_objective(name_or_path: str, **options: Any) -> Objective:
    """Load the objective with this name and set its options.

    Args:
        name_or_path: a key of OBJECTIVES, or a file and a class in it, such as "my.py:MyLoss"; the file is run.
        options: fields of the dataclass. `tau` is a number, a rule, or {"rule": name, ...}, see `make_tau`.
    """
    name_or_path = SAME_LOSS.get(name_or_path, name_or_path)
    if is_path(name_or_path):
        factory = class_from_path(name_or_path)
    elif name_or_path in OBJECTIVES:
        factory = OBJECTIVES[name_or_path]
    else:
        raise ValueError(f"{unknown('objective', name_or_path, OBJECTIVES)}, or your own as file.py:Class")
    own = {field.name for field in fields(factory)} if is_dataclass(factory) else set(OPTIONS)
    if any(option in OPTIONS and option not in own for option in options):
        factory = regularised(factory)
    check_options(name_or_path, factory, options)
    if "tau" in options:
        options["tau"] = make_tau(options["tau"])
    if factory is PMDBetween and "k" in options:
        options["k"] = make_rule("k", options["k"], PLACES)
    objective: Objective = factory(**options)
    missing = [word for word in ("norm", "advantage", "loss") if not hasattr(objective, word)]
    if missing:
        raise ValueError(
            f"{name_or_path} lacks {', '.join(missing)}; an objective has norm, advantage(groups) and loss(batch): "
            "start from a copy of pmdkit/objectives/skeleton.py"
        )
    return objective


def objective_name(objective: Objective) -> str:
    """The key in OBJECTIVES of a built-in objective; the class name of a user's own."""
    for name, factory in OBJECTIVES.items():
        if getattr(objective, "wrapped", type(objective)) is factory:
            return name
    return type(objective).__name__
