"""One of several processes of a run, which `pmdkit llm`, torchrun or accelerate has started."""

import os
import sys

from pmdkit.cli import explain_error
from pmdkit.cli.options import RunOptions
from pmdkit.cli.run import begin
from pmdkit.cli.signals import command_context, print_error
from pmdkit.errors import ComponentDied, Stopped
from pmdkit.llm import ranks


def run_rank(recipe: str, options: RunOptions) -> None:
    """Run as one of several ranks: the main one shows progress and reports, the others only work."""
    from pmdkit.fit import Display
    from pmdkit.start import start

    class Mute(Display):
        """A display that prints nothing, because the main process prints everything."""

        def warn(self, sentence: str) -> None:
            """Print nothing."""

    rank = int(os.environ["RANK"])

    def leave(sentence: str, code: int = Stopped.exit_code) -> None:
        # a rank that other ranks stopped, or that stopped together with all, has no reason of its own
        common = rank == 0 or code in (Stopped.exit_code, ComponentDied.exit_code)
        sentence = sentence if common else f"{ranks.rank_name(rank)}: {sentence}"
        ranks.write_reason(sentence)
        if ranks.LAUNCHER not in os.environ and (rank == 0 or not common):  # torchrun or accelerate started it
            print_error(sentence)
        os._exit(code)  # frees what the run held; gloo's threads would abort an ordinary exit, with another exit code

    try:
        with command_context(leave):
            if rank == 0:
                begin("llm", recipe, options)
            else:
                start(
                    "llm", recipe, options.changes(), options.out, options.resume, Mute(),
                    trust=options.trust or (), accept_changes=options.accept_changes,
                )  # fmt: skip
            import torch

            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
    except Exception as problem:
        if "--debug" in sys.argv:
            raise
        sentence, code = explain_error(problem)
        leave(" ".join(sentence.split()), code)
