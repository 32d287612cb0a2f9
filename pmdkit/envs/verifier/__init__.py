"""Is the answer right? Strict integers first, symbolic comparison in a killable process second, no guessing.

`verify` judges one response, `Grader` many, also with a user's own grader; `audit` shows what was decided.
"""

from pmdkit.envs.verifier.audit import audit
from pmdkit.envs.verifier.pool import Grader, Item
from pmdkit.envs.verifier.verify import Verdict, verify

__all__ = ["Grader", "Item", "Verdict", "audit", "verify"]
