"""The picture and the number of the README: both come from one run, `pmdkit toy modular-sum --steps 100`.

`python docs/generate/terminal.py` makes the run and writes docs/assets/terminal.svg and the marked sentence of README.md.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[2]
COMMAND = ("toy", "modular-sum", "--steps", "100")
BEGIN, END = "<!-- terminal: python docs/generate/terminal.py -->\n", "<!-- end of the terminal -->"
COLUMNS = 80  # the widest table of a run's report has 77


def ran(folder: Path) -> tuple[str, dict[str, Any]]:
    """What the run prints, as into a log, and its summary."""
    environment = os.environ | {"NO_COLOR": "1", "COLUMNS": str(COLUMNS)}
    done = subprocess.run(
        [sys.executable, "-m", "pmdkit", *COMMAND],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=True,
    )  # fmt: skip
    (summary,) = folder.glob("runs/*/summary.json")
    return done.stdout, json.loads(summary.read_text(encoding="utf-8"))


def sentence(summary: dict[str, Any]) -> str:
    """The number of the README."""
    first, last = summary["pass_rate_first"], summary["pass_rate_last"]
    return (
        f"A small transformer learns to add modulo ten from rewards alone, without one example: its share of right answers goes\n"
        f"**from {first:.2f} to {last:.2f} in {summary['steps']} steps**, a few seconds on a laptop without a GPU.\n\n"
        f"![The terminal of that run: the pass rate rises from {first:.2f} to {last:.2f}, and a table compares the "
        f"log-ratios of wrong and right answers with those of the exact update.](docs/assets/terminal.svg)\n"
    )


def picture(shown: str) -> str:
    """The terminal as SVG."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(f"$ pmdkit {' '.join(COMMAND)}", style="bold", highlight=False)
    for line in shown.strip().splitlines():
        progress = line.startswith("pmdkit: ")
        console.print(Text(line.removeprefix("pmdkit: "), "#98a8a8" if progress else ""))
    svg = console.export_svg(title="pmdkit", theme=MONOKAI, unique_id="terminal")
    # rich asks a content network for its font; the reader's own monospaced one does
    head, _, rest = svg.partition("@font-face")
    while rest:
        rest = rest.partition("}")[2]
        before, _, rest = rest.partition("@font-face")
        head += before
    return head.replace("Fira Code, monospace", "DejaVu Sans Mono, Menlo, Consolas, monospace")


def write_terminal(root: Path) -> str:
    """Make the run, write the picture and the sentence; returns the sentence."""
    with tempfile.TemporaryDirectory() as folder:
        shown, summary = ran(Path(folder))
    (root / "docs" / "assets" / "terminal.svg").write_text(picture(shown), encoding="utf-8")
    page = root / "README.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(before + BEGIN + sentence(summary) + END + rest.partition(END)[2], encoding="utf-8")
    return sentence(summary)


if __name__ == "__main__":
    print(write_terminal(ROOT))
