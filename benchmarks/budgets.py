"""The best way to spend a budget by the law of draws, against all ways of a grid: `python benchmarks/budgets.py`.

A pool of eight pass rates is trained in the bandit with the same number of draws in every run, and the pass rate at the
end is exact. "solved" takes forty steps of Adam on each batch; "gradient" takes one step of plain descent for each
ministep, at the law's own step size, and pays for a rollout batch what `overhead` says. Policies have 2 arms, one of
them right, or 32, of which 8 are. The law is asked twice: with two cells, and with a cell for each arm. Seeds are
contexts of one bandit: a table shares nothing between contexts. The record is written after each run; the same command
goes on where it stopped.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from between import interval

from pmdkit import loop
from pmdkit.bandit import BanditLearner
from pmdkit.envs.bandit import Bandit, BanditTask
from pmdkit.objectives import PMDMean
from pmdkit.observe import files
from pmdkit_lab import finite_samples

POOL = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9)
SEEDS, PASSES, ADAM = 40, 40, 0.3
GRIDS = {
    "solved": {"taus": (0.02, 0.05, 0.2, 1.0), "sizes": (2, 4, 8, 16, 32), "groups": (1,), "lr": None},
    "gradient": {
        "taus": (0.05, 1.0),
        "sizes": (4, 16),
        "groups": (1, 4, 16),
        "ministeps": (1, 4, 16),
        "lr": (4.0, 16.0),
    },
}
DRAWS = {"solved": 64, "gradient": 128}  # of a whole run, per prompt of the pool
POLICIES = {"2 arms": (1, 1), "32 arms": (8, 24)}
SETTINGS = {
    f"{way}, {name}, {words}": {"way": way, "cells": cells} | more
    for way, extras in {
        "solved": {"no errors": {}, "5 % false negatives": {"false_negative": 0.05}},
        "gradient": {"no overhead": {}, "overhead 16": {"overhead": 16.0}},
    }.items()
    for name, cells in POLICIES.items()
    for words, more in extras.items()
}
PLACE = Path(__file__).parent / "results" / "budgets.json"


def ranked(setting, cells, runs):
    """Every way of the grid, best first, by the law with these cells. A token here is one draw for one prompt."""
    return finite_samples.best_budget(
        POOL,
        DRAWS[setting["way"]] * len(POOL),
        overhead=setting.get("overhead", 0.0) * len(POOL),
        cells=cells,
        false_negative=setting.get("false_negative", 0.0),
        runs=runs,
        **GRIDS[setting["way"]],
    )


def key(choice):
    """The name of one way, the same for the law and the runs."""
    words = f"tau {choice['tau']:g}, {choice['prompts']} prompts x {choice['n']}"
    return words if choice["lr"] is None else words + f", {choice['ministeps']} ministeps, lr {choice['lr']:g}"


def run(choice, cells, false_negative=0.0):
    """[seeds] exact mean pass rate of the pool at the end."""
    arms = sum(cells)
    right = (np.arange(arms) < cells[0]).astype(float)
    pi = np.stack([np.where(right > 0, p / cells[0], (1 - p) / cells[1]) for p in POOL] * SEEDS)
    success = np.broadcast_to(right, pi.shape)
    problem = Bandit("pool", success * (1 - false_negative), np.log(pi), success)
    if choice["lr"] is None:
        options = {"lr": ADAM, "passes": PASSES}
    else:  # the loss is a mean over all prompts, the law's over those of one kind
        options = {"lr": choice["lr"] * problem.contexts, "optimizer": "sgd"}
    learner = BanditLearner(torch.tensor(problem.log_policy), update="gradient", **options)
    prompts = choice["prompts"] // len(POOL) * problem.contexts
    schedule = loop.Schedule(choice["steps"], choice["n"], choice["ministeps"] or 1, 0)
    loop.run(PMDMean(tau=choice["tau"], norm="none"), learner, BanditTask(problem, prompts), schedule)
    return problem.pass_rate(learner.log_policy().numpy()).reshape(SEEDS, len(POOL)).mean(1)


def verdict(setting, laws, runs):
    """The best way by each law and by the runs, the regret, and the rank correlation between law and runs."""
    from scipy.stats import spearmanr

    ways = list(runs)
    measured = {way: np.array(values) for way, values in runs.items()}
    best = max(ways, key=lambda way: measured[way].mean())
    found = {
        "best": {"way": best, "pass rate": interval(measured[best])},
        "middle of the grid": float(np.median([each.mean() for each in measured.values()])),
        "worst": float(min(each.mean() for each in measured.values())),
    }
    for name, law in laws.items():
        named = max(ways, key=lambda way: law[way])
        found[name] = {
            "way": named,
            "predicted": law[named],
            "measured": interval(measured[named]),
            "regret": interval(measured[best] - measured[named]),
            "largest error": max(abs(law[way] - float(measured[way].mean())) for way in ways),
            "rank correlation": float(spearmanr([law[way] for way in ways], [measured[w].mean() for w in ways])[0]),
        }
    return found


def main(place=PLACE):
    """Do the missing runs, and write the verdict of each setting."""
    torch.set_num_threads(1)
    place = Path(place)
    head = {"about": __doc__.strip(), "pool": POOL, "seeds": SEEDS, "grids": GRIDS, "draws": DRAWS}
    head = json.loads(json.dumps(head))
    record = json.loads(place.read_text(encoding="utf-8")) if place.exists() else head | {"settings": {}}
    if {name: record[name] for name in head} != head:
        raise SystemExit(f"{place} was begun with other settings; give another file")
    for name, setting in SETTINGS.items():
        entry = record["settings"].setdefault(name, {"laws": {}, "runs": {}})
        for law, cells, runs in (("two cells", (1, 1), 200), ("a cell for each arm", setting["cells"], 24)):
            if law not in entry["laws"] and (law == "two cells" or setting["cells"] != (1, 1)):
                entry["laws"][law] = {key(asdict(one)): round(one.pass_rate, 6) for one in ranked(setting, cells, runs)}
                files.replace(place, (json.dumps(record) + "\n").encode())
        for one in ranked(setting, (1, 1), 2):  # only lists the ways; what two runs predict is not used
            way = key(asdict(one))
            if way not in entry["runs"]:
                rates = run(asdict(one), setting["cells"], setting.get("false_negative", 0.0))
                entry["runs"][way] = [round(float(rate), 6) for rate in rates]
                files.replace(place, (json.dumps(record) + "\n").encode())
        entry["verdict"] = verdict(setting, entry["laws"], entry["runs"])
        files.replace(place, (json.dumps(record) + "\n").encode())
        print(name, json.dumps(entry["verdict"]), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
