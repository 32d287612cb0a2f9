"""`pmdkit theory`: the exact updates at a given pass rate, or with `--budget` the best way to spend tokens."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console

from pmdkit.cli.options import Flag, Number, number_list
from pmdkit.cli.output import print_json, simple_table
from pmdkit.errors import UsageError

if TYPE_CHECKING:
    from pmdkit.theory import BudgetChoice

SHOWN = 5  # how many ways to spend a budget are printed


def theory(
    *,
    p: Number | None = None,
    tau: Number | None = None,
    rewards: str = "0,1",
    budget: Number | None = None,
    pass_rates: str = "0.05,0.2,0.5,0.8,0.95",
    length: Number = 1.0,
    overhead: Number = 0.0,
    lr: str = "1,4,16",
    cells: str = "1,1",
    false_positive: Number = 0.0,
    false_negative: Number = 0.0,
    json: Flag = False,
) -> None:
    """The exact PMD-mean and PMD-part updates of one prompt with binary rewards; or how best to spend a budget.

    With --budget it looks for the temperature, responses per prompt, prompts per rollout batch and ministeps whose
    run from draws ends at the highest pass rate (PMD-mean, rewards 0 and 1): docs/use/finite-samples.md.

    Args:
        p: pass rate of the prompt, in (0, 1); by default 0.1.
        tau: temperature in the units of --rewards; by default 0.05, and with --budget a grid.
        rewards: "0,1" or "-1,1".
        budget: tokens of all responses of a run.
        pass_rates: pass rates of the kinds of prompts, equally many of each; prompts of a kind share what they learn.
        length: mean tokens of a response.
        overhead: tokens that could be written while a rollout batch waits for its longest response and new weights.
        lr: step sizes of a ministep that are tried, logits per reward unit; "solve" solves the regression of each
            batch, without ministeps.
        cells: right and wrong responses that are learned apart: 1,1 generalises fully, 8,24 is a table of 32 arms.
        false_positive: chance that the verifier calls a wrong response right.
        false_negative: chance that it calls a right one wrong.
        json: print one JSON value.
    """
    from pmdkit import theory as room
    from pmdkit.theory.budgets import TAUS

    if budget is not None:
        if p is not None or rewards != "0,1":
            raise UsageError("--budget takes --pass-rates and rewards 0 and 1; leave out --p and --rewards")
        sizes = None if lr == "solve" else tuple(number_list("--lr", lr))
        try:
            found = room.best_budget(
                number_list("--pass-rates", pass_rates),
                budget,
                length=length,
                overhead=overhead,
                taus=TAUS if tau is None else (tau,),
                lr=sizes,
                groups=(1, 4, 16) if sizes else (1,),
                cells=cell_counts(cells),
                false_positive=false_positive,
                false_negative=false_negative,
            )
        except ValueError as error:
            raise UsageError(f"--budget: {error}") from error
        show_budget(found, json)
        return
    p, tau = 0.1 if p is None else p, 0.05 if tau is None else tau
    if rewards not in ("0,1", "-1,1"):
        raise UsageError(f"rewards is '{rewards}'; expected 0,1 or -1,1")
    if not 0 < p < 1:
        raise UsageError(f"p is {p}; expected a pass rate strictly between 0 and 1")
    span = 1.0 if rewards == "0,1" else 2.0
    if not tau > 0:
        raise UsageError(f"tau is {tau}; expected a finite number > 0 in reward units")
    table: dict[str, dict[str, float | None]] = {}
    for method in ("pmd-mean", "pmd-part"):
        exact = room.binary(p, tau / span, method)
        table[method] = {
            "pass_rate_after": float(1 - (1 - p) * (1 - exact.eta)),
            "log_ratio_pos": float(exact.log_ratio_pos),
            "log_ratio_neg": float(exact.log_ratio_neg),
            "eta": float(exact.eta),
            "B": float(exact.B),
            "B_plus": float(exact.B_plus),
            "lambda": float(exact.lam) * span**2 if method == "pmd-mean" else None,
        }
    scales = {"tau_on_01": tau / span, "tau_on_pm1": 2 * tau / span}
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
    }
    grid = simple_table("", ">PMD-mean", ">PMD-part", "unit")
    for key, (name, unit) in names.items():
        row = ["-" if (value := table[m][key]) is None else f"{value:.6g}" for m in table]
        grid.add_row(name, *row, unit)
    console.print(grid)


def cell_counts(text: str) -> tuple[int, int]:
    """The numbers of right and wrong cells."""
    found = number_list("--cells", text)
    if len(found) != 2 or any(count != int(count) for count in found):
        raise UsageError(f"--cells is '{text}'; expected two whole numbers, right and wrong ones, such as 8,24")
    return int(found[0]), int(found[1])


def show_budget(found: "tuple[BudgetChoice, ...]", json: bool) -> None:
    """Print the best ways, each batch once with its best temperature and step size, and what staleness costs."""
    batches = {(one.n, one.prompts, one.ministeps): one for one in reversed(found)}  # the best of each comes last
    best = sorted(batches.values(), key=lambda one: -one.pass_rate)
    stale = {one.ministeps: one for one in reversed(found) if one.ministeps is not None}
    by_ministeps = [stale[count] for count in sorted(stale)]
    if json:
        print_json(
            {"best": asdict(best[0]), "by_ministeps": list(map(asdict, by_ministeps)), "ways": list(map(asdict, found))}
        )
        return
    console = Console()
    titles = (">tau", ">responses", ">prompts", ">ministeps", ">step size", ">batches", ">pass rate")
    tables = {"the best ways to spend it": best[:SHOWN], "the best for each number of ministeps": by_ministeps}
    for title, rows in tables.items():
        if not rows:
            continue
        table = simple_table(*titles, title=title, title_justify="left")
        for one in rows:
            updates = ("-", "-") if one.lr is None else (str(one.ministeps), f"{one.lr:g}")
            end = f"{one.pass_rate:.3f} ± {one.error:.3f}"
            table.add_row(f"{one.tau:g}", str(one.n), str(one.prompts), *updates, str(one.steps), end)
        console.print(table)
    console.print("By the law of draws, for policies with these cells; other learning rates give other results.")
