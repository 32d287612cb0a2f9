"""Room 3: prompts and rewards. Here: bandits with known pass rates, and token tasks. No torch until a Task is made.

`import pmdkit.envs` registers the Gymnasium ids, of which `gymnasium.make` and `gymnasium.make_vec` know then.
"""

from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

from pmdkit.envs.kinds import KINDS
from pmdkit.envs.make import make
from pmdkit.envs.problem import Bandit
from pmdkit.envs.tokens import TokenProblem, make_tokens

if TYPE_CHECKING:
    from pmdkit.envs.single import BanditEnv
    from pmdkit.envs.task import BanditTask
    from pmdkit.envs.tokens import TokenEnv, TokenTask, TokenVectorEnv
    from pmdkit.envs.vector import BanditVectorEnv
    from pmdkit.spec import Spec

LAZY = {
    "BanditTask": "task",
    "BanditEnv": "single",
    "BanditVectorEnv": "vector",
    "TokenTask": "tokens",
    "TokenEnv": "tokens",
    "TokenVectorEnv": "tokens",
}

__all__ = [
    "KINDS",
    "Bandit",
    "BanditEnv",
    "BanditTask",
    "BanditVectorEnv",
    "TokenEnv",
    "TokenProblem",
    "TokenTask",
    "TokenVectorEnv",
    "load",
    "make",
    "make_tokens",
]

register(
    id="pmdkit/Bandit-v0",
    entry_point="pmdkit.envs.single:BanditEnv",
    vector_entry_point="pmdkit.envs.vector:BanditVectorEnv",
)
register(
    id="pmdkit/TokenTask-v0",
    entry_point="pmdkit.envs.tokens.single:TokenEnv",
    vector_entry_point="pmdkit.envs.tokens.vector:TokenVectorEnv",
)


def load(name_or_path: str) -> "Spec":
    """A bandit spec by its name on the shelf, or by the path of a .toml file. `make(spec.env)` builds its bandit."""
    from pmdkit.spec import Spec

    return Spec.read(name_or_path, "bandit")


def __getattr__(name: str) -> Any:
    """Load on first use what needs torch or the rest of Gymnasium."""
    if name not in LAZY:
        raise AttributeError(f"module 'pmdkit.envs' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"pmdkit.envs.{LAZY[name]}"), name)
