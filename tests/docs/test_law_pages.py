"""The numbers of the pages about the sampler law, the drift law and entropy against reward."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from pmdkit.objectives import load_objective
from pmdkit.randomness import generator
from pmdkit.theory.between_update import fit_over
from pmdkit_lab.explain import stationary_point
from pmdkit_lab.explain.entropy import entropy_cost
from pmdkit_lab.explain.tabular import GRADED_PROMPTS

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "benchmarks/results/sampler-law.json").read_text())


def text(page):
    return " ".join((ROOT / "docs/use" / page).read_text(encoding="utf-8").split())


def sampler_rows():
    """The tables of sampler.md: entropies and pass rates after the last step, and the words."""
    for task, part, rewards, key in (
        ("modular-sum", "push", "random", "entropy_last"),
        ("copy", "push", "random", "entropy_last"),
        ("modular-sum", "short", "task", "pass_rate_last"),
    ):
        cells = {(c["objective"], c["sampler"], c["rewards"]): c for c in RECORD["cells"] if c["task"] == task}
        rows = [r for r in RECORD["comparisons"] if (r["task"], r["part"]) == (task, part)]
        words = {(r["objective"], r["sampler"]): r for r in rows}
        for name in ("pmd-mean", "pmd-part", "rloo", "grpo", "asymre"):
            means = " | ".join(f"{cells[name, s, rewards][key][0]:.2f}" for s in ("full", "top_p", "temperature"))
            got = [words[name, s] for s in ("top_p", "temperature")]
            told = [f"{each['verdict']} ({each['predicted'] or 'nothing'})" for each in got]
            yield f"| `{name}` | {means} | {' | '.join(told)} |"


def test_the_page_of_the_sampler_says_what_its_runs_say():
    page, law = text("sampler.md"), RECORD["law"]
    for row in sampler_rows():
        assert row in page, row
    assert [len(seeds) for seeds in RECORD["seeds"].values()] == [20, 20]
    assert f"answers of one token: **{law['modular-sum']['push']}**" in page
    assert f"two tokens and the end: **{law['copy']['push']}**" in page
    assert f"Stopping short on `modular-sum`: **{law['modular-sum']['short']}**" in page
    pushes = [r for r in RECORD["comparisons"] if r["part"] == "push"]
    alike = [r["verdict"] for r in pushes if r["predicted"] == "alike"]
    told = f"of their {len(alike)} comparisons of entropies {alike.count('alike')} are alike and"
    assert f"{told} {alike.count('undecided')} undecided" in page
    assert len(alike) == alike.count("alike") + alike.count("undecided")
    failed = {(r["task"], r["objective"]) for r in pushes if r["verdict"] not in (r["predicted"], "undecided")}
    assert failed == {("copy", "asymre")}
    assert all(r["verdict"] == "up" for r in pushes if r["objective"] == "pmd-part")
    for task, responses in (("modular-sum", 11), ("copy", 85)):
        started = next(c for c in RECORD["cells"] if c["task"] == task)["entropy_first"][0]
        assert f"it was {started:.2f}, and a uniform policy has {np.log(responses):.2f}" in page


def test_the_page_of_the_sampler_says_what_its_runs_of_a_language_model_say():
    record = json.loads((ROOT / "benchmarks/results/smollm2-sampler.json").read_text())
    page, values = text("sampler.md"), {}
    for run in record["runs"]:
        key = run["objective"], run["rewards"]
        values.setdefault((*key, run["sampler"], "entropy"), []).append(run["entropy_after"] / run["entropy_before"])
        values.setdefault((*key, run["sampler"], "pass_rate"), []).append(run["last"])
    words = {"entropy": "entropy, after over before", "pass_rate": "pass rate"}
    for row in record["comparisons"]:
        key = row["objective"], row["rewards"]
        means = [np.mean(values[*key, sampler, row["measure"]]) for sampler in ("full", "cut")]
        assert row["difference"][0] == pytest.approx(means[1] - means[0], abs=1e-4)
        gap = "{:+.2f} [{:+.2f}, {:+.2f}]".format(*row["difference"]).replace("-", "−")
        by = {"coin": "a coin", "task": "the task"}[row["rewards"]]
        told = f"| {words[row['measure']]} | `{key[0]}` | {by} | {means[0]:.2f} | {means[1]:.2f} | {gap} |"
        shown = row["measure"] == "entropy" or by == "the task"
        assert (f"{told} {row['verdict']} ({row['predicted'] or 'nothing'}) |" in page) is shown
    decided = [row for row in record["comparisons"] if row["predicted"] and row["verdict"] != "undecided"]
    assert [row["verdict"] == row["predicted"] for row in decided] == [True]
    assert (record["seeds"], record["law"]) == ([0, 1, 2], "undecided")
    cut, full = (
        [x for rewards in ("coin", "task") for x in values["pmd-part", rewards, sampler, "entropy"]]
        for sampler in ("cut", "full")
    )
    assert f"ends at {min(cut):.1f} to {max(cut):.1f} times its start; without the sampler it ends at" in page
    assert f"without the sampler it ends at {min(full):.1f} to {max(full):.1f} times" in page
    assert values["pmd-part", "task", "cut", "pass_rate"] == [0, 0, 0]


def test_the_drift_of_the_stored_bandit():
    """1 - 1/k over the groups whose rewards differ, from the policies before the first batch: nothing is fitted."""
    k, law = np.arange(1, 16), []
    for seed in range(20):
        logits = generator(seed, "distinct answers").normal(size=(8, 64)) / 2
        right = (np.exp(logits) / np.exp(logits).sum(1, keepdims=True))[:, :8]
        chance = binom.pmf(k, 16, right.sum(1, keepdims=True))
        kept = (chance * (1 - 1 / k)).sum(1) / chance.sum(1)
        law.append((kept * (1 - (right**2).sum(1) / right.sum(1) ** 2)).mean())
    assert f"gives {np.mean(law):.2f}, with nothing fitted" in text("distinct-answers.md")
    pi, counts = np.full(17, 1 / 64), np.array([2, 1] + [1] * 13 + [0, 0])
    pi[-1] = 48 / 64  # what was not drawn
    target = np.where(np.arange(17) < 2, 13 / 15, -3 / 15)[None] / 0.1 * np.ones((1, 17))
    twice, once = np.exp(fit_over(np.log(pi)[None], counts[None] / 16, target)[0])[:2]
    assert f"by {twice:.0f} and {once:.0f} times" in text("distinct-answers.md")


def test_the_drift_of_the_mazes_is_what_their_runs_say():
    page, record = text("distinct-answers.md"), json.loads((ROOT / "benchmarks/results/drift-maze.json").read_text())
    below, above = record["means"]
    for told, key in (
        ("pass rate on the mazes", "pass_rate"),
        ("share of pairs that differ", "distinct"),
        ("share of the answers that were not drawn", "undrawn"),
    ):
        law = f"; the law says {below['law']:.2f}" if key == "distinct" else ""
        before, after = f"{key}_before", f"{key}_after"
        assert f"| {told}, before {below[before]:.2f} | {below[after]:.2f}{law} | {above[after]:.2f} |" in page
    drift, fall, lost, kept, unlost = (
        "{:.2f} [{:.2f}, {:.2f}]".format(*row["difference"]).replace("-", "−") for row in record["comparisons"]
    )
    for row in (
        f"after minus the law | {drift} | |",
        *(f"after minus before | {x} | {y} |" for x, y in ((fall, kept), (lost, unlost))),
    ):
        assert row in page, row
    assert record["law"] == "carries over"
    assert all(row["verdict"] == row["predicted"] for row in record["comparisons"])
    assert f"{len(record['seeds'])} seeds. All five predictions" in page


def test_the_sign_of_a_batch_is_what_its_runs_say():
    record = json.loads((ROOT / "benchmarks/results/entropy-sign.json").read_text())["verdicts"]
    mazes, sums = record[:2], record[2:]
    assert [row["verdict"] for row in record] == ["holds", "undecided", "holds", "holds"]
    words = "{right} of {predicted} predictions with AdamW, and in {other} of {predicted} with plain gradient descent"
    assert words.format(**mazes[0], other=mazes[1]["right"]) in text("explain.md")
    assert mazes[0]["predicted"] == mazes[1]["predicted"]
    assert {(row["right"], row["fell"], row["predicted"]) for row in sums} == {(100, 100, 100)}


@pytest.mark.parametrize("name", ["pmd-mean", "pmd-part", "sapo", "grpo-kl"])
def test_the_frontier(name):
    objective = load_objective(name)
    cost = entropy_cost(objective, stationary_point(objective, GRADED_PROMPTS["graded rewards"]))
    numbers = " | ".join(f"{value:.3g}" for value in vars(cost).values())
    assert f"| `{name}` | {numbers} |" in text("explain.md")


@pytest.mark.parametrize(("n", "k"), [(1000, 1), (64, 8)])
def test_reward_is_no_affine_function_of_the_exponential_of_entropy(n, k):
    """Equal logits among right and among wrong answers: H is a function of the pass rate alone."""
    p = np.linspace(k / n, 0.99, 400)
    entropy = -p * np.log(p / k) - (1 - p) * np.log((1 - p) / (n - k))
    misses = [np.abs(np.polyval(np.polyfit(x, p, 1), x) - p).max() for x in (np.exp(entropy), entropy)]
    assert f"{k} of {n} answers right the best such line misses by {misses[0]:.2f}" in text("explain.md")
    assert f"a line in H by {misses[1]:.2f}" in text("explain.md")
