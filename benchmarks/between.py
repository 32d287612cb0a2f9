"""The k that one sampled step predicts for PMD-between, compared with runs: `python benchmarks/between.py [FILE]`.

A pool of prompts from hard to easy, each a table of 32 arms of which 8 are right, is trained for six steps of 16 draws.
Seeds are contexts of one bandit: a table shares nothing between contexts, so one run of all seeds equals a run of
each. Every arm of the comparison sees the same uniforms. "predicted" comes from `finite_samples.best_k`, with the
cells right and wrong, and was fixed before any run; "predicted by arm", with a cell for each arm, was added after the
first results.

Kept because docs/use/finite-samples.md says which k a sampled step predicts.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from pmdkit import loop
from pmdkit.bandit import BanditLearner
from pmdkit.envs.bandit import Bandit, BanditTask
from pmdkit.objectives import EasyPrompts, PMDBetween
from pmdkit.stats import mean_interval
from pmdkit_lab import finite_samples

RATES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9)
KS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
ARMS, RIGHT, DRAWS, STEPS, PASSES, LR, SEEDS = 32, 8, 16, 6, 40, 0.3, 120
SETTINGS = {
    f"tau {tau:g}, {name}": {"tau": tau, "false_positive": error[0], "false_negative": error[1]}
    for tau in (0.05, 0.2)
    for name, error in {"no errors": (0.0, 0.0), "5 % false negatives": (0.0, 0.05)}.items()
}
PLACE = Path(__file__).parent / "results" / "between.json"


def predicted(tau, false_positive, false_negative):
    """The constant k with the largest gain over the pool, and the lowest pass rate at which k = 0 beats k = 1."""
    errors = {"false_positive": false_positive, "false_negative": false_negative}
    pool = finite_samples.best_k(RATES, tau, DRAWS, ks=KS, **errors)
    rates = np.linspace(0.3, 0.95, 14)  # candidates for the switch
    ends = finite_samples.best_k(rates, tau, DRAWS, ks=(0.0, 1.0), **errors).gain
    ahead = rates[ends[:, 0] > ends[:, 1] + 1e-9]
    return {
        "k": float(pool.ks[pool.gain.mean(0).argmax()]),
        "switch": float(ahead[0]) if len(ahead) else 1.0,
        "gain": {f"{k:g}": float(value) for k, value in zip(pool.ks, pool.gain.mean(0), strict=True)},
        "best by pass rate": {f"{p:g}": float(k) for p, k in zip(RATES, pool.k, strict=True)},
    }


def predicted_by_arm(tau, false_positive, false_negative, draws=400):
    """The same with a cell for each arm, from drawn groups: a table does not generalise. None with verifier errors."""
    if false_positive or false_negative:
        return None
    gain = {}
    for k in KS:
        steps = [
            finite_samples.simulate_sampled_step(*pool(rate), tau, DRAWS, k=k, draws=draws, rng=0) for rate in RATES
        ]
        gain[f"{k:g}"] = float(np.mean([step.gain for step in steps]))
    return {"k": float(max(gain, key=gain.get)), "gain": gain}


def pool(rate):
    """Policy and rewards of one prompt with a given pass rate."""
    right = np.arange(ARMS) < RIGHT
    return np.where(right, rate / RIGHT, (1 - rate) / (ARMS - RIGHT)), right.astype(float)


def regret(areas, key, best):
    """The area of the best k of the grid, and of both ends, minus that of this arm, paired by seed."""
    names = {"best of the grid": best, "k = 0": "0", "k = 1": "1"}
    return {name: interval(areas[other] - areas[key]) for name, other in names.items()}


def interval(values):
    """Mean and 95 % interval."""
    found = mean_interval(values)
    return {"mean": found.mean, "low": found.low, "high": found.high}


def run(k, tau, false_positive, false_negative, seeds=SEEDS, steps=STEPS):
    """[seeds, steps] exact mean pass rate of the pool after each step."""
    table = [pool(rate) for rate in RATES] * seeds
    pi, success = np.stack([row[0] for row in table]), np.stack([row[1] for row in table])
    problem = Bandit("pool", success * (1 - false_negative) + (1 - success) * false_positive, np.log(pi), success)
    learner = BanditLearner(torch.tensor(problem.log_policy), update="gradient", lr=LR, passes=PASSES)
    curve = []

    def observe(*_):
        now = problem.pass_rate(learner.log_policy().numpy())
        curve.append(now.reshape(seeds, len(RATES)).mean(1))

    loop.run(
        PMDBetween(k=k, tau=tau, norm="none"),
        learner,
        BanditTask(problem),
        loop.Schedule(steps, DRAWS, 1, 0),
        [observe],
    )
    return np.stack(curve, 1)


def main(place=PLACE):
    """Run all settings and write them to one record."""
    record = {
        "about": __doc__.strip(), "seeds": SEEDS, "draws": DRAWS, "steps": STEPS, "passes": PASSES, "lr": LR,
        "arms": ARMS, "right": RIGHT, "rates": RATES, "grid": KS, "settings": {},
    }  # fmt: skip
    for name, setting in SETTINGS.items():
        begun, law, by_arm = time.perf_counter(), predicted(**setting), predicted_by_arm(**setting)
        arms = {f"{k:g}": run(k, **setting) for k in KS}
        arms["rule"] = run(EasyPrompts(switch=law["switch"]), **setting)
        areas = {arm: curve.mean(1) for arm, curve in arms.items()}
        best = max((f"{k:g}" for k in KS), key=lambda k: areas[k].mean())
        record["settings"][name] = setting | {
            "predicted": law,
            "predicted by arm": by_arm,
            "area": {arm: interval(area) for arm, area in areas.items()},
            "last": {arm: interval(curve[:, -1]) for arm, curve in arms.items()},
            "first step": {arm: interval(curve[:, 0]) for arm, curve in arms.items()},
            "best": best,
            "regret of the predicted k": regret(areas, f"{law['k']:g}", best),
            "regret of the rule": regret(areas, "rule", best),
            "regret of the k predicted by arm": by_arm and regret(areas, f"{by_arm['k']:g}", best),
            "areas": {arm: [round(float(x), 6) for x in area] for arm, area in areas.items()},
        }
        print(name, f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)
    Path(place).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
