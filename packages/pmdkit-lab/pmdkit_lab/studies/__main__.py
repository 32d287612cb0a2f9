"""The studies on the command line: `python -m pmdkit_lab.studies NAME --out DIR`; an unknown name lists them all."""

import json as to_json
from pathlib import Path
from typing import Any

from cyclopts import App
from rich.console import Console

from pmdkit.cli.options import Flag, Whole
from pmdkit.cli.output import print_json, simple_table
from pmdkit.cli.sweep import log, present
from pmdkit.errors import UsageError, unknown
from pmdkit.launchers import make_launcher
from pmdkit.observe import files
from pmdkit.observe.run_folder import make_writable, new_folder
from pmdkit.sweeps import run as grid
from pmdkit_lab.studies.experiments import EXPERIMENTS

ALONE = ("regimes", "speed")  # experiments that are not a grid of runs
STUDY = "adaptive-tau-"  # a separate study for each tier: tunes first, then compares
TIERS = ("bandit", "toy", "starter")

app = App(name="python -m pmdkit_lab.studies", help="The paper's experiments in miniature, and the studies.")


@app.default
def run(name: str, /, *, out: Path | None = None, jobs: Whole = 1, resume: Flag = False, json: Flag = False) -> None:
    """Run an experiment of the paper in miniature, or a study.

    Args:
        name: an experiment; an unknown name lists them all.
        out: folder of the record; by default the next number under runs/.
        jobs: runs at a time.
        resume: continue in --out.
        json: print the record as one JSON value.
    """
    studies = [STUDY + tier for tier in TIERS]
    if name not in [*EXPERIMENTS, *ALONE, *studies]:
        raise UsageError(unknown("experiment", name, [*EXPERIMENTS, *ALONE, *studies]))
    if name in ALONE:
        alone(name, out, json)
        return
    place = new_folder(None, f"{name}-sweep").path if out is None else out
    launcher = make_launcher("local", jobs)
    if name in studies:
        from pmdkit_lab.studies.adaptive import study

        result = study(name.removeprefix(STUDY), place, launcher=launcher, resume=resume, log=log)
        if json:
            print_json(result)
        else:
            show_study(result)
            print(f"study: {place / f'{name}.json'}")
        return
    chosen = EXPERIMENTS[name]
    trials = chosen.trials()
    grid.check_trials(trials)
    result = grid.sweep(trials, place, name, chosen.record(), launcher=launcher, resume=resume, log=log)
    if json:
        print_json(result)
    else:
        present(name, place)
        if all(run["state"] != "failed" for run in result["runs"]):
            print(f"picture: {picture(name, place)}")


def alone(name: str, out: Path | None, json: bool) -> None:
    """Run an experiment that is not a grid of runs: computed in this process within minutes, and not resumable."""
    import torch

    from pmdkit_lab.studies import measurements

    place = new_folder(None, f"{name}-sweep").path if out is None else make_writable(out)
    path = place / f"{name}.json"
    if path.exists():
        raise UsageError(f"output {path} exists; nothing was changed: give another --out")
    torch.set_num_threads(1)
    result = getattr(measurements, name)(log=log)
    files.replace(path, to_json.dumps(result, separators=(",", ":")).encode() + b"\n", files.PUBLIC)
    print(to_json.dumps(result) if json else f"sweep: {path}   picture: {picture(name, place)}")


def picture(name: str, folder: Path) -> str:
    """Draw the picture of a finished experiment; returns the path of the PNG."""
    from pmdkit_lab.studies.pictures import draw

    return str(draw(name, folder).save(folder / "figures" / name)[0])


VARIED = ("scale", "eta", "budget")  # the options of the rules that are tuned, one per rule


def show_study(result: dict[str, Any]) -> None:
    """Print a table per cell: each arm at its tuned value, compared with the fixed tau."""
    console = Console()
    for cell, rows in result["tables"].items():
        titles = ("arm", "tuned to", ">mean", ">gain", ">p", ">final", ">drop", ">dead")
        title = f"{cell}, {rows[0]['seeds']} seeds"
        table = simple_table(*titles, no_wrap=True, title=title, title_justify="left", box=None)
        for row in rows:
            gain = row.get("auc_gain")
            table.add_row(
                row["arm"].removeprefix("pass-rate 0.14, "),
                short(result["best"][cell][row["arm"]]),
                f"{row['auc']['mean']:.3f}",
                f"{gain['mean']:+.3f} ± {(gain['high'] - gain['low']) / 2:.3f}" if gain else "",
                f"{row['p']:.1g}" if row["p"] is not None else "",
                f"{row['final']['mean']:.3f}",
                f"{row['drop']['mean']:.4f}",
                f"{row['dead']['mean']:.3f}",
            )
        console.print(table)
        console.print()
    console.print(
        "mean: pass rate over training; gain: against the tuned fixed tau, paired by seed, 95 %; p: Holm-corrected; "
        "drop: the worst from one step to the next; dead: share of prompts",
        soft_wrap=False,
    )


def short(tau: Any) -> str:
    """The value an arm was tuned to: a number, or the one option of its rule that was varied."""
    return f"{tau if not isinstance(tau, dict) else next(tau[key] for key in VARIED if key in tau):g}"


if __name__ == "__main__":
    app()
