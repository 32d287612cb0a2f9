"""`pmdkit eval`: exact where the policy is known, the run folder untouched."""

import hashlib
import json

import numpy as np

from pmdkit import train
from pmdkit.envs.tokens import make_tokens
from pmdkit.evaluation.bandit_and_toy import sample_held_out

SMALL = {"prompts": 8, "group": 4, "steps": 2, "seed": 3}


def fingerprint(folder):
    """Names, contents and times of everything in a folder."""
    return {
        p: (p.stat().st_mtime_ns, hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "")
        for p in sorted(folder.rglob("*"))
    }


def test_modular_sum_against_the_enumerated_probabilities(call, tmp_path, capsys):
    """avg@k and pass@k of all 100 prompts are known from the policy: both lie in their intervals. No file changes."""
    run = train("pmd-mean", "toy", "modular-sum", out=tmp_path / "run", **SMALL | {"steps": 8, "prompts": 64})
    setup, step = run.load_policy()
    prompts = setup.task.held_out(100)
    rollouts = setup.learner.rollout(prompts, None, 0)
    p = (rollouts.mass * setup.task.reward(rollouts)).sum(1).numpy()
    before = fingerprint(run.path)
    assert call("eval", run.path, "--k", 8, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert fingerprint(run.path) == before
    assert (result["problems"], result["k"], result["interval_over"], result["step"]) == (100, 8, "draws", step)
    for name, wanted in (("avg_at_k", p.mean()), ("pass_at_k", (1 - (1 - p) ** 8).mean())):
        assert result[name]["low"] <= wanted <= result[name]["high"], name
        assert result[name]["high"] - result[name]["low"] < 0.06, name


def test_needle_against_the_closed_form(call, tmp_path, capsys):
    """One exact step from 0.01 gives 0.37942 on one arm of 100: with 32 draws the vote is right and none misses it."""
    train("pmd-mean", "bandit", "needle", steps=1, out=tmp_path / "run")
    assert call("eval", tmp_path / "run", "--k", 2, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    p = 0.37942
    ties = 2 * p * (1 - p) / 2  # the needle and another arm: half a vote
    for name, wanted in (("avg_at_k", p), ("pass_at_k", 1 - (1 - p) ** 2), ("maj_at_k", p * p + ties)):
        low, high = result[name]["low"], result[name]["high"]
        # 2,048 draws: the standard error is about 0.011, and 95 % of intervals hold the truth
        assert low - 0.01 <= wanted <= high + 0.01, name
        assert low < result[name]["value"] < high


def test_draws_beyond_one_batch_stay_with_their_problem(tmp_path, monkeypatch):
    """Drawn a few problems at a time, or many: each problem's pass rate stays what the policy gives it."""
    run = train("pmd-mean", "toy", "modular-sum", out=tmp_path / "run", **SMALL)
    spec, (setup, _) = run.spec, run.load_policy()
    monkeypatch.setattr("pmdkit.evaluation.bandit_and_toy.ROWS", 3000)
    monkeypatch.setattr("pmdkit.evaluation.bandit_and_toy.BLOCKS", 20_000)
    draws = sample_held_out(spec, setup, 5, 30, seed=0)
    rollouts = setup.learner.rollout(setup.task.held_out(30), None, 0)
    p = (rollouts.mass * setup.task.reward(rollouts)).sum(1).numpy()
    count = draws.right.shape[1]
    assert (np.abs(draws.right.mean(1) - p) <= 4 * np.sqrt(p * (1 - p) / count)).all()
    assert not draws.exhaustive


def test_what_counts_as_the_same_answer():
    """Parity: two thoughts that end in the same bit are one answer, a bit without "=" is another. Copy: the text."""
    eos = 3
    rows = [[0, 2, 1, eos], [1, 2, 1, eos], [0, 2, 0, eos], [1, eos], [2, 1, eos], [1, 1, 1, 1]]
    parity = [make_tokens({"kind": "parity", "length": 2}).answer_of(row) for row in rows]
    assert parity[0] == parity[1] == parity[4]
    assert len({tuple(parity[n]) for n in (0, 2, 3, 5)}) == 4
    copy = make_tokens({"kind": "copy", "length": 4, "symbols": 3})
    assert [copy.answer_of(row) for row in rows] == rows
