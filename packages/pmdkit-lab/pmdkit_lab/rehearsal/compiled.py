"""Compile device.cpp once, and load it before torch is imported, which asks at once whether there is a device."""

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from pmdkit.errors import EnvironmentLacks, first_line
from pmdkit.hub import cache_folder

SOURCE = Path(__file__).with_name("device.cpp")
COMPILERS = ("c++", "g++", "clang++")


def compile_device() -> Path:
    """The compiled device.cpp for this version of torch, in the user's cache; compiled by the system's compiler once.

    Raises:
        EnvironmentLacks: there is no C++ compiler, or it fails.
    """
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    torch = Path(found.origin).parent
    key = hashlib.sha256(SOURCE.read_bytes() + version("torch").encode() + str(torch).encode()).hexdigest()[:16]
    cache = cache_folder()
    library = cache / f"rehearsal-{key}.so"
    if library.exists():
        return library
    compiler = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CXX"), *COMPILERS)))), None)
    if compiler is None:
        raise EnvironmentLacks(
            "a rehearsal compiles 50 lines of C++ once, and no compiler was found (c++, g++, clang++ or $CXX); install "
            "one: apt install g++, dnf install gcc-c++, or xcode-select --install"
        )
    part = library.with_suffix(f".{os.getpid()}")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        command = [compiler, "-O1", "-std=c++20", "-shared", "-fPIC", f"-I{torch / 'include'}", str(SOURCE)]
        command += [f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}", "-lc10", "-ltorch_cpu", "-o", str(part)]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            lines = [line for line in made.stderr.splitlines() if "error" in line] or [f"exit {made.returncode}"]
            raise EnvironmentLacks(
                f"{compiler} does not compile {SOURCE.name} for torch {version('torch')}: {lines[0][:200]}; install a "
                "compiler with C++20, such as g++ 10 or later, or name one in CXX"
            )
        part.replace(library)
    except OSError as problem:
        raise EnvironmentLacks(f"{cache} cannot be written ({first_line(problem)}); set XDG_CACHE_HOME") from problem
    return library


def load(library: str) -> None:
    """Load a compiled device; torch must not have been imported."""
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
