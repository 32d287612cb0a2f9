"""The registered estimators: pmdkit's advantages, whatever the order of the rows, through verl's own calls."""

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl_rows import LOSS, config, rows

from pmdkit.adapters.verl.loss import row_tau
from pmdkit.errors import UsageError
from pmdkit.objectives import Groups, PassRate, PMDMean, PMDPart, load_objective, temperature

CASES = {
    "pmd_mean": (PMDMean(tau=0.05), {"objective": "pmd-mean", "tau": 0.05, "options": {}}),
    "pmd_mean own": (
        PMDMean(tau=0.05, baseline="mean"),
        {"objective": "pmd-mean", "tau": 0.05, "options": {"baseline": "mean"}},
    ),
    "pmd_part": (PMDPart(tau=0.005), {"objective": "pmd-part", "tau": 0.005, "options": {}}),
    "pmd_part capped": (
        PMDPart(tau=0.005, target_cap=18.42),
        {"objective": "pmd-part", "tau": 0.005, "options": {"target_cap": 18.42}},
    ),
    "pmdkit grpo": (load_objective("grpo"), {"objective": "grpo", "tau": None, "options": {}}),
    "pmdkit rule": (
        PMDMean(tau=PassRate(rewards=(-1, 1))),
        {"objective": "pmd-mean", "tau": {"rule": "pass-rate", "rewards": [-1, 1]}, "options": None},
    ),
}


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


@pytest.mark.parametrize("name", CASES)
def test_advantages_are_pmdkit_s(name):
    objective, words = CASES[name]
    rewards, mask, uid, order, reward = shuffled()
    algorithm = OmegaConf.create({"pmd": {**words, "group": 4}})
    estimator = get_adv_estimator_fn(name.split()[0])
    found, returns = estimator(token_level_rewards=rewards, response_mask=mask.long(), index=uid, config=algorithm)
    wanted = objective.advantage(groups_of(reward)).flatten()[order]
    torch.testing.assert_close(found, torch.where(mask, wanted[:, None], 0.0), atol=1e-12, rtol=0)
    assert returns is found


def data_proto(rewards, mask, uid):
    return DataProto.from_dict(
        tensors={"token_level_rewards": rewards, "response_mask": mask.long()}, non_tensors={"uid": uid}
    )


@pytest.mark.parametrize("of", ["mean", "part"])
def test_through_verl_s_own_call_with_its_own_configuration(of):
    objective = {"mean": PMDMean, "part": PMDPart}[of](tau=0.1)
    rewards, mask, uid, order, reward = shuffled()
    algorithm = config(f"+pmd={of}", f"{LOSS}pmd_tau=0.1").algorithm
    keys = [f"{name}_{n}_0" for n, name in enumerate(uid)]
    data = compute_advantage_for_multi_trajectories(
        data_proto(rewards.float(), mask, uid), keys, adv_estimator=algorithm.adv_estimator, config=algorithm
    )
    wanted = objective.advantage(groups_of(reward)).flatten()[order]
    torch.testing.assert_close(
        data.batch["advantages"], torch.where(mask, wanted[:, None], 0.0).float(), atol=1e-6, rtol=0
    )


def test_pmd_mean_is_verl_s_rloo():
    rewards, mask, uid, _, _ = shuffled()
    algorithm = OmegaConf.create({"pmd": {**CASES["pmd_mean"][1], "group": 4}})
    mine, _ = get_adv_estimator_fn("pmd_mean")(rewards, mask.long(), index=uid, config=algorithm)
    theirs, _ = get_adv_estimator_fn("rloo")(rewards, mask.long(), index=uid)
    torch.testing.assert_close(mine, theirs.double(), atol=1e-6, rtol=0)


def test_a_lone_success_keeps_its_target():
    """2 / tau for rewards of +-1, where a clamp of the partition at 1e-8 would leave 18.42."""
    reward = torch.tensor([[1.0] + [-1.0] * 15])
    mask = torch.ones(16, 2, dtype=torch.long)
    by_token = torch.stack([torch.zeros(16), reward[0]], 1)
    algorithm = OmegaConf.create({"pmd": {"objective": "pmd-part", "tau": 0.005, "options": {}, "group": 16}})
    found, _ = get_adv_estimator_fn("pmd_part")(by_token, mask, index=["x"] * 16, config=algorithm)
    assert found[0, 0] / 0.005 == pytest.approx(400, rel=1e-6)


def test_rows_that_verl_adds_belong_to_no_group():
    rewards, mask, uid, _, _ = shuffled()
    empty = torch.zeros(3, 7)
    algorithm = OmegaConf.create({"pmd": {**CASES["pmd_mean"][1], "group": 4}})
    found, _ = get_adv_estimator_fn("pmd_mean")(
        torch.cat([rewards, empty.double()]),
        torch.cat([mask, empty.bool()]),
        index=np.array([*uid, "pad", "pad", "pad"], dtype=object),
        config=algorithm,
    )
    alone, _ = get_adv_estimator_fn("pmd_mean")(rewards, mask, index=uid, config=algorithm)
    torch.testing.assert_close(found[:12], alone, atol=0, rtol=0)
    assert (found[12:] == 0).all()


def test_a_rejected_response_stays_in_the_baseline():
    rewards, mask, uid, order, reward = shuffled()
    algorithm = OmegaConf.create({"pmd": {**CASES["pmd_mean"][1], "group": 4}})
    rejected = mask.clone()
    rejected[5] = False
    found, _ = get_adv_estimator_fn("pmd_mean")(rewards, rejected, index=uid, config=algorithm)
    wanted = PMDMean().advantage(groups_of(reward)).flatten()[order]
    torch.testing.assert_close(found, torch.where(rejected, wanted[:, None], 0.0), atol=1e-12, rtol=0)


def test_tau_of_each_row():
    objective = CASES["pmdkit rule"][0]
    rewards, mask, uid, order, reward = shuffled()
    wanted = temperature(objective, groups_of(reward)).repeat_interleave(4)[order]
    torch.testing.assert_close(row_tau(objective, rewards, mask, uid, 4), wanted, atol=0, rtol=0)


def test_what_is_refused():
    rewards, mask, uid, _, _ = shuffled()
    estimator = get_adv_estimator_fn("pmd_mean")
    words = {**CASES["pmd_mean"][1], "group": 4}

    def call(index=uid, rows=slice(None), node=words):
        algorithm = OmegaConf.create({} if node is None else {"pmd": node})
        return estimator(rewards[rows], mask[rows], index=None if index is None else index[rows], config=algorithm)

    with pytest.raises(UsageError):
        call(rows=slice(0, 11))
    with pytest.raises(UsageError):  # two outputs in every session
        call(node={**words, "group": 2})
    with pytest.raises(UsageError):
        call(node={**words, "group": 1})
    with pytest.raises(UsageError):
        call(index=None)
    with pytest.raises(UsageError):
        call(node=None)
