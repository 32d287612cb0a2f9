"""`pmdkit bandit` and `pmdkit toy`, and what the verbs of all tiers share: starting a run and its final report.

`pmdkit.trainer` handles SIGTERM and SIGINT within its steps. `command_context` handles them before the first step and
after the last, handles SIGHUP, and keeps a run alive when the reader of its output goes away.
"""

import contextlib
import errno
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.table import Table

from pmdkit import plugins
from pmdkit.cli import companions
from pmdkit.cli.options import BanditName, Flag, RunOptions, RunPath, Texts, ToyName
from pmdkit.cli.output import print_json, shown, simple_table
from pmdkit.errors import Stopped, UsageError
from pmdkit.observe.glossary import format_tau

if TYPE_CHECKING:
    from pmdkit.training import Run

LONG = 20.0  # seconds; a run at least this long gets its picture at the end, which takes three seconds to draw
GONE = (errno.EPIPE, errno.EIO)  # the reader closed the pipe; the terminal hung up
OUTSIDE = "stopped outside a step, and nothing that was saved is lost; run again with --resume"


def bandit(env: BanditName, /, *, options: RunOptions | None = None) -> None:
    """Tier 1: a table of logits on a contextual bandit.

    Without --group the update is exact: the population solution in closed form (--set update=regression minimises
    the full expectation by Newton instead). With --group G it learns from G draws per context by gradient steps.

    Args:
        env: a spec on the shelf (see pmdkit envs) or a .toml file.
    """
    with command_context():
        begin("bandit", env, options or RunOptions())


def toy(env: ToyName, /, *, options: RunOptions | None = None) -> None:
    """Tier 2: a small transformer on a token task, from rewards 0 and 1.

    The same objective, loop, folder and options as tier 1. --group draws responses; without it they are enumerated,
    where the task has few enough.

    Args:
        env: a spec on the shelf (see pmdkit envs) or a .toml file.
    """
    with command_context():
        begin("toy", env, options or RunOptions())


def begin(tier: str, env: str, options: RunOptions, more: Mapping[str, Any] | None = None) -> None:
    """Run a spec of a tier, or print what would run. `more` holds changes that have no option."""
    from pmdkit.observe.console import make_display
    from pmdkit.training import launch, plan

    changes = options.changes() | dict(more or {})
    trust = options.trust or ()
    if options.dry_run:
        plugins.trust(trust)
        spec, _ = plan(tier, env, changes)
        print_json(spec.record(), indent=2)
        return
    display = make_display(quiet=options.json)
    started = time.monotonic()
    run = launch(
        tier, env, changes, options.out, options.resume, display, trust=trust, accept_changes=options.accept_changes
    )
    wanted = options.figure
    if wanted is None:
        wanted = not options.json and time.monotonic() - started >= LONG
    picture = save_picture(run) if wanted else ""
    if options.json:
        print_json(run.summary)
    else:
        report(run, picture)
    sys.stdout.flush()


def figure(run: RunPath, /, *, trust: Texts = None, json: Flag = False) -> None:
    """Draw the picture of a run, figures/run.png and run.svg in its folder: does it learn, and how far does a step go?

    Args:
        run: the run's folder.
        trust: files such as my.py that the run names and whose code may run.
        json: print the path as one JSON value.
    """
    from pmdkit.training import Run

    if not run.exists() and "figure" not in companions.verbs():
        raise UsageError(
            f"{run} is not a folder; the paper's figures by name need pmdkit-lab: {companions.install('pmdkit-lab')}"
        )
    path = save_picture(Run(run, trust=trust or ()))
    if json:
        print_json({"figure": path})
    else:
        Console().print(f"picture: {shown(path)}", soft_wrap=True)


def save_picture(run: "Run") -> str:
    """Write the run's figure as PNG and SVG, unless they are newer than its end; returns the path of the PNG."""
    from pmdkit.figures.style import save

    path = run.folder.figures / "run.png"
    if not path.exists() or path.stat().st_mtime < run.folder.summary.stat().st_mtime:
        save(run.figure(), path.with_suffix(""))
    return str(path)


def report(run: "Run", picture: str) -> None:
    """Print the summary and the gauge of a run, and where its picture is, or the command that draws it."""
    from pmdkit.envs.kinds import reward_scale
    from pmdkit.observe import gauge

    console = Console(highlight=False)
    summary = run.summary
    console.print()
    tier, env, name = (shown(summary[key]) for key in ("tier", "env", "objective"))
    console.print(f"[bold]{tier} {env}[/bold], {name}, {summary['steps']} steps")
    console.print(shown(format_tau(summary["tau"], reward_scale(run.spec))))
    table = simple_table("", ">before", ">after")
    for key, name in (("pass_rate", "pass rate, evaluated"), ("reward", "reward, evaluated")):
        if summary[f"{key}_first"] is not None:
            table.add_row(name, f"{summary[f'{key}_first']:.6g}", f"{summary[f'{key}_last']:.6g}")
    console.print(table)
    rows = gauge.merge(row["gauge"] for row in run.metrics if row["gauge"])
    if rows:
        console.print(gauge_table(rows))
    console.print(f"run: {shown(run.path)}", soft_wrap=True)
    console.print(f"picture: {shown(picture or f'pmdkit figure {run.path}')}", soft_wrap=True)


def gauge_table(rows: list[dict[str, Any]]) -> Table:
    """Log-ratios of wrong and right responses, measured and predicted, by pass rate before the step."""
    from pmdkit.observe import gauge

    titles = (">pass rate", ">prompts", ">wrong", ">exact", ">reached", ">right", ">exact", ">reached")
    title = "log-ratio of one step by pass rate: measured, and of the exact update"
    table = simple_table(*titles, no_wrap=True, title=title, title_justify="left", title_style="")
    for row in rows:
        cells = [gauge.label(row["bucket"]), str(row["prompts"])]
        for kind in ("neg", "pos"):
            measured, predicted = row[f"log_ratio_{kind}"], row[f"theory_log_ratio_{kind}"]
            cells += [number(measured), number(predicted), share(measured, predicted)]
        table.add_row(*cells)
    table.caption = "nats, mean over the prompts of all steps; reached = measured / exact"
    table.caption_justify = "left"
    return table


def number(value: float | None) -> str:
    """Two significant digits, or a dash for None: eight such columns fit a terminal 80 columns wide."""
    return "-" if value is None else f"{value:.2g}"


def share(measured: float | None, predicted: float | None) -> str:
    """Fraction of the target reached."""
    if measured is None or predicted is None or abs(predicted) < 1e-12:
        return "-"
    percent = 100 * measured / predicted
    return f"{percent:.0f}%" if abs(percent) >= 10 else f"{percent:.2g}%"


def print_error(sentence: str) -> None:
    """Print one line on stderr."""
    print(f"pmdkit: error: {sentence}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def command_context(report: Callable[[str], None] = print_error) -> Iterator[None]:
    """Handle signals and closed streams around a whole command.

    Args:
        report: called with the sentence when a stop request ends the command while no other handler is installed.
    """
    tolerate_closed_streams()

    def leave(number: int, frame: Any) -> None:
        report(OUTSIDE)
        os._exit(Stopped.exit_code)  # an exception could be swallowed by a try block during an import

    def hang_up(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # a closing terminal sends it twice: from the kernel, then from the shell
        signal.raise_signal(signal.SIGTERM)

    wanted = {signal.SIGTERM: leave, signal.SIGINT: leave}
    if hasattr(signal, "SIGHUP"):  # not on Windows
        wanted[signal.SIGHUP] = hang_up
    if threading.current_thread() is not threading.main_thread():
        wanted = {}
    before = {number: signal.getsignal(number) for number in wanted}
    for number, old in before.items():
        if old is not signal.SIG_IGN:  # ignored under nohup, and in jobs that a script runs in the background
            signal.signal(number, wanted[number])
    try:
        yield
    except KeyboardInterrupt as second:
        before = dict.fromkeys(before, signal.SIG_IGN)  # exiting as fast as possible; a third request must do no harm
        raise Stopped("interrupted; the last checkpoint is intact: run again with --resume") from second
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class PipeTolerantFile(io.FileIO):
    """A descriptor whose reader may go away: undeliverable output is dropped. The run's folder has it all."""

    def write(self, data: Any, /) -> int:
        """Write what the descriptor takes, or discard everything if the reader is gone."""
        try:
            return super().write(data)
        except OSError as problem:
            if problem.errno not in GONE:
                raise
            return memoryview(data).nbytes


def tolerate_closed_streams() -> None:
    """Let stdout and stderr outlive their readers. A closed descriptor would be reused by the next file opened."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None or (stream is getattr(sys, f"__{name}__") and not isinstance(stream, PipeTolerantStream)):
            setattr(sys, name, tolerant_stream(stream, descriptor))


class PipeTolerantStream(io.TextIOWrapper):
    """A stream over a `PipeTolerantFile`."""


def tolerant_stream(stream: TextIO | None, descriptor: int) -> TextIO:
    """The stream of a descriptor, with the encoding of the one it replaces."""
    if stream is not None:
        stream.flush()
    raw = PipeTolerantFile(descriptor, "w", closefd=False)
    live = raw.isatty() or descriptor == 2
    encoding = stream.encoding if stream is not None else "utf-8"
    return PipeTolerantStream(io.BufferedWriter(raw), encoding=encoding, errors="backslashreplace", line_buffering=live)
