"""PMD-mean, PMD-part and GRPO on SmolLM2: `smollm2_objectives.py run|check RUNS WORKERS [DEVICE]` or `record MACHINE`.

Stated before the first run. Every run is the recipe `smollm2` with another objective: 30 steps of 64 responses to sums
and one-step stories, two ministeps, no evaluation; what differs is the objective, tau, lr and the seed.

The measure is the pass rate of the rollouts, mean over all steps: it rewards learning early and keeping it. The
mean over the last five steps is reported beside it and decides nothing.

- *matched*: tau 0.05 and lr 1e-5, the recipe's; GRPO has no tau and takes the same lr.
- *tuned*: each at its best cell of LRS x TAUS (GRPO: LRS), by the measure on seed 100, which is used for nothing else.
  The grid has the matched setting in it. An equal budget of cells would favour GRPO, which has one knob: it gets three
  runs, the others six.

Changed when two cells of the grid had taken seven steps, since two cores make the tuned half, not a GPU: its runs are
the first 15 of the 30 steps. Every cell gets 6 steps on seed 100, the best two of each objective go on to 12, and the
mean over these 12 chooses. Where the matched cell is best, its runs of the matched half count, which are of the same
problems and of another device. A rate that learns fast and fails after step 15 can win: this is a choice for a quarter
of an hour.

Added when the grid was done and no tuned run had ended: the matched cell is the best of GRPO and of PMD-part, so only
five runs are new. They go on to 30 steps, and the mean over these is *tuned, long*, with intervals and comparisons of
its own, which decide nothing. `check` repeats GRPO's five runs, 15 steps, on the device of the new ones: their mean
and the difference from the old ones say what the device does.

Five seeds, 0 to 4. Three comparisons in each half, paired by seed, t intervals that share an error of 5 % over all six
(Bonferroni). One above 0 is *more*, below 0 *less*, inside +-MARGIN *alike*, else *undecided*. A run whose loss or
weights stop being finite counts with what it reached, and 0 for the steps it did not take.

No ranking is predicted but one: by the anchor law (`theory.anchor`) PMD-part pushes away from the old policy where
c_8 > tau, at pass rates of 0.02 to 0.9 with tau 0.05, so at the matched setting it is expected to have less than
PMD-mean. With two ministeps each batch gives one stale update only, so the push has little time: it may not show.

Kept because docs/use/smollm2.md has its comparison of objectives.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy import stats

OBJECTIVES, LRS, TAUS = ("pmd-mean", "pmd-part", "grpo"), ("3e-6", "1e-5", "3e-5"), ("0.05", "0.2")
MATCHED = ("1e-5", "0.05")
SEEDS, CHOOSE, MARGIN = range(5), 100, 0.03
STEPS = {"matched": 30, "tuned": 15, "tuned, long": 30}
SHORT, LONG, KEPT = 6, 12, 2  # steps of every cell of the grid, and of the cells kept of each objective
PLACE = Path(__file__).parent / "results" / "smollm2-objectives.json"
JOURNAL = PLACE.with_suffix(".jsonl")
CHECK = PLACE.with_name("smollm2-check.jsonl")
COLUMNS = ("pass_rate", "response_length", "unanswered", "cut_off", "zero_variance_groups", "anchor", "log_ratio_max")
HARDLY_EVALUATED = ("evaluation.problems=1", "evaluation.k=1")
SETTINGS = ("run.checkpoint_every=30", *HARDLY_EVALUATED)


def cells(objective):
    """The grid of an objective: (lr, tau), with None where it has no tau."""
    return [(lr, tau) for lr in LRS for tau in ((None,) if objective == "grpo" else TAUS)]


def journal(file=JOURNAL, key="runs"):
    """Every run, by objective, lr, tau and seed: those on record, and those made since."""
    rows = json.loads(PLACE.read_text()).get(key, []) if PLACE.exists() else []
    rows += map(json.loads, file.read_text().splitlines() if file.exists() else [])
    return {(row["objective"], row["lr"], row["tau"], row["seed"]): row for row in rows}


def one(runs, device, threads, steps, objective, lr, tau, seed, settings=SETTINGS, columns=COLUMNS):
    """One run from the command line, begun or continued to `steps`, with its columns; None if it ended on the way."""
    out = runs / f"{objective}-{lr}-{tau}-{seed}"
    command = [sys.executable, "-m", "pmdkit", "llm", "smollm2", "--objective", objective, "--lr", lr]
    command += ["--seed", str(seed), "--out", str(out), "--json", *(["--tau", tau] if tau else [])]
    command += ["--steps", str(steps), *(["--resume"] if out.exists() else [])]
    command += ["--set", f"model.device={device}", f"run.threads={threads}", *settings]
    with open(runs / f"{out.name}.log", "a") as log:
        code = subprocess.run(command, stdout=log, stderr=log).returncode
    lines = (out / "metrics.jsonl").read_text().splitlines() if (out / "metrics.jsonl").exists() else []
    if code and len(lines) < steps and code not in (7, 8):
        print(f"{out.name} ended with code {code}", file=sys.stderr, flush=True)
        return None
    rows = [json.loads(line) for line in lines]
    found = {"objective": objective, "lr": lr, "tau": tau, "seed": seed, "code": code, "device": device}
    found |= {key: [row.get(key) for row in rows] for key in columns}
    return found | {"seconds": [round(row["seconds_rollout"] + row["seconds_update"], 2) for row in rows]}


def measure(row, steps, last=None):
    """The mean pass rate of a run's first `steps`, or of the last few of these."""
    rates = ([*row["pass_rate"], *[0.0] * steps])[:steps]
    return float(np.mean(rates if last is None else rates[-last:]))


def best(done, steps, count):
    """The best cells of each objective on the seed that chooses, of those that took these steps."""
    value = {key: measure(row, steps) for key, row in done.items() if key[3] == CHOOSE and taken(row) >= steps}
    return {name: sorted((k for k in value if k[0] == name), key=value.get)[-count:] for name in OBJECTIVES}


def taken(row):
    """Steps of a run that count: all, if it failed by its loss or weights."""
    return len(row["pass_rate"]) if row["code"] not in (7, 8) else max(STEPS.values())


def matched(objective):
    """The recipe's setting."""
    return (MATCHED[0], None if objective == "grpo" else MATCHED[1])


def tuned():
    """The runs of the tuned half."""
    return [(*keys[0][:3], seed) for seed in SEEDS for keys in best(journal(), LONG, 1).values()]


def run(runs, workers, device="auto"):
    """Do the missing runs: the matched half, the grid, its best cells, and the tuned half."""
    for steps, wanted in (
        (STEPS["matched"], lambda: [(name, *matched(name), seed) for seed in SEEDS for name in OBJECTIVES]),
        (SHORT, lambda: [(name, *cell, CHOOSE) for name in OBJECTIVES for cell in cells(name)]),
        (LONG, lambda: [key for keys in best(journal(), SHORT, KEPT).values() for key in keys]),
        (STEPS["tuned"], tuned),
        (STEPS["tuned, long"], tuned),
    ):
        make(Path(runs), int(workers), device, steps, wanted(), JOURNAL, journal())


def check(runs, workers, device="auto"):
    """Repeat GRPO's runs of the matched half on this device, for the steps of the tuned half."""
    wanted = [("grpo", *matched("grpo"), seed) for seed in SEEDS]
    make(Path(runs), int(workers), device, STEPS["tuned"], wanted, CHECK, journal(CHECK, "check"))


def make(runs, workers, device, steps, wanted, file, done):
    """Make those of the wanted runs that are not done or not long enough, some at a time."""
    runs.mkdir(parents=True, exist_ok=True)
    threads = max(1, (os.cpu_count() or 1) // workers)
    missing = [key for key in wanted if key not in done or taken(done[key]) < steps]

    def each(key):
        if found := one(runs, device, threads, steps, *key):
            with open(file, "a") as lines:
                lines.write(json.dumps(found) + "\n")

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(each, missing))


def record(device):
    """Write the halves whose runs are there, their comparisons and all runs as one JSON file; `device` made them."""
    done = journal()
    halves = {"matched": {name: matched(name) for name in OBJECTIVES}}
    chosen = {name: keys[0][1:3] for name, keys in best(done, LONG, 1).items() if keys}
    for half in ("tuned", "tuned, long"):
        keys = [(name, *cell, seed) for name, cell in chosen.items() for seed in SEEDS]
        if len(chosen) == 3 and all(key in done and taken(done[key]) >= STEPS[half] for key in keys):
            halves[half] = chosen
    confidence = 1 - 0.05 / 6
    found = {"about": " ".join(__doc__.split()), "device": device, "seeds": [*SEEDS], "halves": {}}
    for half, chosen in halves.items():
        steps = STEPS[half]
        value = {n: np.array([measure(done[n, *cell, seed], steps) for seed in SEEDS]) for n, cell in chosen.items()}
        rows = {}
        for name, cell in chosen.items():
            low, high = stats.t.interval(0.95, len(SEEDS) - 1, value[name].mean(), stats.sem(value[name]))
            ends = [measure(done[name, *cell, seed], steps, last=5) for seed in SEEDS]
            rows[name] = {"lr": cell[0], "tau": cell[1], "end": round(float(np.mean(ends)), 4)}
            rows[name]["mean"] = [round(float(x), 4) for x in (value[name].mean(), low, high)]
        words = []
        for i, one_ in enumerate(OBJECTIVES):
            for other in OBJECTIVES[i + 1 :]:
                gap = value[one_] - value[other]
                low, high = stats.t.interval(confidence, len(SEEDS) - 1, gap.mean(), stats.sem(gap))
                word = "more" if low > 0 else "less" if high < 0 else "undecided"
                word = "alike" if low > -MARGIN and high < MARGIN else word
                difference = [round(float(x), 4) for x in (gap.mean(), low, high)]
                words.append({"of": one_, "than": other, "difference": difference, "verdict": word})
        found["halves"][half] = {"steps": steps, "objectives": rows, "comparisons": words}
    grid = [(name, *cell, CHOOSE) for name in OBJECTIVES for cell in cells(name)]
    found["grid"] = {
        "/".join(map(str, key[:3])): [round(measure(done[key], n), 4) for n in (SHORT, LONG) if taken(done[key]) >= n]
        for key in grid
        if key in done
    }
    checked = list(journal(CHECK, "check").values())
    found |= {"check": checked, "runs": list(done.values())}
    PLACE.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    print(json.dumps({key: found[key] for key in ("halves", "grid")}, indent=1))


if __name__ == "__main__":
    {"run": run, "check": check, "record": record}[sys.argv[1]](*sys.argv[2:])
