"""The registered estimators: pmdkit's advantages, whatever the order of the rows, through verl's own calls."""

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl_rows import LOSS, config, rows

from pmdkit.errors import UsageError
from pmdkit.objectives import Groups, PMDMean, PMDPart, load_objective

CASES = [
    ("pmd-mean", 0.05, {}),
    ("pmd-mean", 0.05, {"baseline": "mean"}),
    ("pmd-part", 0.005, {}),
    ("pmd-part", 0.005, {"target_cap": 18.42}),
    ("grpo", None, {}),
]


def algorithm_of(objective="pmd-mean", tau=0.05, options=None, group=4):
    """verl's `algorithm` node, as far as the estimator reads it."""
    node = {"pmd_objective": objective, "pmd_tau": tau, "pmd_options": options or {}, "pmd_group": group}
    return OmegaConf.create({"pmd": node})


def estimate(rewards, mask, uid, algorithm=None):
    return get_adv_estimator_fn("pmd")(
        token_level_rewards=rewards, response_mask=mask.long(), index=uid, config=algorithm or algorithm_of()
    )


def groups_of(reward):
    return Groups(reward, torch.full_like(reward, 1 / reward.shape[1]))


def shuffled(seed=3):
    """Rows of three prompts in another order, with the reward on the last token: rewards, mask, uid, order."""
    _, _, mask, reward = rows()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    last = mask.sum(1) - 1
    by_token = torch.zeros(mask.shape, dtype=torch.float64)
    by_token[torch.arange(12), last] = reward.flatten()
    uid = np.array([f"prompt {n // 4}" for n in range(12)], dtype=object)
    return by_token[order], mask[order], uid[order.numpy()], order, reward


@pytest.mark.parametrize(("name", "tau", "options"), CASES)
def test_advantages_are_pmdkit_s(name, tau, options):
    objective = load_objective(name, **options, **({} if tau is None else {"tau": tau}))
    rewards, mask, uid, order, reward = shuffled()
    found, returns = estimate(rewards, mask, uid, algorithm_of(name, tau, options))
    wanted = objective.advantage(groups_of(reward)).flatten()[order]
    torch.testing.assert_close(found, torch.where(mask, wanted[:, None], 0.0), atol=1e-12, rtol=0)
    assert returns is found


@pytest.mark.parametrize("of", ["mean", "part"])
def test_through_verl_s_own_call_with_its_own_configuration(of):
    objective = {"mean": PMDMean, "part": PMDPart}[of](tau=0.1)
    rewards, mask, uid, order, reward = shuffled()
    algorithm = config(f"+pmd={of}", f"{LOSS}pmd_tau=0.1").algorithm
    keys = [f"{name}_{n}_0" for n, name in enumerate(uid)]
    tensors = {"token_level_rewards": rewards.float(), "response_mask": mask.long()}
    data = compute_advantage_for_multi_trajectories(
        DataProto.from_dict(tensors, non_tensors={"uid": uid}),
        keys,
        adv_estimator=algorithm.adv_estimator,
        config=algorithm,
    )
    wanted = objective.advantage(groups_of(reward)).flatten()[order]
    torch.testing.assert_close(
        data.batch["advantages"], torch.where(mask, wanted[:, None], 0.0).float(), atol=1e-6, rtol=0
    )


def test_pmd_mean_is_verl_s_rloo():
    rewards, mask, uid, _, _ = shuffled()
    mine, _ = estimate(rewards, mask, uid)
    theirs, _ = get_adv_estimator_fn("rloo")(rewards, mask.long(), index=uid)
    torch.testing.assert_close(mine, theirs.double(), atol=1e-6, rtol=0)


def test_rows_that_verl_adds_belong_to_no_group():
    rewards, mask, uid, _, _ = shuffled()
    empty = torch.zeros(3, 7)
    found, _ = estimate(
        torch.cat([rewards, empty.double()]),
        torch.cat([mask, empty.bool()]),
        np.array([*uid, "pad", "pad", "pad"], dtype=object),
    )
    alone, _ = estimate(rewards, mask, uid)
    torch.testing.assert_close(found[:12], alone, atol=0, rtol=0)
    assert (found[12:] == 0).all()


def test_a_rejected_response_stays_in_the_baseline():
    rewards, mask, uid, order, reward = shuffled()
    rejected = mask.clone()
    rejected[5] = False
    found, _ = estimate(rewards, rejected, uid)
    wanted = PMDMean().advantage(groups_of(reward)).flatten()[order]
    torch.testing.assert_close(found, torch.where(rejected, wanted[:, None], 0.0), atol=1e-12, rtol=0)


def test_what_is_refused():
    rewards, mask, uid, _, _ = shuffled()
    for given, algorithm in [
        ((rewards[:11], mask[:11], uid[:11]), algorithm_of()),
        ((rewards, mask, uid), algorithm_of(group=2)),  # two outputs in every session
        ((rewards, mask, np.arange(12).astype(str)), algorithm_of(group=1)),
        ((rewards, mask, None), algorithm_of()),
        ((rewards, mask, uid), OmegaConf.create({"gamma": 1.0})),
    ]:
        with pytest.raises(UsageError):
            estimate(*given, algorithm)
