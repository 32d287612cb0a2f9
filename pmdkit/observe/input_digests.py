"""Digests of a run's inputs besides its options (rows, code, tokenizer, weights), kept in inputs.json.

Resuming with other inputs is refused, since the two halves of the run would belong to different experiments.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pmdkit.errors import ResumeRefused
from pmdkit.observe import checkpoint, files
from pmdkit.observe.run_folder import RunFolder, read_json
from pmdkit.plugins import sha256_of

Inputs = Mapping[str, "str | Sequence[Path]"]
"The name of an input, and its digest or the files that it consists of."
SHOWN = 12  # characters of a digest that a message shows


def digest(parts: Iterable[bytes | str]) -> str:
    """SHA-256 of a sequence. Each part is hashed with its length: ("ab", "c") is not ("a", "bc")."""
    summed = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        summed.update(len(data).to_bytes(8, "little"))
        summed.update(data)
    return summed.hexdigest()


def changed_inputs(before: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Inputs that both records have and that differ."""
    return [name for name in found if name in before and before[name] != found[name]]


def refuse_changes(folder: RunFolder, before: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raise ResumeRefused if an input has changed."""
    if changed := changed_inputs(before, found):
        details = ", ".join(f"{name} (was {before[name][:SHOWN]}, is {found[name][:SHOWN]})" for name in changed)
        remedy = "put back the old ones, give another --out, or add --accept-changes"
        raise ResumeRefused(f"{folder.path} was started with other inputs: {details}; {remedy}")


def check_inputs(folder: RunFolder, inputs: Inputs, accept: bool, warn: Callable[[str], None]) -> None:
    """Compare the inputs of a run with the inputs at its start; for a new run, record them.

    Files are read once: a digest is kept with their size, time and inode. With `accept`, what changed and after which
    step is recorded, with a warning; otherwise it raises ResumeRefused.
    """
    stored = read_inputs(folder)
    before: dict[str, str] = stored["digests"] if folder.started else {}  # a run that has not started depends on none
    found: dict[str, str] = {}
    for name, value in inputs.items():
        if isinstance(value, str):
            found[name] = value
            continue
        known, sums = stored["files"].get(name, {}), {}
        for path in value:
            state = path.stat()
            kept = {"bytes": state.st_size, "mtime_ns": state.st_mtime_ns, "inode": state.st_ino}
            same = known.get(str(path), {})
            if {key: same.get(key) for key in kept} != kept:  # else it need not be read again
                same = {"sha256": sha256_of(path)}
            sums[str(path)] = kept | {"sha256": same["sha256"]}
        stored["files"][name] = sums
        found[name] = digest(part for path in value for part in (path.name, sums[str(path)]["sha256"]))
    if not accept:
        refuse_changes(folder, before, found)
    step = max(checkpoint.steps(folder.checkpoints), default=0)
    for name in changed_inputs(before, found):
        stored["changes"].append({"input": name, "was": before[name], "is": found[name], "after_step": step})
        warn(f"{name} changed after step {step}; accepted, and written to {folder.inputs.name}")
    files.replace(folder.inputs, files.encode({**stored, "digests": before | found}))


def read_inputs(folder: RunFolder) -> dict[str, Any]:
    """`digests` by input, `files` with the data that identifies them, `changes` that were accepted.

    If inputs.json is missing, the digests come from the newest checkpoint.
    """
    stored: dict[str, Any] = {"digests": {}, "files": {}, "changes": []}
    if folder.inputs.exists():
        found = stored | read_json(folder.inputs)
        if not all(isinstance(found[key], type(value)) for key, value in stored.items()):
            raise ResumeRefused(f"{folder.inputs} is not a record of inputs; restore it, or give another --out")
        return found
    for step in reversed(checkpoint.steps(folder.checkpoints)):
        with suppress(checkpoint.Damaged):
            return stored | {"digests": dict(checkpoint.read_manifest(folder.checkpoints / f"step-{step}").inputs)}
    return stored
