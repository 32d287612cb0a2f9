"""The commands of a page, run in order in the current folder: every `pmdkit` line of its fenced blocks, and its Python.

`python tests/commands.py README.md` prints a line for each with its exit code and seconds, and leaves with 1 where one
failed. A block or a line that says `needs: gpu`, `needs: hub` or `needs: minutes` is counted and not run.
"""

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

NEEDS = re.compile(r"needs: (gpu|hub|minutes)")
LIMIT = 900.0  # seconds of a command
UNSOLVED = 4  # of `learn check`: an exercise that nobody has solved yet


@dataclass(frozen=True)
class Command:
    """What a page tells a reader to run. Attributes: text; language, sh or python; needs, what a machine may lack."""

    text: str
    language: str
    needs: str | None


def commands(page: str) -> list[Command]:
    """The commands of a page in order: the `pmdkit` lines of blocks of a shell, and each block of Python as a whole."""
    found: list[Command] = []
    language: str | None = None
    before, mark, block = "", None, []
    for line in page.splitlines():
        if not line.startswith("```"):
            block.append(line)
            before = line or before
        elif language is None:
            language, mark, block = line.removeprefix("```").strip(), NEEDS.search(before), []
        else:
            if language == "python":
                found.append(Command("\n".join(block), language, mark[1] if mark else None))
            elif language in ("", "sh", "bash"):
                for text, _, remark in (row.partition("#") for row in block):
                    needs = NEEDS.search(remark) or mark
                    if text.startswith("pmdkit "):
                        found.append(Command(text.strip(), "sh", needs[1] if needs else None))
            language, before, block = None, "", []
    return found


def run(command: Command) -> tuple[bool, int]:
    """Whether it did what it should, and its exit code."""
    words = ["bash", "-c", command.text] if command.language == "sh" else [sys.executable, "-c", command.text]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
    good = done.returncode == 0 or ("learn check" in command.text and done.returncode == UNSOLVED)
    if not good:
        print("   ", *done.stderr.strip().splitlines()[-1:])
    return good, done.returncode


def main() -> None:
    """Run the commands of the pages that are named."""
    bad = left_out = 0
    for page in sys.argv[1:]:
        for command in commands(Path(page).read_text(encoding="utf-8")):
            name = command.text.splitlines()[0]
            if command.needs:
                left_out += 1
                print(f"  - {'':>7} {name} (needs {command.needs})")
                continue
            started = time.monotonic()
            good, code = run(command)
            bad += not good
            print(f"{code:3d} {time.monotonic() - started:6.1f}s {name}", flush=True)
    print(f"{bad} failed, {left_out} left out")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
