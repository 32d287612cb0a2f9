"""Does a batch know whether its first step raises the entropy? `python benchmarks/entropy_sign.py run|record`.

Stated before the first run. dH = -Cov(log pi, dz) with dz of a response minus the slope of the loss by its
log-probability over its mass (`pmdkit_lab.explain.entropy.entropy_of_batch`) is exact for a step of mirror descent on a
table. Here a transformer of one layer and dimension 64 takes the step: mazes of 3 by 3 with at most 4 moves, and the
modular sum, from a warm start at pass rate 0.3; one batch of 32 prompts, 16 draws each; one step of AdamW at 1e-4, or
of plain gradient descent at 0.1. The entropy of the policy is computed over all answers to the prompts of the batch,
before and after.

A batch *predicts* a sign if its estimate is more than two standard errors from 0. Per task and optimizer the
predictions of all objectives and seeds are counted. The sign *holds* if the 95 % interval of the share that is right
(Clopper and Pearson, seeds taken as independent) lies above one half, is *contradicted* if it lies below, and is
*undecided* otherwise. Predicted: holds in all four.

20 seeds, 0 to 19; PMD-mean and PMD-part at tau 0.05, GRPO, TOPR, AsymRE at its defaults. Nothing was looked at before.

Kept because docs/use/explain.md says what came out.
"""

import hashlib
import json
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch
from distinct_answers import GROUP, OPTIONS, TRANSFORMER
from drift_maze import all_answers
from harness import journal
from harness.machine import machine, versions
from scipy import stats

from pmdkit.loop import graded
from pmdkit.objectives import credit, load_objective, total
from pmdkit.randomness import derive
from pmdkit.resolve import build, resolve
from pmdkit_lab.explain.entropy import entropy_of_batch

SEEDS, TASKS = range(20), ("maze", "modular-sum")
OBJECTIVES = {"pmd-mean": {"tau": 0.05}, "pmd-part": {"tau": 0.05}, "grpo": {}, "topr": {}, "asymre": {}}
RATES = {"adamw": 1e-4, "sgd": 0.1}
SET = [list(SEEDS), TASKS, OBJECTIVES, RATES, GROUP, OPTIONS["maze"], TRANSFORMER]
DIGEST = hashlib.sha256(json.dumps([__doc__, SET]).encode()).hexdigest()[:16]
PLACE = Path(__file__).parent / "results" / "entropy-sign.json"
JOURNAL = PLACE.with_suffix(".jsonl")
KEYS = ("task", "optimizer", "objective", "seed")


def policy_entropy(learner, prompts):
    """Nats, over all answers, a mean over the prompts."""
    logp = learner.enumerate(prompts, 0).logp_old.double().sum(1).view(len(prompts), -1)
    return -(logp.exp() * logp).sum(1).mean().item()


def one_seed(task, seed):
    """What each objective's first step on one batch does to the entropy, and what the batch says of it."""
    options = OPTIONS.get(task, {}) | TRANSFORMER | {"schedule.steps": 1, "run.seed": seed}
    _, backend = build(resolve("toy", task, options)[0])
    backend.warm_start(lambda _: None)
    learner = backend.learner
    if task == "maze":
        learner.space = all_answers(backend.task.problem)
    started, prompts, rows = deepcopy(learner.model.state_dict()), backend.task.prompts(1), []
    rollouts = learner.rollout(prompts, GROUP, derive(seed, "entropy sign"))
    groups = graded(backend.task.reward(rollouts).view(-1, GROUP).double(), rollouts)
    before, drawn = policy_entropy(learner, prompts), rollouts.logp_old.double().sum(1).view(-1, GROUP)
    for name, own in OBJECTIVES.items():
        objective = load_objective(name, **own)
        batch = credit(objective, groups, rollouts.logp_old, rollouts.mask)
        for optimizer, rate in RATES.items():
            learner.model.load_state_dict(started)
            kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[optimizer]
            step = kind(learner.model.parameters(), lr=rate)
            logp = learner.logp(rollouts)
            logp.retain_grad()
            total(objective, replace(batch, logp=logp)).backward()
            step.step()
            slope = (logp.grad.double().sum(1) / rollouts.mask.sum(1)).view(-1, GROUP)
            said, error = entropy_of_batch(slope, drawn)
            change = policy_entropy(learner, prompts) - before
            rows.append(
                {"task": task, "optimizer": optimizer, "objective": name, "seed": seed}
                | {
                    "said": said,
                    "error": error,
                    "change": change,
                    "entropy": before,
                }
            )
            learner.model.zero_grad()
    return rows


def run():
    """Do the missing seeds."""
    done = journal.read(JOURNAL, DIGEST, KEYS)
    for task in TASKS:
        for seed in SEEDS:
            if not any(key[0] == task and key[3] == seed for key in done):
                for row in one_seed(task, seed):
                    journal.append(JOURNAL, row | {"protocol": DIGEST})


def record():
    """Count the predictions that came out, and write them as one JSON file."""
    done, words = journal.read(JOURNAL, DIGEST, KEYS).values(), []
    for task in TASKS:
        for optimizer in RATES:
            rows = [row for row in done if (row["task"], row["optimizer"]) == (task, optimizer)]
            words.append({"task": task, "optimizer": optimizer} | verdict(rows))
            words[-1]["by_objective"] = {
                name: {key: value for key, value in verdict(some).items() if key in ("predicted", "right", "fell")}
                for name in OBJECTIVES
                if (some := [row for row in rows if row["objective"] == name])
            }
    found = {"protocol": DIGEST, "machine": machine(), "versions": versions(), "seeds": len(SEEDS), "verdicts": words}
    PLACE.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(words, indent=1))


def verdict(rows):
    """Of some runs: how many predicted, how many of these were right, the interval of the share, and the word."""
    told = [row for row in rows if abs(row["said"]) > 2 * row["error"]]
    right = sum((row["said"] > 0) == (row["change"] > 0) for row in told)
    found = {"runs": len(rows), "predicted": len(told), "right": right, "fell": sum(row["change"] < 0 for row in rows)}
    if not told:
        return found | {"share": [0.0, 1.0], "verdict": "undecided"}
    low, high = stats.binomtest(right, len(told)).proportion_ci(0.95, "exact")
    word = "holds" if low > 0.5 else "contradicted" if high < 0.5 else "undecided"
    return found | {"share": [round(float(low), 3), round(float(high), 3)], "verdict": word}


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] == ["run"]:
        run()
    elif sys.argv[1:] == ["record"]:
        record()
    else:
        raise SystemExit(f"got {sys.argv[1:]}; expected run or record")
