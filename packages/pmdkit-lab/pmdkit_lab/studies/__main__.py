"""Experiments on the command line: `python -m pmdkit_lab.studies NAME --out DIR`; an unknown name lists them all."""

import json as to_json
from pathlib import Path

from cyclopts import App

from pmdkit.cli.options import Flag, Whole
from pmdkit.cli.output import print_json
from pmdkit.cli.sweep import log, present
from pmdkit.errors import UsageError, unknown
from pmdkit.launchers import make_launcher
from pmdkit.observe import files
from pmdkit.observe.run_folder import make_writable, new_folder
from pmdkit.sweeps import run as grid
from pmdkit_lab.studies.experiments import EXPERIMENTS

ALONE = ("regimes", "speed")  # not a grid of runs: minutes in this process, and not resumable

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
    if name not in (known := [*EXPERIMENTS, *ALONE]):
        raise UsageError(unknown("experiment", name, known))
    place = new_folder(None, f"{name}-sweep").path if out is None else make_writable(out)
    path, launcher = place / f"{name}.json", make_launcher("local", jobs)
    if name in ALONE:
        import torch

        from pmdkit_lab.studies import measurements

        if path.exists():
            raise UsageError(f"output {path} exists; nothing was changed: give another --out")
        torch.set_num_threads(1)
        result = getattr(measurements, name)(log=log)
        files.replace(path, to_json.dumps(result, separators=(",", ":")).encode() + b"\n", files.PUBLIC)
    else:
        from pmdkit_lab.studies.pictures import draw

        chosen = EXPERIMENTS[name]
        trials = chosen.trials()
        grid.check_trials(trials)
        result = grid.sweep(trials, place, name, chosen.record(), launcher=launcher, resume=resume, log=log)
        if not json:
            present(name, place)
        if all(run["state"] != "failed" for run in result["runs"]):
            draw(name, place).save(place / "figures" / name)
    if json:
        print_json(result)
    else:
        print(f"record: {path}")


if __name__ == "__main__":
    app()
