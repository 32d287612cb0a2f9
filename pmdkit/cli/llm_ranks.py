"""`pmdkit llm` on several processes: start them, or be one of them; what happened is said once, not by each."""

import hashlib
import os
import socket
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from pmdkit.cli.options import RunOptions

if TYPE_CHECKING:
    from pmdkit.spec import Spec


def start_all(recipe: str, options: RunOptions, fit: bool) -> None:
    """Run a recipe on as many processes as it asks for; does not return where it started several.

    Args:
        recipe, options: of the command line.
        fit: measure the token budget first; one process only.
    """
    from pmdkit.cli.llm_plan import measured
    from pmdkit.cli.start import start
    from pmdkit.errors import UsageError
    from pmdkit.llm.launch import ranks_here, start_ranks
    from pmdkit.llm.room import check_room

    check_room()
    spec = asked(recipe, options)
    processes = 1 if spec.parallel is None else spec.parallel.processes
    if fit and processes > 1:
        raise UsageError(
            "--fit measures one process; run it with --set parallel.processes=1 first, then name what it found: "
            "--set update.token_budget=..."
        )
    if ranks_here() > 1:
        be_rank(recipe, options)
    elif processes > 1:
        device = getattr(spec.model, "device", "auto")
        restarts = getattr(spec.parallel, "restarts", 0)
        if restarts and options.out is None:
            raise UsageError("parallel.restarts is set; name the run's folder with --out, so that it is found again")
        sys.exit(start_ranks(sys.argv[1:], processes, device, spec.run.threads, restarts))
    else:
        start("llm", recipe, options, measured(recipe, options) if fit else {})


def asked(recipe: str, options: RunOptions) -> "Spec":
    """The spec that the command line stands for, of the run that it goes on with or of a new one."""
    from pmdkit.observe.folder import RunFolder
    from pmdkit.planning import adopt, plan, stored_spec

    changes = options.changes()
    if options.resume and options.out is not None and RunFolder(options.out).started:
        stored = stored_spec(RunFolder(options.out))
        if stored.tier == "llm":
            return adopt(stored, changes).override(changes)
    return plan("llm", recipe, changes)[0]


def be_rank(recipe: str, options: RunOptions) -> None:
    """One of several processes: the main one shows and reports, the others work."""
    import torch

    from pmdkit.cli import told
    from pmdkit.cli.start import start
    from pmdkit.errors import Stopped
    from pmdkit.llm.team import RankLost, rank_name
    from pmdkit.observe.console import Silent
    from pmdkit.training import launch

    rank = int(os.environ["RANK"])
    try:
        if rank == 0:
            start("llm", recipe, options)
        else:
            launch("llm", recipe, options.changes(), options.out, options.resume, Silent())
    except Exception as problem:
        if "--debug" in sys.argv:
            raise
        sentence, code = told(problem)
        lost = isinstance(problem, RankLost)
        if first_to_say("another rank is lost" if lost else sentence, lost):
            who = "" if rank == 0 or lost or isinstance(problem, Stopped) else f"{rank_name(rank)}: "
            print(f"pmdkit: error: {who}{' '.join(sentence.split())}", file=sys.stderr, flush=True)
        os._exit(code)  # what the run held is let go; gloo's threads would abort an ordinary exit, with another code
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def first_to_say(sentence: str, consequence: bool) -> bool:
    """Whether no other process has said it; a consequence is not worth saying once a cause is known."""
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
