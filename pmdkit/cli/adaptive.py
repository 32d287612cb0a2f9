"""The table of the study of adaptive temperatures, for a terminal."""

from typing import Any

VARIED = ("scale", "eta", "budget")  # the option of each rule that is tuned


def show(result: dict[str, Any]) -> None:
    """A table per cell: each arm at its tuned value, beside the fixed tau."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for cell, rows in result["tables"].items():
        table = Table(title=f"{cell}, {rows[0]['seeds']} seeds", title_justify="left", box=None, pad_edge=False)
        for column in ("arm", "tuned to", "mean", "gain", "p", "final", "drop", "dead"):
            table.add_column(column, justify="left" if column in ("arm", "tuned to") else "right", no_wrap=True)
        for row in rows:
            gain = row.get("auc_gain")
            table.add_row(
                row["arm"].removeprefix("pass-rate 0.14, "),
                short(result["best"][cell][row["arm"]]),
                f"{row['auc']['mean']:.3f}",
                f"{gain['mean']:+.3f} ± {(gain['high'] - gain['low']) / 2:.3f}" if gain else "",
                f"{row['p']:.1g}" if row["p"] is not None else "",
                f"{row['final']['mean']:.3f}",
                f"{row['drop']['mean']:.4f}",
                f"{row['dead']['mean']:.3f}",
            )
        console.print(table)
        console.print()
    console.print(
        "mean: pass rate over training, gain: against the tuned fixed tau, paired by seed, 95 %, p: by Holm; drop: the "
        "worst from one step to the next; dead: share of prompts",
        soft_wrap=False,
    )


def short(tau: Any) -> str:
    """The value an arm was tuned to: a number, or the one option of its rule that was varied."""
    return f"{tau if not isinstance(tau, dict) else next(tau[key] for key in VARIED if key in tau):g}"
