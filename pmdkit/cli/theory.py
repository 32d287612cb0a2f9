"""`pmdkit theory`: the exact updates of one prompt at a given pass rate."""

from rich.console import Console

from pmdkit.cli.options import Flag
from pmdkit.cli.output import print_json, simple_table
from pmdkit.errors import UsageError

GROUP = 16  # draws of a group in the rows of the anchor law


def theory(*, p: float = 0.1, tau: float = 0.05, json: Flag = False) -> None:
    """The exact PMD-mean and PMD-part updates of one prompt with binary rewards.

    Args:
        p: pass rate of the prompt, in (0, 1).
        tau: temperature on rewards 0 and 1; twice as much on rewards -1 and 1 gives the same update.
        json: print one JSON value.
    """
    from pmdkit import theory as room

    if not 0 < p < 1:
        raise UsageError(f"p is {p}; expected a pass rate strictly between 0 and 1")
    table: dict[str, dict[str, float | None]] = {}
    for k, method in enumerate(room.METHODS):
        exact = room.binary(p, tau, method)
        table[method] = {
            "pass_rate_after": float(1 - (1 - p) * (1 - exact.eta)),
            "log_ratio_pos": float(exact.log_ratio_pos),
            "log_ratio_neg": float(exact.log_ratio_neg),
            "eta": float(exact.eta),
            "B": float(exact.B),
            "B_plus": float(exact.B_plus),
            "lambda": float(exact.lam) if method == "pmd-mean" else None,
            "anchor": float(room.anchor(p, tau, GROUP, k)),
            "anchor_threshold": float(room.anchor_threshold(p, GROUP, k)),
        }
    scales = {"tau_on_01": tau, "tau_on_pm1": 2 * tau}
    if json:
        print_json({"p": p, **scales, **table})
        return
    console = Console()
    console.print(f"pass rate {p:g}; tau {scales['tau_on_01']:g} on rewards {{0,1}}, {scales['tau_on_pm1']:g} on +-1")
    names = {
        "pass_rate_after": ("pass rate after one exact step", ""),
        "log_ratio_pos": ("log-ratio of a right response", "nats"),
        "log_ratio_neg": ("log-ratio of a wrong response", "nats"),
        "eta": ("eta: share of the gap to 1 closed", ""),
        "B": ("B: largest |log-ratio|", "nats"),
        "B_plus": ("B+: largest log-ratio", "nats"),
        "lambda": ("lambda: lambda/(2 tau) weighs chi2", "reward^2"),
        "anchor": (f"c: push from pi_old in groups of {GROUP}", "reward"),
        "anchor_threshold": ("tau below which c exceeds tau", "reward"),
    }
    grid = simple_table("", ">PMD-mean", ">PMD-part", "unit")
    for key, (name, unit) in names.items():
        row = ["-" if (value := table[m][key]) is None else f"{value:.6g}" for m in table]
        grid.add_row(name, *row, unit)
    console.print(grid)
