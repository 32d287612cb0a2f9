"""Who watches a reproduction: a line for each part in a log, a bar on a terminal. Both on stderr."""

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pmdkit.reproducing.part import Part, clock

NAMED = 4  # parts left out that are named before it begins; the report names all


class Watch:
    """A log: one line for each part, and what long parts say while they work."""

    def begin(
        self, budget: float, jobs: int, planned: Sequence[Part], already: int, outside: Mapping[str, str]
    ) -> None:
        """What the budget holds, before it begins."""
        self.count, self.number, self.part = len(planned), already, planned[0]
        about = clock(sum(part.cost(jobs) for part in planned))
        several = f"{jobs} runs at a time" if jobs > 1 else "one run at a time"
        self.note(f"budget {clock(budget)}, {several}: {len(planned)} parts, estimated at {about}")
        if already:
            self.note(f"{already} of them are done already and left alone")
        if outside:
            names = [f"{name} ({needed})" for name, needed in outside.items()]
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            self.note(f"left out, with the budget each needs: {', '.join(names[:NAMED])}{more}")

    def start(self, part: Part, seconds: float, left: float) -> None:
        """A part begins; long ones are announced."""
        self.number, self.part = self.number + 1, part
        if part.apart:
            self.note(f"{self.place} {part.name} begins, about {clock(max(1.0, seconds))}: {part.about}")

    @property
    def place(self) -> str:
        """Where it is in the list."""
        return f"[{self.number}/{self.count}]"

    def say(self, sentence: str) -> None:
        """What a part says; of a short one that is not worth a line."""
        if self.part.apart:
            self.note(sentence)

    def done(self, part: Part, seconds: float, left: float) -> None:
        """A part ended."""
        self.note(f"{self.place} {part.name}: {seconds:.1f} s, {clock(max(0.0, left))} left")

    def skip(self, part: Part, reason: str) -> None:
        """A part does not run."""
        self.number += 1
        self.note(f"{self.place} {part.name}: left out, {reason}")

    def fail(self, part: Part, reason: str) -> None:
        """A part failed."""
        self.note(f"{self.place} {part.name}: failed: {reason}")

    def end(self) -> None:
        """Nothing more comes."""

    def note(self, line: str) -> None:
        """One line."""
        print(f"pmdkit: {line}", file=sys.stderr, flush=True)


class Screen(Watch):
    """A terminal: a line for each part that ended, and below them a bar with what goes on."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.fields[about]}", style="bold"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[doing]}", style="dim"),
            console=console,
            transient=True,
        )
        self.bar: TaskID | None = None

    def begin(
        self, budget: float, jobs: int, planned: Sequence[Part], already: int, outside: Mapping[str, str]
    ) -> None:
        """The plan, then the bar."""
        super().begin(budget, jobs, planned, already, outside)
        self.bar = self.progress.add_task("", total=self.count, completed=already, about="", doing="")
        self.progress.start()

    def start(self, part: Part, seconds: float, left: float) -> None:
        """The bar names it."""
        self.number, self.part = self.number + 1, part
        self.show(about=f"{self.number}/{self.count} {part.name}", doing=f"about {clock(max(1.0, seconds))}")

    def say(self, sentence: str) -> None:
        """Beside the bar."""
        room = max(12, self.console.width - 70)
        self.show(doing=sentence if len(sentence) <= room else sentence[: room - 1] + "…")

    def done(self, part: Part, seconds: float, left: float) -> None:
        """A line that stays."""
        rest = f"{clock(max(0.0, left))} left"
        self.stay(f"[green]✓[/green] {part.name:<20} {seconds:6.1f} s   [dim]{rest}[/dim]")

    def skip(self, part: Part, reason: str) -> None:
        """A line that stays."""
        self.number += 1
        self.stay(f"[yellow]–[/yellow] {part.name:<20} [dim]left out, {reason}[/dim]")

    def fail(self, part: Part, reason: str) -> None:
        """A line that stays."""
        safe = reason.replace("[", r"\[")
        self.stay(f"[red]✗[/red] {part.name:<20} failed: {safe}")

    def stay(self, line: str) -> None:
        """Above the bar, which moves."""
        self.console.print(line, highlight=False)
        if self.bar is not None:
            self.progress.update(self.bar, completed=self.number)

    def show(self, **fields: str) -> None:
        """Redraw the bar."""
        if self.bar is not None:
            self.progress.update(self.bar, **fields)  # type: ignore[arg-type]

    def note(self, line: str) -> None:
        """One line, before the bar."""
        self.console.print(line, style="dim", markup=False, highlight=False)

    def end(self) -> None:
        """The bar goes, the lines stay."""
        self.progress.stop()


def watching() -> Watch:
    """The one that fits where stderr goes."""
    console = Console(stderr=True)
    return Screen(console) if console.is_terminal else Watch()
