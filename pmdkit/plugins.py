"""A user's own class, taken from a file that is no part of a package: `my.py:MyClass`."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from pmdkit.errors import unknown


def is_path(name: str) -> bool:
    """Whether a name means a file rather than an entry of a table."""
    return ":" in name or name.endswith(".py")


def class_from_path(path: str) -> Any:
    """The class that `file.py:Class` names."""
    file, _, name = path.rpartition(":")
    if not file or not name.isidentifier():
        raise ValueError(f"'{path}' names no class; expected a file and a class in it, such as my.py:MyClass")
    module = module_from_file(Path(file))
    module_name = module.__name__
    found = getattr(module, name, None)
    if not isinstance(found, type):
        own = [n for n, value in vars(module).items() if isinstance(value, type) and value.__module__ == module_name]
        raise ValueError(unknown(f"class of {file}", name, own))
    return found


def module_from_file(file: Path) -> ModuleType:
    """Import a file. Every call reads it again, so that an edit counts."""
    if not file.is_file():
        raise ValueError(f"{file} is not a file; expected a Python file such as my.py, relative to {Path.cwd()}")
    name = f"pmdkit_own_{file.stem}_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not Python; expected a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"{file} cannot be imported: {type(error).__name__}: {error}; mend the file") from error
    return module
