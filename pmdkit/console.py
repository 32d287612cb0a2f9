"""Displays of a run: a live table on a terminal, plain lines in a log or a notebook."""

import sys
import time
from collections import deque
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from pmdkit.errors import printable
from pmdkit.fit import Display
from pmdkit.observe import gauge
from pmdkit.specs import Spec

BARS = "▁▂▃▄▅▆▇█"
SHOWN = (
    ("pass_rate", "pass rate", ""),
    ("reward_mean", "reward", ""),
    ("log_ratio_neg", "log-ratio of wrong", "nats"),
    ("theory_log_ratio_neg", "  theory", "nats"),
    ("log_ratio_pos", "log-ratio of right", "nats"),
    ("theory_log_ratio_pos", "  theory", "nats"),
    ("kl", "KL from pi_old", "nats"),
    ("abs_log_ratio_median", "half moved less than", "nats"),
    ("ess", "effective after the step", "of a group"),
    ("theory_lambda_over_tau", "hidden brake lambda/tau", "reward units"),
    ("noise_share", "too few right draws", "of the groups"),
    ("anchor", "push under PMD-part", "of the pull back"),
    ("entropy", "entropy", "nats"),
    ("grad_norm", "gradient norm", ""),
)


class LogDisplay(Display):
    """About ten plain lines on stderr: no animation where there is no terminal."""

    phase = ""
    shown_at = 0.0

    def begin(self, spec: Spec, start: int) -> None:
        """Print what runs, and where it resumes."""
        self.last = spec.schedule.steps
        self.every = max(1, self.last // 10)
        going = f", from step {start + 1}" if start else ""
        self.note(f"{run_title(spec)}{going}")

    def show(self, row: dict[str, Any]) -> None:
        """Print a line every tenth of the run."""
        if row["step"] % self.every == 0 or row["step"] in (1, self.last):
            rate = "" if row["pass_rate"] is None else f"pass rate {row['pass_rate']:.4f}, "
            self.note(f"step {row['step']}/{self.last}: {rate}reward {row['reward_mean']:.4f}")

    def work(self, what: str, done: float, total: float, detail: str = "") -> None:
        """Print a line every half minute; shorter phases get none."""
        now = time.monotonic()
        if what != self.phase:
            self.phase, self.shown_at = what, now
        elif now - self.shown_at > 30:
            self.shown_at = now
            self.note(f"{what}: {done:.0f} of {total:.0f}" + (f", {detail}" if detail else ""))

    def note(self, sentence: str) -> None:
        """Print one line."""
        print(f"pmdkit: {printable(sentence)}", file=sys.stderr, flush=True)


class LiveDisplay(Display):
    """A live table on a terminal: the latest step, theory beside measurement, the curve so far, and the time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.curve: deque[float] = deque(maxlen=4096)
        self.recent: deque[tuple[float, float]] = deque(maxlen=20)  # tokens and seconds of a step
        self.drawn, self.phase = 0.0, ""
        self.below: RenderableType = Text("")
        self.table: RenderableType = Text("")
        step, gone, left = "step {task.completed:.0f}/{task.total:.0f}", "gone,", "left{task.fields[rate]}"
        columns = (TextColumn(step), TimeElapsedColumn(), TextColumn(gone), TimeRemainingColumn(), TextColumn(left))
        # rich forgets steps after 30 s by default, and then knows no speed where a step takes longer
        self.progress = Progress(BarColumn(24), *columns, console=console, speed_estimate_period=1e9)

    def begin(self, spec: Spec, start: int) -> None:
        """Open the table."""
        self.title = printable(run_title(spec))
        self.last = spec.schedule.steps
        self.counts_tokens = spec.tier != "bandit"
        self.hidden = {"anchor"} if spec.objective["name"] != "pmd-part" else set[str]()
        self.task = self.progress.add_task("steps", total=self.last, completed=start, rate="")
        self.table = Text(self.title, "bold")
        self.live.start()

    def show(self, row: dict[str, Any]) -> None:
        """Redraw at most ten times a second, and at the last step."""
        value = row["pass_rate"] if row["pass_rate"] is not None else row["reward_mean"]
        self.curve.append(value)
        self.recent.append((row["tokens"], row["seconds_rollout"] + row["seconds_update"]))
        tokens, seconds = (sum(column) for column in zip(*self.recent, strict=True))
        rate = f", {tokens / seconds:,.0f} tokens/s" if self.counts_tokens and seconds > 0 else ""
        self.progress.update(self.task, completed=row["step"], rate=rate)
        if row["step"] < self.last and time.monotonic() - self.drawn < 0.1:
            return
        self.drawn = time.monotonic()
        self.table = self.picture(row)
        self.live.update(Group(self.table, self.below), refresh=True)

    def work(self, what: str, done: float, total: float, detail: str = "") -> None:
        """Show a bar under the table, redrawn at most four times a second; at once where a phase begins."""
        if what == self.phase and time.monotonic() - self.drawn < 0.25 and done < total:
            return
        self.drawn, self.phase = time.monotonic(), what
        progress = ProgressBar(total=total, completed=done, width=24)
        self.below = bar = Table.grid(padding=(0, 1))
        words = f"{done:.0f} of {total:.0f}" + (f", {printable(detail)}" if detail else "")
        bar.add_row(Text(f"  {printable(what)}", "dim"), progress, Text(words, "dim"))
        if not self.live.is_started:
            self.live.start()
        self.live.update(Group(self.table, self.below), refresh=True)

    def picture(self, row: dict[str, Any]) -> Group:
        """The screen contents for one step."""
        table = Table("", Column(justify="right"), "", box=None, padding=(0, 2), show_header=False)
        table.columns[0].style = table.columns[2].style = "dim"
        for key, name, unit in SHOWN:
            if row.get(key) is not None and key not in self.hidden:
                measured = row.get(key.removeprefix("theory_")) if key.startswith("theory_log_ratio") else None
                if measured is not None and abs(measured) < abs(row[key]) / 2:
                    unit += f", a step goes {100 * measured / row[key]:.2g} % of the way; a small part is usual"
                if key == "kl" and gauge.largest_share(row) > 0.5:
                    unit += ", most of it one response that grew likelier"
                table.add_row(name, f"{row[key]:.4f}", unit)
        width = max(10, min(60, self.console.width - 30))
        what = "reward so far" if row["pass_rate"] is None else "pass rate so far"
        spark = Text.assemble(("  " + what + "  ", "dim"), (sparkline(self.curve, width), "cyan"))
        return Group(Text(self.title, "bold"), self.progress.get_renderable(), table, spark)

    def warn(self, sentence: str) -> None:
        """Print above the table."""
        self.console.print(Text.assemble(("pmdkit: warning: ", "yellow"), printable(sentence)))

    def note(self, sentence: str) -> None:
        """Print a line that stays."""
        self.console.print(Text(printable(sentence), "dim"))

    def end(self) -> None:
        """Close the table."""
        self.live.stop()


def run_title(spec: Spec) -> str:
    """One line that names a run."""
    tau = spec.objective.get("tau")
    group = spec.schedule.group
    how = f"{group} draws" if group else f"full support, {spec.schedule.update}"
    with_tau = f", tau {tau}" if tau is not None else ""
    stale = f", staleness {spec.staleness}" if spec.staleness else ""
    return f"{spec.tier} {spec.name}: {spec.objective['name']}{with_tau}, {how}{stale}"


def sparkline(values: "deque[float] | list[float]", width: int) -> str:
    """Values as a row of bars, the newest at the right, resampled to `width` characters."""
    points = list(values)
    if len(points) > width:
        points = [points[round(k * (len(points) - 1) / (width - 1))] for k in range(width)]
    low, high = min(points, default=0.0), max(points, default=0.0)
    span = high - low or 1.0
    return "".join(BARS[round((p - low) / span * (len(BARS) - 1))] for p in points)


def make_display(quiet: bool = False) -> Display:
    """The display that suits stderr: a live table on a terminal, else plain lines; nothing if `quiet`."""
    if quiet:
        return Display()
    console = Console(stderr=True)
    return LiveDisplay(console) if console.is_terminal else LogDisplay()


def default_display() -> Display:
    """Plain lines in a notebook that a person runs, else nothing; a kernel that allows no input runs unattended."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    kernel = getattr(shell, "kernel", None)
    return LogDisplay() if getattr(kernel, "_allow_stdin", False) else Display()
