"""Digests of a run's inputs besides its options (rows, code, tokenizer, weights), kept in inputs.json.

Resuming with other inputs is refused, since the two halves of the run would belong to different experiments.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pmdkit.errors import ResumeRefused
from pmdkit.observe import checkpoint, files
from pmdkit.observe.run_folder import RunFolder, read_json
from pmdkit.plugins import code_file, code_files

Inputs = Mapping[str, "str | Sequence[Path]"]
"The name of an input, and its digest or the files that it consists of."
CODE = "code"
SHOWN = 12  # characters of a digest in a sentence


def digest(parts: Iterable[bytes | str]) -> str:
    """SHA-256 of a sequence. Each part is hashed with its length: ("ab", "c") is not ("a", "bc")."""
    summed = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        summed.update(len(data).to_bytes(8, "little"))
        summed.update(data)
    return summed.hexdigest()


def code_inputs(record: Mapping[str, Any]) -> dict[str, str]:
    """The digest of every Python file that a configuration names, as `code my.py`, and of every file of its [env]."""
    found = {f"{CODE} {file}": sha256_of(file) for file in code_files(record) if file.is_file()}
    sources = [table for table in record["env"].get("sources", []) if isinstance(table, dict)]
    for value in [value for table in (record["env"], *sources) for value in table.values()]:
        if isinstance(value, str) and code_file(value) is None and "\0" not in value and Path(value).is_file():
            found[f"file {value}"] = sha256_of(Path(value))
    return found


def sha256_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def changed_inputs(before: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Inputs that are in both and differ."""
    return [name for name in found if name in before and before[name] != found[name]]


def refuse_changes(folder: RunFolder, before: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raise ResumeRefused if an input has changed."""
    if changed := changed_inputs(before, found):
        details = ", ".join(f"{name} (was {before[name][:SHOWN]}, is {found[name][:SHOWN]})" for name in changed)
        raise ResumeRefused(
            f"{folder.path} was started with other inputs: {details}; nothing was changed: put back the old ones, give "
            "another --out, or add --accept-changes to continue and record the change"
        )


def check_inputs(folder: RunFolder, inputs: Inputs, accept: bool, warn: Callable[[str], None]) -> None:
    """Compare the inputs of a run with those that it began with; for a new run, record them.

    Args:
        folder: of the run, locked by this process.
        inputs: of this process. Files are read once: a digest is kept with their size, time and inode.
        accept: continue with other inputs, and record what changed and after which step.
        warn: called with a sentence about what was accepted.

    Raises:
        ResumeRefused: an input has changed, and changes are not accepted.
    """
    stored = read_inputs(folder)
    before: dict[str, str] = stored["digests"] if folder.started else {}  # a run that has not started depends on none
    found, sums = {}, {}
    for name, value in inputs.items():
        if isinstance(value, str):
            found[name] = value
        else:
            found[name], sums[name] = digest_of_files(value, stored["files"].get(name, {}))
    steps = checkpoint.steps(folder.checkpoints)
    if not accept:
        refuse_changes(folder, before, found)
    for name in changed_inputs(before, found):
        change = {"input": name, "was": before[name], "is": found[name], "after_step": steps[-1] if steps else 0}
        stored["changes"].append(change)
        warn(f"{name} changed after step {change['after_step']}; accepted, and written to {folder.inputs.name}")
    files.replace(folder.inputs, files.encode({**stored, "digests": before | found, "files": stored["files"] | sums}))


def read_inputs(folder: RunFolder) -> dict[str, Any]:
    """`digests` by input, `files` with the data that identifies them, `changes` that were accepted.

    If inputs.json is missing, the digests come from the newest checkpoint.
    """
    empty: dict[str, Any] = {"digests": {}, "files": {}, "changes": []}
    if folder.inputs.exists():
        stored = empty | read_json(folder.inputs)
        if not all(isinstance(stored[key], type(value)) for key, value in empty.items()):
            raise ResumeRefused(f"{folder.inputs} is not a record of inputs; restore it, or give another --out")
        return stored
    return empty | {"digests": checkpoint.newest_inputs(folder.checkpoints)}


def digest_of_files(paths: Sequence[Path], known: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The digest of some files in order, and the record that saves reading them again."""
    sums = {}
    for path in paths:
        state = path.stat()
        kept = {"bytes": state.st_size, "mtime_ns": state.st_mtime_ns, "inode": state.st_ino}
        before = known.get(str(path), {})
        if {key: before.get(key) for key in kept} != kept:
            before = {"sha256": sha256_of(path)}
        sums[str(path)] = kept | {"sha256": before["sha256"]}
    return digest(part for path in paths for part in (path.name, sums[str(path)]["sha256"])), sums
