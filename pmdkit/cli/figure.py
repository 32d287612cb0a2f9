"""`pmdkit figure RUN`: the picture of a run. pmdkit-lab extends the verb with the paper's figures by name."""

from pathlib import Path

from rich.console import Console

from pmdkit import companions
from pmdkit.cli.options import Flag, Texts
from pmdkit.cli.output import print_json, shown
from pmdkit.cli.run import save_picture
from pmdkit.errors import EnvironmentLacks
from pmdkit.extras import install


def figure(run: Path, /, *names: str, trust: Texts = None, json: Flag = False) -> None:
    """Draw the picture of a run, figures/run.png and run.svg in its folder: does it learn, and how far does a step go?

    Args:
        run: the run's folder.
        names: of figures and tables of the paper, which pmdkit-lab draws.
        trust: files such as my.py that the run names and whose code may run.
        json: print the path as one JSON value.
    """
    from pmdkit.run import Run

    if (names or not run.exists()) and "figure" not in companions.verbs():
        what = f"{run} is not a folder; the paper's figures by name need pmdkit-lab"
        raise EnvironmentLacks(f"{what}: {install('pmdkit-lab')}")
    path = save_picture(Run(run, trust=trust or ()))
    if json:
        print_json({"figure": path})
    else:
        Console().print(f"picture: {shown(path)}", soft_wrap=True)
