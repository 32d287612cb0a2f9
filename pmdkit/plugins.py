"""User code loaded from a file, as `my.py:MyClass`, and which files the user trusts.

Importing a file runs it, and a run folder or a recipe from elsewhere may name any file. So the rule is: a file named
in an argument or on the command line may run, with the modules beside it that it imports; a file named in a table may
not, until the user names it as well.
"""

import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pmdkit.errors import UsageError, unknown
from pmdkit.sibling_modules import FINDER, sibling_modules


def is_path(name: str) -> bool:
    """Whether a name refers to a file rather than to an entry of a table."""
    return ":" in name or code_file(name) is not None


def code_file(name: str) -> Path | None:
    """The Python file that `my.py` or `my.py:MyClass` names; None for any other text."""
    files = [Path(file) for file in (name, name.rpartition(":")[0])]  # my.py/ too, which a Path takes for my.py
    return next((file for file in files if file.suffix == ".py"), None)


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


def code_inputs(record: Mapping[str, Any]) -> dict[str, str]:
    """The digest of every Python file that a configuration names, as `code my.py`, and of every file of its [env]."""
    found = {f"code {file}": sha256_of_code(file) for file in code_files(record) if file.is_file()}
    sources = [table for table in record["env"].get("sources", []) if isinstance(table, dict)]
    for value in [value for table in (record["env"], *sources) for value in table.values()]:
        if isinstance(value, str) and code_file(value) is None and "\0" not in value and Path(value).is_file():
            found[f"file {value}"] = sha256_of(Path(value))
    return found


def sha256_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_code(file: Path) -> str:
    """SHA-256 of a Python file; if it imports modules that lie beside it, of their names and contents too."""
    siblings = sibling_modules(file)
    if not siblings:
        return sha256_of(file)
    lines = [f"{name} {sha256_of(path)}\n" for name, path in sorted({"": file, **siblings}.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class Trusted:
    """The files whose code may run, because the user named them; absolute paths.

    Tables that another person may have written (a recipe, the folder of a run, a recording) are checked once, with
    `require`, where they are read. Code that builds from tables checks nothing again.
    """

    files: frozenset[Path] = frozenset()

    @classmethod
    def of(cls, *named: Any) -> "Trusted":
        """Trust the files that the user named in these values: `my.py`, `my.py:MyClass`, lists and tables of such."""
        before = [value.files for value in named if isinstance(value, cls)]
        return cls(frozenset(file.resolve() for file in code_files(named)).union(*before))

    def require(self, tables: Any) -> None:
        """Refuse tables that name code of a file that is not among these, with a UsageError."""
        for file in code_files(tables):
            if file.resolve() not in self.files:
                remedy = f"if you trust it, name it yourself: add --trust {file}, or trust='{file}' in Python"
                raise UsageError(f"a configuration names the code of {file}, and none of it was run; {remedy}")


NOTHING = Trusted()
Trust = str | Sequence[str] | Trusted
"Files such as my.py, or my.py:MyClass, whose code may run."


def class_from_path(path: str) -> Any:
    """The class that `file.py:Class` names."""
    file, _, name = path.rpartition(":")
    if not file or not name.isidentifier():
        raise ValueError(f"'{path}' names no class; expected a file and a class in it, such as my.py:MyClass")
    module = module_from_file(Path(file))
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = (x for x in vars(module).values() if isinstance(x, type) and x.__module__ == module.__name__)
        raise ValueError(unknown(f"class of {file}", name, (own.__name__ for own in classes)))
    return found


def function_from_path(path: str, call: str) -> Any:
    """The function, or anything that can be called, that `file.py:name` names; `call` is what the error asks for."""
    file, _, name = path.rpartition(":")
    found = getattr(module_from_file(Path(file)), name, None)
    if not callable(found):
        raise UsageError(f"{file} has no function '{name}'; expected def {name}{call}")
    return found


def module_from_file(file: Path) -> ModuleType:
    """Import a file. Every call reads it and the modules beside it again, so edits take effect."""
    if not file.is_file():
        raise ValueError(f"{file} is not a file; expected a Python file such as my.py, relative to {Path.cwd()}")
    name = f"pmdkit_own_{file.stem}_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if file.suffix != ".py" or spec is None:
        raise ValueError(f"{file} is not Python; expected a file that ends in .py")
    source = file.read_bytes()
    module = importlib.util.module_from_spec(spec)
    FINDER.add(sibling_modules(file))
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        exec(compile(source, str(file), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"{file} cannot be imported: {type(error).__name__}: {error}; fix the file") from error
    return module
