"""Problems and rewards: bandits with known pass rates, token tasks, mathematics and its verifier. No torch here.

`import pmdkit.envs` registers the Gymnasium ids, so that `gymnasium.make` and `gymnasium.make_vec` know them, if the
extra `gym` is installed.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pmdkit.envs.bandit import Bandit, BanditTask
from pmdkit.envs.kinds import KINDS, make
from pmdkit.envs.tokens import TokenProblem, TokenTask, make_tokens
from pmdkit.errors import unknown
from pmdkit.extras import need

if TYPE_CHECKING:
    from pmdkit.envs.gym import BanditEnv, TokenEnv
    from pmdkit.plugins import Trust
    from pmdkit.specs import Spec

# loaded on first use: the rest of Gymnasium
LAZY = ("BanditEnv", "TokenEnv")

__all__ = [
    "KINDS",
    "Bandit",
    "BanditEnv",
    "BanditTask",
    "TokenEnv",
    "TokenProblem",
    "TokenTask",
    "load",
    "make",
    "make_tokens",
]

if find_spec("gymnasium") is not None:
    from gymnasium.envs.registration import register

    register(id="pmdkit/Bandit-v0", entry_point="pmdkit.envs.gym:BanditEnv")
    register(id="pmdkit/TokenTask-v0", entry_point="pmdkit.envs.gym:TokenEnv")


def load(name_or_path: str, tier: str | None = None, trust: "Trust" = ()) -> "Spec":
    """Load a spec by its name on the shelf, or by the path of a .toml file.

    `make(spec.env)` builds a bandit, `tokens.make_tokens(spec.env)` a token task.

    Args:
        name_or_path: such as "needle" or "my.toml".
        tier: "bandit" or "toy"; by default the shelf that has the name, and for a file "toy" if it has a [model].
        trust: files such as "my.py" that a .toml file names and whose code may run.
    """
    from pmdkit.plugins import Trusted
    from pmdkit.specs import SPECS, find

    tiers = ("bandit", "toy")
    if tier is None and name_or_path.endswith(".toml"):
        tier = "toy" if "model" in find.read(find.spec_file(name_or_path, "bandit")) else "bandit"
    if tier is None:
        tier = next((tier for tier in tiers if name_or_path in find.names(tier)), None)
    if tier is None:
        raise ValueError(unknown("environment", name_or_path, (name for tier in tiers for name in find.names(tier))))
    return SPECS[tier].read(name_or_path, Trusted.of(trust))


def __getattr__(name: str) -> Any:
    """Load the Gymnasium environments and the mathematics modules on first use."""
    if name in ("math", "math_answers"):
        return import_module(f"pmdkit.envs.{name}")
    if name in LAZY:
        need("gymnasium", name)
        return getattr(import_module("pmdkit.envs.gym"), name)
    raise AttributeError(f"module 'pmdkit.envs' has no attribute '{name}'")
