"""A user's mistake is answered with one sentence: what was got, what was wanted, what to do."""

import math

import pytest
import torch

from pmdkit.objectives import DRO, OBJECTIVES, Batch, Groups, PMDMean, credit, parts, response_loss, temperature

REWARD = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
HALF = torch.full_like(REWARD, 0.5)
LOGP = torch.full((2, 3), -1.0, dtype=torch.float64)
MASK = torch.ones(2, 3, dtype=torch.bool)


def refuses(sentence, call, *arguments, **options):
    with pytest.raises(ValueError) as error:
        call(*arguments, **options)
    assert sentence in str(error.value), str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("tau", [0.0, -1.0, math.nan, math.inf])
def test_tau_of_a_rule(tau):
    refuses("expected finite values > 0", temperature, PMDMean(tau=lambda g: torch.tensor([tau])), Groups(REWARD, HALF))


def test_tau_of_a_rule_with_the_wrong_shape():
    rule = lambda groups: groups.reward  # noqa: E731
    refuses("the tau rule returned shape [1, 2]; expected [1]", temperature, PMDMean(tau=rule), Groups(REWARD, HALF))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_group_of_one(name):
    """Every objective but DRO with a value of its own compares a draw with its peers."""
    one = Groups(REWARD[:, :1], 2 * HALF[:, :1])
    refuses("a group baseline got 1 response per prompt; expected at least 2", OBJECTIVES[name]().advantage, one)


def test_rewards():
    refuses("expected both [P, G]", Groups, REWARD[0], HALF[0])
    refuses("expected both [P, G]", Groups, REWARD, HALF[:, :1])
    refuses("give unscored responses mass 0 instead", Groups, torch.tensor([[1.0, torch.nan]]), HALF)
    refuses("give unscored responses mass 0 instead", Groups, torch.tensor([[1.0, -torch.inf]]), HALF)
    refuses("expected a prompt and a response at least", Groups, REWARD[:, :0], HALF[:, :0])


@pytest.mark.parametrize("mass", [-0.1, math.nan, math.inf])
def test_mass(mass):
    refuses("expected weights >= 0", Groups, REWARD, torch.tensor([[0.5, mass]]))


def test_shapes_of_a_batch():
    objective, groups = PMDMean(), Groups(REWARD, HALF)
    refuses("expected [2, T] for 1 prompts of 2 responses", credit, objective, groups, LOGP[:1], MASK[:1])
    refuses("expected [2, T] for 1 prompts of 2 responses", credit, objective, groups, LOGP, MASK[:, :2])
    refuses("expected torch.bool", credit, objective, groups, LOGP, MASK.long())
    refuses("expected [2, 3], the shape of logp", credit, objective, groups, LOGP, MASK, LOGP[:, :2])
    refuses("a response has no token in its mask", credit, objective, groups, LOGP, MASK & (LOGP > 0))
    numbers = {"length": HALF[0], "weight": HALF[0], "tau": HALF[0], "mass": HALF[0], "group": HALF[0]}
    refuses("Group advantages come from", Batch, LOGP, LOGP, MASK, advantage=LOGP, **numbers)


def test_response_loss():
    objective = PMDMean()
    refuses("expected both [P, G]", response_loss, objective, REWARD[0], LOGP, LOGP, MASK)
    refuses("expected boolean [P * G, T]", response_loss, objective, REWARD, LOGP, LOGP, MASK.float())
    refuses("give mask.bool()", response_loss, objective, REWARD, LOGP, LOGP, MASK.float())
    refuses("the shape of logp", response_loss, objective, REWARD, LOGP[:, :2], LOGP, MASK)


def test_norm_max_needs_a_budget():
    refuses("expected the generation budget", credit, PMDMean(norm="max"), Groups(REWARD, HALF), LOGP, MASK)


def test_ministeps():
    for count in (0, 4):
        refuses(f"ministeps is {count} for 3 prompts; expected 1 to 3", lambda count=count: list(parts(3, count)))


def test_options():
    refuses("clip_low is 1.5; expected a finite number from 0 to 1", OBJECTIVES["grpo"], clip_low=1.5)
    refuses("value is 'mean'; expected 'group', a finite number, or a function", DRO, value="mean")
    refuses("value is nan; expected 'group'", DRO, value=math.nan)
    refuses("value returned shape [1, 2]", DRO(value=lambda g: g.reward).advantage, Groups(REWARD, HALF))
    refuses("baseline is 'mean' with a target_cap", OBJECTIVES["pmd-part"], baseline="mean", target_cap=1.0)
    refuses("outer_low is 0.1; expected", OBJECTIVES["rec"], outer_low=0.1, clip_mode="ring")
    refuses("clip_low_least is 0.5; expected", OBJECTIVES["bapo"], clip_low_least=0.5)
    refuses("std is 'mean'; expected", OBJECTIVES["reinforce-pp"], std="mean")


def test_verdicts_and_counts_are_rewards():
    """Integers and booleans are what verifiers return: the loss is that of the same numbers as floats, to the bit."""
    objective = OBJECTIVES["pmd-part"](tau=0.05)
    wanted = response_loss(objective, torch.tensor([[1.0, 0.0]], dtype=LOGP.dtype), LOGP, LOGP, MASK)
    for reward in (torch.tensor([[1, 0]]), torch.tensor([[True, False]])):
        assert response_loss(objective, reward, LOGP, LOGP, MASK) == wanted
        assert Groups(reward, HALF).reward.dtype == HALF.dtype
