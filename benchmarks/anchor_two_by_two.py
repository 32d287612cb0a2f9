"""Does PMD-part fail where the anchor law says so? `python benchmarks/anchor_two_by_two.py run|record`.

Stated before the first run. The law (`theory.anchor`): PMD-part is PMD-mean with a push away from the old policy of
strength c_n - tau, and the push acts through stale ministeps only. So at the learning rate of the shelf, with groups of
16 and rewards 0 and 1, PMD-part should match PMD-mean where c_n < tau or where there is one ministep, and fail where
c_n > tau and there are 16.

Cells: tau 0.05 (c_n > tau while the pass rate of a prompt is between 0.005 and 0.95) and 0.5 (c_n at most 0.44 tau
at any pass rate) x 1 and 16 ministeps. A cell has the same updates, rows per update and draws for both numbers of
ministeps: 16 ministeps take 256 prompts a step, 1 ministep takes 16 prompts and 16 times the steps. Tasks:
`modular-sum` with 192 updates and `copy` with 400, both from chance. Seeds 0 to 19, of which none chose anything here.

Measure: the mean pass rate of the rollouts over all steps, PMD-mean minus PMD-part, paired by seed. Eight comparisons
share an error of 5 %: each has a t interval of 99.375 %. PMD-part *matches* if the interval lies inside -MARGIN to
MARGIN, *fails* if it lies above MARGIN, is *ahead* if it lies below -MARGIN, else the cell is undecided. The law is
supported on a task if all four cells come out as predicted, contradicted if one comes out as another word but
undecided, else undecided. The final pass rate over all prompts is reported too, and decides nothing; so is the mean
of c_hat / tau over the groups whose rewards differ, by PMD-mean's rollouts.

Every finished run is appended to a journal; the same command goes on where it stopped.

Kept because docs/explore/anchor/ says where PMD-part fails, and this tests it.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from harness.machine import machine, versions
from scipy import stats

from pmdkit import loop
from pmdkit.resolve import build, resolve

MARGIN, SEEDS, LEVEL = 0.05, range(20), 1 - 0.05 / 8
TAUS, MINISTEPS, GROUP, ROWS = (0.05, 0.5), (1, 16), 16, 256
UPDATES = {"modular-sum": 192, "copy": 400}
PLACE = Path(__file__).parent / "results" / "anchor-two-by-two.json"
JOURNAL = PLACE.with_suffix(".jsonl")


def predicted(tau, ministeps):
    """What the law says of a cell."""
    return "fails" if tau == min(TAUS) and ministeps > 1 else "matches"


def push(reward, tau):
    """c_hat / tau of groups of rewards [P, n]: the mean leave-one-out log-partition minus the mean reward."""
    peers = np.stack([np.delete(reward, i, axis=1) for i in range(reward.shape[1])])
    return np.log(np.exp(peers / tau).mean(-1)).mean(0) - reward.mean(1) / tau


def run_one(task, objective, tau, ministeps, seed):
    """One run as the journal keeps it."""
    changes = {
        "objective.name": objective,
        "objective.tau": tau,
        "schedule.ministeps": ministeps,
        "schedule.prompts": ROWS // GROUP * ministeps,
        "schedule.group": GROUP,
        "schedule.lr": 1e-3,  # of the shelf when this was run; that of `copy` has changed since then
        "schedule.steps": UPDATES[task] // ministeps,
        "run.seed": seed,
    }
    spec, loss = resolve("toy", task, changes)
    loss, backend = build(spec, loss)
    passed, pushes = [], []

    def look(step, learner, rollouts, groups, batch, updates):
        reward = groups.reward.double().numpy()
        passed.append(float(reward.mean()))
        mixed = reward[np.ptp(reward, axis=1) > 0]
        if len(mixed):
            pushes.append(float(push(mixed, tau).mean()))

    loop.run(loss, backend.learner, backend.task, backend.schedule, [look])
    every = max(1, len(passed) // 48)
    return {
        "task": task,
        "objective": objective,
        "tau": tau,
        "ministeps": ministeps,
        "seed": seed,
        "area": round(float(np.mean(passed)), 5),
        "final": round(backend.evaluate()["pass_rate"], 5),
        "push": round(float(np.mean(pushes)), 4) if pushes else None,
        "curve": [round(float(np.mean(passed[i : i + every])), 4) for i in range(0, len(passed), every)],
    }


def cells():
    """Every cell: task, tau and ministeps."""
    return [(task, tau, ministeps) for task in UPDATES for tau in TAUS for ministeps in MINISTEPS]


def journal():
    """Every finished run so far."""
    return [json.loads(line) for line in JOURNAL.read_text().splitlines()] if JOURNAL.exists() else []


def run():
    """Do the missing runs, one seed of every cell after another."""
    names = ("task", "objective", "tau", "ministeps", "seed")
    done = {tuple(found[name] for name in names) for found in journal()}
    for seed in SEEDS:
        for task, tau, ministeps in cells():
            for objective in ("pmd-mean", "pmd-part"):
                if (task, objective, tau, ministeps, seed) not in done:
                    found = run_one(task, objective, tau, ministeps, seed)
                    with open(JOURNAL, "a") as file:
                        file.write(json.dumps(found) + "\n")
                    shown = {key: value for key, value in found.items() if key != "curve"}
                    print(shown, file=sys.stderr, flush=True)


def interval(differences):
    """Mean and the t interval of LEVEL."""
    mean, error = float(np.mean(differences)), float(stats.sem(differences))
    low, high = stats.t.interval(LEVEL, len(differences) - 1, mean, error)
    return [round(float(x), 4) for x in (mean, low, high)]


def verdict(mean, low, high):
    """The word for a cell, as stated."""
    if low > MARGIN:
        return "fails"
    if high < -MARGIN:
        return "ahead"
    return "matches" if low > -MARGIN and high < MARGIN else "undecided"


def record():
    """Write verdicts and runs as one JSON file."""
    runs, table = journal(), []
    for task, tau, ministeps in cells():
        values = {}
        for objective in ("pmd-mean", "pmd-part"):
            place = (task, objective, tau, ministeps)
            own = [r for r in runs if (r["task"], r["objective"], r["tau"], r["ministeps"]) == place]
            values[objective] = {r["seed"]: r for r in own}
        if any(set(found) != set(SEEDS) for found in values.values()):
            raise SystemExit(
                f"{task}, tau {tau}, {ministeps} ministeps: not all {len(SEEDS)} seeds are there; run first"
            )
        pairs = [(values["pmd-mean"][seed], values["pmd-part"][seed]) for seed in SEEDS]
        row = {"task": task, "tau": tau, "ministeps": ministeps, "predicted": predicted(tau, ministeps)}
        for name in ("area", "final"):
            row[name] = interval([mean[name] - part[name] for mean, part in pairs])
            row[f"{name}_mean"], row[f"{name}_part"] = (
                round(float(np.mean([pair[i][name] for pair in pairs])), 4) for i in (0, 1)
            )
        row["push"] = round(float(np.mean([mean["push"] for mean, _ in pairs])), 3)
        table.append(row | {"verdict": verdict(*row["area"])})
    laws = {}
    for task in UPDATES:
        words = [(row["verdict"], row["predicted"]) for row in table if row["task"] == task]
        against = any(got not in (wanted, "undecided") for got, wanted in words)
        held = all(got == wanted for got, wanted in words)
        laws[task] = "contradicted" if against else "supported" if held else "undecided"
    found = {"machine": machine(), "versions": versions(), "margin": MARGIN, "level": LEVEL, "law": laws}
    PLACE.write_text(json.dumps(found | {"table": table, "runs": runs}, indent=1) + "\n")
    print(json.dumps({"law": laws, "table": table}, indent=1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"run": run, "record": record}[sys.argv[1]]()
