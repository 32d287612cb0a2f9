"""Faults in a run that is really trained: GRPO on a linear policy of six tokens, whose last one is the answer."""

import json

import numpy as np
import pytest
from scipy.special import log_softmax

from pmdkit_lab.autopsy import report

KINDS, LENGTH, WORDS, FEATURES, PROMPTS, GROUP = 12, 6, 10, 6, 12, 8
COLUMNS = {"step": "t", "prompt": "q", "group": "q", "response": "a", "gold": "y", "reward": "r", "logp_engine": "e"}


def train(steps=40, updates=1, lr=0.05, first=1.0, lag=0, noise=0.0, shuffled=False, seed=0):
    """A log by TRL's names and the rows of a dump. `first` multiplies the first step, the engine's weights are `lag`
    steps old and differ by `noise`, `shuffled` verdicts are those of other rows. Rows have the trainer's
    log-probabilities from before the updates (l) and from after them (f)."""
    rng, log, rows = np.random.default_rng(seed), [], []
    x = rng.normal(size=(KINDS, FEATURES)) / np.sqrt(FEATURES)
    gold, theta = rng.integers(WORDS, size=KINDS), rng.normal(size=(LENGTH, WORDS, FEATURES))
    for _ in range(60):  # a policy that is right at times
        theta[-1] += 0.05 * (np.eye(WORDS)[gold] - np.exp(log_softmax(x @ theta[-1].T, -1))).T @ x
    error, m, v, old = rng.normal(size=theta.shape), 0.0, 0.0, [theta]
    for step in range(steps):
        kind = np.repeat(rng.integers(KINDS, size=PROMPTS), GROUP)

        def logits(weights, kind=kind):
            return log_softmax(np.einsum("nf,twf->ntw", x[kind], weights), -1)

        engine = logits(old[max(0, step - lag)] + noise * error)
        tokens = (engine + rng.gumbel(size=engine.shape)).argmax(-1)
        own = np.eye(WORDS)[tokens]
        full = logits(theta)
        drawn, reference, before = ((own * each).sum(-1) for each in (engine, logits(old[0]), full))
        right = (tokens[:, -1] == gold[kind]).astype(float)
        reward = rng.permutation(right) if shuffled else right
        groups = reward.reshape(-1, GROUP)
        mean, std = groups.mean(1, keepdims=True), groups.std(1, ddof=1, keepdims=True)
        advantage = ((groups - mean) / (std + 1e-4)).reshape(-1, 1)
        after, clipped = before, []
        for _ in range(updates):
            ratio = np.exp(after - before)
            out = np.where(advantage > 0, ratio > 1.2, ratio < 0.8) & (advantage != 0)
            clipped.append(out.mean())
            push = np.where(out, 0.0, ratio * advantage) / out.size
            gradient = np.einsum("nt,ntw,nf->twf", push, own - np.exp(logits(theta)), x[kind])
            m, v, n = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2, step * updates + len(clipped)
            adam = m / (1 - 0.9**n) / (np.sqrt(v / (1 - 0.99**n)) + 1e-8)
            theta = theta + lr * (first if n == 1 else 1) * adam
            after = (own * logits(theta)).sum(-1)
        old.append(theta)
        log.append({
            "step": step + 1, "reward": reward.mean(), "reward_std": std.mean(),
            "kl": np.mean(np.expm1(reference - before) + before - reference),
            "entropy": -(np.exp(full) * full).sum(-1).mean(), "clip_ratio/region_mean": np.mean(clipped),
            "sampling/sampling_logp_difference/mean": np.abs(before - drawn).mean(),
        })  # fmt: skip
        rows += [
            {"t": step, "q": f"{kind[n]} in group {n // GROUP}", "a": f"{tokens[n, :-1]} Answer: {tokens[n, -1]}",
             "y": str(gold[kind[n]]), "r": reward[n], "e": [*drawn[n]], "l": [*before[n]], "f": [*after[n]]}
            for n in range(len(kind))
        ]  # fmt: skip
    return log, rows


# the fault, a column that the log lacks, its first finding there, the trainer's column in the rows, the first one there
FAULTS = [
    ({}, "", None, "l", None),
    ({"noise": 0.02}, "", None, "l", None),
    ({"updates": 2}, "", None, "f", None),
    ({"first": 1000.0, "seed": 1}, "", "rate-too-large", "l", "rate-too-high"),
    ({"first": 30.0, "seed": 1}, "entropy", "rate-too-large", "f", "rate-too-high"),
    ({"updates": 48}, "", "clip-saturation", "f", "rate-too-high"),
    ({"lag": 3, "seed": 2}, "", "stale-policy", "l", None),  # too little to be a cause of rows
    ({"lag": 8, "seed": 1}, "", "stale-policy", "l", "stale-policy"),
    ({"noise": 0.4}, "", "engine-mismatch", "l", "engine-mismatch"),
    ({"shuffled": True}, "reward_std", None, "l", "reward-noise"),  # a log does not show it without
]


@pytest.mark.parametrize(("fault", "lost", "in_log", "logp", "in_rows"), FAULTS, ids=str)
def test_a_trained_fault_is_found_first_and_a_healthy_twin_has_none(fault, lost, in_log, logp, in_rows, tmp_path):
    log, rows = train(**fault)
    log, path = [{key: x for key, x in row.items() if key != lost} for row in log], tmp_path / "run.jsonl"
    for records, wanted in ((log, in_log), (rows, in_rows)):
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        read = report.scalar_autopsy(path, {}) if records is log else report.autopsy(path, COLUMNS | {"logp": logp})
        assert [each["name"] for each in read[0]["causes"] + read[0]["watch"]][:1] == ([wanted] if wanted else [])
