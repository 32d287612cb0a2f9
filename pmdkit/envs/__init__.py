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


def load(name_or_path: str, tier: str | None = None) -> "Spec":
    """A spec by its name on the shelf, or by the path of a .toml file.

    `make(spec.env)` builds a bandit, `tokens.make_tokens(spec.env)` a token task.

    Args:
        name_or_path: such as "needle" or "my.toml".
        tier: "bandit" or "toy"; by default the shelf that has the name, and for a file "toy" if it has a [model].
    """
    from pmdkit import shelf
    from pmdkit.nearest import unknown
    from pmdkit.spec import Spec

    tiers = ("bandit", "toy")
    if tier is None and name_or_path.endswith(".toml"):
        tier = "toy" if "model" in shelf.read(shelf.find(name_or_path, "bandit")) else "bandit"
    if tier is None:
        tier = next((tier for tier in tiers if name_or_path in shelf.names(tier)), None)
    if tier is None:
        raise ValueError(unknown("environment", name_or_path, (name for tier in tiers for name in shelf.names(tier))))
    return Spec.read(name_or_path, tier)


def __getattr__(name: str) -> Any:
    """Load on first use what needs torch or the rest of Gymnasium, and the rooms of tier 3."""
    if name in ("math", "math_answers"):
        from importlib import import_module

        return import_module(f"pmdkit.envs.{name}")
    if name not in LAZY:
        raise AttributeError(f"module 'pmdkit.envs' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"pmdkit.envs.{LAZY[name]}"), name)
