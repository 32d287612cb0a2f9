"""Modules that lie beside a user's file, which it may import: which they are, and how Python finds them.

They are found by reading the source, so that they are known before anything runs; only these can be imported from the
folder. What Python finds by itself, a package or its own library, comes before a module of the same name there.
"""

import ast
import importlib.abc
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

OWN_PACKAGES = ("pmdkit", "pmdkit_adapters", "pmdkit_lab", "pmdkit_course", "strict_answers")


def sibling_modules(file: Path) -> dict[str, Path]:
    """The modules beside a file, name -> path, that it imports itself or through one another; no code runs."""
    folder = file.resolve().parent
    found: dict[str, Path] = {}
    left = [("", file)]
    while left:
        for parts in [whole.split(".") for whole in imported_names(*left.pop())]:
            for end in range(1, len(parts) + 1):  # to import a.b.c, Python imports a and a.b too
                name, place = ".".join(parts[:end]), folder.joinpath(*parts[:end])
                here = [path for path in (place / "__init__.py", place.with_name(f"{place.name}.py")) if path.is_file()]
                if here and name not in found and not found_elsewhere(parts[0], folder):
                    found[name] = here[0]
                    left.append((name, here[0]))
    return found


def imported_names(module: str, file: Path) -> Iterator[str]:
    """The absolute names that the source of a module imports; none if it is not Python, which its import then says."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the import gives the same ones
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from filter(None, [base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)])


def found_elsewhere(name: str, folder: Path) -> bool:
    """Whether Python finds a module of this name by itself, elsewhere than in the folder."""
    if name in OWN_PACKAGES:
        return True
    for finder in sys.meta_path:
        spec = None if isinstance(finder, SiblingFinder) else finder.find_spec(name, None)
        if spec is not None:
            places = [spec.origin or "", *(spec.submodule_search_locations or [])]
            return not {Path(place).resolve() for place in places} & {folder / f"{name}.py", folder / name}
    return False


class SourceLoader(SourceFileLoader):
    """Compiles the file itself: stored bytecode beside it may be that of another source."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the module."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class SiblingFinder(importlib.abc.MetaPathFinder):
    """Finds the sibling modules of all loaded files; of two with the same name, that of the file added last."""

    def __init__(self) -> None:
        self.paths: dict[str, Path] = {}
        self.imported: set[str] = set()

    def add(self, siblings: Mapping[str, Path]) -> None:
        """Make these modules importable; a module imported before is read again."""
        tops = {name.partition(".")[0] for name in siblings}
        for name in [name for name in self.imported if name.partition(".")[0] in tops]:
            sys.modules.pop(name, None)
            self.imported.remove(name)
        self.paths |= siblings
        if siblings and self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module, or a folder without an __init__.py that contains one."""
        spec: ModuleSpec | None = None
        if (file := self.paths.get(fullname)) is not None:
            loader = SourceLoader(fullname, str(file))
            spec = importlib.util.spec_from_file_location(fullname, file, loader=loader)
        elif any(name.startswith(f"{fullname}.") for name in self.paths):
            spec = ModuleSpec(fullname, None, is_package=True)
        if spec is not None:
            self.imported.add(fullname)
        return spec


FINDER = SiblingFinder()
