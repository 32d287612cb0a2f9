"""When responses without a verdict mean that the verifier is what failed: nothing is learned or concluded from them."""

from collections.abc import Sequence

from pmdkit.envs.math_answers import Verdict
from pmdkit.errors import ComponentDied

MOST = 0.01
"Share of a batch that may be without a verdict; one response alone never stops anything."


def stop_if_unscored(verdicts: Sequence[Verdict], most: float, kept: str) -> None:
    """Raise where too many responses have no verdict.

    Args:
        verdicts: of a batch.
        most: share that may be without one.
        kept: what did not happen with them, for the message.

    Raises:
        ComponentDied: with the reason of the first of them.
    """
    unscored = [verdict for verdict in verdicts if not verdict.scored]
    if len(unscored) > max(1, most * len(verdicts)):
        raise ComponentDied(
            f"the verifier came to no verdict on {len(unscored)} of {len(verdicts)} responses "
            f"({unscored[0].reason}), above the share of {most:.3g} (reward.most_unscored in a run); {kept}: mend it, "
            "then go on with --resume"
        )
