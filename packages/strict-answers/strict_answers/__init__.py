"""Is the answer right? Strict integers first, symbolic comparison in a killable process second, no guessing.

`verify` judges one response, `Grader` many, `FunctionGrader` many by a function of your own; `audit` shows what was
decided.
"""

from strict_answers.audit import audit
from strict_answers.function_grader import FunctionGrader
from strict_answers.grader import Grader, verify
from strict_answers.verdict import Item, Verdict

__all__ = ["FunctionGrader", "Grader", "Item", "Verdict", "audit", "verify"]
