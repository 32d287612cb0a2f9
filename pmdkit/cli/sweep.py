"""`pmdkit sweep`: a grid over options; `pmdkit compare`: runs paired by seed."""

import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.text import Text

from pmdkit.cli.options import Flag, Texts, Whole, assignments, merged
from pmdkit.cli.output import print_json, simple_table
from pmdkit.errors import ComponentDied, PmdkitError, UsageError, printable
from pmdkit.observe.run_folder import new_folder
from pmdkit.sweeps.grid import SHORT, Trial, combine, parse_over, variants

if TYPE_CHECKING:
    from pmdkit.sweeps.compare import Arm


def sweep(
    tier: str | None = None,
    env: str | None = None,
    /,
    *,
    over: Texts = None,
    range: Texts = None,
    search: Literal["sobol", "random"] = "sobol",
    samples: Whole = 16,
    halving: Whole | None = None,
    metric: str = "pass_rate_last",
    seeds: Whole = 5,
    set: Texts = None,
    out: Path | None = None,
    jobs: Whole = 1,
    launcher: str = "local",
    launcher_options: Texts = None,
    resume: Flag = False,
    json: Flag = False,
    dry_run: Flag = False,
) -> None:
    """Run every combination of options with every seed, each in a process of its own with one thread.

    Results are kept in OUT/sweep.json; pmdkit compare OUT reads them. Ctrl-C
    stops the runs; the same command with --resume goes on: finished runs are skipped, started ones resumed.

    Args:
        tier: bandit, toy or llm.
        env: a spec on the shelf, or a .toml file.
        over: options and their values: --over objective=pmd-mean,grpo tau=0.05,0.5. Joined options move together:
            --over prompts+ministeps=32+1,512+16.
        range: options and the ends of their values: --range lr=1e-5:1e-3:log group=4:64. Each drawn setting meets
            every combination of --over. Needs the extra sweep.
        search: how settings are drawn from --range: sobol leaves fewer gaps than random.
        samples: how many settings to draw; for sobol a power of 2 is best.
        halving: a factor such as 3: all settings begin, the best third goes on to three times the steps, and so on.
        metric: number of the summary by which --halving decides; larger is better.
        seeds: number of seeds: 0 to SEEDS - 1.
        set: options that all runs share: --set steps=20 objective.norm=none.
        out: folder of the sweep; by default the next number under runs/.
        jobs: runs at a time. Each has accelerators of its own, as long as there are enough.
        launcher: local: processes on this machine; slurm: an array, through submitit; ray: a cluster of Ray.
        launcher_options: options of slurm, as submitit names them (slurm_partition=gpu gpus_per_node=1); for ray
            address=, num_cpus=, num_gpus=.
        resume: continue the sweep in --out.
        json: print the record as one JSON value.
        dry_run: print the runs; start nothing.
    """
    from pmdkit.launchers import make_launcher
    from pmdkit.sweeps import run as room
    from pmdkit.sweeps.search import Halving

    makes_runs = make_launcher(launcher, jobs, assignments(launcher_options or []))
    name, trials, about = grid(tier, env, over, seeds, set, drawn(range, search, samples))
    thinned = None if halving is None else Halving(halving, metric)
    if dry_run:
        print_json([{"name": trial.name, "options": trial.options} for trial in trials], indent=2)
        return
    room.check_trials(trials)
    place = new_folder(None, f"{name}-sweep").path if out is None else out
    result = room.sweep(trials, place, name, about, launcher=makes_runs, resume=resume, halving=thinned, log=log)
    failed = [run for run in result["runs"] if run["state"] == "failed"]
    if json:
        print_json(result)
    else:
        present(name, place)
    if failed:
        told = f"{len(failed)} of {len(result['runs'])} runs failed, the first with: {failed[0]['reason']}"
        kind = ComponentDied if failed[0]["reason"].startswith(room.KILLED) else PmdkitError
        raise kind(f"{told}; fix it and run again with --resume, which tries only those again")


def present(name: str, place: Path) -> None:
    """Print the comparison, and where the record is."""
    from pmdkit.sweeps.compare import collect, compare

    entries, _ = collect([place / f"{name}.json"])
    show_comparison(compare(entries), "pass_rate_last")
    print(f"sweep: {place / f'{name}.json'}")


def drawn(ranges: list[str] | None, search: str, samples: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Settings drawn from --range, and what the record says about them; without --range, one that changes nothing."""
    if not ranges:
        return [{}], {}
    from pmdkit.sweeps.search import draw_settings, parse_ranges

    if samples < 1:
        raise UsageError(f"--samples is {samples}; expected an integer >= 1")
    return draw_settings(parse_ranges(ranges), search, samples), {"range": ranges, "search": search}


def grid(
    tier: str | None,
    env: str | None,
    over: list[str] | None,
    seeds: int,
    set: list[str] | None,
    settings: tuple[list[dict[str, Any]], dict[str, Any]],
) -> tuple[str, list[Trial], dict[str, Any]]:
    """The sweep that the command line asks for: each of `settings` with every combination of --over."""
    if tier is None or env is None:
        raise UsageError(
            "sweep got no TIER and ENV; expected both, such as: pmdkit sweep toy modular-sum --over tau=1,2"
        )
    if seeds < 1:
        raise UsageError(f"--seeds is {seeds}; expected an integer >= 1")
    varied = parse_over(over or [])
    fixed = merged([(SHORT.get(key, key), value) for key, value in assignments(set or []).items()])
    places = {"--set": [*fixed], "--over": "+".join(varied).split("+"), "--range": [*settings[0][0]]}
    for (first, one), (second, other) in combinations(places.items(), 2):
        if both := [key for key in one if key in other]:
            raise UsageError(f"{both[0]} is both in {second} and in {first}; expected it in one of them")
    combined = [{**options, **setting} for setting in settings[0] for options in combine(varied)]
    about = {"over": [*varied, *settings[0][0]], "set": fixed, **settings[1]}
    return "sweep", variants(tier, env, combined, range(seeds), fixed), about


def log(sentence: str) -> None:
    """Print progress on stderr."""
    print(f"pmdkit: {printable(sentence)}", file=sys.stderr, flush=True)


def compare(
    *places: Path,
    metric: str = "pass_rate_last",
    by: str | None = None,
    csv: Path | None = None,
    latex: Path | None = None,
    json: Flag = False,
) -> None:
    """Compare runs that differ in their options: means with 95 % intervals, and differences paired by seed.

    Intervals are Student's t over seeds. The first arm is what the others are compared with.

    Args:
        places: run folders of any tier, folders of runs, or records of sweeps (.json).
        metric: a number of the summary: pass_rate_last, pass_rate_mean, log_ratio_min, ms_per_token_update, ...
        by: the option that defines the arms, such as objective; by default all options in which the runs differ.
        csv: write the table there.
        latex: write the table there.
        json: print one JSON value.
    """
    from pmdkit.sweeps import compare

    if not places:
        raise UsageError("compare got no runs; give run folders, or the folder of a sweep")
    for path in (csv, latex):
        if path is not None and (path.exists() or not path.parent.is_dir()):
            what = "exists" if path.exists() else f"is in {path.parent}, which does not exist"
            raise UsageError(f"output {path} {what}; nothing was changed: give another name")
    entries, skipped = compare.collect(places)
    if skipped:
        print(f"pmdkit: {len(skipped)} runs are not finished and were left out", file=sys.stderr)
    arms = compare.compare(entries, metric, by)
    if csv is not None:
        csv.write_text(compare.to_csv(arms), encoding="utf-8")
    if latex is not None:
        latex.write_text(compare.to_latex(arms, metric), encoding="utf-8")
    if json:
        rows = [arm.row() for arm in arms]
        print_json({"metric": metric, "interval": "t, 95 %, over seeds", "arms": rows, "skipped": skipped})
    else:
        show_comparison(arms, metric)


def show_comparison(arms: "Sequence[Arm]", metric: str) -> None:
    """Print the comparison as a table."""
    from pmdkit.stats import interval_text
    from pmdkit.sweeps.compare import wins

    table = simple_table("", ">runs", f">{metric}", ">difference to the first", ">larger in")
    for arm in arms:
        versus = arm.against_first
        table.add_row(
            Text(arm.label),  # from configurations: no markup
            str(len(arm.values)),
            interval_text(arm.interval, ".4g"),
            interval_text(versus.difference, ".4g") if versus else "-",
            wins(arm) if versus else "-",
        )
    table.caption = "mean [95 % interval, Student's t]; differences are paired by seed"
    table.caption_justify = "left"
    Console(highlight=False).print(table)
