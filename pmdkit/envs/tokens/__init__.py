"""Token tasks: prompts and responses of tokens, rewards 0 or 1. No torch until a TokenTask is made."""

from typing import TYPE_CHECKING, Any

from pmdkit.envs.tokens.kinds import KINDS
from pmdkit.envs.tokens.make import make_tokens
from pmdkit.envs.tokens.problem import TokenProblem

if TYPE_CHECKING:
    from pmdkit.envs.tokens.single import TokenEnv
    from pmdkit.envs.tokens.task import TokenTask
    from pmdkit.envs.tokens.vector import TokenVectorEnv

LAZY = {"TokenTask": "task", "TokenEnv": "single", "TokenVectorEnv": "vector"}

__all__ = ["KINDS", "TokenEnv", "TokenProblem", "TokenTask", "TokenVectorEnv", "make_tokens"]


def __getattr__(name: str) -> Any:
    """Load on first use what needs torch or the rest of Gymnasium."""
    if name not in LAZY:
        raise AttributeError(f"module 'pmdkit.envs.tokens' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"pmdkit.envs.tokens.{LAZY[name]}"), name)
