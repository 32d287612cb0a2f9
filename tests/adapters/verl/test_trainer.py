"""The trainer that carries one tau per prompt to the loss, on real verl, Ray and TransferQueue."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from verl_rows import config

from pmdkit.errors import UsageError
from pmdkit.objectives import Groups, PassRate, PMDMean, temperature

HERE = Path(__file__).parent


def test_tau_reaches_the_batch_and_the_workers_get_their_loss(tmp_path):
    found = tmp_path / "found.json"
    subprocess.run([sys.executable, "-W", "ignore", HERE / "trainer_worker.py", found], check=True, timeout=900)
    found = json.loads(found.read_text())
    reward = torch.tensor([[1.0, -1, -1], [1, 1, -1]])
    groups = Groups(reward, torch.full_like(reward, 1 / 3))
    objective = PMDMean(tau=PassRate(rewards=(-1, 1)))
    tau = temperature(objective, groups).repeat_interleave(3).tolist()
    advantage = objective.advantage(groups).flatten().tolist()
    lengths = [2, 3, 1, 4, 2, 3]
    assert [len(row) for row in found["tau"]] == lengths
    for row in range(6):
        assert found["tau"][row] == pytest.approx([tau[row]] * lengths[row], rel=1e-6)
        assert found["advantages"][row] == pytest.approx([advantage[row]] * lengths[row], abs=1e-6)
    assert found["metrics"]["pmd/tau/min"] == pytest.approx(min(tau), rel=1e-6)
    assert found["loss"] == "loss_with_tau"
    assert found["objective"] == repr(objective)
    assert found["buffer"] == "ReplayBuffer"  # the synchronous one: verl compares the trainer's name with "sync"


def test_reward_penalties_are_refused():
    from pmdkit.adapters.verl.trainer import PMDTrainerSync

    with pytest.raises(UsageError):
        PMDTrainerSync(config("+pmd=mean_adaptive", "algorithm.use_kl_in_reward=true"))
