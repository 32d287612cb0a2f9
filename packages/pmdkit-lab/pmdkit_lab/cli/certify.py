"""`pmdkit certify`: which objective somebody's own loss is, and what differs; which KL divergence a KL term has."""

from dataclasses import asdict
from typing import Any

from pmdkit.cli.options import Flag, Texts, assignments
from pmdkit.cli.output import print_json
from pmdkit.errors import CheckFailed, UsageError


def certify(
    loss: str, *, objective: str | None = None, tau: float | None = None, set: Texts = None, kl: Flag = False,
    json: Flag = False,
) -> None:  # fmt: skip
    """Name the objective that a loss of your own is, or the nearest one, and what differs from it.

    Args:
        loss: my.py:loss_fn, a function of (logp, logp_old, reward, mask) and logp_ref if it has one, or an objective.
        objective: what the loss is meant to be, such as rloo; by default it is compared with all of them.
        tau: temperature that the loss was given, in reward units: 0.1 for a function, else the objective's own.
        set: options of the objectives to compare with, such as clip_high=0.28.
        kl: name a KL term instead, a function of (logp, logp_ref, mask) or (logp, logp_ref, logp_old, mask).
        json: print one JSON value.
    """
    from pmdkit.errors import unknown
    from pmdkit.objectives import OBJECTIVES, load_objective
    from pmdkit.plugins import function_from_path
    from pmdkit_lab.certify import CERTIFIED
    from pmdkit_lab.certify import certify as ask

    if kl:
        certify_kl_term(loss, json)
        return
    if objective is not None and objective not in OBJECTIVES:
        raise UsageError(unknown("objective", objective, OBJECTIVES))
    options = {key.removeprefix("objective."): value for key, value in assignments(set or []).items()}
    found: Any = None
    if loss not in OBJECTIVES:
        found = function_from_path(loss, "(logp, logp_old, reward, mask), which returns one number")
    if found is None or isinstance(found, type):
        found = load_objective(loss, **options, **({} if tau is None else {"tau": tau}))
        tau = getattr(found, "tau", None)
    if callable(tau):
        raise UsageError(f"tau of {loss} is a rule; expected a number: --tau 0.1")
    verdict = ask(found, 0.1 if tau is None else tau, (objective,) if objective else (), **options)
    if json:
        found = asdict(verdict)
        print_json({"objective": found.pop("name"), **found, "right": verdict.right})
    elif verdict.right:
        print(verdict.sentence(), CERTIFIED.format(verdict.called), sep="\n")
    if not verdict.right:
        raise CheckFailed(verdict.sentence())


def certify_kl_term(path: str, json: bool) -> None:
    """Print the verdict on a KL term; fail unless its gradient as a loss is that of a divergence."""
    from pmdkit.plugins import function_from_path
    from pmdkit_lab.certify import certify_kl

    verdict = certify_kl(function_from_path(path, "(logp, logp_ref, mask) or (logp, logp_ref, logp_old, mask)"))
    if json:
        print_json(asdict(verdict))
    else:
        print(verdict.sentence())
    if not verdict.right:
        raise CheckFailed(f"as a loss, the term has {verdict.loss}")
