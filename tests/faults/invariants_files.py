"""What stands in folders, for comparison: of a run that ended, of a checkpoint, of what nobody may touch."""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NEEDED = {"model.safetensors", "optimizer.safetensors", "state.json"}
KINDS = (
    (r"(^|/)\.|\.corrupt|^phase-0", "leftovers"),
    (r"^checkpoints/.*optimizer", "optimizer"),
    (r"^checkpoints/", "weights"),
    (r"^metrics\.jsonl", "metrics"),
    (r"^rollouts/", "samples"),
    (r"^evaluations/", "evaluations"),
    (r"^summary\.json", "summary"),
    (r"", "folder"),
)
"What a difference in a file is called, in the order in which differences are told."


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> tuple[str, str] | None:
    """What the most telling difference of two trees is called, and what it is; None where they are equal."""
    other = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
    if not other:
        return None
    number, name = min((kind(name), name) for name in other)
    told = "missing" if name not in found else "too much" if name not in wanted else "different"
    return KINDS[number][1], f"{name} is {told} at the end{first_row(found.get(name), wanted.get(name))}"


def first_row(one: Any, other: Any) -> str:
    """Where two lists of rows part, in a few words."""
    if not (isinstance(one, list) and isinstance(other, list)):
        return ""
    for number, (a, b) in enumerate(zip(one, other, strict=False), 1):
        if a != b:
            keys = [key for key in a if a[key] != b.get(key)] if isinstance(a, dict) else [a, b]
            return f": row {number}, {keys[:4]}"
    return f": {len(one)} rows, expected {len(other)}"


def kind(name: str) -> int:
    """Which of KINDS a file belongs to."""
    return next(n for n, (pattern, _) in enumerate(KINDS) if re.search(pattern, name))


def tree(run: Path, last: int) -> dict[str, Any]:
    """What a finished run folder holds, without what may differ: the clock, the lock, which older checkpoints are kept.

    Verdicts are written in the order of a set; each is there once.
    """
    found: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        older = re.match(r"checkpoints/step-(\d+)(/|$)", name)
        if name == "run.lock" or (older and int(older[1]) < last):
            continue
        if path.is_dir():
            found[name] = "folder"
        elif name == "metrics.jsonl":
            rows = [json.loads(line) for line in whole_lines(path)]
            found[name] = [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]
        elif name == "summary.json":
            found[name] = {k: v for k, v in json.loads(path.read_text()).items() if k not in ("seconds", "out")}
        elif name == "verdicts.jsonl":
            found[name] = sorted(whole_lines(path))
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def damage_of(path: Path, step: int) -> str | None:
    """What is wrong with a checkpoint, by its manifest; an opinion apart from the loader's."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        sums = manifest["sha256"]
        wrong = [n for n, s in sums.items() if hashlib.sha256((path / n).read_bytes()).hexdigest() != s]
        version = json.loads((path / "state.json").read_bytes())["version"]
    except (OSError, ValueError, KeyError) as problem:
        return f"{type(problem).__name__}: {problem}"
    if wrong or sums.keys() < NEEDED or version != step or manifest["step"] != step:
        return f"bad sums {wrong}, files {sorted(sums)}, manifest of step {manifest['step']}, state of step {version}"
    return None


def snapshot(folders: Iterable[Path]) -> dict[str, str]:
    """Names and contents."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for folder in folders
        for path in folder.rglob("*")
    }


def whole_lines(path: Path) -> list[bytes]:
    """Lines that end; the last one may be torn."""
    data = path.read_bytes() if path.exists() else b""
    return [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
