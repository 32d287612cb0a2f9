"""The commands of pages, run in order as a reader runs them: each page in an empty folder of its own.

`python tools/commands.py README.md docs/use/*.md` prints a line for each with its exit code and seconds, and leaves
with 1 where one failed. Every line of a block of a shell is a command, and every block of Python a program. A block
whose fence names a file, as in ```python title="my.py", is written to that file. What is not to be run is `text`.

A block or a line that says `needs: gpu`, `needs: hub` (a hub of models, or an index of packages) or `needs: minutes` is
counted and not run; `--list` runs nothing.
"""

import os
import re
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", DOCS / "learn" / "exercises.md", *sorted((DOCS / "use").glob("*.md")))
MARKED = 39  # marks on all of PAGES; lower it where one goes, and do not raise it
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)(?:[^`]*title=\"(?P<title>[^\"]+)\")?[^`]*$")
NEEDS = re.compile(r"needs: (gpu|hub|minutes)\b")
INCLUDED = re.compile(r'^--8<-- "(?P<path>[^"]+)"$', re.MULTILINE)
HANGS = 3600.0  # seconds of a command
UNSOLVED = 4  # of `learn check`: an exercise that nobody has solved yet


@dataclass(frozen=True)
class Command:
    """What a page tells a reader to do.

    Attributes:
        text: the command, the program, or the file's text.
        language: sh, python, or file.
        needs: what a machine may lack: gpu, hub or minutes.
        name: how it is printed; of a file, where it is written.
    """

    text: str
    language: str
    needs: str | None
    name: str


def commands(page: str) -> list[Command]:
    """The commands of a page in order.

    Args:
        page: its text; a page that it includes (`--8<--`) is read too.
    """

    def included(found: re.Match[str]) -> str:
        path = ROOT / found["path"]
        return path.read_text(encoding="utf-8") if path.is_file() else ""  # generated pages hold no commands

    found: list[Command] = []
    fence: re.Match[str] | None = None
    before, rows = "", []
    for line in INCLUDED.sub(included, page).splitlines():
        if fence is None:
            fence = FENCE.match(line)
            if fence is None:
                before = line.strip() or before
            else:
                mark, rows, before = NEEDS.search(before if before.startswith("<!--") else ""), [], ""
        elif line.strip() != "```":
            rows.append(line)
        else:
            found += of_block(textwrap.dedent("\n".join(rows)), fence, mark[1] if mark else None)
            fence = None
    return found


def of_block(text: str, fence: re.Match[str], needs: str | None) -> list[Command]:
    """The commands of one block, whose opening fence and mark are given."""
    language, title = fence["language"], fence["title"]
    if title:
        return [Command(text + "\n", "file", needs, title)]
    if language == "python":
        return [Command(text, language, needs, next((row for row in text.splitlines() if row), ""))]
    if language not in ("", "sh", "bash"):
        return []
    lines = [row for row in text.replace("\\\n", " ").splitlines() if row.strip() and not row.startswith("#")]
    marks = [NEEDS.search(row.partition("#")[2]) for row in lines]
    names = [" ".join(re.split(r"\s+# (?=[^\"']*$)", row)[0].split()) for row in lines]  # bash drops remarks itself
    return [
        Command(row, "sh", mark[1] if mark else needs, name)
        for row, mark, name in zip(lines, marks, names, strict=True)
    ]


def run(command: Command, folder: Path) -> tuple[bool, int]:
    """Whether it did what it should, and its exit code."""
    if command.language == "file":
        (folder / command.name).parent.mkdir(parents=True, exist_ok=True)
        (folder / command.name).write_text(command.text, encoding="utf-8")
        return True, 0
    words = ["bash", "-c", command.text] if command.language == "sh" else [sys.executable, "-c", command.text]
    # a command without the mark `hub` asks no hub; what exercises were solved is kept apart from the user's
    env = os.environ | {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg", "XDG_STATE_HOME": str(folder / ".state")}
    done = subprocess.run(
        words, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANGS
    )
    good = done.returncode == 0 or ("learn check" in command.text and done.returncode == UNSOLVED)
    if not good:
        print(textwrap.indent("\n".join((done.stdout + done.stderr).strip().splitlines()[-12:]), "    "))
    return good, done.returncode


def main() -> None:
    """Run the commands of the pages that are named, or of all."""
    wanted = [Path(word).resolve() for word in sys.argv[1:] if not word.startswith("--")] or PAGES
    listed = "--list" in sys.argv
    ran = bad = marked = 0
    for page in wanted:
        found = commands(page.read_text(encoding="utf-8"))
        if found:
            print(f"{page.name}", flush=True)
        folder = Path.cwd() / page.stem
        if not listed:
            folder.mkdir()  # one that is there already would not be empty
        for command in found:
            if command.needs:
                marked += 1
                print(f"  -         {command.name}  (needs: {command.needs})")
                continue
            started = time.monotonic()
            good, code = (True, 0) if listed else run(command, folder)
            ran, bad = ran + 1, bad + (not good)
            print(f"{code:3d} {time.monotonic() - started:6.1f}s {command.name}", flush=True)
    print(f"{ran} {'listed' if listed else 'ran'}, {bad} failed, {marked} marked and not run (at most {MARKED})")
    sys.exit(bool(bad or marked > MARKED))


if __name__ == "__main__":
    main()
