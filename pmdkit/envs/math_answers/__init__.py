"""Is the answer right? Strict integers first, symbolic comparison in a killable process second, no guessing.

`verify` judges one response, `Grader` many, also with a grader of the user's own; `audit` shows what was decided.
"""

from pmdkit.envs.math_answers.audit import audit
from pmdkit.envs.math_answers.pool import Grader, Item
from pmdkit.envs.math_answers.verdict import Verdict
from pmdkit.envs.math_answers.verify import verify

__all__ = ["Grader", "Item", "Verdict", "audit", "verify"]
