"""The old experiments at tuned learning rates: `python benchmarks/tuned.py`.

The experiments of pmdkit_lab/studies/experiments.py give every method one learning rate, 1e-3. Here every setting has
the same five to choose from, on two seeds of its own, by the mean pass rate over training, and then runs on ten fresh
seeds, paired across settings. Stated before the first run: a difference is one whose 95 % interval of the paired
difference, at a level corrected by Bonferroni for the comparisons of its question, excludes 0; a setting whose best
learning rate is the first or the last of the five was not tuned, and no verdict rests on it.

Staleness is compared by the pass rate after training, since the first batch of rollouts, which is at chance, is a
fifth of a run of five; everything else by both. Group size is compared twice: at 512 draws per update (equal draws:
more draws per prompt, fewer prompts) and at 32 prompts per update (equal prompts: more draws per prompt, more draws).
All runs make 320 updates.

The record is written after each run; the same command goes on where it stopped. Some 20 minutes of one CPU.

Kept because docs/paper/index.md and lesson 203 refer to its tuned runs.
"""

import json
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import scipy.stats
import torch

from pmdkit import loop
from pmdkit.errors import Diverged
from pmdkit.observe import files
from pmdkit.resolve import build, resolve
from pmdkit_lab.studies.experiments import BATCH, METHODS, MODEL, STALE, TAUS, UPDATES, schedule

TASK = "modular-sum"
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
TUNING = (1000, 1001)  # seeds
SEEDS = 10
BOTH = ("pmd-mean", "pmd-part")
DRAWS = BATCH * 16  # of an update
STANDARD = schedule(UPDATES, STALE)
RLOO = {"objective.name": "rloo", **schedule(UPDATES, 1)}
ARMS = (
    {f"{m} tau={tau:g}": {**METHODS[m], "objective.tau": tau, **STANDARD} for m in BOTH for tau in TAUS}
    | {"grpo": {**METHODS["grpo"], **STANDARD}, "gspo": {**METHODS["gspo"], **STANDARD}, "rloo": RLOO}
    | {f"pmd-mean stale={k}": {**METHODS["pmd-mean"], **schedule(UPDATES, k)} for k in (1, 4, 64)}
    | {f"grpo stale={k}": {**METHODS["grpo"], **schedule(UPDATES, k)} for k in (1, 64)}
    | {
        f"{m} group={g}, equal draws": {**METHODS[m], **schedule(UPDATES, STALE, g, DRAWS // g)}
        for m in BOTH
        for g in (4, 64)
    }
    | {f"{m} group={g}, equal prompts": {**METHODS[m], **schedule(UPDATES, STALE, g)} for m in BOTH for g in (4, 64)}
)
AT = {m: f"{m} tau=0.05" for m in BOTH}
QUESTIONS = {  # of a claim: pairs (this, minus that)
    "main_result": [(AT["pmd-mean"], other) for other in ("grpo", "gspo", "rloo", AT["pmd-part"])],
    "stability": [(f"pmd-mean tau={tau:g}", f"pmd-part tau={tau:g}") for tau in TAUS],
    "staleness": [
        (AT["pmd-mean"], "pmd-mean stale=1"),
        ("pmd-mean stale=64", "pmd-mean stale=1"),
        ("grpo", "grpo stale=1"),
        ("grpo stale=64", "grpo stale=1"),
        ("pmd-mean stale=64", "grpo stale=64"),
    ],
    "group_size": [
        (f"{m} group={more}, {equal}" if more == 64 else AT[m], f"{m} group=4, {equal}")
        for m, equal, more in product(BOTH, ("equal draws", "equal prompts"), (16, 64))
    ],
}
LEVEL = 0.05
PLACE = Path(__file__).parent / "results" / "tuned.json"


def run(arm, lr, seed):
    """Mean pass rate over the rollouts of all steps, pass rate after training, and CPU seconds.

    A run whose weights become non-finite has a pass rate of 0 from there on.
    """
    options = {**ARMS[arm], **MODEL, "schedule.lr": lr, "run.seed": seed}
    spec, objective = resolve("toy", TASK, options)
    began = time.process_time()
    backend = build(spec, objective)[1]
    rates = []

    def look(step, learner, rollouts, groups, *rest):
        rates.append((groups.reward > 0.5).double().mean().item())
        if not all(bool(weight.isfinite().all()) for weight in learner.model.parameters()):
            raise Diverged(f"step {step} left a weight that is not finite")

    try:
        loop.run(objective, backend.learner, backend.task, backend.schedule, [look])
        last = backend.evaluate()["pass_rate"]
    except Diverged:
        last = 0.0
    mean = sum(rates) / spec.schedule.steps
    return {"mean": round(mean, 5), "last": round(last, 5), "seconds": round(time.process_time() - began, 2)}


def main(place=PLACE, seeds=SEEDS):
    """Do the missing runs, then write the tables."""
    torch.set_num_threads(1)
    place, seeds = Path(place), range(int(seeds))
    about = {
        "about": " ".join(__doc__.split()),
        "task": TASK,
        "rates": RATES,
        "tuning_seeds": TUNING,
        "arms": ARMS,
        "model": MODEL,
    }
    about = json.loads(json.dumps(about))
    record = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    if record and {key: record.get(key) for key in about} != about:
        raise SystemExit(f"{place} was begun with other settings; give another file")
    record = about | {"runs": record.get("runs", [])}
    done = {(each["arm"], each["lr"], each["seed"]): each for each in record["runs"]}

    def make(wanted):
        for arm, lr, seed in wanted:
            if (arm, lr, seed) not in done:
                done[arm, lr, seed] = {"arm": arm, "lr": lr, "seed": seed, **run(arm, lr, seed)}
                record["runs"].append(done[arm, lr, seed])
                save(place, record)
                print(f"seed {seed}, {arm}, lr {lr:g}: {done[arm, lr, seed]}", file=sys.stderr, flush=True)

    make((arm, lr, seed) for seed in TUNING for arm in ARMS for lr in RATES)
    best = tuned(record["runs"])
    make((arm, best[arm], seed) for seed in seeds for arm in ARMS)
    save(place, record | {"seeds": len(seeds), **tables(record["runs"], len(seeds))})


def save(place, record):
    """Write the record with one line per run, so that diffs are readable."""
    runs = ",\n".join(json.dumps(each) for each in record["runs"])
    rest = json.dumps({key: value for key, value in record.items() if key != "runs"}, indent=1)
    files.replace(place, f'{rest[:-2]},\n "runs": [\n{runs}\n]\n}}\n'.encode())


def tuned(runs):
    """arm -> the learning rate with the largest mean pass rate over training on the tuning seeds."""
    scores = scored(runs)
    return {arm: max(scores[arm], key=scores[arm].get) for arm in ARMS}


def scored(runs):
    """arm -> learning rate -> mean pass rate over training, mean of the tuning seeds."""
    own = {(each["arm"], each["lr"], each["seed"]): each["mean"] for each in runs if each["seed"] in TUNING}
    return {
        arm: {lr: round(float(np.mean([own[arm, lr, seed] for seed in TUNING])), 5) for lr in RATES} for arm in ARMS
    }


def tables(runs, seeds):
    """Tuning; every arm at its best learning rate, beside its runs at 1e-3; every question with its differences."""
    scores, best = scored(runs), tuned(runs)
    found = {(each["arm"], each["lr"], each["seed"]): each for each in runs}

    def values(arm, measure):
        return np.array([found[arm, best[arm], seed][measure] for seed in range(seeds)])

    arms = {
        arm: {
            "lr": best[arm],
            "edge": best[arm] in (RATES[0], RATES[-1]),
            **{measure: interval(values(arm, measure)) for measure in ("mean", "last")},
        }
        for arm in ARMS
    }
    questions = {
        question: [
            {
                "this": this,
                "minus": that,
                **{m: interval(values(this, m) - values(that, m), LEVEL / len(pairs)) for m in ("mean", "last")},
            }
            for this, that in pairs
        ]
        for question, pairs in QUESTIONS.items()
    }
    return {"tuning": {arm: {f"{lr:g}": s for lr, s in row.items()} for arm, row in scores.items()},
            "tuned": arms, "questions": questions}  # fmt: skip


def interval(values, level=LEVEL):
    """Mean and Student interval of 1 - level."""
    half = scipy.stats.t.ppf(1 - level / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return {key: round(float(values.mean() + sign * half), 5) for key, sign in (("mean", 0), ("low", -1), ("high", 1))}


if __name__ == "__main__":
    main(*sys.argv[1:])
