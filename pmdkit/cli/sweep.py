"""`pmdkit sweep`: a grid of runs over any option, with several seeds."""

import sys
from pathlib import Path

from pmdkit.cli.compare import show_comparison
from pmdkit.cli.options import Flag, Texts, Whole, assignments, merged
from pmdkit.cli.output import print_json
from pmdkit.errors import ComponentDied, PmdkitError, UsageError, printable
from pmdkit.observe.run_folder import new_folder
from pmdkit.specs.spec import SHORT
from pmdkit.sweeps.grid import expand, parse_over

NAME = "sweep"


def sweep(
    tier: str | None = None,
    env: str | None = None,
    /,
    *,
    over: Texts = None,
    seeds: Whole = 5,
    set: Texts = None,
    out: Path | None = None,
    jobs: Whole = 1,
    launcher: str = "local",
    resume: Flag = False,
    json: Flag = False,
    dry_run: Flag = False,
) -> None:
    """Run every combination of options with every seed, each in a process of its own with one thread.

    Results are kept in OUT/sweep.json; pmdkit compare OUT reads them. Ctrl-C stops the runs; the same command with
    --resume goes on: finished runs are skipped, started ones resumed.

    Args:
        tier: bandit, toy or llm.
        env: a spec on the shelf, or a .toml file.
        over: options and their values: --over objective=pmd-mean,grpo tau=0.05,0.5. Joined options move together:
            --over prompts+ministeps=32+1,512+16.
        seeds: number of seeds: 0 to SEEDS - 1.
        set: options that all runs share: --set steps=20 objective.norm=none.
        out: folder of the sweep; by default the next number under runs/.
        jobs: runs at a time. Each has accelerators of its own, as long as there are enough.
        launcher: local: processes on this machine; with pmdkit-adapters slurm: jobs, which sbatch's variables such as
            SBATCH_PARTITION set up; or ray: the cluster of RAY_ADDRESS.
        resume: continue the sweep in --out.
        json: print the record as one JSON value.
        dry_run: print the runs; start nothing.
    """
    from pmdkit.launchers import make_launcher
    from pmdkit.sweeps import run as room

    makes_runs = make_launcher(launcher, jobs)
    if tier is None or env is None:
        raise UsageError("sweep got no TIER and ENV; expected both: pmdkit sweep toy modular-sum --over tau=1,2")
    if seeds < 1:
        raise UsageError(f"--seeds is {seeds}; expected an integer >= 1")
    varied = parse_over(over or [])
    fixed = merged([(SHORT.get(key, key), value) for key, value in assignments(set or []).items()])
    if both := [key for key in fixed if key in "+".join(varied).split("+")]:
        raise UsageError(f"{both[0]} is both in --over and in --set; expected it in one of them")
    trials = expand(tier, env, varied, range(seeds), fixed)
    if dry_run:
        print_json([{"name": trial.name, "options": trial.options} for trial in trials], indent=2)
        return
    room.check_trials(trials)
    place = new_folder(None, f"{NAME}-sweep").path if out is None else out
    about = {"over": list(varied), "set": fixed}
    result = room.sweep(trials, place, NAME, about, launcher=makes_runs, resume=resume, log=log)
    failed = [run for run in result["runs"] if run["state"] == "failed"]
    if json:
        print_json(result)
    else:
        present(NAME, place)
    if failed:
        told = f"{len(failed)} of {len(result['runs'])} runs failed, the first with: {failed[0]['reason']}"
        kind = ComponentDied if failed[0]["reason"].startswith(room.KILLED) else PmdkitError
        raise kind(f"{told}; fix it and run again with --resume, which tries only those again")


def present(name: str, place: Path) -> None:
    """Print the comparison, and where the record is."""
    from pmdkit.sweeps.compare import collect, compare

    show_comparison(compare(collect([place / f"{name}.json"])[0]), "pass_rate_last")
    print(f"sweep: {place / f'{name}.json'}")


def log(sentence: str) -> None:
    """Print progress on stderr."""
    print(f"pmdkit: {printable(sentence)}", file=sys.stderr, flush=True)
