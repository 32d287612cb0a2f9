"""`pmdkit sweep`: a grid over any option, or an experiment of the paper. `pmdkit compare`: runs paired by seed."""

import json as to_json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from pmdkit.cli.options import Flag, Texts, Whole, assignments, merged
from pmdkit.cli.output import print_json, simple_table
from pmdkit.errors import ComponentDied, PmdkitError, UsageError, printable, unknown
from pmdkit.observe import files
from pmdkit.observe.run_folder import make_writable, new_folder
from pmdkit.sweeps.grid import SHORT, Trial, expand, parse_over

if TYPE_CHECKING:
    from pmdkit.sweeps.compare import Arm

ALONE = ("regimes", "speed")  # experiments that are no grid of runs
STUDY = "adaptive-tau-"  # a study of its own for each tier: tunes first, then compares
TIERS = ("bandit", "toy", "starter")
RACE = "race"  # all methods tuned alike and compared, by the protocol in pmdkit/sweeps/race.toml


def sweep(
    tier: str | None = None,
    env: str | None = None,
    /,
    *,
    over: Texts = None,
    seeds: Whole = 5,
    set: Texts = None,
    experiment: str | None = None,
    out: Path | None = None,
    jobs: Whole = 1,
    resume: Flag = False,
    json: Flag = False,
    dry_run: Flag = False,
    short: Flag = False,
) -> None:
    """Run every combination of options with every seed, each in a process of its own with one thread.

    What comes out is kept in OUT/sweep.json (OUT/EXPERIMENT.json of an experiment); pmdkit compare OUT reads it. Ctrl-C
    stops the runs; the same command with --resume goes on: finished runs are skipped, started ones resumed.

    Args:
        tier: bandit, toy or llm.
        env: a spec on the shelf, or a .toml file.
        over: options and their values: --over objective=pmd-mean,grpo tau=0.05,0.5. Joined options move together:
            --over prompts+ministeps=32+1,512+16.
        seeds: how many: 0 to SEEDS - 1.
        set: options that all runs share: --set steps=20 objective.norm=none.
        experiment: one by name instead of TIER and ENV; any unknown name lists them.
        out: folder of the sweep; by default the next number under runs/.
        jobs: runs at a time.
        resume: go on with the sweep in --out.
        json: print the record as one JSON value.
        dry_run: print the runs; start nothing.
        short: of --experiment race: a few settings and seeds, in twenty minutes.
    """
    from pmdkit.sweeps import run as room

    if short and experiment != RACE:
        raise UsageError(f"--short is a form of --experiment {RACE} and of nothing else; leave it out")
    if experiment == RACE:
        race(out, jobs, resume, json, dry_run, short)
        return
    if experiment in ALONE:
        alone(experiment, out, json)
        return
    if experiment is not None and experiment.removeprefix(STUDY) in TIERS and experiment.startswith(STUDY):
        study(experiment, out, jobs, resume, json)
        return
    if experiment is not None:
        name, trials, about = named(experiment, tier, over, set)
    else:
        name, trials, about = grid(tier, env, over, seeds, set)
    if dry_run:
        print_json([{"name": trial.name, "options": trial.options} for trial in trials], indent=2)
        return
    room.check_trials(trials, jobs)
    place = new_folder(None, f"{name}-sweep").path if out is None else out
    result = room.sweep(trials, place, name, about, jobs=jobs, resume=resume, log=log)
    failed = [run for run in result["runs"] if run["state"] == "failed"]
    if json:
        print_json(result)
    else:
        present(name, place, drawn=experiment is not None and not failed)
    if failed:
        told = f"{len(failed)} of {len(result['runs'])} runs failed, the first with: {failed[0]['reason']}"
        kind = ComponentDied if failed[0]["reason"].startswith(room.KILLED) else PmdkitError
        raise kind(f"{told}; fix it and run again with --resume, which tries only those again")


def present(name: str, place: Path, drawn: bool) -> None:
    """What came out, and where it is."""
    from pmdkit.sweeps.compare import collect, compare

    entries, _ = collect([place / f"{name}.json"])
    show_comparison(compare(entries), "pass_rate_last")
    print(f"sweep: {place / f'{name}.json'}" + (f"   picture: {picture(name, place)}" if drawn else ""))


def grid(
    tier: str | None, env: str | None, over: list[str] | None, seeds: int, set: list[str] | None
) -> tuple[str, list[Trial], dict[str, Any]]:
    """The sweep of the command line."""
    if tier is None or env is None:
        raise UsageError(
            "sweep got no TIER and ENV; expected both, such as: pmdkit sweep toy modular-sum --over tau=1,2"
        )
    if seeds < 1:
        raise UsageError(f"--seeds is {seeds}; expected an integer >= 1")
    varied = parse_over(over or [])
    fixed = merged([(SHORT.get(key, key), value) for key, value in assignments(set or []).items()])
    for key in fixed:
        if key in "+".join(varied).split("+"):
            raise UsageError(f"{key} is both in --over and in --set; expected it in one of them")
    trials = expand(tier, env, varied, range(seeds), fixed)
    return "sweep", trials, {"over": list(varied), "set": fixed}


def named(
    experiment: str, tier: str | None, over: list[str] | None, set: list[str] | None
) -> tuple[str, list[Trial], dict[str, Any]]:
    """An experiment by its name."""
    from pmdkit.sweeps.experiments import EXPERIMENTS

    if experiment not in EXPERIMENTS:
        studies = [STUDY + each for each in TIERS]
        raise UsageError(unknown("experiment", experiment, [*EXPERIMENTS, *ALONE, *studies, RACE]))
    if tier is not None or over or set:
        raise UsageError(
            "--experiment has its own tier, environment and options; leave TIER, ENV, --over and --set out"
        )
    chosen = EXPERIMENTS[experiment]
    return experiment, chosen.trials(), chosen.record()


def study(name: str, out: Path | None, jobs: int, resume: bool, json: bool) -> None:
    """One tier of the study of adaptive temperatures: its table on stdout, or the whole record as JSON."""
    from pmdkit.sweeps.adaptive import study as run

    place = new_folder(None, f"{name}-sweep").path if out is None else out
    result = run(name.removeprefix(STUDY), place, jobs=jobs, resume=resume, log=log)
    if json:
        print_json(result)
    else:
        show_study(result)
        print(f"study: {place / f'{name}.json'}")


def race(out: Path | None, jobs: int, resume: bool, json: bool, dry_run: bool, short: bool) -> None:
    """The race of all methods, or the part of it that its time allows."""
    from pmdkit.sweeps import race as room

    protocol = room.read_protocol(short=short)
    if dry_run:
        runs = {
            task.name: {"tuning": task.tuning * len(protocol.methods) * len(task.settings(protocol.methods[0]))}
            | {"comparison": task.seeds * len(protocol.methods)}
            for task in protocol.tasks
        }
        print_json({"protocol": protocol.sha256, "short": short, "runs": runs}, indent=2)
        return
    if jobs < 1:
        raise UsageError(f"--jobs is {jobs}; expected an integer >= 1")
    place = new_folder(None, f"{RACE}-sweep").path if out is None else out
    result = room.race(place, protocol, jobs=jobs, resume=resume, log=log)
    if json:
        print_json(result)
    else:
        show_race(result)
        print(f"race: {place / 'race.json'}")


def show_race(result: dict[str, Any]) -> None:
    """A table per task: each method at its best setting, against the reference, and how much of its grid is good."""
    console = Console()
    for task, rows in result["tables"].items():
        titles = (
            "method",
            ">mean",
            ">last",
            ">drop",
            ">gain",
            "outcome",
            ">near own best",
            ">near best of all",
            "edge",
        )
        table = simple_table(*titles, title=task, title_justify="left", box=None)
        for row in rows:
            gain = row.get("gain")
            table.add_row(
                row["method"],
                *(f"{row[key]['mean']:.3f}" for key in ("auc", "final", "drop")),
                f"{gain['mean']:+.3f} ± {(gain['high'] - gain['low']) / 2:.3f}" if gain else "",
                row.get("outcome", "reference"),
                *(f"{row[key]:.0%}" for key in ("volume_own", "volume_all")),
                "yes" if row["edge"] else "",
            )
        console.print(table)
        console.print()
    if result["short"]:
        console.print("The short form: a look, and no finding.")


def alone(name: str, out: Path | None, json: bool) -> None:
    """An experiment that is no grid of runs: computed here in minutes, in one process, and not resumed."""
    import torch

    from pmdkit.sweeps import measurements

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
    from pmdkit.sweeps.pictures import draw

    return str(draw(name, folder).save(folder / "figures" / name)[0])


def log(sentence: str) -> None:
    """Progress, on stderr."""
    print(f"pmdkit: {printable(sentence)}", file=sys.stderr, flush=True)


VARIED = ("scale", "eta", "budget")  # the option of each rule that is tuned


def show_study(result: dict[str, Any]) -> None:
    """A table per cell: each arm at its tuned value, beside the fixed tau."""
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
        "mean: pass rate over training, gain: against the tuned fixed tau, paired by seed, 95 %, p: by Holm; drop: the "
        "worst from one step to the next; dead: share of prompts",
        soft_wrap=False,
    )


def short(tau: Any) -> str:
    """The value an arm was tuned to: a number, or the one option of its rule that was varied."""
    return f"{tau if not isinstance(tau, dict) else next(tau[key] for key in VARIED if key in tau):g}"


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
        by: the option that makes the arms, such as objective; by default all in which the runs differ.
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
        print(f"pmdkit: {len(skipped)} runs are not finished and left out", file=sys.stderr)
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
    """The comparison as a table."""
    from pmdkit.stats import interval_text
    from pmdkit.sweeps.compare import wins

    table = simple_table("", ">runs", f">{metric}", ">difference to the first", ">larger in")
    for arm in arms:
        versus = arm.against_first
        table.add_row(
            Text(arm.label),  # of configurations: no markup
            str(len(arm.values)),
            interval_text(arm.interval, ".4g"),
            interval_text(versus.difference, ".4g") if versus else "-",
            wins(arm) if versus else "-",
        )
    table.caption = "mean [95 % interval, Student's t]; differences are paired by seed"
    table.caption_justify = "left"
    Console(highlight=False).print(table)
