"""verl's real configuration tree with pmdkit's keys: what composes, what is refused before verl starts, the recipes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from verl.utils.config import validate_config
from verl_rows import BASE, LOSS, actor, config

from pmdkit.errors import UsageError
from pmdkit.objectives import PMDMean, PMDPart
from pmdkit_adapters.verl.check import checked, main
from pmdkit_adapters.verl.config import objective_of

ROOT = Path(__file__).parents[4]
RECIPES = sorted((ROOT / "llm" / "verl").glob("*.sh"))
MEAN = ["+pmd=mean", f"{LOSS}pmd_tau=0.05"]
CORRECTION = "algorithm.rollout_correction."


def test_words_become_the_objective():
    assert objective_of(actor(*MEAN).policy_loss) == PMDMean(tau=0.05)
    part = actor("+pmd=part", f"{LOSS}pmd_tau=0.5", f"+{LOSS}pmd_options.target_cap=18.42").policy_loss
    assert objective_of(part) == PMDPart(tau=0.5, target_cap=18.42)


def test_there_is_one_tau():
    composed = config(*MEAN)
    OmegaConf.update(composed, f"{LOSS}pmd_tau", 0.2)
    assert objective_of(composed.algorithm.pmd) == PMDMean(tau=0.2)
    OmegaConf.resolve(composed)  # as verl's task runner does
    assert objective_of(composed.algorithm.pmd) == objective_of(checked(composed)) == PMDMean(tau=0.2)


def test_verl_s_own_start_makes_the_check():
    """`main_ppo` calls validate_config before it starts Ray."""
    validate_config(config(*MEAN), use_reference_policy=False, use_critic=False)
    with pytest.raises(Exception, match="use_kl_loss"):
        validate_config(
            config(*MEAN, "actor_rollout_ref.actor.use_kl_loss=true"), use_reference_policy=False, use_critic=False
        )


REFUSED = {
    "no tau": ["+pmd=mean"],
    "negative tau": ["+pmd=mean", f"{LOSS}pmd_tau=-1"],
    "verl's estimator": [*MEAN, "algorithm.adv_estimator=grpo"],
    "the other loss": [*MEAN, f"{LOSS}loss_mode=gspo"],
    "KL loss": [*MEAN, "actor_rollout_ref.actor.use_kl_loss=true"],
    "entropy": [*MEAN, "actor_rollout_ref.actor.entropy_coeff=0.01"],
    "distillation": [*MEAN, "distillation.enabled=true"],
    "older trainer": [*MEAN, "trainer.use_v1=false"],
    "token weights": [*MEAN, f"{CORRECTION}rollout_is=token"],
    "token rejection": [*MEAN, f"'{CORRECTION}rollout_rs=\"seq_sum_k1,token_k1\"'".strip("'")],
    "a rule as tau": [*MEAN, f"+{LOSS}pmd_options.tau={{rule:pass-rate}}", f"{LOSS}pmd_tau=null"],
    "whole groups": ["+pmd=any", f"{LOSS}pmd_objective=rebel", f"{LOSS}pmd_tau=1"],
    "whole batch": ["+pmd=any", f"{LOSS}pmd_objective=reinforce-pp"],
    "norm of all tokens": ["+pmd=any", f"{LOSS}pmd_objective=dapo"],
    "an entropy bonus": [*MEAN, f"+{LOSS}pmd_options.entropy_coef=0.01"],
    "a KL penalty": [*MEAN, f"+{LOSS}pmd_options.kl_coef=0.01"],
    "misspelt option": [*MEAN, f"+{LOSS}pmd_options.scael=paper"],
    "misspelt objective": ["+pmd=any", f"{LOSS}pmd_objective=pmd-maen"],
    "no context": [*MEAN, f"~{LOSS}pmd_run.use_v1"],
    "no loss of pmdkit": [],
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_anything_starts(name):
    with pytest.raises(UsageError):
        checked(config(*REFUSED[name]))


@pytest.mark.parametrize(
    "overrides",
    [
        [f"{CORRECTION}rollout_{words}" for words in ("is=sequence", "rs=seq_mean_k3", "rs_threshold=0.1")],
        [f"{CORRECTION}bypass_mode=true"],
        ["actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean"],
        ["model_engine=megatron"],
        ["actor_rollout_ref.actor.strategy=fsdp2", "actor_rollout_ref.actor.ppo_epochs=2"],
    ],
)
def test_allowed(overrides):
    checked(config(*MEAN, *overrides))


def test_batch_words(capsys):
    words = ["data.train_batch_size=64", "actor_rollout_ref.actor.ppo_mini_batch_size=16", "trainer.nnodes=2"]
    assert main([*BASE, *MEAN, *words]) == 0
    assert "4 ministeps of 16 x 4 = 64 responses" in capsys.readouterr().out
    assert main([*BASE, *MEAN, *words, "data.train_batch_size=65"]) == 2


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_key_of_a_recipe_exists_in_verl(recipe, tmp_path):
    """hydra stops at a key that verl's tree does not have; verl's own checks then make its dataclasses."""
    subprocess.run(["bash", "-n", recipe], check=True, timeout=20)
    environment = {**os.environ, "CHECK_ONLY": "1", "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", recipe], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "512 prompts x 16 responses = 8192" in done.stdout
    assert "16 ministeps of 32 x 16 = 512 responses" in done.stdout
