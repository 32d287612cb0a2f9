"""Which files the adapters were last tested with: `--write` after a pass, `--check` (exit 0: these very files).

Needs the standard library alone. The fingerprint knows neither time nor place nor git.
"""

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).parent / "tested.json"
FOLDERS = ("pmdkit/adapters", "pmdkit/objectives", "pmdkit/testing/golden", "tests/adapters")
LEFT_OUT = {"__pycache__", ".pytest_cache", RECORD.name}
PACKAGES = ("torch", "transformers", "verl", "trl")


def files() -> list[Path]:
    """Everything that can change what the tests find, in an order that is the same everywhere."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted(
        (p for p in found if not LEFT_OUT.intersection(p.parts)), key=lambda p: p.relative_to(ROOT).as_posix()
    )


def fingerprint() -> str:
    """SHA-256 over names and contents."""
    total = hashlib.sha256()
    for path in files():
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(ROOT).as_posix()} {content}\n".encode())
    return total.hexdigest()


def versions() -> dict[str, dict[str, str]]:
    """What each adapter was tested with, by its requirements."""
    told = {}
    for path in sorted(Path(__file__).parent.glob("*/requirements.txt")):
        pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", path.read_text(encoding="utf-8"), re.M))
        told[path.parent.name] = {name: pins[name] for name in PACKAGES if name in pins}
    return told


def main() -> None:
    """Compare or record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    now = fingerprint()
    if asked.write:
        record = {"sha256": now, "versions": versions()}
        RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        print(f"adapters: passed, recorded in {RECORD.relative_to(ROOT)}")
        return
    before = json.loads(RECORD.read_text(encoding="utf-8"))["sha256"] if RECORD.exists() else None
    if before == now:
        print("adapters: tested with these very files, see tests/adapters/tested.json; nothing to run")
        return
    print("adapters: their files, the objectives or the golden vectors changed since they were tested")
    sys.exit(1)


if __name__ == "__main__":
    main()
