"""User code loaded from a file, as `my.py:MyClass`, and the check that the user trusts the file.

Importing a file runs it, and a run folder or a recipe from elsewhere may name any file. So the rule is: a file named
in an argument or on the command line may run; a file named in a table may not, until the user names it as well.
"""

import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pmdkit.errors import UsageError, unknown

TRUSTED: dict[Path, str | None] = {}
"Files that were named in this process, with the sha256 that they must have if a run recorded one."


def is_path(name: str) -> bool:
    """Whether a name refers to a file rather than to an entry of a table."""
    return ":" in name or name.endswith(".py")


def code_file(name: str) -> Path | None:
    """The Python file that `my.py` or `my.py:MyClass` names; None for any other text."""
    file = name if name.endswith(".py") else name.rpartition(":")[0]
    return Path(file) if file.endswith(".py") else None


def code_files(value: Any) -> Iterator[Path]:
    """The Python files named anywhere in a table."""
    if isinstance(value, str):
        file = code_file(value)
        if file is not None:
            yield file
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from code_files(inner)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for inner in value:
            yield from code_files(inner)


def trust(*names: Any, sha256: str | None = None) -> None:
    """Allow files to run that the caller names: `my.py`, `my.py:MyClass`, or tables of them; ignore other values.

    Args:
        names: values that the user gave, never values read from a file.
        sha256: digest that the files must have to run; by default any.
    """
    for file in code_files(names):
        TRUSTED[file.resolve()] = sha256


def require_trust(name: str | Path, source: bytes | None = None) -> None:
    """Refuse a file that the user has not named, or that has changed.

    Args:
        name: `my.py` or `my.py:MyClass`.
        source: the code that will run, if it has been read already.

    Raises:
        UsageError: the file must not run.
    """
    file = code_file(str(name))
    if file is None:
        return
    require_named(file)
    wanted = TRUSTED[file.resolve()]
    if wanted is not None:
        found = hashlib.sha256(file.read_bytes() if source is None else source).hexdigest()
        if found != wanted:
            raise UsageError(
                f"{file} is not the code that the run began with (sha256 {found[:12]}, {wanted[:12]} then); "
                "none of it was run: put the old file back"
            )


def require_named(file: Path) -> None:
    """Refuse a file that the user has not named."""
    if file.resolve() not in TRUSTED:
        raise UsageError(
            f"a configuration names the code of {file}, and none of it was run; if you trust it, name it yourself: "
            f"add --trust {file}, or trust='{file}' in Python"
        )


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
    """Import a trusted file. Every call reads it again, so edits take effect; the bytes checked are those run."""
    if not file.is_file():
        raise ValueError(f"{file} is not a file; expected a Python file such as my.py, relative to {Path.cwd()}")
    name = f"pmdkit_own_{file.stem}_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if file.suffix != ".py" or spec is None:
        raise ValueError(f"{file} is not Python; expected a file that ends in .py")
    source = file.read_bytes()
    require_trust(file, source)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        exec(compile(source, str(file), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"{file} cannot be imported: {type(error).__name__}: {error}; fix the file") from error
    return module
