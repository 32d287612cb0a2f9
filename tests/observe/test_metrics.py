"""The row of metrics and its gauge against loops written out by hand, and the prediction against its own equation."""

import itertools
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import lambertw
from scipy.stats import binom

from pmdkit import theory
from pmdkit.envs.tokens import TokenTask, make_tokens
from pmdkit.loop import Rollouts, Schedule, graded, run
from pmdkit.objectives import OBJECTIVES, Groups, credit
from pmdkit.observe import gauge
from pmdkit.observe.metrics import KEYS, StepMetrics, anchor, distinct_right
from pmdkit.toy.learner import ToyLearner
from pmdkit.toy.model import ModelConfig, Transformer

COPY = {"kind": "copy", "length": 2, "symbols": 2}
SHORT = {"kind": "copy", "length": 1, "symbols": 2}


def record(objective, group, ministeps=1, steps=1, table=COPY, prompts=6, task=TokenTask):
    """Learner, and for the last step what the meter saw and what it wrote; `updates` are in `learner.updates`."""
    problem = make_tokens(table)
    context = problem.prompt_length + problem.width
    model = Transformer(ModelConfig(len(problem.vocabulary), context, dimension=16, layers=1, heads=2, inner=32), 2)
    model = model.double()
    with torch.no_grad():
        model.head.weight.mul_(15)
    space = tuple(torch.from_numpy(x) for x in problem.responses())
    options = {"lr": 0.02, "reference": objective.__class__.__name__ == "TB"}
    learner = ToyLearner(model, problem.eos, problem.width, space, **options)
    seen = {}

    def keep(step, learner, rollouts, groups, batch, updates):
        seen.update(rollouts=rollouts, groups=groups, batch=batch, updates=updates)
        seen["row"] = StepMetrics(objective).measure(step, learner, rollouts, groups, batch, updates).row

    run(objective, learner, task(problem, prompts, 1), Schedule(steps, group, ministeps, seed=3), [keep])
    learner.updates = seen["updates"]
    return learner, seen["rollouts"], seen["groups"], seen["row"]


def changes(learner, rollouts):
    """[P][G] measured log-ratio of every response, row by row and token by token, after the update."""
    prompts, size = rollouts.mass.shape
    rows = []
    for row in range(prompts * size):
        read = rollouts.prompts[row // size].tolist()
        change = 0.0
        for t in range(int(rollouts.mask[row].sum())):
            with torch.no_grad():
                logp = learner.model(torch.tensor([read]))[0, -1].log_softmax(0)
            token = int(rollouts.responses[row, t])
            change += logp[token].item() - rollouts.logp_old[row, t].item()
            read.append(token)
        rows.append(change)
    return np.array(rows).reshape(prompts, size)


def mean(values):
    return sum(values) / len(values) if values else None


class Broken(TokenTask):
    """A group without a verdict, and one with few: rows without a verdict have mass 0 and count nowhere."""

    def reward(self, rollouts):
        reward = super().reward(rollouts)
        reward[1] = math.nan
        reward[2, :5] = math.nan
        return reward


@pytest.mark.parametrize(("group", "name"), [(8, "pmd-mean"), (None, "pmd-mean"), (8, "pmd-part")])
def test_the_row_by_hand(group, name):
    """Every key of the third step, from loops over prompts and responses: draws of mass 1/n, or the full support."""
    tau, steps, ministeps = 0.1, 3, 2
    objective = OBJECTIVES[name](tau=tau, norm="none")
    learner, rollouts, groups, row = record(objective, group, ministeps, steps, COPY, 5, Broken)
    change, reward, mass = changes(learner, rollouts), groups.reward.numpy(), groups.mass.numpy()
    length = rollouts.mask.sum(1).view(mass.shape).numpy()
    logp_old = rollouts.logp_old.sum(1).view(mass.shape).numpy()
    there = {p: [g for g in range(mass.shape[1]) if mass[p][g] > 0] for p in (0, 2, 3, 4)}
    assert len(there[2]) == mass.shape[1] - 5
    assert not mass[1].any()
    assert all(sum(mass[p]) == pytest.approx(1) for p in there)
    rates = {p: sum(mass[p][g] * reward[p][g] for g in there[p]) for p in there}
    ratio = np.exp(change)

    def average(values):
        return mean([sum(mass[p][g] * values[p][g] for g in there[p]) for p in there])

    def of_class(values, right):
        """Mean over the prompts that have such a response of its mean in the prompt."""
        per_prompt = []
        for p, some in there.items():
            members = [g for g in some if reward[p][g] == right]
            if members:
                weight = sum(mass[p][g] for g in members)
                per_prompt.append(sum(mass[p][g] * values[p][g] for g in members) / weight)
        return mean(per_prompt)

    def same_answer(p):
        """The chance that two right responses to a prompt are the same one."""
        rows = [p * mass.shape[1] + g for g in there[p] if reward[p][g]]
        answers = [tuple(rollouts.responses[row][rollouts.mask[row]].tolist()) for row in rows]
        shares = [mass[p][g] / rates[p] for g in there[p] if reward[p][g]]
        if not group:  # an answer is listed once
            return sum(share**2 for share in shares)
        return sum(a == b for a, b in itertools.permutations(answers, 2)) / (len(answers) * (len(answers) - 1))

    mixed = {p: theory.binary(rates[p], tau, name) for p in there if 0 < rates[p] < 1}
    exact = np.zeros(mass.shape)
    for p, found in mixed.items():
        exact[p] = np.where(reward[p] == 1, found.log_ratio_pos, found.log_ratio_neg)
    lam = mean([mixed[p].lam if p in mixed else 0.0 for p in there]) if name == "pmd-mean" else None
    right, n = {p: sum(reward[p][there[p]]) for p in there}, {p: len(there[p]) for p in there}
    expected = [binom.cdf(1, n[p], right[p] / n[p]) for p in there]  # misjudged at tau 0.1: at most one right draw
    pairs = [p for p in there if (right[p] > 1 if group else right[p] > 0)]
    moves = [change[p][g] for p in there for g in there[p]]
    if group:
        above = [theory.group_anchor(reward[p][there[p]], tau) / tau for p in there]
    else:  # tau log Z - E r
        above = [math.log(sum(mass[p] * np.exp(reward[p] / tau))) - rates[p] / tau for p in there]
    wanted = {
        "step": 3,
        "reward_mean": average(reward),
        "pass_rate": mean(list(rates.values())),
        "loss": mean([update["loss"] for update in learner.updates]),
        "grad_norm": mean([update["grad_norm"] for update in learner.updates]),
        "log_ratio_min": min(moves),
        "log_ratio_max": max(moves),
        "abs_log_ratio_median": np.median(np.abs(moves)),
        "kl": average(ratio * change - ratio + 1),
        "ess": mean([(mass[p] @ ratio[p]) ** 2 / (mass[p] @ ratio[p] ** 2) for p in there]),
        "entropy": -average(logp_old),
        "tokens": length.sum() if group else 0,
        "response_length": average(length),
        "zero_variance_groups": sum(len(set(reward[p][there[p]])) == 1 for p in there),
        "policy_version": steps - 1,  # after two of three steps the rollouts were drawn
        "staleness": ministeps - 1,  # when the last ministep begins, one update has been made since
        "theory_log_ratio_neg": of_class(exact, 0.0),
        "log_ratio_neg": of_class(change, 0.0),
        "theory_log_ratio_pos": of_class(exact, 1.0),
        "log_ratio_pos": of_class(change, 1.0),
        "tau": tau,
        "theory_lambda": lam,
        "theory_lambda_over_tau": lam and lam / tau,
        "noise_share": mean([float(right[p] <= 1) for p in there]) if group else None,
        "theory_noise_share": mean(expected) if group else None,
        "anchor": mean(above),
        "distinct_right": mean([1 - same_answer(p) for p in pairs]),
        "theory_distinct_lost": mean([1 / right[p] for p in there if right[p]]) if group else None,
        "seconds_rollout": rollouts.seconds,
        "seconds_update": sum(update["seconds"] for update in learner.updates),
    }
    buckets = row.pop("gauge")  # each is tested below
    assert sum(entry["prompts"] for entry in buckets) == len(there)
    assert {*wanted, "gauge"} == set(KEYS)
    for key, value in wanted.items():
        assert row[key] == (None if value is None else pytest.approx(value, rel=1e-8, abs=1e-9)), key


def test_a_response_without_a_peer_has_no_push():
    """Three responses, one of them right, and a prompt that lost all but one of its responses."""
    reward = torch.tensor([[1.0, 0.0, 0.0], [1.0, math.nan, math.nan]], dtype=torch.float64)
    present = ~reward.isnan()
    groups = Groups(torch.where(present, reward, 0.0), present / 3.0, True)
    expected = theory.group_anchor([1.0, 0.0, 0.0], 0.5) / 0.5
    assert expected > 0
    assert anchor(groups, torch.full((2,), 0.5)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("unscored", "expected"), [((), (-0.2, 0.3)), ((0, 1), (-0.2, -0.2)), ((0, 1, 2), (0, 0))])
def test_extreme_log_ratios_are_those_of_responses_with_a_verdict(unscored, expected):
    """Three responses of one token move by 0.3, 0.1 and -0.2 nats."""
    change = torch.tensor([[0.3], [0.1], [-0.2]], dtype=torch.float64)
    reward = torch.tensor([[math.nan if n in unscored else 1.0 for n in range(3)]], dtype=torch.float64)
    mass = torch.full((1, 3), 1 / 3, dtype=torch.float64)
    shape = change.long(), torch.zeros_like(change), torch.ones(3, 1, dtype=torch.bool)
    rollouts = Rollouts(torch.zeros(1, dtype=torch.long), *shape, mass, True, seed=0, version=0, width=1)
    groups = graded(reward, rollouts)
    batch = credit(OBJECTIVES["rloo"](), groups, rollouts.logp_old, rollouts.mask)
    learner = SimpleNamespace(logp=lambda rollouts: change)
    columns, _ = StepMetrics(OBJECTIVES["rloo"]()).movement(learner, rollouts, groups, batch)
    assert (columns["log_ratio_min"], columns["log_ratio_max"]) == pytest.approx(expected)


def test_the_share_of_kl_that_one_response_makes():
    learner, rollouts, _, row = record(OBJECTIVES["pmd-mean"](tau=0.05), 8, ministeps=2)
    change = changes(learner, rollouts)
    terms = np.exp(change) * change - np.exp(change) + 1
    assert gauge.largest_share(row) == pytest.approx(terms.flat[change.argmax()] / terms.sum(), rel=1e-6)
    assert gauge.largest_share(row | {"tokens": 0}) == 0  # on the full support KL is no estimate


def lambert_with_lengths(reward, length, tau):
    r"""Log-ratios of a group and its multiplier, by bisection.

    The length-normalised loss is stationary at (r - b - tau u) / |y| = lambda/tau e^u with mean of e^u = 1, so
    u = D - W(x |y| e^D) with D = (r - b)/tau and x = lambda/tau^2.
    """
    target = (reward - reward.mean()) / tau

    def solution(x):
        return target - lambertw(x * length * np.exp(target)).real

    x = brentq(lambda x: np.exp(solution(x)).mean() - 1, 1e-12, 1e3, xtol=1e-15)
    return solution(x), x * tau**2


def test_with_lengths_every_bucket_is_the_mean_of_its_groups():
    """Each group solved on its own by other means, then sorted by hand."""
    objective = OBJECTIVES["pmd-mean"](tau=0.3, norm="length")
    _, rollouts, groups, row = record(objective, 8, table=SHORT, prompts=40)
    length = rollouts.mask.sum(1).view(groups.reward.shape).numpy()
    assert np.ptp(length) > 0
    wanted, lam = {}, []
    for reward, size in zip(groups.reward.numpy(), length, strict=True):
        both = 0 < reward.sum() < len(reward)
        u, multiplier = lambert_with_lengths(reward, size, 0.3) if both else (np.zeros(len(reward)), 0.0)
        lam.append(multiplier)
        place = int(np.searchsorted(gauge.EDGES, reward.mean(), side="right")) - 1
        for key, value in (("neg", 0.0), ("pos", 1.0)):
            if (reward == value).any():
                wanted.setdefault((min(place, 5), key), []).append(u[reward == value].mean())
    found = {
        (entry["bucket"], key): entry[f"theory_log_ratio_{key}"]
        for entry in row["gauge"]
        for key in ("neg", "pos")
        if entry[f"theory_log_ratio_{key}"] is not None
    }
    assert len(found) >= 5
    assert found == pytest.approx({key: mean(values) for key, values in wanted.items()}, abs=1e-9)
    assert row["theory_lambda"] == pytest.approx(mean(lam), abs=1e-9)
    over_tau = [x / 0.3 * size.mean() for x, size in zip(lam, length, strict=True)]
    assert row["theory_lambda_over_tau"] == pytest.approx(mean(over_tau), abs=1e-9)


def test_distinct_right_answers():
    """Answers with the shares 0.5, 0.3, 0.2, drawn in groups of three beside a wrong one: over all groups with a pair
    the mean is the chance that two right draws differ, which the full support gives at once; no pair, no number."""
    pi = torch.tensor([0.3, 0.18, 0.12, 0.4], dtype=torch.float64)
    exact = 1 - (0.5**2 + 0.3**2 + 0.2**2)

    def share(rows, mass, sampled):
        rows = torch.tensor(rows)
        tokens = torch.stack([rows.flatten(), rows.flatten() + 1], 1)  # the second place is padding
        mask = torch.tensor([True, False]).expand(tokens.shape)
        zero = torch.zeros(tokens.shape)
        drawn = Rollouts(torch.arange(len(rows)), tokens, zero, mask, mass, sampled, seed=0, version=0, width=2)
        return distinct_right(drawn, rows != 3)

    assert share([[0, 1, 2, 3]], pi[None], False) == pytest.approx(exact, abs=1e-12)
    third = torch.full((1, 3), 1 / 3, dtype=torch.float64)
    total = weight = 0.0
    for group in itertools.product(range(4), repeat=3):
        found = share([group], third, True)
        assert (found is None) == (group.count(3) > 1)
        if found is not None:
            chance = pi[list(group)].prod().item()
            total, weight = total + chance * found, weight + chance
    assert total / weight == pytest.approx(exact, abs=1e-12)
    assert share([[0, 0, 1], [0, 3, 3], [2, 2, 3]], third.expand(3, 3), True) == pytest.approx((2 / 3 + 0) / 2)


def test_a_reference_moves_the_prediction():
    r"""TB solves for pi proportional to pi_ref e^{r/tau}: the log-ratio to pi_old is d - log E_group e^d,
    d = log pi_ref/pi_old + r/tau."""
    objective = OBJECTIVES["tb"](tau=0.2)
    _, rollouts, groups, row = record(objective, 8, steps=4)
    drift = (rollouts.logp_ref - rollouts.logp_old).sum(1).view(rollouts.mass.shape).numpy()
    assert np.abs(drift).max() > 0.01
    reward = groups.reward.numpy()
    wrong = []
    for p in range(len(drift)):
        d = [drift[p][g] + reward[p][g] / 0.2 for g in range(8)]
        log_z = math.log(sum(math.exp(x) for x in d) / 8)
        members = [d[g] - log_z for g in range(8) if reward[p][g] == 0]
        wrong += [sum(members) / len(members)] if members else []
    assert row["theory_log_ratio_neg"] == pytest.approx(mean(wrong), abs=1e-9)


def test_an_objective_without_a_solution_has_no_prediction():
    _, _, _, row = record(OBJECTIVES["grpo"](), 8)
    columns = "theory_log_ratio_neg theory_log_ratio_pos theory_lambda theory_lambda_over_tau tau anchor"
    assert {row[key] for key in columns.split()} == {None}
    assert row["log_ratio_neg"] is not None


def test_the_page_of_metrics_has_every_column():
    """That every tier writes them is tested where its runs are."""
    page = (Path(__file__).parents[2] / "docs/learn/metrics.md").read_text().split("## ")[1]
    assert set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE)) == set(KEYS)
