"""From the [env] table of a toy spec to a token problem."""

from typing import Any

from pmdkit.envs.build import build
from pmdkit.envs.tokens.kinds import KINDS
from pmdkit.envs.tokens.problem import TokenProblem


def make_tokens(table: dict[str, Any]) -> TokenProblem:
    """The problem that an [env] table describes: `kind`, a key of KINDS or "my.py:MyTask", and the kind's options."""
    return build(table, KINDS, TokenProblem)  # type: ignore[type-abstract]
