"""Runs from draws: one step is `sampled_step`, two are enumerated, and the bandit does what the law says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pmdkit import loop, theory
from pmdkit.bandit import BanditLearner
from pmdkit.envs.bandit import Bandit, BanditTask
from pmdkit.objectives import PMDMean, PMDPart
from pmdkit_lab import finite_samples

STUDY = Path(__file__).parents[4] / "benchmarks" / "results" / "budgets.json"
STEP = {"solved": {}, "one step": {"lr": 4.0}, "two steps": {"lr": 4.0, "ministeps": 2, "groups": 2}}


@pytest.mark.parametrize("method", theory.METHODS)
@pytest.mark.parametrize("way", STEP)
def test_one_step_has_the_law_of_the_sampled_step(way, method):
    """Means within four standard errors, at two temperatures that see the same draws."""
    options = STEP[way]
    tau = np.array([0.05, 0.5])
    turns = {"ministeps": options.get("ministeps", 1), "lr": options["lr"]} if options else {}
    law = finite_samples.sampled_step(0.2, tau, 8, method, false_negative=0.1 if way != "two steps" else 0.0, **turns)
    run = finite_samples.sampled_run(
        [0.2], tau, 8, 1, method, runs=3000, false_negative=0.1 if way != "two steps" else 0.0, **options
    )
    assert run.pass_rates.shape == (2, 2, 1)
    assert (run.pass_rates[:, 0] == 0.2).all()
    assert (np.abs(run.pass_rates[:, 1, 0] - 0.2 - law.gain) < 4 * run.error).all()


def test_two_steps_are_one_after_the_other():
    """The law of the second step at every outcome of the first, exactly."""
    first = finite_samples.sampled_step(0.3, 1.0, 4)
    second = [
        rate + finite_samples.sampled_step(rate, 1.0, 4).gain if rate < 1 - 1e-9 else 1.0 for rate in first.pass_rates
    ]
    run = finite_samples.sampled_run([0.3], 1.0, 4, 2, runs=4000)
    assert abs(run.pass_rates[2, 0] - first.probability @ second) < 4 * run.error
    assert run.pass_rates[1, 0] < run.pass_rates[2, 0]


def test_a_cell_for_each_arm_is_the_simulated_step():
    policy, right = np.array([0.1, 0.1, 0.4, 0.4]), np.array([1.0, 1.0, 0.0, 0.0])
    law = finite_samples.simulate_sampled_step(policy, right, 0.1, 4, draws=2000)
    run = finite_samples.sampled_run([0.2], 0.1, 4, 1, cells=(2, 2), runs=2000)
    assert abs(run.pass_rates[1, 0] - 0.2 - law.step.gain) < 4 * run.error + (law.gain[1] - law.gain[0])


SEEDS = 100


def measured(objective, n, steps, groups, ministeps, lr, rates=(0.1, 0.5)):
    """[SEEDS] mean pass rate of the pool after a run of the bandit itself: loop, credit, draws, autograd."""
    policy = np.log([[rate, 1 - rate] for rate in rates] * SEEDS)
    right = np.tile([1.0, 0.0], (len(policy), 1))
    problem = Bandit("pool", right, policy, right)
    learner = BanditLearner(torch.tensor(policy), update="gradient", lr=lr * len(policy), optimizer="sgd")
    task = BanditTask(problem, groups * len(policy))
    loop.run(objective, learner, task, loop.Schedule(steps, n, ministeps, 0))
    return problem.pass_rate(learner.log_policy().numpy()).reshape(SEEDS, len(rates)).mean(1)


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "ministeps"), [(1, 1), (4, 1), (4, 4)])
def test_the_bandit_ends_where_the_law_says(groups, ministeps):
    """Four rollout batches of stale updates, measured against the law; both have standard errors."""
    for cls, method in ((PMDMean, "pmd-mean"), (PMDPart, "pmd-part")):
        ends = measured(cls(tau=0.5, norm="none"), 4, 4, groups, ministeps, 4.0)
        run = finite_samples.sampled_run(
            [0.1, 0.5], 0.5, 4, 4, method, groups=groups, ministeps=ministeps, lr=4.0, runs=1000
        )
        error = np.hypot(float(run.error), ends.std(ddof=1) / SEEDS**0.5)
        assert abs(run.pass_rates[-1].mean() - ends.mean()) < 4 * error


def test_the_way_that_is_named_best_is_best_in_the_bandit():
    """The grid measured: the way of the law is within four standard errors of the best, and far above the middle."""
    grid = {"taus": (0.1, 1.0), "sizes": (4, 16), "groups": (1, 4), "ministeps": (1, 4), "lr": (2.0, 8.0)}
    ways = finite_samples.best_budget([0.1, 0.5], 2 * 64, overhead=2 * 8, **grid)
    assert len(ways) == 16
    ends = {}
    for way in ways:
        objective = PMDMean(tau=way.tau, norm="none")
        ends[way] = measured(objective, way.n, way.steps, way.prompts // 2, way.ministeps, way.lr)
    means = {way: each.mean() for way, each in ends.items()}
    best = max(ways, key=means.__getitem__)
    lost = ends[best] - ends[ways[0]]
    assert lost.mean() <= 4 * lost.std(ddof=1) / SEEDS**0.5 + 1e-12
    assert means[ways[0]] > np.median(list(means.values())) + 0.1


def test_staleness_has_a_price_and_an_overhead_gives_it_a_use():
    """Sixteen updates of one group each: in sixteen batches, or in one of which the last is 15 updates stale."""
    fresh = finite_samples.sampled_run([0.2], 0.2, 4, 16, lr=8.0, runs=400)
    stale = finite_samples.sampled_run([0.2], 0.2, 4, 1, groups=16, ministeps=16, lr=8.0, runs=400)
    assert fresh.pass_rates[-1, 0] > stale.pass_rates[-1, 0] + 4 * float(fresh.error + stale.error)
    grid = {"taus": (0.2,), "sizes": (4,), "groups": (1, 16), "ministeps": (1, 16), "lr": (2.0,)}
    assert finite_samples.best_budget([0.2], 64, **grid)[0].ministeps == 1
    assert finite_samples.best_budget([0.2], 64 + 64, overhead=64, **grid)[0].ministeps == 16


def test_every_way_costs_no_more_than_the_budget():
    ways = finite_samples.best_budget([0.1, 0.9], 5000, length=10, overhead=100, runs=2)
    prices = [way.steps * (way.n * way.prompts * 10 + 100) for way in ways]
    assert max(prices) <= 5000
    assert all(5000 - price < way.n * way.prompts * 10 + 100 for way, price in zip(ways, prices, strict=True))
    assert [way.pass_rate for way in ways] == sorted((way.pass_rate for way in ways), reverse=True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: finite_samples.best_budget([0.1, 0.5], 3), "tokens is 3; expected at least 4"),
        (lambda: finite_samples.best_budget([0.1], -1), "tokens is -1"),
        (lambda: finite_samples.sampled_run([0.0], 0.1, 4, 1), "p is 0 or 1"),
        (lambda: finite_samples.sampled_run([0.1], 0.1, 4, 1, ministeps=2, groups=2), "give lr"),
        (lambda: finite_samples.sampled_run([0.1], 0.1, 4, 1, ministeps=3, groups=4, lr=1.0), "a divisor of groups"),
        (lambda: finite_samples.sampled_run([0.1], 0.1, 4, 1, lr=-1.0), "lr is -1.0"),
        (lambda: finite_samples.sampled_run([0.1], 0.1, 4, 1, cells=(0, 2)), r"cells is \(0, 2\)"),
    ],
)
def test_slips_are_sentences(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_the_stored_sweeps_say_what_the_page_says():
    """Nothing is run here: the verdicts of the record, from its runs."""
    settings = json.loads(STUDY.read_text(encoding="utf-8"))["settings"]
    lost = []
    for name, setting in settings.items():
        means = {way: np.mean(ends) for way, ends in setting["runs"].items()}
        best = max(means, key=means.__getitem__)
        assert setting["verdict"]["best"]["way"] == best
        for law, said in setting["laws"].items():
            named = max(means, key=said.__getitem__)
            regret = setting["verdict"][law]["regret"]
            assert regret["mean"] == pytest.approx(means[best] - means[named], abs=1e-9)
            if regret["low"] > 0:
                lost.append((name, law, round(regret["mean"], 3)))
    assert lost == [("gradient, 32 arms, overhead 16", "two cells", 0.217)]  # no other regret is beyond chance
