"""The picture and the number of the README, from one run: `pmdkit toy modular-sum --steps 100`.

`python docs/generate/terminal.py` makes the run and writes docs/assets/terminal.svg and the marked part of README.md,
if the words of the output or the digits of the sentence have changed: other digits differ between processors.
"""

import json
import os
import re
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
    command = [sys.executable, "-m", "pmdkit", *COMMAND]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}  # progress goes to stderr, the report to stdout
    done = subprocess.run(command, cwd=folder, env=environment, text=True, check=True, **both)
    (summary,) = folder.glob("runs/*/summary.json")
    return done.stdout, json.loads(summary.read_text(encoding="utf-8"))


def sentence(summary: dict[str, Any]) -> str:
    """The number of the README, and the picture below it."""
    first, last = (f"{summary[key]:.2f}" for key in ("pass_rate_first", "pass_rate_last"))
    return (
        "A small transformer learns to add modulo ten from rewards alone, without one example: its share of right\n"
        f"answers goes **from {first} to {last} in {summary['steps']} steps**, seconds on a laptop without a GPU.\n\n"
        f"![The terminal of that run: the pass rate rises from {first} to {last}, and a table compares the log-ratios "
        "of wrong and right answers with those of the exact update.](docs/assets/terminal.svg)\n"
    )


def picture(shown: str) -> str:
    """The terminal as SVG."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, no_color=False)
        console.print(f"$ pmdkit {' '.join(COMMAND)}", style="bold", highlight=False)
        for line in shown.strip().splitlines():
            progress = line.startswith("pmdkit: ")
            console.print(Text(line.removeprefix("pmdkit: "), "#98a8a8" if progress else ""))
        svg = console.export_svg(title="pmdkit", theme=MONOKAI, unique_id="terminal")
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)  # rich's font comes from a content network
    return svg.replace("Fira Code, monospace", "DejaVu Sans Mono, Menlo, Consolas, monospace")


def words(svg: str) -> str:
    """The text of a picture without numbers, which may differ between processors, and without the line on the figure.

    The ruler of a table is as wide as its numbers, so it is left out too.

    A run that takes long draws one, a shorter one names the command: that is the machine's speed.
    """
    text = re.sub(r"[\d.─]+%?|&#160;|\s+", "", "".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg)))
    return text.partition("picture:")[0]


def write_terminal(root: Path) -> str:
    """Make the run, write the picture and the sentence; returns the sentence."""
    with tempfile.TemporaryDirectory() as folder:
        shown, summary = ran(Path(folder))
    page, path = root / "README.md", root / "docs" / "assets" / "terminal.svg"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    text = before + BEGIN + sentence(summary) + END + rest.partition(END)[2]
    if text != page.read_text(encoding="utf-8") or words(path.read_text(encoding="utf-8")) != words(picture(shown)):
        page.write_text(text, encoding="utf-8")
        path.write_text(picture(shown), encoding="utf-8")
    return sentence(summary)


if __name__ == "__main__":
    print(write_terminal(ROOT))
