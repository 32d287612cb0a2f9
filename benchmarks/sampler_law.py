"""What does a sampler do that the loss does not know of? `python benchmarks/sampler_law.py run [TASK ...]|record`.

Stated before the first run. Responses are drawn from q, the policy at a top_p or a temperature that the loss does not
apply, and the loss divides by pi_old. The law (`theory.sampler_push`): a loss whose advantages have the mean -c under q
has, at the first step, a push c (pi - q) on the logits beside the step of the same loss with the mean baseline. So
where rewards say nothing, c > 0 flattens the policy, c < 0 sharpens it, and c = 0 does neither. PMD-part has c > 0,
AsymRE at its default shift c = -0.1; PMD-mean, RLOO and GRPO have 0.

Cells: five objectives x three samplers (full; top_p 0.9; temperature 0.8) x two rewards: the task's own, and random
ones, 1 with probability 0.2 whatever the response. Tasks: `modular-sum` (one token), and `copy` (two symbols of four
and the end), which has the random rewards alone. Each run starts from the warm start of its seed at pass rate 0.3; tau
0.5, one ministep of 32 prompts, groups of 16, AdamW. Pass rate and entropy are those of the full policy after the last
step, exact over all responses to 64 prompts.

Comparisons, paired by seed, top_p and temperature each against full, under the same objective and rewards:

- *Push*, random rewards: the difference of the entropy in units of ln(number of responses). Predicted: up for PMD-part,
  down for AsymRE, alike for the three others. MARGIN 0.05.
- *Short*, the rewards of `modular-sum`: the difference of the pass rate. Under top_p, what is never drawn is never
  corrected, so runs stop short: predicted down for all five. Under the temperature every response can be drawn:
  predicted alike for all but PMD-part and AsymRE, of which nothing is predicted. MARGIN 0.02.

The comparisons of a task, 20 and 10, share an error of 5 % (t intervals, Bonferroni). One above MARGIN means *up*,
below -MARGIN *down*, inside *alike*, else *undecided*. A part of the law *holds* on a task if all its predictions come
out, is *contradicted* if one comes out as another word but undecided, else *undecided*. Entropies under the task's
rewards are recorded and decide nothing.

20 seeds, 0 to 19; if time ends, as many whole seeds of a task as are finished. Steps and rates were chosen on seed
1000, with PMD-mean and the full sampler alone: it learns `modular-sum`, and random rewards move its entropy by less
than half. Every finished run is appended to a journal; the same command goes on where it stopped.

Kept because docs/use/sampler.md has its tables.
"""

import hashlib
import json
import math
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from harness import journal
from harness.machine import machine, versions
from scipy import stats

from pmdkit import loop
from pmdkit.objectives import load_objective
from pmdkit.randomness import derive, generator
from pmdkit.resolve import build, resolve
from pmdkit.toy.sampling import generate, score

SEEDS, TAU, GROUP, PROMPTS, RANDOM = range(20), 0.5, 16, 32, 0.2
MARGIN = {"push": 0.05, "short": 0.02}
OBJECTIVES = {"pmd-mean": {"tau": TAU}, "pmd-part": {"tau": TAU}, "rloo": {}, "grpo": {}, "asymre": {}}
SAMPLERS = {"full": (1.0, 1.0), "top_p": (0.9, 1.0), "temperature": (1.0, 0.8)}
STEPS = {"modular-sum": 200, "copy": 200}
MODEL = {"model.dimension": 64, "model.layers": 1, "model.heads": 2}
SHELF = {"warm_start.pass_rate": 0.3, "warm_start.lr": 1e-3, "warm_start.look": 2}
RATES = {"modular-sum": 1e-3, "copy": 3e-4}
OPTIONS = {"modular-sum": {}, "copy": {"env.length": 2, "env.symbols": 4}}
SET = [list(SEEDS), TAU, GROUP, PROMPTS, RANDOM, MARGIN, OBJECTIVES, SAMPLERS, STEPS, MODEL, SHELF, RATES, OPTIONS]
DIGEST = hashlib.sha256(json.dumps([__doc__, SET]).encode()).hexdigest()[:16]  # frozen: the law is in the lab now
PLACE = Path(__file__).parent / "results" / "sampler-law.json"
JOURNAL = PLACE.with_suffix(".jsonl")
KEYS = ("task", "objective", "sampler", "rewards", "seed")


class Sampler:
    """A model as an engine draws from it: its logits at a temperature, cut to a nucleus."""

    def __init__(self, model, top_p, temperature):
        self.model, self.top_p, self.temperature = model, top_p, temperature

    def cut(self, logits):
        """The logits of q; -inf outside the smallest set of tokens that has the probability top_p."""
        logits = logits / self.temperature
        probs, order = logits.softmax(-1).sort(descending=True)
        outside = probs.cumsum(-1) - probs >= self.top_p
        return logits.masked_fill(outside.gather(-1, order.argsort(-1)), -torch.inf)

    def prefill(self, prompts, max_length):
        logits, cache = self.model.prefill(prompts, max_length)
        return self.cut(logits), cache

    def step(self, tokens, cache):
        return self.cut(self.model.step(tokens, cache))


def drawing_from(learner, top_p, temperature):
    """The learner, whose draws are the sampler's and whose logp_old is its own."""

    def rollout(prompts, group, seed):
        responses, _, mask = generate(
            Sampler(learner.model, top_p, temperature), prompts, group, learner.width, learner.eos, seed
        )
        with torch.no_grad():
            logp = score(learner.model, prompts, responses, mask)
        mass = torch.full((len(prompts), group), 1 / group, dtype=torch.float64)
        return learner.pack(prompts, responses, logp, mask, mass, seed, sampled=True)

    if (top_p, temperature) != (1.0, 1.0):
        learner.rollout = rollout
    return learner


def run_one(task, objective, sampler, rewards, seed, started):
    """One run as the journal keeps it, from the warm start in `started`, which is made by the first run of a seed."""
    changes = (
        OPTIONS[task] | MODEL | SHELF | {"schedule.prompts": PROMPTS, "schedule.group": GROUP, "schedule.ministeps": 1}
    )
    changes |= {"schedule.steps": STEPS[task], "schedule.lr": RATES[task], "run.seed": seed}
    spec, loss = resolve("toy", task, changes)
    _, backend = build(spec, loss)
    learner, source = backend.learner, backend.task
    if (task, seed) not in started:
        backend.warm_start(lambda _: None)
        started.clear()
        started[task, seed] = deepcopy(learner.model.state_dict())
    learner.model.load_state_dict(started[task, seed])
    asked, own = source.held_out(64), source.reward

    def look():
        full = learner.enumerate(asked, derive(seed, "look"))
        logp = full.logp_old.double().sum(1).view(full.mass.shape)
        return {
            "pass_rate": round(float((full.mass * own(full).view(full.mass.shape)).sum(1).mean()), 5),
            "entropy": round(float(-(full.mass * logp).sum(1).mean()), 5),
            "uniform": round(math.log(full.mass.shape[1]), 5),
        }

    def random_rewards(rollouts):
        draws = generator(rollouts.seed, "random rewards").random(tuple(rollouts.mass.shape)) < RANDOM
        return torch.from_numpy(draws).double()

    first = look()
    if rewards == "random":
        source.reward = random_rewards
    loss = load_objective(objective, **OBJECTIVES[objective])
    loop.run(loss, drawing_from(learner, *SAMPLERS[sampler]), source, backend.schedule, [])
    return {"first": first, "last": look()}


def cells(task):
    """Every cell of a task: objective, sampler and rewards."""
    rewards = ("random", "task") if task == "modular-sum" else ("random",)
    return [(o, s, r) for r in rewards for o in OBJECTIVES for s in SAMPLERS]


def run(tasks):
    """Do the missing runs of some tasks, all cells of one seed after another."""
    done, started = journal.read(JOURNAL, DIGEST, KEYS), {}
    for seed in SEEDS:
        for task in tasks:
            for cell in cells(task):
                if (task, *cell, seed) not in done:
                    row = dict(zip(KEYS, (task, *cell, seed), strict=True))
                    journal.append(JOURNAL, row | run_one(task, *cell, seed, started) | {"protocol": DIGEST})


def predicted(part, objective, sampler):
    """The word that the first lines of this file give a comparison; None where they give none."""
    if part == "push":
        return {"pmd-part": "up", "asymre": "down"}.get(objective, "alike")
    return "down" if sampler == "top_p" else None if objective in ("pmd-part", "asymre") else "alike"


def record():
    """Write cells, comparisons and verdicts as one JSON file."""
    done, table, words, laws, seeds = journal.read(JOURNAL, DIGEST, KEYS), [], [], {}, {}
    for task in STEPS:
        seeds[task] = [s for s in SEEDS if all((task, *cell, s) in done for cell in cells(task))]
        if len(seeds[task]) < 3:
            continue
        runs = {cell: [done[(task, *cell, s)] for s in seeds[task]] for cell in cells(task)}
        for cell, own in runs.items():
            row = dict(zip(("task", "objective", "sampler", "rewards"), (task, *cell), strict=True))
            for when in ("first", "last"):
                for key in ("pass_rate", "entropy"):
                    values = [r[when][key] for r in own]
                    row[f"{key}_{when}"] = [round(float(x), 4) for x in (np.mean(values), np.std(values))]
            table.append(row)
        parts = (("push", "random", "entropy"), ("short", "task", "pass_rate"))[: 2 if task == "modular-sum" else 1]
        for part, rewards, key in parts:
            for name, sampler in ((o, s) for o in OBJECTIVES for s in SAMPLERS if s != "full"):
                pairs = zip(runs[name, sampler, rewards], runs[name, "full", rewards], strict=True)
                unit = runs[name, sampler, rewards][0]["last"]["uniform"] if part == "push" else 1.0
                values = [(a["last"][key] - b["last"][key]) / unit for a, b in pairs]
                mean, error = np.mean(values), stats.sem(values)
                low, high = stats.t.interval(1 - 0.05 / (10 * len(parts)), len(values) - 1, mean, error)
                row = {"task": task, "part": part, "objective": name, "sampler": sampler}
                row |= {"predicted": predicted(part, name, sampler), "verdict": journal.word(low, high, MARGIN[part])}
                words.append(row | {"difference": [round(float(x), 4) for x in (mean, low, high)]})
            got = [(r["verdict"], r["predicted"]) for r in words if (r["task"], r["part"]) == (task, part)]
            got = [(word, wanted) for word, wanted in got if wanted]
            against = any(word not in (wanted, "undecided") for word, wanted in got)
            held = all(word == wanted for word, wanted in got)
            laws.setdefault(task, {})[part] = "contradicted" if against else "holds" if held else "undecided"
    found = {"protocol": DIGEST, "machine": machine(), "versions": versions(), "margin": MARGIN, "seeds": seeds}
    found |= {"law": laws, "comparisons": words, "cells": table}
    PLACE.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({"law": laws, "comparisons": words}, indent=1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["run"] and set(sys.argv[2:]) <= set(STEPS):
        run(sys.argv[2:] or list(STEPS))
    elif sys.argv[1:] == ["record"]:
        record()
    else:
        raise SystemExit(f"got {sys.argv[1:]}; expected run, with any of {', '.join(STEPS)}, or record")
