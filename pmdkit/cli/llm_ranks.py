"""`pmdkit llm` on several processes: start them, or be one of them; what happened is printed once, not by each."""

import faulthandler
import hashlib
import os
import signal
import socket
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from pmdkit.cli.options import RunOptions
from pmdkit.cli.signals import command_context, print_error
from pmdkit.cli.train import begin
from pmdkit.errors import Stopped, UsageError

if TYPE_CHECKING:
    from pmdkit.config import Spec


def start_all(recipe: str, options: RunOptions, fit: bool) -> None:
    """Run a recipe on as many processes as it asks for; does not return where it started several.

    Args:
        recipe, options: of the command line.
        fit: measure the token budget first; one process only.
    """
    from pmdkit.llm.launcher import launched_ranks

    if launched_ranks() > 1:
        be_rank(recipe, options, fit)
    else:
        with command_context():
            start_here(recipe, options, fit)


def start_here(recipe: str, options: RunOptions, fit: bool) -> None:
    """The process of the command line: run alone, or start the others."""
    from pmdkit.cli import fail
    from pmdkit.cli.llm import measured
    from pmdkit.llm.launcher import start_ranks
    from pmdkit.llm.recipe import check_requirements

    check_requirements()
    spec = asked(recipe, options)
    table = spec.parallel
    if table is None or table.processes == 1:
        begin("llm", recipe, options, measured(recipe, options) if fit else {})
        return
    refuse_fit(fit)
    if table.restarts and options.out is None:
        raise UsageError("parallel.restarts is set; name the run's folder with --out, so that it is found again")
    device, threads = getattr(spec.model, "device", "auto"), spec.run.threads
    code, said = start_ranks(sys.argv[1:], table.processes, device, threads, table.timeout, table.restarts)
    if said:
        fail(said, code)
    sys.exit(code)


def refuse_fit(fit: bool) -> None:
    """Several processes do not measure."""
    if fit:
        raise UsageError(
            "--fit measures one process; run it with --set parallel.processes=1 first, then name what it found: "
            "--set update.token_budget=..."
        )


def asked(recipe: str, options: RunOptions) -> "Spec":
    """The spec that the command line stands for, of the run that it goes on with or of a new one."""
    from pmdkit.observe.run_folder import RunFolder
    from pmdkit.training import plan, stored_spec, with_objective

    changes = options.changes()
    if options.resume and options.out is not None and RunFolder(options.out).started:
        stored = stored_spec(RunFolder(options.out))
        if stored.tier == "llm":
            return with_objective(stored, changes).override(changes)
    return plan("llm", recipe, changes)[0]


def be_rank(recipe: str, options: RunOptions, fit: bool) -> None:
    """One of several processes: the main one shows and reports, the others work."""
    from pmdkit.llm.launcher import die_with_launcher

    die_with_launcher()
    if hasattr(signal, "SIGUSR2"):  # the launcher asks for it before it ends a process that hangs
        faulthandler.register(signal.SIGUSR2, all_threads=True)
    try:
        with command_context(lambda sentence: end_rank(sentence, 75)):
            refuse_fit(fit)
            work(recipe, options)
    except Exception as problem:
        from pmdkit.cli import explain_error
        from pmdkit.llm.distributed import RankLost
        from pmdkit.llm.launcher import rank_name

        if "--debug" in sys.argv:
            raise
        sentence, code = explain_error(problem)
        lost = isinstance(problem, RankLost)
        rank = int(os.environ["RANK"])
        who = "" if rank == 0 or lost or isinstance(problem, Stopped) else f"{rank_name(rank)}: "
        end_rank(who + " ".join(sentence.split()), code, lost)


def work(recipe: str, options: RunOptions) -> None:
    """The run of one process."""
    import torch

    from pmdkit.observe.console import SilentDisplay
    from pmdkit.training import launch

    class Mute(SilentDisplay):
        """The main process has printed it."""

        def warn(self, sentence: str) -> None:
            """Nothing."""

    if os.environ["RANK"] == "0":
        begin("llm", recipe, options)
    else:
        launch("llm", recipe, options.changes(), options.out, options.resume, Mute())
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def end_rank(sentence: str, code: int, lost: bool = False) -> None:
    """End this process and leave the reason for its launcher; where that is not ours, the first to end prints it."""
    from pmdkit.llm.launcher import LAUNCHER, write_error_file

    write_error_file(sentence, code, lost)
    if LAUNCHER not in os.environ and first_to_print("another rank is lost" if lost else sentence, lost):
        print_error(sentence)
    os._exit(code)  # what the run held is let go; gloo's threads would abort an ordinary exit, with another code


def first_to_print(sentence: str, consequence: bool) -> bool:
    """Whether no other process has printed it; a consequence is not worth a line once a cause is known."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        socket.create_connection((host, port), timeout=2).close()  # the store would try for long
        store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=2))
        if consequence and store.check(["pmdkit/cause"]):
            return False
        if not consequence:
            store.set("pmdkit/cause", sentence)
        return bool(store.add("pmdkit/said/" + hashlib.sha256(sentence.encode()).hexdigest(), 1) == 1)
    except (RuntimeError, OSError):  # nobody is left to ask
        return True
