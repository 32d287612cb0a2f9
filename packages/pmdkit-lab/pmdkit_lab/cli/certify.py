"""`pmdkit certify`: which objective somebody's own loss is, and what differs."""

from typing import Any

from pmdkit.cli.options import Flag, Texts, assignments
from pmdkit.cli.output import print_json
from pmdkit.errors import CheckFailed


def certify(loss: str, *, tau: float = 0.1, set: Texts = None, json: Flag = False) -> None:
    """Name the objective that a loss of your own is, or the nearest one, and what differs from it.

    Args:
        loss: my.py:loss_fn, a function of (logp, logp_old, reward, mask), or an objective.
        tau: temperature that the loss was given, in reward units.
        set: options of the objectives to compare with, such as clip_high=0.28.
        json: print one JSON value.
    """
    from pmdkit.objectives import OBJECTIVES, load_objective
    from pmdkit.plugins import function_from_path
    from pmdkit_lab.certify import certify as ask

    options = {key.removeprefix("objective."): value for key, value in assignments(set or []).items()}
    found: Any = None
    if loss in OBJECTIVES:
        found = load_objective(loss)
    else:
        found = function_from_path(loss, "(logp, logp_old, reward, mask), which returns one number")
        if isinstance(found, type):
            found = load_objective(loss)
    verdict = ask(found, tau, **options)
    if json:
        print_json(
            {
                "objective": verdict.name,
                "options": verdict.options,
                "slips": list(verdict.slips),
                "error": verdict.error,
                "same_value": verdict.same_value,
                "right": verdict.right,
            }
        )
    if not verdict.right:
        raise CheckFailed(verdict.sentence())
    if not json:
        print(verdict.sentence())
