"""Every threshold of the causes: measures just over it name the cause, measures just under it do not."""

import numpy as np
import pytest

from pmdkit_lab.autopsy import causes, scalar_causes
from pmdkit_lab.autopsy.causes import RULES, Run
from pmdkit_lab.autopsy.scalar_causes import NAMES
from pmdkit_lab.dumps.readers import Source

COUNTS = ("right_known", "right_unpaid", "paid", "paid_known", "paid_wrong")
USUAL = {"rewarded": 8, "reward": 0.4, "reward_low": 0.0, "reward_high": 1.0} | dict.fromkeys(COUNTS, 0)
SHARES = ("cut", "near", "near_passed", "passed", "alike")
ABSENT = (*SHARES, "reward_cut", "reward_whole", "reward_by_right", "length", "size")


def run_of(steps, config=None, **measures):
    """A run of so many steps; a measure is one value for all of them, or a list of one for each."""
    rows = [
        dict.fromkeys(ABSENT)
        | USUAL
        | {"step": n, "rows": 8, "forms": {}, "places": {}}
        | {key: value[n] if isinstance(value, list) else value for key, value in measures.items()}
        for n in range(steps)
    ]
    return Run(rows, Source(config=config or {}))


def late(first, others):
    """Ten values: the first, and nine others."""
    return [first] + [others] * 9


def wrong(share):
    """Twelve values: a tenth of a hundred responses known as wrong at first, and later this share."""
    return [10] * 4 + [share] * 8


# loss and KL of eight steps; the wave has neither a mean nor a slope, so `ratio` alone sets their correlation
KL = 0.31 * np.arange(8) / np.mean(np.arange(4, 8))
WAVE = np.array([1, -1, -1, 1, -1, 1, 1, -1]) * KL.std()


def against_kl(correlation, level=-1.0):
    """Losses of a mean `level` that have this correlation with the KL."""
    return list(level - KL + WAVE * np.sqrt(1 / correlation**2 - 1))


RISES = [n / 12 for n in range(12)]
PART = {"config": {"objective": {"name": "pmd-part"}}, "anchor": 1.01, "staleness": 1.0}
CAP = {"cut": 0.051, "near": 0.051, "near_passed": 0.05, "reward_cut": 0.0, "reward_whole": 0.5, "passed": 0.5}


def from_middle(before, after):
    """24 values: twelve of each."""
    return [before] * 12 + [after] * 12


def falls_on(further):
    """A share that falls from 0.8 to 0.5 in the middle, and further from there on."""
    return [0.8] * 12 + [0.5 - further * n / 11 for n in range(12)]


def unlearned(steps):
    """Verdicts that agree with ever fewer answers, within so many steps, as where a policy learns what else is paid."""
    noise = 0.03 * np.random.default_rng(1).normal(size=60)
    return list(1 - 0.7 * np.clip((np.arange(60) - 20) / steps, 0, 1) + noise)


GROWS = [3 + n / 40 for n in range(24)]
PARTS = {"off_policy": -0.04, "off_policy_mismatch": -0.02, "off_policy_sampler": 0.0}
PAID = {"passed": 0.4, "content": 0.4}  # independent verdicts agree with 0.52 of the answers
OWN = {"moved_by_reward": 0.72, "rewarded": 20}
NOISE = {"right_known": 20, "right_unpaid": 6, "paid_known": 20, "paid_wrong": 6}

# rule, number of steps, measures that name it, and changes of them that do not
THRESHOLDS = (
    ("advantage_sign", 1, {"credit_sign": 0.19}, {"credit_sign": 0.21}),
    ("advantage_sign", 9, {"credit_sign": [1.0] * 6 + [0.19] * 3}, {"credit_sign": [1.0] * 6 + [0.21] * 3}),
    ("advantage_not_centred", 1, {"credit_is_reward": 0.9991, "credit_mean": 0.31}, {"credit_is_reward": 0.9989},
     {"credit_mean": 0.29}),
    ("reward_cannot_read", 1, {"right_known": 20, "right_unpaid": 10}, {"right_unpaid": 9}, {"right_known": 19}),
    ("reward_cannot_read", 1, {"right_known": 20, "right_unpaid": 10, "wrong_known": 980}, {"wrong_known": 981}),
    ("reward_cannot_read", 3, {"right_known": [40, 40, 0], "right_unpaid": [40, 40, 0]},
     {"right_unpaid": [12, 12, 0], "reward_low": [0.0, 0.0, None]}),
    ("reward_cannot_read", 3, {"right_known": 100, "right_unpaid": [40, 30, 21]}, {"right_unpaid": [49, 49, 19]},
     {"right_known": 40, "right_unpaid": 9}),
    ("wrong_form_paid", 1, {"paid_known": 20, "paid_wrong": 6}, {"paid_wrong": 5}, {"paid_known": 19},
     {"reward_by_length": 0.72, "size": 9.0}),
    ("wrong_form_paid", 3, {"paid_known": 20, "paid_wrong": [0, 0, 6]}, {"paid_wrong": [0, 0, 5]},
     {"paid_known": [20, 20, 19]}, NOISE | {"silent": 0.96}),
    ("wrong_form_paid", 1, {"paid_known": 19, "contradictions": 0.31}, {"contradictions": 0.29}, {"paid_known": 20}),
    ("wrong_form_paid", 2, {"paid_known": [0, 20], "paid_wrong": [0, 6]}, {"reward_high": [1.2, 0.2]}),
    ("wrong_form_paid", 2, {"paid_known": 0, "contradictions": [None, 0.31]}, {"reward_high": [1.2, 0.2]}),
    ("proxy_paid", 12, {"rows": 100, "reward": RISES, "right_known": [80] * 4 + [9] * 8, "wrong_known": wrong(31)},
     {"wrong_known": wrong(29)}, {"right_known": [78] * 4 + [9] * 8}, {"reward": 0.4}, NOISE | {"right_unpaid": 0}),
    ("proxy_paid", 12, {"rows": 100, "reward": RISES, "right_known": 82, "wrong_known": wrong(31)},
     {"wrong_known": 31}),
    ("reward_noise", 1, NOISE, {"right_unpaid": 5}, {"paid_wrong": 5}, {"right_known": 19}, {"paid_known": 19},
     {"forms": {"box": [8, 0.91, 4, 4]}}, {"forms": {"box": [8, 0.09, 4, 4]}}),
    ("reward_noise", 1, NOISE | {"silent": 0.94}, {"silent": 0.96}),
    ("reward_noise", 1, NOISE | {"paid_known": 100, "wrong_known": 20}, {"wrong_known": 21}),
    ("reward_cannot_read", 1, NOISE | {"right_unpaid": 10, "paid_wrong": 5, "silent": 0.96}, {"paid_wrong": 6}),
    ("reward_noise", 1, NOISE | {"forms": {"box": [8, 0.89, 4, 4], "tag": [8, 0.11, 4, 4]}},
     {"forms": {"box": [8, 0.91, 4, 4]}}),
    ("verdicts_shuffled", 24, PAID | {"agrees": from_middle(1.0, 0.59)}, {"agrees": from_middle(1.0, 0.61)},
     {"content": 0.57, "agrees": from_middle(1.0, 0.5)}),
    ("verdicts_shuffled", 24, {"passed": 0.051, "content": 0.2, "agrees": from_middle(1.0, 0.77)}, {"passed": 0.049}),
    ("verdicts_shuffled", 24, {"passed": 0.949, "content": 0.8, "agrees": from_middle(1.0, 0.77)}, {"passed": 0.951}),
    ("grader_changed", 24, PAID | {"agrees": from_middle(1.0, 0.84)}, {"agrees": from_middle(1.0, 0.86)},
     {"word_entropy": from_middle(1.0, 1.6)}),
    ("grader_changed", 60, PAID | {"agrees": unlearned(6)}, {"agrees": unlearned(10)}),
    ("grader_changed", 24, {"reward": from_middle(0.4, 0.0), "reward_high": from_middle(1.0, 0.0)},
     {"reward_high": 1.0}),
    ("data_changed", 24, {"asked": from_middle(10.0, 11.1)}, {"asked": from_middle(10.0, 10.9)},
     {"reward": [n / 24 for n in range(24)]}),
    ("data_changed", 24, {"asked": from_middle(10.0, 12.0)}, {"repeated": 0.51},
     {"asked": [10.0] * 12 + [12.0] * 4 + [10.0] * 8}),
    ("data_changed", 24, {"content": from_middle(0.5, 0.34), "agrees": 1.0}, {"content": from_middle(0.5, 0.36)},
     {"content": from_middle(0.34, 0.5)}, {"gap": from_middle(0.005, 0.1)}, {"agrees": from_middle(1.0, 0.8)}),
    ("data_changed", 24, {"content": falls_on(0.22), "agrees": 1.0}, {"content": falls_on(0.24)}),
    ("engine_changed", 24, {"gap": [0.01] * 12 + [1.1, 0.6, 1.2, 0.6, 1.5, 0.7, 2.0, 1.1, 2.1, 0.6, 1.4, 0.8]},
     {"lag": from_middle(0.0, 4.0)}),
    ("engine_changed", 24, {"gap": from_middle(0.005, 0.0255)}, {"gap": from_middle(0.005, 0.0245)},
     {"gap": from_middle(0.0105, 0.031)}, {"lag": from_middle(0.0, 4.0)}, {"lag": [0.05 * n for n in range(24)]},
     {"off_policy_staleness": -0.021} | PARTS),
    ("rate_too_high", 24, {"word_entropy": from_middle(1.0, 1.52), "reward": from_middle(0.4, 0.29)},
     {"word_entropy": from_middle(1.0, 1.47)}, {"reward": from_middle(0.4, 0.31)}),
    ("length_paid", 1, {"reward_by_length": 0.72, "size": 9.0}, {"reward_by_length": 0.70}),
    ("length_paid", 1, {"reward_by_length": 0.52, "reward_by_right": 0.51, "size": 9.0}, {"reward_by_right": 0.53},
     {"reward_by_length": 0.49, "reward_by_right": 0.3}),
    ("length_paid", 1, {"reward_by_length": -0.52, "reward_by_right": 0.51, "size": 9.0}, {"reward_by_length": -0.49},
     {"reward_by_length": -0.9, "reward_by_right": None}),
    ("length_paid", 9, {"reward_by_length": 0.72, "size": 9.0}, {"reward_by_length": [0.9] * 6 + [0.70] * 3}),
    ("length_paid", 3, {"reward_by_length": [0.72, 0.4, 0.2], "reward_by_right": [0.71, 0.5, 0.6], "size": 9.0},
     {"reward_by_length": [0.70, 0.4, 0.2]}, {"reward_by_right": [0.73, 0.5, 0.6]}),
    ("silent_groups", 9, {"silent": 0.51, "silent_top": 0.1}, {"silent": 0.49}, {"silent": [0.9] * 6 + [0.49] * 3},
     {"reward": [0.89] * 8 + [0.91]}, {"reward_low": 0.0, "reward_high": 0.0}),
    ("silent_groups", 9, {"silent": 0.51, "silent_top": 0.1, "reward": 0.91}, {"silent": 0.49}),
    ("mask_off_by_one", 1, {"mask_late": 0.51}, {"mask_late": 0.49}),
    ("mask_off_by_one", 1, {"alike": 0.4, "alike_behind": 0.71}, {"alike_behind": 0.69}, {"alike": 0.52}),
    ("mask_off_by_one", 1, {"alike": 0.52, "alike_ahead": 0.73}, {"alike": 0.54}),
    ("temperature", 1, {"slope": 0.91, "gap": 0.031, "alike": 0.996}, {"slope": 0.93}, {"gap": 0.029}, {"alike": 0.99}),
    ("temperature", 1, {"slope": 0.5, "gap": 0.031, "alike": 0.81}, {"alike": 0.79}),
    ("temperature", 1, {"slope": 1.09, "gap": 0.031, "alike": 0.96}, {"slope": 1.07}, {"alike": 0.94}),
    ("temperature", 9, {"slope": [0.94, 0.9, 0.9] + [0.95] * 6, "gap": 0.031, "alike": 0.996},
     {"slope": [0.97] * 3 + [0.8] * 6}),
    ("temperature", 9, {"slope": [0.95] * 3 + [0.9] * 6, "gap": 0.031, "alike": 0.996},
     {"slope": [0.95] * 3 + [0.94] * 6}, {"slope": [1.05] * 3 + [0.8] * 6}),
    ("engine_mismatch", 1, {"slope": 1.07, "gap": 0.021, "alike": 0.81}, {"slope": 1.09, "alike": 0.96}, {"gap": 0.019},
     {"alike": 0.79}, {"off_policy_staleness": -0.021} | PARTS),
    ("engine_mismatch", 12, {"gap": 0.021, "alike": 0.81}, {"reward": RISES}),
    ("engine_mismatch", 12, {"gap": 0.21, "alike": 0.81, "reward": RISES}, {"gap": 0.19}),
    ("stale_policy", 10, {"gap": 0.055, "lag": 0.51, "off_policy_staleness": -0.021} | PARTS,
     {"off_policy_staleness": -0.019}, {"off_policy_mismatch": None}),
    ("stale_policy", 10, {"gap": [0.015] + [0.051] * 6 + [0.03] * 3, "lag": 0.51}, {"gap": late(0.015, 0.049)},
     {"gap": [0.0171] + [0.051] * 6 + [0.03] * 3}, {"lag": 0.49}),
    ("stale_policy", 12, {"gap": [0.0] + [0.051] * 11, "lag": 0.51}, {"reward": RISES}),
    ("stale_policy", 24, {"version": [*range(8)] + [8] * 16}, {"version": [*range(16)] + [16] * 8}, {"version": 8},
     {"version": [0] * 6 + [6] * 18}),
    ("entropy_grows", 24, {"word_entropy": [3, 3, *(3 + 0.36 * min(n / 8, 1) for n in range(22))]},
     {"word_entropy": [3, 3, *(3 + 0.34 * min(n / 8, 1) for n in range(22))]}, {"reward": [0.4] * 16 + [0.41] * 8}),
    ("entropy_grows", 24, {"entropy": [0.5, 0.5, *(0.5 + 0.21 * min(n / 8, 1) for n in range(22))]},
     {"entropy": [0.5, 0.5, *(0.5 + 0.19 * min(n / 8, 1) for n in range(22))]},
     {"entropy": [0.48, 0.48, *(0.48 + 0.19 * min(n / 8, 1) for n in range(22))]}),
    ("no_variety", 1, {"one_answer": 0.91, "reward": 0.89}, {"one_answer": 0.89}, {"reward": 0.91}),
    ("duplicate_prompts", 1, {"repeated": 0.51}, {"repeated": 0.49}, {"repeated": 0.0, "repeated_at_least": 0.9}),
    ("duplicate_prompts", 1, {"repeated_at_least": 0.51}, {"repeated_at_least": 0.49}),
    ("part_below_threshold", 10, PART | {"reward": late(0.1, 0.49)}, {"anchor": 1.0}, {"staleness": 0.0},
     {"reward": late(0.1, 0.51)}, {"config": {"objective": {"name": "pmd-mean"}}}),
    ("part_below_threshold", 10, PART | {"reward": late(0.3, 0.59)}, {"reward": late(0.3, 0.61)}),
    ("kl_sign", 8, {"kl": list(KL), "loss": against_kl(-0.81)}, {"loss": against_kl(-0.79)},
     {"loss": against_kl(-0.81, 2.0)}, {"kl": list(KL * 0.9)}, {"config": {"seed": 1}}),
    ("kl_sign", 8, {"kl": list(KL), "loss": against_kl(-0.99)}, {"kl": [None, *KL[1:]]}),
    ("rate_too_high", 1, {"step_std": 0.81, "ess_step": 0.59}, {"step_std": 0.79}, {"ess_step": 0.61}),
    ("rate_too_high", 1, OWN | {"log_ratio_std": 0.81, "ess": 0.59}, {"moved_by_reward": 0.70}, {"rewarded": 19},
     {"log_ratio_std": 0.79}, {"ess": 0.61}),
    ("rate_too_high", 12, {"step_std": [0.81] * 4 + [0.1] * 8, "ess_step": 0.59, "reward": RISES},
     {"step_std": [0.83] * 3 + [0.69] + [0.1] * 8}),
    ("engine_mismatch", 1, OWN | {"gap": 0.021, "alike": 0.81, "moved_by_reward": 0.70}, OWN),
    ("temperature", 1, OWN | {"slope": 1.09, "gap": 0.031, "alike": 0.96, "moved_by_reward": 0.70}, OWN),
    ("stale_policy", 10, OWN | {"gap": late(0.015, 0.055), "moved_by_reward": 0.70}, OWN),
    ("rate_too_high", 8, {"entropy": [1.0] + [0.29] * 7}, {"entropy": [1.0] + [0.31] * 7}, {"reward": 0.91},
     {"entropy": [0.049] + [0.001] * 7}, {"entropy": [1.0] * 5 + [0.29] * 3}, {"entropy": [1.0] + [0.29] * 6 + [None]}),
    ("rate_too_high", 8, {"entropy": [0.051] + [0.001] * 7, "reward": 0.89}, {"reward": 0.91}),
    ("rate_too_high", 8, {"entropy": [1.0] * 4 + [0.29] * 4}, {"entropy": [1.0] * 5 + [0.29] * 3}),
    ("cut_off_scored_wrong", 10, CAP, {"cut": 0.049}, {"reward_cut": 0.31}, {"near_passed": 0.025}),
    ("cut_off_scored_wrong", 10, CAP | {"near_passed": 0.028, "reward_cut": 0.29}, {"near_passed": 0.025}),
    ("cut_off_scored_wrong", 10, CAP | {"cut": 0.51, "near_passed": 0.0}, {"cut": 0.49}),
    ("cut_off_scored_wrong", 12, CAP | {"cut": [0.1] * 8 + [0.051] * 4, "reward": RISES},
     {"cut": [0.1] * 8 + [0.049] * 4}),
    ("cut_off_scored_wrong", 24, CAP | {"cut": [0.051] * 16 + [0.075] * 8, "word_entropy": GROWS},
     {"cut": [0.051] * 16 + [0.077] * 8}),
    ("cut_off_scored_wrong", 20, CAP | {"cut": [0.051] * 4 + [0.0] * 16}, {"cut": [0.051] * 3 + [0.0] * 17}),
    ("equal_rewards", 2, {"reward_high": 0.0}, {"reward_high": [0.0, 1.0]}, {"reward_low": 1.0}),
)  # fmt: skip
CASES = [(rule, steps, over, under) for rule, steps, over, *unders in THRESHOLDS for under in unders]


@pytest.mark.parametrize(("rule", "steps", "over", "under"), CASES)
def test_a_rule_speaks_just_over_its_threshold_and_not_just_under(rule, steps, over, under):
    accused, spared = (getattr(causes, rule)(run_of(steps, **measures)) for measures in (over, over | under))
    assert accused[0] >= 1
    assert spared is None or spared[0] < 1


WATCHED = (  # rule, number of steps, measures that are something to watch, and measures of which nothing is said
    ("reward_cannot_read", 12, {"right_known": 10, "right_unpaid": 3, "reward": RISES}, {"right_unpaid": 2}),
    ("reward_cannot_read", 12, {"right_known": 10, "right_unpaid": 3, "reward": RISES},
     {"forms": {"number": [8, 0.09, 2, 0]}}),
    ("reward_cannot_read", 12,
     {"right_known": 10, "right_unpaid": 3, "reward": RISES, "forms": {"number": [8, 0.11, 2, 0]}},
     {"forms": {"number": [8, 0.09, 2, 0]}}),
    ("duplicate_prompts", 1, {"repeated": 0.31}, {"repeated": 0.29}),
    ("wrong_form_paid", 3, {"paid_known": 100, "paid_wrong": [0, 0, 26]}, {"paid_wrong": [0, 0, 24]}),
    ("cut_off_scored_wrong", 10, CAP | {"cut": 0.51, "reward_cut": 0.39}, {"cut": 0.49}),
    ("cut_off_scored_wrong", 10, CAP | {"cut": 0.51, "reward_cut": 0.39}, {"reward_cut": 0.41}),
)  # fmt: skip


@pytest.mark.parametrize(("rule", "steps", "watched", "under"), WATCHED)
def test_a_weaker_sign_is_something_to_watch(rule, steps, watched, under):
    seen, unseen = (getattr(causes, rule)(run_of(steps, **measures)) for measures in (watched, watched | under))
    assert seen[0] < 1
    assert unseen is None


@pytest.mark.parametrize(("first", "last", "watched"), [(51, 20, True), (49, 10, False), (60, 25, False)])
def test_paid_responses_whose_answer_can_no_longer_be_read_are_something_to_watch(first, last, watched):
    run = run_of(9, paid=100, paid_known=[first] * 6 + [last] * 3, paid_wrong=0)
    assert (causes.wrong_form_paid(run) is not None) is watched
    assert not watched or causes.wrong_form_paid(run)[0] < 1


def test_every_rule_has_its_thresholds_held_and_its_advice():
    assert {rule.__name__ for rule in RULES} == {rule for rule, *_ in THRESHOLDS}
    of_scalars = {NAMES.get(rule.__name__, rule.__name__.replace("_", "-")) for rule in scalar_causes.RULES}
    assert {rule.__name__.replace("_", "-") for rule in RULES} | of_scalars == causes.ABOUT.keys()


def test_silent_groups_say_where_a_whole_group_has_one_verdict():
    alike, apart = (causes.silent_groups(run_of(3, silent=x, silent_top=0.3, **NOISE))[1] for x in (0.96, 0.94))
    assert "one verdict" in alike
    assert "one verdict" not in apart


@pytest.mark.parametrize(("at_top", "which"), [(0.3, "too hard"), (0.4, "too easy")])
def test_silent_groups_say_which_prompts_they_have(at_top, which):
    assert which in causes.silent_groups(run_of(3, silent=0.7, silent_top=at_top))[1]
