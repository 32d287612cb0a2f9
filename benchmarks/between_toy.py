"""The k that one sampled step predicts for PMD-between, against a transformer: `python benchmarks/between_toy.py`.

Sums modulo 7, answered in one token of eight by a transformer of one layer, from chance. Seeds are paired: a seed fixes
weights, prompts and the uniforms of the draws. The pass rate is exact, over all 49 prompts, after each step. Both
predictions are made before the first run, for a policy between chance and 0.9: "cells" knows right and wrong responses,
"arms" has a cell for each token. Every k has the same three learning rates to be tuned over, on seeds of their own, by
the area under the curve. The record is written after each run; the same command goes on where it stopped.

Kept because docs/use/finite-samples.md says that its prediction of k holds for a transformer.
"""

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import torch
from between import interval

from pmdkit import loop
from pmdkit.observe import files
from pmdkit.resolve import build, resolve
from pmdkit_lab import finite_samples

TASK, TOKENS, DRAWS, SEEDS, TAU = "modular-sum", 8, 16, 20, 0.05
KS = (0.0, 0.05, 0.2, 0.5, 1.0)
RATES = (0.125, 0.25, 0.5, 0.75, 0.9)  # pass rates of the predictions
OPTIONS = {
    "env.modulus": TOKENS - 1,
    "model.dimension": 32,
    "model.layers": 1,
    "model.heads": 2,
    "schedule.steps": 30,
    "schedule.prompts": 64,
    "schedule.group": DRAWS,
    "schedule.ministeps": 4,
}
RATES_TUNED = (1e-3, 3e-3, 1e-2)
TUNING = range(1000, 1004)  # seeds
PLACE = Path(__file__).parent / "results" / "between-toy.json"


def predictions(draws=300):
    """The k with the largest mean gain over RATES, and the gain at every k: by cells exactly, by arms from groups."""
    cells = finite_samples.best_k(RATES, TAU, DRAWS, ks=KS).gain.mean(0)
    right = (np.arange(TOKENS) == 0).astype(float)
    policies = [np.where(right > 0, rate, (1 - rate) / (TOKENS - 1)) for rate in RATES]
    arms = [
        np.mean([finite_samples.simulate_sampled_step(pi, right, TAU, DRAWS, k=k, draws=draws).gain for pi in policies])
        for k in KS
    ]
    return {
        name: {"k": KS[int(np.argmax(gain))], "gain": dict(zip(map(str, KS), map(float, gain), strict=True))}
        for name, gain in (("cells", cells), ("arms", arms))
    }


def run(k, lr, seed):
    """[steps] exact pass rate after each step."""
    objective = {"objective.name": "pmd-between", "objective.k": k, "objective.tau": TAU}
    changes = OPTIONS | objective | {"schedule.lr": lr, "run.seed": seed}
    spec, objective = resolve("toy", TASK, changes)
    _, backend = build(spec, objective)
    curve = []
    loop.run(
        objective,
        backend.learner,
        backend.task,
        backend.schedule,
        [lambda *_: curve.append(round(backend.evaluate()["pass_rate"], 6))],
    )
    return curve


def curves_of(runs, k, lr, seeds):
    """[seeds, steps] curves of one setting."""
    found = {one["seed"]: one["curve"] for one in runs if (one["k"], one["lr"]) == (k, lr)}
    return np.array([found[seed] for seed in seeds])


def verdict(runs, predicted, rates, seeds):
    """Means of every k, and the regret of each prediction against the best k and both ends, paired by seed."""
    curves = {k: curves_of(runs, k, lr, seeds) for k, lr in rates.items()}
    found = {}
    for measure, of in (("area", lambda curve: curve.mean(1)), ("last", lambda curve: curve[:, -1])):
        values = {k: of(curve) for k, curve in curves.items()}
        best = max(KS, key=lambda k: values[k].mean())
        rivals = {"best of the grid": best, "k = 0": 0.0, "k = 1": 1.0}
        found[measure] = {
            "by k": {str(k): interval(each) for k, each in values.items()},
            "best": best,
            "regret": {
                name: {rival: interval(values[k] - values[each["k"]]) for rival, k in rivals.items()}
                for name, each in predicted.items()
            },
        }
    return found


def main(place=PLACE, seeds=SEEDS):
    """Do the missing runs, then write the verdict."""
    torch.set_num_threads(1)
    place, seeds = Path(place), range(int(seeds))
    about = {"about": __doc__.strip(), "task": TASK, "tau": TAU, "grid": KS, "rates": RATES, "options": OPTIONS}
    about = json.loads(json.dumps(about))
    record = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    if record and {key: record[key] for key in about} != about:
        raise SystemExit(f"{place} was begun with other settings; give another file")
    runs = record.get("runs", [])
    record = about | {"predicted": record.get("predicted") or predictions(), "runs": runs}

    def make(wanted):
        done = {(one["k"], one["lr"], one["seed"]) for one in runs}
        for k, lr, seed in wanted:
            if (k, lr, seed) not in done:
                runs.append({"k": k, "lr": lr, "seed": seed, "curve": run(k, lr, seed)})
                files.replace(place, (json.dumps(record) + "\n").encode())
                print(f"seed {seed}, k {k:g}, lr {lr:g}: {runs[-1]['curve'][-1]:.3f}", file=sys.stderr, flush=True)

    make(product(KS, RATES_TUNED, TUNING))
    tuning = {k: {lr: float(curves_of(runs, k, lr, TUNING).mean()) for lr in RATES_TUNED} for k in KS}
    tuned = {k: max(areas, key=areas.get) for k, areas in tuning.items()}
    make((k, tuned[k], seed) for seed in seeds for k in KS)
    record |= {"seeds": len(seeds), "tuning": tuning, "tuned": tuned}
    record["verdict"] = verdict(runs, record["predicted"], tuned, seeds)
    files.replace(place, (json.dumps(record) + "\n").encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
