"""Token tasks: prompts and responses of tokens, rewards 0 or 1. No torch until a TokenTask is asked for prompts."""

from typing import TYPE_CHECKING, Any

from pmdkit.envs.tokens.problem import TokenProblem, TokenTask
from pmdkit.envs.tokens.tasks import KINDS, make_tokens

if TYPE_CHECKING:
    from pmdkit.envs.tokens.gym import TokenEnv, TokenVectorEnv

__all__ = ["KINDS", "TokenEnv", "TokenProblem", "TokenTask", "TokenVectorEnv", "make_tokens"]


def __getattr__(name: str) -> Any:
    """Load the Gymnasium environments on first use, since they import the rest of Gymnasium."""
    if name not in ("TokenEnv", "TokenVectorEnv"):
        raise AttributeError(f"module 'pmdkit.envs.tokens' has no attribute '{name}'")
    from pmdkit.envs.tokens import gym

    return getattr(gym, name)
