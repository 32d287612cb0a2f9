"""What `pmdkit replay` shows a person of a step: one table per question. The story of a row is replay_story.py."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pmdkit.printable import printable
from pmdkit.recording.points import MEANING


def show_step(found: dict[str, Any]) -> None:
    """The tables of a replayed step."""
    console = Console(highlight=False)
    recorded, asked = found["recorded"]["objective"], found["objective"]
    console.print(
        f"[bold]{found['run']}[/bold], step {found['step']}: {found['tier']} {found['env']}, "
        f"{count(found['prompts'], 'prompt')} of {found['group']} "
        + ("responses" if found["sampled"] else "arms or responses, the full support")
        + ("" if found["pass_rate"] is None else f", pass rate {found['pass_rate']:.3f}"),
        soft_wrap=True,
    )
    console.print(f"recorded  {told(recorded)}, {count(found['recorded']['ministeps'], 'update')}", soft_wrap=True)
    console.print(
        f"asked     {told(asked)}, {count(found['ministeps'], 'update')}"
        + ("" if found["order"] == "recorded" else f", prompts {order_words(found['order'])}")
        + ("" if found["anchor"] == "pi_old" else f", anchor: {found['anchor']}"),
        soft_wrap=True,
    )
    show_check(console, found["recorded"])
    advantage = found["advantage"]
    console.print(
        f"advantage from {number(advantage['low'])} to {number(advantage['high'])}, mean {number(advantage['mean'])}; "
        f"above 0 for {advantage['positive']:.1%} of the rows",
        soft_wrap=True,
    )
    show_points(console, found)
    show_updates(console, found)
    show_drivers(console, found)
    show_gauge(console, found)


def show_check(console: Console, recorded: dict[str, Any]) -> None:
    """Whether the recording gives the losses that the run reported."""
    if recorded["replayed"] is None:
        console.print(f"check     the recorded losses cannot be computed again: {recorded['why']}", soft_wrap=True)
        return
    pairs = list(zip(recorded["losses"], recorded["replayed"], strict=True))
    worst = max(abs(a - b) for a, b in pairs)
    mean = sum(recorded["losses"]) / len(pairs)
    console.print(
        f"check     the run reported a loss of {number(mean)}; the recording gives it again, to {worst:.1e}",
        soft_wrap=True,
    )


def show_points(console: Console, found: dict[str, Any]) -> None:
    """Loss and gradient at each recorded policy."""
    table = grid("the policy", "loss", "|grad|", "up", "silent", "rows", "cosine", "size")
    for name, at in found["points"].items():
        if "missing" in at:
            continue
        cells = [number(at["loss"]), number(at["norm"]), share(at["up"]), share(at["silent"])]
        rows = str(at["rows"]) + (f" of {at['rows'] + at['rows_missing']}" if at["rows_missing"] else "")
        table.add_row(MEANING[name], *cells, rows, plain(at["cosine"]), times(at["scale"]))
    console.print(table)
    console.print(
        "Gradients are by the log-probabilities of the tokens"
        + ("" if found["sampled"] else ", of arms by their free logits")
        + ". up: share of the pull that raises responses; silent: tokens that have an advantage and no gradient "
        "(clipped, or at rest); cosine and size: beside the recorded objective at the same policy.",
        soft_wrap=True,
    )
    for name, at in found["points"].items():
        if "missing" in at:
            console.print(f"the policy {MEANING[name]}: {at['missing']}", soft_wrap=True)


def show_updates(console: Console, found: dict[str, Any]) -> None:
    """What each update holds."""
    if len(found["updates"]) < 2:
        return
    table = grid("update", "prompts", "pass rate", "loss", "|grad|")
    for n, part in enumerate(found["updates"], 1):
        cells = (plain(part["pass_rate"]), number(part["loss"]), number(part["norm"]))
        table.add_row(str(n), str(part["prompts"]), *cells)
    console.print(table)
    console.print(
        "All at the policy that drew the rows. The first update starts there; where later ones start depends on those "
        "before them.",
        soft_wrap=True,
    )


def show_drivers(console: Console, found: dict[str, Any]) -> None:
    """The prompts that pull most."""
    if not found["drivers"]:
        console.print("no prompt pulls: every gradient is 0")
        return
    table = grid("share", "pass rate", "rows")
    table.add_column("prompts that drive the step", no_wrap=True, overflow="ellipsis", max_width=44)
    for driver in found["drivers"]:
        first, last = driver["rows"]
        text = Text(printable(" ".join(driver["text"].split())))  # of the data: no markup, no command
        table.add_row(f"{driver['share']:.1%}", plain(driver["pass_rate"]), f"{first} to {last}", text)
    console.print(table)


def show_gauge(console: Console, found: dict[str, Any]) -> None:
    """Predicted log-ratios beside the measured ones."""
    asked, recorded = found["gauge"], found["gauge_recorded"]
    if not asked:
        console.print("rewards do not pass or fail: there are no right and wrong responses to predict for")
        return
    table = grid(
        "pass rate", "prompts", "wrong:\nasked", "\nrecorded", "\nmeasured", "right:\nasked", "\nrecorded", "\nmeasured"
    )
    for n, entry in enumerate(asked):
        own = recorded[n] if recorded else {}
        cells = []
        for side in ("neg", "pos"):
            cells += [plain(entry[f"theory_log_ratio_{side}"]), plain(own.get(f"theory_log_ratio_{side}"))]
            cells.append(plain(entry[f"log_ratio_{side}"]))
        table.add_row(entry["pass_rates"], str(entry["prompts"]), *cells)
    console.print(table)
    console.print(
        "Mean log-ratios, nats: of the exact update of each group under the asked and the recorded objective, and "
        "after the run's own step. - is no such response, no known solution, or not recorded.",
        soft_wrap=True,
    )


def grid(first: str, *titles: str) -> Table:
    """A table whose first column is words."""
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True, overflow="ellipsis", max_width=30)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def told(objective: dict[str, Any]) -> str:
    """`pmd-mean, tau 0.05, norm length`."""
    options = [f"{key} {value}" for key, value in objective.items() if key != "name"]
    return ", ".join([str(objective["name"]), *options])


def order_words(order: str) -> str:
    """How prompts are ordered."""
    return f"shuffled by seed {order}" if order.isdigit() else order


def count(n: int, noun: str) -> str:
    """`1 prompt`, `2 prompts`."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def number(value: float | None) -> str:
    """Three digits that matter."""
    return "-" if value is None else "0" if abs(value) < 1e-12 else f"{value:.3g}"


def plain(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals."""
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def share(value: float | None) -> str:
    """A share in per cent."""
    return "-" if value is None else f"{value:.1%}"


def times(value: float | None) -> str:
    """A factor."""
    return "-" if value is None else f"x {value:.3g}"
