"""The pages of the ward: the picture and the table of each replica, docs/use/ward/NAME.png and NAME.md.

`python docs/generate/ward.py per-token` makes those of one patient again, in seconds; without a name, those of all.
"""

import sys
from importlib import import_module
from pathlib import Path

from pmdkit_lab.ward.__main__ import REPLICAS
from pmdkit_lab.ward.replica import Replica

PAGES = Path(__file__).parents[1] / "use" / "ward"
BEGIN, END = "<!-- replica: python docs/generate/ward.py {} -->\n", "<!-- end of the replica -->\n"


def made(name: str) -> Replica:
    """The replica of a page."""
    replica: Replica = import_module(f"pmdkit_lab.ward.{name.replace('-', '_')}").run()
    return replica


def draw(replica: Replica, path: Path) -> None:
    """Its panels, one below another, for a wide screen and a phone alike."""
    from matplotlib.figure import Figure

    from pmdkit_lab import figures

    with figures.style():
        figure = Figure(figsize=(4.6, 1.2 + 1.9 * len(replica.panels)), layout="constrained")
        axes = figure.subplots(len(replica.panels), 1, sharex=True, squeeze=False)[:, 0]
        for ax, (label, lines) in zip(axes, replica.panels.items(), strict=True):
            for name, values in lines.items():
                ax.plot(replica.at or range(len(values)), values, label=name)
            if replica.log:
                ax.set_yscale("log")
            if replica.level is not None:
                ax.axhline(replica.level, color="0.2", linestyle=":")
            ax.set_ylabel(label)
        axes[-1].set_xlabel(replica.across)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left")
        figure.savefig(path, dpi=110, metadata={"Software": None})


def parts(page: str, name: str) -> tuple[str, str, str]:
    """What stands before the table, the table, and what stands after it."""
    before, rest = page.split(BEGIN.format(name))
    table, after = rest.split(END)
    return before, table.strip() + "\n", after


if __name__ == "__main__":
    for name in sys.argv[1:] or [each.replace("_", "-") for each in REPLICAS]:
        path, replica = PAGES / f"{name}.md", made(name)
        draw(replica, path.with_suffix(".png"))
        before, _, after = parts(path.read_text(encoding="utf-8"), name)
        page = f"{before}{BEGIN.format(name)}\n{replica.table()}\n{END}{after}"
        path.write_text(page, encoding="utf-8")
