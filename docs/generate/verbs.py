"""Every verb of the command line with its help, companions included, for docs/use/command-line.md."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pmdkit.cli import VERBS, companions

TABLE = "| verb | what it does | from |\n|---|---|---|\n"
WIDTH = "90"


def write_verbs(page: Path) -> int:
    """Write what the page includes; returns the number of verbs."""
    added = companions.verbs()
    about = VERBS | {name: help_line for name, (help_line, _) in added.items()}
    home = {name: where.partition(".")[0].replace("_", "-") for name, (_, where) in added.items() if name not in VERBS}
    rows = [f"| [`{name}`](#{name}) | {text} | {home.get(name, 'pmdkit')} |\n" for name, text in about.items()]
    with ThreadPoolExecutor(2) as pool:
        texts = pool.map(help_of, about)
    sections = [f"### {name}\n\n```text\n{text}\n```\n" for name, text in zip(about, texts, strict=True)]
    page.write_text(TABLE + "".join(rows) + "\n" + "\n".join(sections), encoding="utf-8")
    return len(about)


def help_of(verb: str) -> str:
    """The help of a verb; one that has none stops the build."""
    environment = os.environ | {"COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "pmdkit", verb, "--help"]
    asked = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    if asked.returncode or not asked.stdout.strip():
        raise SystemExit(f"pmdkit {verb} --help ended with {asked.returncode} and printed: {asked.stderr.strip()}")
    return "\n".join(line.rstrip() for line in asked.stdout.strip().splitlines())
