"""The mechanism of every patient, as an identity or with its cure beside it, and the tables of their pages."""

import math
import re

import numpy as np
import pytest
import torch
from generate import ward
from scipy import stats

from pmdkit import theory
from pmdkit.objectives import GRPO, Groups
from pmdkit_lab.ward import constant, corner, grader, nucleus, pattern, per_token, proxy, reuse, uniform, without_reason

TRAINED = {"corner": 0.1, "reuse": 0.15}  # networks in float32, whose ends differ between processors
WILD = "16 updates"  # a run that comes undone: its numbers differ between processors as between seeds


@pytest.mark.parametrize("norm", ["length", "max"])
def test_the_loss_without_a_baseline_ascends_right_answers_per_token(norm):
    """A mean over tokens ascends E[r / |y|], a fixed length E[r]; a baseline that draws cannot see changes only one."""
    stop = torch.linspace(-3, 2, per_token.BUDGET, dtype=torch.float64, requires_grad=True)
    chance = per_token.token_logp(stop).sum(1).exp()
    length = per_token.LENGTH if norm == "length" else torch.full_like(per_token.LENGTH, per_token.BUDGET)

    def slope(value):
        return torch.autograd.grad(value, stop, retain_graph=True)[0]

    bare, against = (slope(per_token.loss(stop, baseline, norm)) for baseline in (False, True))
    torch.testing.assert_close(bare, -slope(chance @ (per_token.RIGHT / length)), atol=1e-14, rtol=0)
    mean = (chance @ per_token.RIGHT).detach()
    torch.testing.assert_close(against, -slope(chance @ ((per_token.RIGHT - mean) / length)), atol=1e-14, rtol=0)
    assert torch.allclose(bare, against, atol=1e-14) == (norm == "max")


def test_right_answers_per_token_rise_while_accuracy_falls():
    accuracy, length, rate = zip(*per_token.trained(*per_token.ARMS["no baseline, mean over tokens"]), strict=True)
    peak = accuracy.index(max(accuracy))
    assert 0 < peak < per_token.STEPS
    assert accuracy[-1] < accuracy[0] < accuracy[peak]
    assert rate[-1] > rate[peak] > rate[0]
    assert length[-1] < length[peak] < length[0]
    cured = list(per_token.trained(*per_token.ARMS["no baseline, fixed length"]))
    assert cured[-1][0] == max(step[0] for step in cured) > accuracy[peak]


def test_a_component_that_nothing_earns_changes_no_advantage_and_a_pattern_that_reads_does():
    reward = torch.tensor([[0.0, 2.0, 2.5, 0.5]], dtype=torch.float64)
    alike = [GRPO().advantage(Groups(reward + paid, torch.full((1, 4), 0.25))) for paid in (0.0, 0.5)]
    assert torch.equal(*alike)
    arms = (pattern.PATTERNS[f"strict, {how}"] for how in ("as it is", "cured"))
    dead, cured = (pattern.share_of_the_form(pattern.matched(arm)) for arm in arms)
    assert dead == pytest.approx([0.5] * len(dead), abs=1e-12)
    assert cured[-1] > 0.99
    by_form = {name: dict(zip(pattern.FORMS, pattern.matched(p), strict=True)) for name, p in pattern.PATTERNS.items()}
    assert not by_form["strict, as it is"]["reasoning of two lines"]
    assert not any(found["no tags"] for found in by_form.values())


def test_a_std_takes_the_scale_out_of_the_reward_and_a_cap_takes_the_push():
    reward = torch.rand(5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    small = without_reason.advantage(0.996 + 1e-2 * reward, True)
    large = without_reason.advantage(reward, True)
    eps = without_reason.EPS / (1e-2 * reward.std(1, keepdim=True))
    torch.testing.assert_close(small * (1 + eps), large * (1 + eps / 100), atol=1e-9, rtol=1e-9)
    ends = {name: list(without_reason.moved(*arm)) for name, arm in without_reason.RUNS.items()}
    kl = {name: found[-1][0] for name, found in ends.items()}
    assert {slope for _, slope in ends["reward capped at 0.9, std, Adam"]} == {0.0}
    assert kl["no std, SGD"] < 1e-6 < 0.1 < kl["no std, Adam"] < kl["divided by the std, SGD"]


def test_in_a_corner_reward_and_reverse_kl_stop_pulling_and_cross_entropy_does_not():
    z = torch.linspace(-20, 3, 24, dtype=torch.float64)
    p, pull = torch.sigmoid(z), corner.slopes(z, ref=2.0)
    torch.testing.assert_close(pull["expected reward"], 2 * p * (1 - p), atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(pull["reverse KL"], p * (1 - p) * (2.0 - z), atol=1e-12, rtol=1e-6)
    torch.testing.assert_close(pull["cross-entropy"], 1 - p, atol=1e-12, rtol=1e-9)
    assert corner.steps_out("expected reward", 1e-4) > 9 * corner.steps_out("expected reward", 1e-3)
    assert corner.steps_out("cross-entropy") < 10 < 100 < corner.steps_out("reverse KL") < 1000


def test_no_step_changes_the_odds_among_responses_that_are_paid_alike():
    for solve in (theory.pmd_part, theory.pmd_mean):
        log_ratio = solve(proxy.START, proxy.PARSES, 0.1).log_ratio
        assert log_ratio[:3] == pytest.approx([log_ratio[0]] * 3, abs=1e-12)
    found = proxy.course(proxy.PARSES)
    assert found[-1] @ proxy.RIGHT / proxy.START[0] == pytest.approx(found[-1] @ proxy.PARSES / 0.221, rel=1e-12)
    assert proxy.informed(0.002) == pytest.approx(64 * (1 - 0.998**8 - 0.002**8))


def test_a_weight_under_top_p_is_the_mass_of_the_nucleus_and_rounding_lies_on_both_sides_of_one():
    kept = nucleus.nucleus(nucleus.POLICY, 0.95)
    mass = (nucleus.POLICY * kept).sum(1)
    assert (mass >= 0.95 - 1e-12).all()
    least = np.where(kept, nucleus.POLICY, np.inf).min(1)
    assert ((mass - least)[kept.sum(1) > 1] < 0.95).all(), "without its last word a nucleus is too small"
    weights = np.exp(nucleus.log_weights(0.95))
    np.testing.assert_allclose(weights, np.broadcast_to(mass, weights.shape), atol=1e-12)  # E_q[pi/q] is pi(support)
    rounded = np.exp(nucleus.log_weights(1.0, 0.05).sum(1))
    assert rounded.min() < 1 < rounded.max()


def test_k1_as_a_loss_pushes_away_from_what_is_drawn_until_the_policy_is_uniform():
    """Its mean gradient in the logits is q - pi: 0 with draws of the policy, else away from what q prefers."""
    logits = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    policy, ref = logits.softmax(0), torch.zeros(20, dtype=torch.float64)
    for top_p, temperature in ((1.0, 1.0), (0.9, 0.8)):
        q = uniform.sampler(policy, top_p, temperature)
        torch.testing.assert_close(uniform.push(logits, ref, q, square=False), q - policy, atol=1e-14, rtol=0)
    assert uniform.sampler(policy, 1.0, 1.0).sub(policy).abs().max() < 1e-15
    sharp = list(uniform.entropies(*uniform.RUNS["drawn at top_p 0.9 and temperature 0.8"]))
    assert math.log(uniform.WORDS) > sharp[-1] > max(sharp[:100]) > sharp[0]


def test_a_grader_that_needs_a_fence_reads_no_bare_answer_and_moves_nothing():
    found = {bare: [grader.graded(text, bare) for text in grader.ANSWERS.values()] for bare in (False, True)}
    assert found == {False: [1, 0, 0, 0], True: [1, 0, 1, 0]}
    assert grader.graded("```python\n```", False) == 1  # an empty block parses
    rows = grader.run().rows
    assert rows["needs a fence"] == [0, 0, 0]
    assert rows["reads both"][0] == pytest.approx(0.968)
    assert round(512 * math.log10(1 - 0.968)) == -765


def test_a_constant_reward_changes_no_logit():
    plain, paid = (constant.course(*constant.RUNS[name], seed=3) for name in ("right", "right + 1"))
    torch.testing.assert_close(plain[1], paid[1], atol=1e-9, rtol=0)
    other = constant.course(*constant.RUNS["right"], seed=4)
    assert float((plain[1] - other[1]).abs().max()) > 0.1
    arms = ((37.8, 1.9, 3), (32.2, 5.1, 3))  # mean, std and seeds of A3 and A4, as their table has them
    low, high = stats.t.interval(0.95, welch(*arms), 5.6, math.hypot(1.9, 5.1) / 3**0.5)
    assert f"−{-low:.1f} to +{high:.1f}" in (ward.PAGES / "constant.md").read_text(encoding="utf-8")


def welch(one, two):
    """Degrees of freedom of the difference of two means."""
    parts = [std**2 / n for _, std, n in (one, two)]
    return sum(parts) ** 2 / sum(part**2 / (n - 1) for part, (_, _, n) in zip(parts, (one, two), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.replace("_", "-") for each in ward.REPLICAS])
def test_the_table_of_a_page_is_that_of_its_replica(name):
    _, table, after = ward.parts((ward.PAGES / f"{name}.md").read_text(encoding="utf-8"), name)
    replica = ward.made(name)
    spread = iter(re.findall(r"([\d.]{2,}) to ([\d.]*\d)", after))  # of WILD, over seeds, for each column
    for line, here in zip(table.splitlines(), replica.table().splitlines(), strict=True):
        for shown, found in zip(line.split("|"), here.split("|"), strict=True):
            if re.fullmatch(r" -?\d[\d.e-]* ", found) and here.startswith(f"| {WILD} |"):
                low, high = map(float, next(spread))  # of twelve seeds; a thirteenth may lie a quarter outside
                assert 0.75 * low < min(float(shown), float(found)) <= max(float(shown), float(found)) < 1.25 * high
            elif re.fullmatch(r" -?\d[\d.e-]* ", found):
                assert float(shown) == pytest.approx(float(found), rel=0.02, abs=TRAINED.get(name, 1e-12))
            else:
                assert shown == found
    if name == "corner":
        kicked, kept = (replica.rows[f"expected reward, {how}"] for how in ("Adam", "SGD"))
        assert kicked[1] < kicked[0] - 0.05 < kept[3]
        lost = [course[0] - course[1] for course, *_ in (corner.refined(0, rate) for rate in (0.01, 0.003, 0.001))]
        assert lost[0] > 3 * lost[1]
        assert lost[2] < 0.02
    if name == "reuse":
        once, often, small = (replica.rows[run] for run in reuse.RUNS)
        assert once[0] > small[0] > often[0]
        assert often[1] > 1.5 * max(once[1], small[1])
