"""Missing optional packages: which extra provides one, and the command that installs it."""

import functools
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pmdkit.errors import EnvironmentLacks, UsageError, unknown

EXTRAS = {
    "torch": ("torch", "jinja2", "markupsafe"),
    "gym": ("gymnasium",),
    "llm": ("transformers", "tokenizers", "accelerate", "psutil", "pyarrow", "strict_answers"),
    "hub": ("datasets",),
    "lora": ("peft",),
    "tables": ("pandas",),
    "reasoning": ("reasoning_gym",),
    "vllm": ("vllm",),
    "sweep": ("optuna",),
    "slurm": ("submitit",),
    "ray": ("ray",),
}
"The modules that each extra provides."
CHECKOUT = Path(__file__).parents[1]
"The folder that contains the package; it is a checkout if it has a pyproject.toml."


def remedy(extra: str = "") -> str:
    """The command that installs an extra of pyproject.toml, or with "" the base requirements.

    In a checkout it installs the checkout, from any directory. Elsewhere it lists the missing packages rather than
    pmdkit itself, since that name on a package index need not be ours.
    """
    if not (CHECKOUT / "pyproject.toml").is_file():
        missing = [module for module in EXTRAS.get(extra, ()) if importlib.util.find_spec(module) is None]
        words = (f"{name}-*.whl" if name == "strict_answers" else name for name in missing or EXTRAS.get(extra, ()))
        return "pip install " + " ".join(words)
    here = Path.cwd() == CHECKOUT
    pins = "constraints-gpu.txt" if extra == "vllm" else "constraints.txt"
    place, constraints = "." if here else CHECKOUT, pins if here else CHECKOUT / pins
    return f"pip install -c {constraints} -e " + (f"'{place}[{extra}]'" if extra else f"{place}")


def advice(module: str) -> str:
    """The remedy for a missing module, as one clause."""
    top = module.partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if top in modules), None)
    return remedy(extra) if extra else f"install {top} here, or do without it"


def install(package: str) -> str:
    """The command that installs a companion: from the checkout if pmdkit runs from one, or else its wheel's file."""
    folder = CHECKOUT / "packages" / package
    wheel = f"{package.replace('-', '_')}-*.whl"
    return f"pip install -e {folder}" if folder.is_dir() else f"pip install {wheel}, the file that goes with pmdkit's"


def load_entry_point(kind: str, name: str, here: Sequence[str] = (), elsewhere: Sequence[str] = ()) -> Any:
    """Load what an installed package has under an entry point such as `pmdkit.backends`.

    `here` are the names that pmdkit itself has, `elsewhere` those that pmdkit-adapters is known to have.

    Raises:
        EnvironmentLacks: the package that has it is not installed.
        UsageError: no package has it, but others of the kind are known.
    """
    points = {point.name: point for point in importlib.metadata.entry_points(group=f"pmdkit.{kind}s")}
    if name in points:
        return points[name].load()
    if (points or elsewhere) and name not in elsewhere:
        raise UsageError(unknown(kind, name, {*here, *elsewhere, *points}))
    package = "pmdkit-adapters"
    raise EnvironmentLacks(f"no installed package has the {kind} '{name}'; {package} has one: {install(package)}")


def need(module: str, what: str) -> ModuleType:
    """Import a package of an extra; EnvironmentLacks, about the feature `what` that needs it, if it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise EnvironmentLacks(f"{what} needs {module}, which is not installed: {advice(module)}") from missing


@functools.cache
def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def lacking(problem: BaseException) -> EnvironmentLacks | None:
    """The error for an import that failed because an extra's package is missing; None for other errors."""
    cause: BaseException | None = problem
    while cause is not None:
        name = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
        if any(name in modules for modules in EXTRAS.values()):
            return EnvironmentLacks(f"this needs {name}, which is not installed: {advice(name)}")
        cause = cause.__cause__ or cause.__context__
    return None
