"""`pmdkit completion SHELL`: prints the completion script; it edits no file of yours."""

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the completion script of a shell, to be redirected where that shell reads it.

    Args:
        shell: whose script.
    """
    from pmdkit.cli import make_app

    print(make_app().generate_completion(shell=shell))
