"""Packages of the lessons, and of an extra that somebody did not install: which has them, the line that gets it."""

import importlib.util
from types import ModuleType

from pmdkit.errors import EnvironmentLacks, unknown

LESSONS = ("pmdkit", "numpy", "scipy", "torch", "matplotlib", "gymnasium", "transformers")
"What lessons import, and answers may: it is loaded before their clock runs."
EXTRAS = {
    "llm": ("transformers", "tokenizers", "accelerate", "pyarrow", "math_verify"),
    "hub": ("datasets",),
    "lora": ("peft",),
    "course": ("jupytext", "nbformat", "nbconvert", "nbclient", "jupyterlab", "ipykernel"),
}


def remedy(module: str) -> str:
    """What to do where a module is missing: one clause."""
    top = module.partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if top in modules), None)
    return f"pip install 'pmdkit[{extra}]'" if extra else f"install {top} here, or do without it"


def need(module: str, what: str) -> ModuleType:
    """Import a package of an extra.

    Args:
        module: its name.
        what: is not possible without it; begins the sentence.

    Raises:
        EnvironmentLacks: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise EnvironmentLacks(f"{what} needs {module}, which is not installed: {remedy(module)}") from missing


def needs(extra: str) -> None:
    """Say at the head of a notebook what it cannot do without: `learn.needs("llm")`.

    Args:
        extra: one of pmdkit's, such as llm.

    Raises:
        EnvironmentLacks: packages of it are not installed.
    """
    if extra not in EXTRAS:
        raise ValueError(unknown("extra", extra, EXTRAS))
    missing = [module for module in EXTRAS[extra] if importlib.util.find_spec(module) is None]
    if missing:
        raise EnvironmentLacks(
            f"this notebook needs {', '.join(missing)}: run `pip install 'pmdkit[{extra}]'`, then restart the kernel"
        )
