"""`pmdkit figure NAME ...`: the paper's figures and tables, recomputed and saved."""

import sys
from pathlib import Path

from rich.console import Console

from pmdkit.cli.options import Flag, Texts
from pmdkit.cli.output import print_json
from pmdkit.errors import UsageError, unknown


def figure(*names: str, out: Path = Path("figures-out"), trust: Texts = None, json: Flag = False) -> None:
    """Draw the picture of a run, or make the paper's figures and tables by name and say what to see in each.

    Exact figures are computed. Training figures are drawn at toy scale, from stored runs. Tables are the paper's
    numbers with what follows from them: sums, ratios, intervals.

    Args:
        names: the folder of a run; or names of figures and tables of the paper, by default all of them.
        out: folder for the paper's figures; a file of the same name is overwritten.
        trust: files such as my.py that the run names and whose code may run.
        json: print one JSON value.
    """
    if len(names) == 1 and Path(names[0]).is_dir():
        from pmdkit.cli.figure import figure as picture_of_a_run

        picture_of_a_run(Path(names[0]), trust=trust, json=json)
        return
    from pmdkit.observe.run_folder import make_writable
    from pmdkit_lab.figures import FIGURES, TABLES, draw, table
    from pmdkit_lab.figures.drawing import Drawing

    everything = FIGURES | TABLES
    for name in names:
        if name not in everything:
            raise UsageError(unknown("figure", name, everything))
    chosen = list(dict.fromkeys(names)) or list(everything)
    make_writable(out)
    found = []
    for number, name in enumerate(chosen, 1):
        print(f"drawing {name} ({number} of {len(chosen)})", file=sys.stderr, flush=True)
        result = draw(name) if name in FIGURES else table(name)
        alt = result.alt if isinstance(result, Drawing) else result.markdown()
        about = {"name": name, "paper": everything[name].label, "see": result.sentence, "alt": alt}
        found.append((about, [str(path) for path in result.save(out / name)]))
    if json:
        print_json([about | {"files": files} for about, files in found])
        return
    console = Console(highlight=False)
    for about, files in found:
        console.print(f"[bold]{about['name']}[/bold]  {about['paper']}", soft_wrap=True)
        console.print(about["see"], markup=False)
        console.print("  ".join(files) + "\n", soft_wrap=True, markup=False)
