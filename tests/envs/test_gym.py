"""The Gymnasium ids: Gymnasium's checker, known numbers, copies in a vector environment."""

import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from pmdkit import envs
from pmdkit.envs import tokens
from pmdkit.envs.tokens.problem import is_held_out

BANDIT, TOKENS = "pmdkit/Bandit-v0", "pmdkit/TokenTask-v0"
ALL = [(BANDIT, kind) for kind in envs.KINDS] + [(TOKENS, kind) for kind in tokens.KINDS]
SHELF = Path(__file__).parents[2] / "envs"


@pytest.mark.parametrize(("id", "kind"), ALL)
def test_gymnasiums_checker_finds_nothing(id, kind):
    """Its warnings are errors here."""
    check_env(gymnasium.make(id, kind=kind).unwrapped)


def test_they_are_made_from_a_name_a_path_a_problem_or_a_kind(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('[env]\nkind = "needle"\narms = 7\n[objective]\nname = "pmd-mean"\n', encoding="utf-8")
    given = ({}, {"env": str(path)}, {"env": envs.make({"kind": "needle", "arms": 5})}, {"kind": "needle", "arms": 6})
    assert [gymnasium.make(BANDIT, **options).action_space.n for options in given] == [100, 7, 5, 6]
    assert gymnasium.make(BANDIT, env="two-hills", contexts=3).observation_space.n == 3
    path.write_text('[env]\nkind = "sort"\nlength = 3\n[objective]\nname = "pmd-mean"\n', encoding="utf-8")
    parity = envs.make_tokens({"kind": "parity"})
    given = ({}, {"env": "copy", "length": 2}, {"env": str(path)}, {"env": parity})
    assert [gymnasium.make(TOKENS, **options).unwrapped.problem.name for options in given] == [
        *("modular-sum", "copy", "sort", "parity")
    ]


# Single environments.


def test_a_pull_has_the_known_numbers_in_info():
    env = gymnasium.make(BANDIT, env="two-hills")
    bandit = env.unwrapped.bandit
    context, info = env.reset(seed=4)
    assert info == {"pass_rate": bandit.pass_rate(bandit.log_policy)[context]}
    again, _, terminated, truncated, info = env.step(3)
    assert (again, terminated, truncated) == (context, True, False)
    assert (info["success"], info["expected_reward"]) == (0.5, 0.5)
    graded = gymnasium.make(BANDIT, env="graded")
    assert graded.reset(seed=0)[1] == {}, "nothing passes or fails"
    assert graded.step(4)[4] == {"expected_reward": 0.4}


@pytest.mark.parametrize("kind", tokens.KINDS)
def test_the_teacher_earns_one_at_its_last_token(kind):
    env = envs.TokenEnv(kind=kind)
    problem, length = env.problem, env.problem.prompt_length
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        answer = problem.answer(observation[:length], np.random.default_rng(seed))
        for said, token in enumerate(answer, 1):
            observation, reward, terminated, truncated, _ = env.step(token)
            assert (reward, terminated, truncated) == (float(said == len(answer)), said == len(answer), False)
            assert observation[length : length + said].tolist() == answer[:said]
            assert (observation[length + said :] == len(problem.vocabulary)).all()  # padding


def test_an_episode_without_eos_ends_at_the_width_with_nothing():
    env = envs.TokenEnv(kind="copy", length=2, symbols=2)
    observation, _ = env.reset(seed=0)
    outcomes = [env.step(token)[1:3] for token in (*observation[:2], 0)]
    assert outcomes == [(0.0, False), (0.0, False), (0.0, True)]


def test_held_out_prompts_are_asked_only_when_asked_for():
    for held_out in (False, True):
        env = envs.TokenEnv(kind="sort", held_out=held_out)
        prompts = np.stack([env.reset(seed=seed)[0][:4] for seed in range(100)])
        assert (is_held_out(prompts) == held_out).all()


# Copies, in Gymnasium's own vector environments.


def test_many_bandits_pay_by_the_reward_table():
    """Without false verdicts the reward is a function of context and arm."""
    env = gymnasium.make_vec(BANDIT, num_envs=6, env="needle", contexts=3, arms=6)
    observations, infos = env.reset(seed=1)
    assert infos["pass_rate"].tolist() == pytest.approx([1 / 6] * 6)
    again, rewards, terminations, truncations, _ = env.step(np.arange(6))
    np.testing.assert_array_equal(again, observations)
    assert rewards.tolist() == [1, 0, 0, 0, 0, 0]
    assert terminations.all()
    assert not truncations.any()


WALK = """
import gymnasium

class Walk(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def reset(self, **options):
        return 0, {}

    def step(self, action):
        return 1, 7.0, True, False, {}

gymnasium.register("Walk-v0", Walk, max_episode_steps=3)
"""


@pytest.mark.slow
def test_the_program_on_the_shelf_takes_an_environment_of_a_file_beside_the_user(tmp_path):
    (tmp_path / "my.py").write_text(WALK)
    words = [sys.executable, str(SHELF / "own_gymnasium.py"), "my:Walk-v0", "--steps", "1", "--group", "2"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert "return 7.000" in done.stdout, done.stderr
