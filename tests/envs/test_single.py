"""The Gymnasium environment: its own checker, seeds, and the numbers in info."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from pmdkit import envs


@pytest.mark.parametrize("kind", envs.KINDS)
def test_gymnasiums_checker_finds_nothing(kind):
    """Its warnings are errors here."""
    env = gymnasium.make("pmdkit/Bandit-v0", kind=kind, render_mode="ansi")
    check_env(env.unwrapped)


def test_it_is_made_from_a_name_a_path_a_bandit_or_a_kind(tmp_path):
    assert gymnasium.make("pmdkit/Bandit-v0").unwrapped.bandit.arms == 100
    assert gymnasium.make("pmdkit/Bandit-v0", env="two-hills").unwrapped.bandit.name == "two-hills"
    assert gymnasium.make("pmdkit/Bandit-v0", env="two-hills", contexts=3).observation_space.n == 3
    path = tmp_path / "own.toml"
    path.write_text('[env]\nkind = "needle"\narms = 7\n[objective]\nname = "pmd-mean"\n', encoding="utf-8")
    assert gymnasium.make("pmdkit/Bandit-v0", env=str(path)).action_space.n == 7
    bandit = envs.make({"kind": "needle", "arms": 5})
    assert gymnasium.make("pmdkit/Bandit-v0", env=bandit).unwrapped.bandit.arms == 5
    assert gymnasium.make("pmdkit/Bandit-v0", kind="needle", arms=6).action_space.n == 6


def test_an_episode_is_one_pull_with_the_known_numbers_in_info():
    env = gymnasium.make("pmdkit/Bandit-v0", env="noisy-verifier", render_mode="ansi")
    bandit = env.unwrapped.bandit
    context, info = env.reset(seed=4)
    assert info == {"pass_rate": pytest.approx(0.1, abs=1e-12)}
    again, reward, terminated, truncated, info = env.step(3)
    assert (again, terminated, truncated) == (context, True, False)
    assert info["success"] == 1.0
    assert info["expected_reward"] == bandit.reward[context, 3] == 0.8
    assert env.render() == f"context {context}: arm 3 paid {reward:g}"


def test_graded_rewards_have_no_pass_rate_in_info():
    env = gymnasium.make("pmdkit/Bandit-v0", env="graded")
    assert env.reset(seed=0)[1] == {}
    assert env.step(4)[4] == {"expected_reward": 0.4}


def test_rewards_and_contexts_follow_their_law():
    env = envs.BanditEnv(kind="noisy-verifier", contexts=3)
    contexts, rewards = [], []
    env.reset(seed=1)
    for _ in range(4000):
        contexts.append(int(env.reset()[0]))
        rewards.append(env.step(np.int64(0))[1])
    assert abs(np.mean(rewards) - 0.8) < 4 * np.sqrt(0.16 / 4000)
    assert (np.abs(np.bincount(contexts) / 4000 - 1 / 3) < 4 * np.sqrt(2 / 9 / 4000)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"render_mode": "human"}, "render_mode is 'human'; expected None or 'ansi'"),
        ({"env": "needle", "kind": "needle"}, "both env 'needle' and kind 'needle' were given"),
        ({"env": "nedle"}, "did you mean 'needle'"),
        ({"armz": 3}, "did you mean 'env.arms'"),
        ({"env": envs.make({"kind": "needle"}), "arms": 3}, "were given beside a Bandit"),
    ],
)
@pytest.mark.parametrize("make", [envs.BanditEnv, envs.BanditVectorEnv])
def test_bad_arguments_are_refused(options, message, make):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_an_arm_that_does_not_exist_is_refused():
    env = envs.BanditEnv(kind="needle", arms=3)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="the action is 3; expected an arm from 0 to 2"):
        env.step(3)
