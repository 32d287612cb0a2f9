"""`pmdkit figures`: the paper's figures, recomputed and saved."""

import json as to_json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def figures(
    *names: str, out: Path = Path("figures-out"), json: Annotated[bool, Parameter(negative="")] = False
) -> None:
    """Draw the paper's figures as PNG and SVG, and say what to see in each.

    Args:
        names: which; by default all of them.
        out: folder for the pictures; a picture of the same name there is drawn again.
        json: print one JSON value.
    """
    from pmdkit.errors import UsageError
    from pmdkit.figures import FIGURES, draw
    from pmdkit.nearest import unknown
    from pmdkit.observe.folder import make

    for name in names:
        if name not in FIGURES:
            raise UsageError(unknown("figure", name, FIGURES))
    if out.exists() and not out.is_dir():
        raise UsageError(f"output {out} is a file; expected a folder: give another --out")
    make(out)
    chosen = list(dict.fromkeys(names)) or list(FIGURES)
    drawn = []
    for number, name in enumerate(chosen, 1):
        print(f"drawing {name} ({number} of {len(chosen)})", file=sys.stderr, flush=True)
        drawing = draw(name)
        files = [str(path) for path in drawing.save(out / name)]
        about = {"name": name, "paper": FIGURES[name].label, "see": drawing.sentence, "alt": drawing.alt}
        drawn.append((about, files))
    if json:
        print(to_json.dumps([about | {"files": files} for about, files in drawn]))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for about, files in drawn:
        console.print(f"[bold]{about['name']}[/bold]  {about['paper']}", soft_wrap=True)
        console.print(about["see"], markup=False)
        console.print("  ".join(files) + "\n", soft_wrap=True, markup=False)
