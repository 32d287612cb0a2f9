"""Which right answers are left when a task is learned? `python benchmarks/distinct_answers.py run TASK ...|record`.

Stated before the first run. Several answers to a prompt are right, and the reward does not tell them apart. The
measure is `distinct_right`: the chance that two right draws for a prompt differ, mean over prompts, when the pass rate
first reaches a level. K answers, equally likely, have 1 - 1/K. "Solved" means a batch reused until its loss is at rest.

Tasks, all with tau 0.1, groups of 16, one ministep, and `passes` optimizer steps on each batch:

- `bandit`: 8 contexts of 64 arms, 8 of them right, logits N(0, 0.5^2) from the seed; all contexts in each batch. SGD at
  4 and Adam at 0.03; 1, 8 and 400 passes, of which 400 solve the batch (SGD at 40 there). Level 0.95. Everything
  measured is exact. Hidden pass@8: of the 8 right answers one, each as likely, is truly right.
- `maze`, 3 by 3 without walls, 4 moves, level 0.5; `countdown`, 3 numbers to 4, targets to 12, level 0.6. A transformer
  of one layer and dimension 64 from a warm start at 0.3, one for all runs of a seed; 32 prompts a batch, AdamW at 1e-3
  with 1 pass, 3e-4 with 8 and 32. None of these solves a batch. Looked at on 64 prompts with 16 draws each, every
  32 updates.

With one pass PMD-mean, PMD per token and the policy gradient take the same step, so one of them is run. PMD-part runs
in the bandit only: at this tau the anchor law has it fail on transformers. "pmd-token" has its band off, 50 nats; with
"band" it has the 0.5 nats of its default, and rests at an edge where gradient steps bounce, as does GRPO with its clip.
The policy gradient ("rloo") has no rest, so it is not solved.

Comparisons, paired by seed: each objective minus PMD-mean in its cell; under PMD-mean also 8 passes and most passes
minus 1, and in the bandit Adam minus SGD. Those of a task share an error of 5 % (t intervals, Bonferroni). One above
MARGIN means *keeps more*, below -MARGIN *keeps less*, inside *alike*, else *undecided*. A pair counts if both runs
reach the level in time; with fewer than three quarters of the pairs the cell is *not reached*. Predictions, from the
theorem on rests (`pmdkit_lab.ratio_form.winner_threshold`) and an exploratory run of other code on such a bandit:

- 1 pass: alike. 8 passes: alike, but in the bandit GRPO keeps more under SGD and PMD-part under Adam.
- Solved: PMD per token without its band keeps less, the others alike.
- PMD-mean in the bandit with SGD: solved keeps more than 1 pass. Adam keeps more than SGD at 1 and 8 passes, and is
  alike where the batch is solved. Everything else alike; on the transformers everything alike.

20 seeds, 0 to 19, which chose nothing here; if time ends, as many whole seeds of a task as are finished. The level, the
sizes and rates were chosen on seed 1000, by pass rates, time taken and norms of gradients; no share of distinct
answers was looked at. Every finished run is appended to a journal; the same command goes on where it stopped.

Kept because docs/use/distinct-answers.md has its table.
"""

import hashlib
import json
import sys
from copy import deepcopy
from pathlib import Path
from time import process_time

import numpy as np
import torch
from harness import journal
from harness.machine import machine, versions
from scipy import stats

from pmdkit import loop
from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs.bandit import Bandit, BanditTask
from pmdkit.objectives import load_objective
from pmdkit.observe.metrics import distinct_right
from pmdkit.randomness import derive, generator
from pmdkit.resolve import build, resolve

MARGIN, SEEDS, TAU, GROUP = 0.1, range(20), 0.1, 16
CONTEXTS, ARMS, RIGHT, HIDDEN = 8, 64, 8, 8
OBJECTIVES = {
    "pmd-mean": ("pmd-mean", {"tau": TAU}),
    "pmd-part": ("pmd-part", {"tau": TAU}),
    "pmd-token": ("pmd-token", {"tau": TAU, "clip_low": 50.0, "clip_high": 50.0}),
    "band": ("pmd-token", {"tau": TAU}),
    "grpo": ("grpo", {}),
    "rloo": ("rloo", {}),
}
# passes: the objectives besides PMD-mean, and after how many batches a run ends
BANDIT = {
    1: (("pmd-part", "grpo"), 6000),
    8: (("pmd-part", "pmd-token", "band", "grpo", "rloo"), 800),
    400: (("pmd-part", "pmd-token", "band", "grpo"), 60),
}
TOY = {1: (("grpo",), 320), 8: (("pmd-token", "grpo"), 80), 32: (("pmd-token",), 24)}
CELLS = {"bandit": BANDIT, "maze": TOY, "countdown": TOY}
LEVELS = {"bandit": 0.95, "maze": 0.5, "countdown": 0.6}
RATES = {1: 1e-3, 8: 3e-4, 32: 3e-4}  # of a transformer, by passes
OPTIMIZERS = {"bandit": ("sgd", "adam"), "maze": ("adamw",), "countdown": ("adamw",)}
OPTIONS = {
    "maze": {"env.size": 3, "env.walls": 0, "env.moves": 4},
    "countdown": {"env.largest": 4, "env.target": 12},
}
TRANSFORMER = {
    "model.dimension": 64,
    "model.layers": 1,
    "model.heads": 2,
    "warm_start.pass_rate": 0.3,
    "warm_start.lr": 3e-3,
    "schedule.prompts": 32,
    "schedule.group": GROUP,
    "schedule.ministeps": 1,
    "schedule.optimizer": "adamw",
}
SET = [MARGIN, list(SEEDS), TAU, GROUP, CONTEXTS, ARMS, RIGHT, HIDDEN, OBJECTIVES, CELLS, LEVELS, RATES, OPTIMIZERS]
DIGEST = hashlib.sha256(json.dumps([__doc__, SET, OPTIONS, TRANSFORMER]).encode()).hexdigest()[:16]
PLACE = Path(__file__).parent / "results" / "distinct-answers.json"
JOURNAL = PLACE.with_suffix(".jsonl")
KEYS = ("task", "optimizer", "passes", "objective", "seed")
PICTURE = Path(__file__).parents[1] / "docs" / "use" / "distinct-answers.svg"


class Reached(Exception):
    """The pass rate has reached the level."""


def follow(task, objective, backend, passes, look):
    """Train until `look()` sees the level; returns what it saw first and last, and the batches taken."""
    first = last = look()
    batches = 0
    every = 1 if task == "bandit" else max(1, 32 // passes)

    def observe(step, *_):
        nonlocal last, batches
        batches = step
        if step % every == 0:
            last = look()
            if last["pass_rate"] >= LEVELS[task]:
                raise Reached

    learner, source, schedule = backend
    try:
        loop.run(objective, learner, source, schedule, [observe])
    except Reached:
        return {"first": first, "last": last, "reached": True, "batches": batches}
    return {"first": first, "last": last, "reached": False, "batches": batches}


def bandit_run(objective, optimizer, passes, seed):
    """One run of the bandit; its policy is measured exactly."""
    logits = generator(seed, "distinct answers").normal(size=(CONTEXTS, ARMS)) / 2
    log_policy = torch.tensor(logits).log_softmax(1)
    reward = np.zeros((CONTEXTS, ARMS))
    reward[:, :RIGHT] = 1.0
    lr = {"sgd": 40.0 if passes == max(BANDIT) else 4.0, "adam": 0.03}[optimizer]
    learner = BanditLearner(log_policy, update="gradient", lr=lr, optimizer=optimizer, passes=passes)
    source = BanditTask(Bandit("distinct", reward, log_policy.numpy()), seed=seed)
    schedule = loop.Schedule(BANDIT[passes][1], GROUP, seed=seed)

    def look():
        right = learner.log_policy().exp()[:, :RIGHT]
        share = right / right.sum(1, keepdim=True)
        return {
            "pass_rate": right.sum(1).mean().item(),
            "distinct": (1 - (share**2).sum(1)).mean().item(),
            "hidden": (1 - (1 - right) ** HIDDEN).mean().item(),
        }

    return follow("bandit", objective, (learner, source, schedule), passes, look)


def toy_run(task, objective, passes, seed, started):
    """One run of a transformer from the warm start in `started`, which is made by the first run of a seed."""
    length = {"schedule.passes": passes, "schedule.lr": RATES[passes], "schedule.steps": TOY[passes][1]}
    spec, _ = resolve("toy", task, OPTIONS[task] | TRANSFORMER | length | {"run.seed": seed})
    _, backend = build(spec)
    if (task, seed) not in started:
        backend.warm_start(lambda _: None)
        started.clear()
        started[task, seed] = deepcopy(backend.learner.model.state_dict())
    backend.learner.model.load_state_dict(started[task, seed])
    asked = backend.task.held_out(64)

    def look():
        rollouts = backend.learner.rollout(asked, GROUP, derive(seed, "look"))
        right = backend.task.reward(rollouts) > 0.5
        return {"pass_rate": right.double().mean().item(), "distinct": distinct_right(rollouts, right)}

    return follow(task, objective, (backend.learner, backend.task, backend.schedule), passes, look)


def cells(task):
    """Every cell of a task: optimizer, passes and objective."""
    return [
        (optimizer, passes, name)
        for optimizer in OPTIMIZERS[task]
        for passes, (others, _) in CELLS[task].items()
        for name in ("pmd-mean", *others)
    ]


def run(tasks):
    """Do the missing runs of some tasks, all cells of one seed after another."""
    done, started = journal.read(JOURNAL, DIGEST, KEYS), {}
    for seed in SEEDS:
        for task in tasks:
            for optimizer, passes, name in cells(task):
                if (task, optimizer, passes, name, seed) in done:
                    continue
                began = process_time()
                objective = load_objective(OBJECTIVES[name][0], **OBJECTIVES[name][1])
                if task == "bandit":
                    found = bandit_run(objective, optimizer, passes, seed)
                else:
                    found = toy_run(task, objective, passes, seed, started)
                row = dict(zip(KEYS, (task, optimizer, passes, name, seed), strict=True))
                row |= found | {"seconds": round(process_time() - began, 1), "protocol": DIGEST}
                journal.append(JOURNAL, row)


def predicted(task, optimizer, passes, name):
    """The word that the first lines of this file give a comparison with PMD-mean."""
    if task != "bandit" or passes == 1:
        return "alike"
    if passes == max(BANDIT):
        return "keeps less" if name == "pmd-token" else "alike"
    return "keeps more" if (optimizer, name) in (("sgd", "grpo"), ("adam", "pmd-part")) else "alike"


def comparisons():
    """Every comparison: its words, the cell that is tested, the cell that it is compared with, and the prediction."""
    listed = []
    for task, table in CELLS.items():
        for optimizer, passes, name in cells(task):
            own, base = (task, optimizer, passes, name), (task, optimizer, passes, "pmd-mean")
            if name != "pmd-mean":
                listed.append(("objective", own, base, predicted(*own)))
                continue
            if passes > 1:
                more = (task, optimizer, passes) == ("bandit", "sgd", max(BANDIT))
                listed.append(("passes", own, (task, optimizer, 1, name), "keeps more" if more else "alike"))
            if optimizer == "adam":
                solved = passes == max(table)
                listed.append(("optimizer", own, (task, "sgd", passes, name), "alike" if solved else "keeps more"))
    return listed


def record():
    """Write cells, comparisons and runs as one JSON file."""
    done, table, seeds = journal.read(JOURNAL, DIGEST, KEYS), [], {}
    for task in CELLS:
        seeds[task] = [s for s in SEEDS if all((task, *cell, s) in done for cell in cells(task))]
        for cell in cells(task):
            runs = [done[(task, *cell, seed)] for seed in seeds[task]]
            there = [r for r in runs if r["reached"]]
            row = dict(zip(("task", "optimizer", "passes", "objective"), (task, *cell), strict=True))
            row |= {"seeds": len(runs), "reached": len(there)}
            for when in ("first", "last"):
                for key in there[0][when] if there else ():
                    values = [r[when][key] for r in there]
                    row[f"{key}_{when}"] = [round(float(x), 4) for x in (np.mean(values), np.std(values))]
            row["batches"] = round(float(np.mean([r["batches"] for r in there])), 1) if there else None
            table.append(row)
    words = []
    for kind, own, base, wanted in comparisons():
        pairs = [(done[(*own, s)], done[(*base, s)]) for s in seeds[own[0]]]
        values = [a["last"]["distinct"] - b["last"]["distinct"] for a, b in pairs if a["reached"] and b["reached"]]
        row = {"kind": kind, "cell": own, "against": base, "pairs": len(values), "predicted": wanted}
        if len(values) < max(3, 0.75 * len(pairs)):
            words.append(row | {"verdict": "not reached" if pairs else "not run"})
            continue
        shared = sum(cell[0] == own[0] for _, cell, _, _ in comparisons())
        low, high = stats.t.interval(1 - 0.05 / shared, len(values) - 1, np.mean(values), stats.sem(values))
        row["difference"] = [round(float(x), 4) for x in (np.mean(values), low, high)]
        words.append(row | {"verdict": journal.word(low, high, MARGIN, "keeps more", "keeps less")})
    found = {"protocol": DIGEST, "machine": machine(), "versions": versions(), "margin": MARGIN}
    found |= {"seeds": seeds, "cells": [row for row in table if row["seeds"]], "comparisons": words}
    PLACE.write_text(json.dumps(found | {"runs": list(done.values())}, indent=1) + "\n")
    print(json.dumps(words, indent=1))


def picture():
    """Draw the share of pairs that differ in the bandit, by passes, objective and optimizer; the line is the start."""
    from matplotlib.figure import Figure

    found = json.loads(PLACE.read_text())
    figure = Figure(figsize=(4.6, 5.6), layout="constrained")  # as wide as a phone
    axes = figure.subplots(2, 1)
    colours = dict(zip(OBJECTIVES, ("#0072b2", "#d55e00", "#009e73", "#3a93cb", "#bf8300", "#666666"), strict=True))
    for ax, optimizer in zip(axes, OPTIMIZERS["bandit"], strict=True):
        rows = [r for r in found["cells"] if (r["task"], r["optimizer"]) == ("bandit", optimizer)]
        for place, passes in enumerate(BANDIT):
            here = [r for r in rows if r["passes"] == passes]
            for i, row in enumerate(here):
                mean, deviation = row["distinct_last"]
                x, name = place + (i - (len(here) - 1) / 2) / 8, row["objective"]
                ax.errorbar(
                    x, mean, 1.96 * deviation / row["reached"] ** 0.5, fmt="o", color=colours[name], markersize=4
                )
        ax.axhline(rows[0]["distinct_first"][0], color="0.5", linestyle="--", linewidth=1)
        ax.set_xticks(range(len(BANDIT)), ["1 pass", "8 passes", "solved"])
        ax.set_title({"sgd": "SGD", "adam": "Adam"}[optimizer], fontsize=10)
        ax.set_ylim(0, 1)
    figure.supylabel("share of pairs of right draws that differ", fontsize=9)
    for name, colour in colours.items():
        axes[1].plot([], [], "o", color=colour, markersize=4, label=name)
    figure.legend(fontsize=8, ncols=3, loc="outside upper center")
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["run"] and set(sys.argv[2:]) <= set(CELLS):
        run(sys.argv[2:] or list(CELLS))
    elif sys.argv[1:] == ["record"]:
        record()
        picture()
    else:
        raise SystemExit(f"got {sys.argv[1:]}; expected run, with any of {', '.join(CELLS)}, or record")
