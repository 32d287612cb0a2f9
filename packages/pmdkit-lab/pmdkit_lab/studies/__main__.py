"""Experiments on the command line: `python -m pmdkit_lab.studies NAME --out DIR`; an unknown name lists them all."""

from pathlib import Path

from cyclopts import App

from pmdkit.cli.options import Flag, Whole
from pmdkit.cli.output import print_json
from pmdkit.cli.sweep import log, present
from pmdkit.errors import UsageError, unknown
from pmdkit.launchers import make_launcher
from pmdkit.observe.run_folder import make_writable, new_folder
from pmdkit.sweeps import run as grid
from pmdkit_lab.studies.experiments import EXPERIMENTS

app = App(name="python -m pmdkit_lab.studies", help="The paper's experiments in miniature.")


@app.default
def run(name: str, /, *, out: Path | None = None, jobs: Whole = 1, resume: Flag = False, json: Flag = False) -> None:
    """Run an experiment of the paper in miniature and write its record.

    Args:
        name: an experiment; an unknown name lists them all.
        out: folder of the record; by default the next number under runs/.
        jobs: runs at a time.
        resume: continue in --out.
        json: print the record as one JSON value.
    """
    from pmdkit_lab.studies.pictures import draw

    if name not in EXPERIMENTS:
        raise UsageError(unknown("experiment", name, EXPERIMENTS))
    place = new_folder(None, f"{name}-sweep").path if out is None else make_writable(out)
    chosen = EXPERIMENTS[name]
    trials = chosen.trials()
    grid.check_trials(trials)
    launcher = make_launcher("local", jobs)
    result = grid.sweep(trials, place, name, chosen.record(), launcher=launcher, resume=resume, log=log)
    if not json:
        present(name, place)
    if all(run["state"] != "failed" for run in result["runs"]):
        draw(name, place).save(place / "figures" / name)
    if json:
        print_json(result)
    else:
        print(f"record: {place / f'{name}.json'}")


if __name__ == "__main__":
    app()
