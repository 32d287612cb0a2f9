"""A call that is made in another process: a function by its name, JSON arguments, and a result that is a file.

`python -P -m pmdkit.remote_calls FILE` makes the calls in a file, one after another, with one thread.
"""

import json
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from pmdkit import errors
from pmdkit.child_processes import distrust_folder, start_python
from pmdkit.observe import files


@dataclass(frozen=True)
class Call:
    """A function "package.module:function" of JSON arguments. `name` is a plain file name. A call that is `apart` gets
    a process of its own, as a run needs, and `devices` accelerators, if there are any."""

    name: str
    function: str
    arguments: dict[str, Any]
    apart: bool = False
    devices: int = 1

    def make(self) -> dict[str, Any]:
        """Call the function here; returns the fields of its CallResult."""
        try:
            value = resolve_name(self.function)(**self.arguments)
            return {"value": json.loads(json.dumps(value))}  # the value as it would arrive from another process
        except errors.PmdkitError as problem:
            # a subclass elsewhere, such as EngineLost, arrives as its base in pmdkit.errors
            kind = next(base.__name__ for base in type(problem).__mro__ if base.__module__ == errors.__name__)
            return {"reason": str(problem) or type(problem).__name__, "kind": kind}
        except Exception as problem:
            traceback.print_exc()
            return {"reason": f"{type(problem).__name__}: {errors.first_line(problem)}", "kind": "RuntimeError"}


@dataclass(frozen=True)
class CallResult:
    """The result of a call: a JSON value, or why there is none and the kind of error: a name in `pmdkit.errors`,
    RuntimeError, or "" if its process ended."""

    call: Call
    value: Any = None
    reason: str = ""
    kind: str = ""

    def result(self) -> Any:
        """The value. Raises the PmdkitError of the function, a RuntimeError for another one, or ComponentDied."""
        if not self.reason:
            return self.value
        known = {"": errors.ComponentDied, "RuntimeError": RuntimeError}
        raise (known.get(self.kind) or getattr(errors, self.kind))(f"{self.call.name}: {self.reason}")


def start_process(calls: str, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start the process that makes the calls in a file; it is told to stop when this one ends in any way."""
    return start_python("-m", "pmdkit.remote_calls", calls, OMP_NUM_THREADS="1", **environment)


if __name__ == "__main__":
    distrust_folder()
    for entry in json.loads(Path(sys.argv[1]).read_bytes()):
        result = Path(sys.argv[1]).parent / "results" / f"{entry['name']}.json"
        files.replace(result, json.dumps(Call(**entry).make()).encode())
