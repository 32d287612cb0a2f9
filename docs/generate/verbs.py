"""Every verb of the command line with its help as a page, companions included: what `pmdkit VERB --help` prints."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pmdkit.cli import VERBS, companions

HEAD = """# All verbs

What `pmdkit VERB --help` prints, for every verb. The page [command line](command-line.md) says what to use when.

"""
TABLE = "| verb | what it does | from |\n|---|---|---|\n"
WIDTH = "90"


def write_verbs(page: Path) -> int:
    """Write the page; returns the number of verbs."""
    added = companions.verbs()
    about = VERBS | {name: help_line for name, (help_line, _) in added.items()}
    home = {name: where.partition(".")[0].replace("_", "-") for name, (_, where) in added.items() if name not in VERBS}
    rows = [f"| [`{name}`](#{name}) | {text} | {home.get(name, 'pmdkit')} |\n" for name, text in about.items()]
    with ThreadPoolExecutor(2) as pool:
        texts = pool.map(help_of, about)
    sections = [f"## {name}\n\n```text\n{text}\n```\n" for name, text in zip(about, texts, strict=True)]
    page.write_text(HEAD + TABLE + "".join(rows) + "\n" + "\n".join(sections), encoding="utf-8")
    return len(about)


def help_of(verb: str) -> str:
    """The help of a verb; one that has none stops the build."""
    environment = os.environ | {"COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "pmdkit", verb, "--help"]
    asked = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    if asked.returncode or not asked.stdout.strip():
        raise SystemExit(f"pmdkit {verb} --help ended with {asked.returncode} and printed: {asked.stderr.strip()}")
    return "\n".join(line.rstrip() for line in asked.stdout.strip().splitlines())
