"""The contract of an objective: one file per idea, one function per check, all of them in CHECKS."""

from collections.abc import Callable

from pmdkit.objectives.vocabulary import Objective
from pmdkit.testing.objectives.absent import check_absent
from pmdkit.testing.objectives.coefficients import check_coefficient
from pmdkit.testing.objectives.derivative import check_derivative
from pmdkit.testing.objectives.equal_groups import check_equal_groups
from pmdkit.testing.objectives.first_step import check_first_step
from pmdkit.testing.objectives.kind import check_kind
from pmdkit.testing.objectives.micro_batches import check_micro_batches
from pmdkit.testing.objectives.ministeps import check_ministeps
from pmdkit.testing.objectives.order import check_row_order, check_token_order
from pmdkit.testing.objectives.padding import check_padding
from pmdkit.testing.objectives.population import check_population
from pmdkit.testing.objectives.temperatures import check_temperature
from pmdkit.testing.objectives.unbiased import check_unbiased

CHECKS: dict[str, Callable[[Objective, int], str | None]] = {
    "kind": check_kind,
    "first step": check_first_step,
    "temperature": check_temperature,
    "padding": check_padding,
    "absent rows": check_absent,
    "row order": check_row_order,
    "token order": check_token_order,
    "micro-batches": check_micro_batches,
    "ministeps": check_ministeps,
    "derivative": check_derivative,
    "coefficient": check_coefficient,
    "equal groups": check_equal_groups,
    "unbiased": check_unbiased,
    "population": check_population,
}


def check_objective(objective: Objective, seed: int = 0) -> dict[str, str]:
    """Run every check of the contract on an objective.

    Args:
        objective: one of OBJECTIVES, or an instance of your own frozen dataclass.
        seed: of the random rewards, lengths and log-probabilities.

    Returns:
        For each check "ok", or why it does not apply (`pmdkit.objectives.traits`).

    Raises:
        AssertionError: with one sentence, at the first check that fails.
    """
    verdicts = {}
    for name, check in CHECKS.items():
        try:
            verdicts[name] = check(objective, seed) or "ok"
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
        except Exception as error:
            raise AssertionError(f"{name}: the objective raised {type(error).__name__}: {error}") from error
    return verdicts
