"""The Gymnasium ids, single and vectorised: the checker, twins of Gymnasium's own vectoriser, and known numbers."""

import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from pmdkit import envs
from pmdkit.envs import tokens
from pmdkit.envs.tokens.problem import is_held_out

BANDIT, TOKENS = "pmdkit/Bandit-v0", "pmdkit/TokenTask-v0"
ALL = [(BANDIT, kind) for kind in envs.KINDS] + [(TOKENS, kind) for kind in tokens.KINDS]
SHELF = Path(__file__).parents[2] / "envs"


@pytest.mark.parametrize(("id", "kind"), ALL)
def test_gymnasiums_checker_finds_nothing(id, kind):
    """Its warnings are errors here."""
    check_env(gymnasium.make(id, kind=kind, render_mode="ansi").unwrapped)


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


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"render_mode": "human"}, "human"),
        ({"env": "needle", "kind": "needle"}, "needle"),
        ({"env": "nedle"}, "needle"),
        ({"kind": "needle", "armz": 3}, "arms"),
        ({"env": envs.make({"kind": "needle"}), "arms": 3}, "arms"),
        ({"num_envs": 0}, "0"),
        ({"max_episode_steps": 0}, "0"),
    ],
)
def test_bad_arguments_are_refused(options, value):
    makers = (envs.BanditEnv, envs.BanditVectorEnv) if len(options) > 1 or "env" in options else (envs.BanditVectorEnv,)
    for make in makers:
        with pytest.raises(ValueError, match=value):
            make(**options)


def test_actions_that_do_not_exist_are_refused():
    single, many = envs.BanditEnv(kind="needle", arms=3), envs.BanditVectorEnv(num_envs=2, kind="needle", arms=3)
    token = envs.TokenEnv(kind="copy", symbols=2)
    for env in (single, many, token):
        env.reset(seed=0)
    for env, action in ((single, 3), (token, 3), (many, np.array([0, 3])), (many, np.array([0.0, 1])), (many, [0])):
        with pytest.raises(ValueError, match="expected"):
            env.step(action)
    with pytest.raises(ValueError, match="max_episode_steps is 4"):
        envs.TokenVectorEnv(kind="copy", max_episode_steps=4)


# Single environments.


def test_a_pull_has_the_known_numbers_in_info():
    env = gymnasium.make(BANDIT, env="noisy-verifier", render_mode="ansi")
    bandit = env.unwrapped.bandit
    context, info = env.reset(seed=4)
    assert info == {"pass_rate": pytest.approx(0.1, abs=1e-12)}
    again, reward, terminated, truncated, info = env.step(3)
    assert (again, terminated, truncated) == (context, True, False)
    assert (info["success"], info["expected_reward"]) == (1.0, bandit.reward[context, 3])
    assert env.render() == f"context {context}: arm 3 paid {reward:g}"
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
    env = envs.TokenEnv(kind="copy", length=2, symbols=2, render_mode="ansi")
    observation, _ = env.reset(seed=0)
    outcomes = [env.step(token)[1:3] for token in (*observation[:2], 0)]
    assert outcomes == [(0.0, False), (0.0, False), (0.0, True)]
    prompt = env.problem.text(observation[:2])
    assert env.render() == f"{prompt} -> {prompt} 0"


def test_held_out_prompts_are_asked_only_when_asked_for():
    for held_out in (False, True):
        env = envs.TokenEnv(kind="sort", held_out=held_out)
        prompts = np.stack([env.reset(seed=seed)[0][:4] for seed in range(100)])
        assert (is_held_out(prompts) == held_out).all()


# Vector environments: twins of one environment, of Gymnasium's own vectoriser, and of the reward table.


def taught(problem, observations, rng):
    """The teacher's next token for each copy, a random one for a tenth of them: episodes of every length."""
    length, pad = problem.prompt_length, len(problem.vocabulary)
    found = []
    for row in observations:
        said = row[length:][row[length:] < pad]
        answer = problem.answer(row[:length], np.random.default_rng(0))
        follows = len(said) < len(answer) and said.tolist() == answer[: len(said)]
        found.append(answer[len(said)] if follows and rng.random() > 0.1 else int(rng.integers(pad)))
    return np.array(found)


@pytest.mark.parametrize(("id", "kind"), ALL)
def test_one_copy_is_gymnasiums_vectoriser_of_one_environment_to_the_bit(id, kind):
    """Same generator, same order of draws; observations, rewards, infos, masks, types: everything is equal."""
    single, make = (envs.BanditEnv, envs.make) if id == BANDIT else (envs.TokenEnv, envs.make_tokens)
    problem = make({"kind": kind})
    ours = gymnasium.make_vec(id, num_envs=1, env=problem)
    theirs = SyncVectorEnv([lambda: single(problem)], autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    mine, other = ours.reset(seed=5), theirs.reset(seed=5)
    rng = np.random.default_rng(0)
    for _ in range(150):
        assert data_equivalence(mine, other, exact=True)
        actions = rng.integers(problem.arms, size=1) if id == BANDIT else taught(problem, mine[0], rng)
        mine, other = ours.step(actions), theirs.step(actions)


def test_many_bandits_pay_by_the_reward_table():
    """Systematic verdicts are certain, so the reward is a function of context and arm."""
    env = gymnasium.make_vec(BANDIT, num_envs=6, kind="noisy-verifier", systematic=True, render_mode="ansi")
    bandit, arms = env.unwrapped.bandit, np.arange(6)
    before, _ = env.reset(seed=1)
    for _ in range(3):
        observations, rewards, terminations, _, infos = env.step(arms)
        answered = infos["final_obs"].astype(int)
        np.testing.assert_array_equal(answered, before)
        np.testing.assert_array_equal(rewards, bandit.reward[answered, arms])
        np.testing.assert_array_equal(infos["final_info"]["success"], bandit.success[answered, arms])
        np.testing.assert_array_equal(infos["pass_rate"], bandit.pass_rate(bandit.log_policy)[observations])
        assert terminations.all()
        assert env.render()[2] == f"context {answered[2]}: arm 2 paid {rewards[2]:g}"
        before = observations


def test_rewards_and_contexts_of_all_copies_follow_their_law():
    env = gymnasium.make_vec(BANDIT, num_envs=20_000, kind="noisy-verifier", contexts=4, arms=3, right=1)
    observations, _ = env.reset(seed=0)
    arms = np.arange(20_000) % 3
    _, rewards, *_ = env.step(arms)
    for context, arm in np.ndindex(4, 3):
        paid = rewards[(observations == context) & (arms == arm)]
        chance = env.unwrapped.bandit.reward[context, arm]
        assert abs(paid.mean() - chance) < 4 * np.sqrt(chance * (1 - chance) / len(paid))
    assert (np.abs(np.bincount(observations) / 20_000 - 1 / 4) < 4 * np.sqrt(3 / 16 / 20_000)).all()


def test_many_token_copies_are_many_environments_each_with_its_own_prompts():
    """Every copy is replayed in a single environment that is given its prompts, episode by episode."""
    problem = envs.make_tokens({"kind": "maze"})
    ours = gymnasium.make_vec(TOKENS, num_envs=7, env=problem, render_mode="ansi")
    single = [envs.TokenEnv(problem, render_mode="ansi") for _ in range(7)]
    length, rng, ends = problem.prompt_length, np.random.default_rng(1), 0

    def restart(copy, observation):
        single[copy].reset(seed=0)
        single[copy].tokens[:length] = observation[:length]

    observations, _ = ours.reset(seed=2)
    for copy in range(7):
        restart(copy, observations[copy])
    for _ in range(40):
        actions = taught(problem, observations, rng)
        observations, paid, terminations, truncations, infos = ours.step(actions)
        assert not truncations.any()
        for copy, token in enumerate(actions):
            expected, reward, terminated, _, _ = single[copy].step(token)
            assert (reward, terminated) == (paid[copy], terminations[copy])
            assert ours.render()[copy] == single[copy].render()
            if terminated:
                np.testing.assert_array_equal(infos["final_obs"][copy], expected)
                restart(copy, observations[copy])
                ends += 1
            else:
                np.testing.assert_array_equal(observations[copy], expected)
    assert ends > 20


@pytest.mark.parametrize(("id", "options"), [(BANDIT, {"kind": "needle", "arms": 2, "contexts": 3}), (TOKENS, {})])
def test_a_seed_repeats_everything_and_what_is_returned_may_be_written_to(id, options):
    env, twin, third = (gymnasium.make_vec(id, num_envs=8, **options) for _ in range(3))
    env.reset(seed=0)[0][:] = 0
    twin.reset(seed=0)
    third.reset(seed=1)
    differ = False
    for _ in range(12):
        first, second, other = (each.step(np.arange(8) % 2) for each in (env, twin, third))
        assert data_equivalence(first, second, exact=True)
        differ |= not np.array_equal(first[0], other[0])
        first[0][:] = 0
        first[2][:] = True
    assert differ


def test_statistics_of_gymnasium_count_whole_episodes():
    env = RecordEpisodeStatistics(gymnasium.make_vec(TOKENS, num_envs=3, kind="modular-sum"), buffer_length=10)
    observations, _ = env.reset(seed=0)
    right = observations[:, :2].sum(axis=1) % 10
    *_, infos = env.step(right + np.array([0, 0, 1]) * (1 - 10 * (right == 9)))
    np.testing.assert_array_equal(infos["episode"]["r"], [1, 1, 0])


@pytest.mark.slow
def test_the_program_on_the_shelf_learns_to_cross_a_lake():
    """From 1 in 100 for random moves to the goal in nearly every episode."""
    program = [sys.executable, str(SHELF / "own_gymnasium.py"), "FrozenLake-v1", "--steps", "12", "--starts", "4"]
    done = subprocess.run(
        [*program, "--options", '{"is_slippery": false}'], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    returns = [float(line.partition("return ")[2].partition(",")[0]) for line in done.stdout.splitlines()]
    assert returns[0] < 0.1
    assert returns[-1] > 0.5
