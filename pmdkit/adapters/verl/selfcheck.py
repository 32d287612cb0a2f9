"""Once in each process: recorded cases go through the registered loss, so that no run starts on another one."""

from pmdkit.errors import CheckFailed

STARTED: list[bool] = []


def self_check() -> None:
    """Run the golden vectors of PMD through verl's registry, the first time this is called.

    Raises:
        CheckFailed: a loss or a gradient is off by more than 1e-6, or other code took the name of a loss.
    """
    if STARTED:
        return
    STARTED.append(True)  # before the work: the golden cases call the loss, which calls this
    from pmdkit.adapters.verl.golden import path
    from pmdkit.testing.golden import TOLERANCE, cases, off

    found = {}
    for case in cases():
        if case["objective"] in ("pmd-mean", "pmd-part") and (result := path(case)) is not None:
            found[case["name"]] = off(*result, case)
    worst = max(found, key=lambda name: found[name])
    if not found[worst] <= TOLERANCE:
        STARTED.clear()
        raise CheckFailed(
            f"the loss registered in verl is off by {found[worst]:.1e} in the recorded case '{worst}', more than "
            f"{TOLERANCE:g}; expected the versions of verl and pmdkit that are tested together, and no other plug-in "
            "that registers a loss called pmd"
        )
