"""pmdkit's objectives in TRL 1.16: `PMDTrainer` extends GRPOTrainer, `PMDConfig` extends GRPOConfig.

TRL samples, scores, shards and steps; the advantage and the loss are those of `pmdkit.objectives`. docs/use/trl.md has
a script and says what is refused.
"""

from importlib import import_module, metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pmdkit.errors import EnvironmentLacks

if TYPE_CHECKING:
    from pmdkit.adapters.trl.config import PMDConfig
    from pmdkit.adapters.trl.trainer import PMDTrainer

__all__ = ["PMDConfig", "PMDTrainer"]

SUPPORTED = "1.16."  # the trainer overrides methods that TRL may change from one minor version to the next
NAMES = {"PMDConfig": "pmdkit.adapters.trl.config", "PMDTrainer": "pmdkit.adapters.trl.trainer"}


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module 'pmdkit.adapters.trl' has no attribute '{name}'; it has {', '.join(NAMES)}")
    check_trl()
    return getattr(import_module(NAMES[name]), name)


def check_trl() -> None:
    """Stop if TRL is missing or is a version whose internal methods were not checked.

    Raises:
        EnvironmentLacks: with the command that installs the right version.
    """
    if find_spec("trl") is None:
        raise EnvironmentLacks("trl is not installed; pip install trl==1.16.0")
    found = metadata.version("trl")
    if not found.startswith(SUPPORTED):
        raise EnvironmentLacks(
            f"trl is {found}; the adapter knows {SUPPORTED}x, whose inner methods it overrides: pip install trl==1.16.0"
        )
