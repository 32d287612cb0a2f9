"""Token tasks: prompts and responses of tokens, rewards 0 or 1. Imports no torch before a TokenTask makes prompts."""

from pmdkit.envs.tokens.problem import TokenProblem, TokenTask
from pmdkit.envs.tokens.tasks import KINDS, make_tokens

__all__ = ["KINDS", "TokenProblem", "TokenTask", "make_tokens"]
