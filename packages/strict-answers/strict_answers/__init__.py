"""Is the answer right? Strict integers first, symbolic comparison in a killable process second, no guessing.

`verify` judges one response, `Grader` many, also with a user's own grader; `audit` shows what was decided.
"""

from strict_answers.audit import audit
from strict_answers.pool import Grader, Item
from strict_answers.verify import Verdict, verify

__all__ = ["Grader", "Item", "Verdict", "audit", "verify"]
