"""pmdkit: learn, check and use policy mirror descent, from a two-armed bandit to a cluster.

Public names load on first use: `import pmdkit` costs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pmdkit.version import __version__

if TYPE_CHECKING:
    from pmdkit import envs, figures, objectives, testing, theory
    from pmdkit.run import Run
    from pmdkit.start import train

_FROM = {"train": "pmdkit.start", "Run": "pmdkit.run"}
_ROOMS = ("envs", "figures", "objectives", "testing", "theory")

__all__ = ["Run", "__version__", "envs", "figures", "objectives", "testing", "theory", "train"]


def __getattr__(name: str) -> Any:
    if name in _FROM or name in _ROOMS:
        try:
            module = import_module(_FROM.get(name, f"pmdkit.{name}"))
        except ModuleNotFoundError as missing:
            from pmdkit.extras import lacking

            raise lacking(missing) or missing from missing
        return getattr(module, name) if name in _FROM else module
    raise AttributeError(f"module 'pmdkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
