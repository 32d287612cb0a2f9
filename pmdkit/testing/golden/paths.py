"""The ways a loss is computed here, each fed with one recorded case: losses, and gradient by every token's logp.

A path returns None for a case that it does not know: a table has no responses of two tokens, and only the formula and
the adapters know tokens in the middle that do not count.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

import torch

from pmdkit.errors import EnvironmentLacks
from pmdkit.testing.golden.case import Case, Result, losses_of, result, rows_of

Path = Callable[[Case], Result | None]


def formula(case: Case) -> Result:
    """`credit`, `cut`, `total` and autograd."""
    logp = rows_of(case, "logp").requires_grad_()
    losses = losses_of(case, logp)
    (gradient,) = torch.autograd.grad(sum(losses, torch.zeros(())), logp)
    return result(losses, gradient, case)


def elsewhere(module: str, name: str) -> Path:
    """A path whose module is imported when it is run: it needs what not everybody has."""

    def path(case: Case) -> Result | None:
        found: Result | None = getattr(import_module(module), name)(case)
        return found

    return path


PATHS: dict[str, Path] = {
    "objectives": formula,
    "bandit-table": elsewhere("pmdkit.testing.golden.tiers", "table"),
    "toy": elsewhere("pmdkit.testing.golden.tiers", "toy"),
    "llm-chunked-head": elsewhere("pmdkit.testing.golden.heads", "chunked"),
    "llm-fused-head": elsewhere("pmdkit.testing.golden.heads", "fused"),
    **{name: elsewhere(f"pmdkit.adapters.{name}.golden", "path") for name in ("verl", "trl")},
}
REQUIRES = {"llm-chunked-head": "transformers", "llm-fused-head": "transformers", "verl": "verl", "trl": "trl"}


def missing(name: str) -> str:
    """What a path lacks on this machine; empty where it can run."""
    wanted = REQUIRES.get(name)
    if wanted is not None and not find_spec(wanted):
        return f"{wanted} is not installed"
    if name in ("verl", "trl"):
        try:
            import_module(f"pmdkit.adapters.{name}.golden")
        except EnvironmentLacks as lacks:  # another version of it
            return str(lacks)
    return ""
