"""The bandit as a Gymnasium environment, single and vectorised: the checker, seeds, and the numbers in info."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics, TransformReward

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
        ({"env": envs.make({"kind": "needle"}), "arms": 3}, "were given with a Bandit"),
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


# The native vector environment: a twin of one environment, of Gymnasium's own vectoriser, and of the reward table.


def vector(num_envs, **options):
    return gymnasium.make_vec("pmdkit/Bandit-v0", num_envs=num_envs, **options)


@pytest.mark.parametrize("kind", envs.KINDS)
def test_one_copy_is_gymnasiums_vectoriser_of_one_environment_to_the_bit(kind):
    """Same generator, same order of draws; observations, rewards, infos, masks, types: everything is equal."""
    bandit = envs.make({"kind": kind})
    ours = vector(1, env=bandit)
    theirs = SyncVectorEnv([lambda: envs.BanditEnv(bandit)], autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert data_equivalence(ours.reset(seed=5), theirs.reset(seed=5), exact=True)
    arms = np.random.default_rng(0).integers(bandit.arms, size=(200, 1))
    for arm in arms:
        assert data_equivalence(ours.step(arm), theirs.step(arm), exact=True)


def test_many_copies_have_the_shapes_and_types_of_gymnasiums_vectoriser():
    """Values differ, since the copies share a generator; structure and known numbers do not."""
    bandit = envs.make({"kind": "noisy-verifier", "systematic": True})
    ours = vector(6, env=bandit)
    theirs = SyncVectorEnv([lambda: envs.BanditEnv(bandit)] * 6, autoreset_mode=AutoresetMode.SAME_STEP)
    mine, other = ours.reset(seed=1), theirs.reset(seed=1)
    arms = np.arange(6)
    for _ in range(3):
        assert structure(mine) == structure(other)
        mine, other = ours.step(arms), theirs.step(arms)
    observations, rewards, terminations, truncations, infos = mine
    assert terminations.all()
    assert not truncations.any()
    answered = infos["final_obs"].astype(int)
    # systematic verdicts are certain, so the reward is a function of context and arm
    np.testing.assert_array_equal(rewards, bandit.reward[answered, arms])
    np.testing.assert_array_equal(infos["final_info"]["expected_reward"], rewards)
    np.testing.assert_array_equal(infos["final_info"]["success"], bandit.success[answered, arms])
    rates = bandit.pass_rate(bandit.log_policy)
    np.testing.assert_array_equal(infos["final_info"]["pass_rate"], rates[answered])
    np.testing.assert_array_equal(infos["pass_rate"], rates[observations])


def structure(data):
    """Types, keys, shapes."""
    if isinstance(data, dict):
        return {key: structure(value) for key, value in data.items()}
    if isinstance(data, tuple):
        return tuple(structure(value) for value in data)
    return data.shape, data.dtype


def test_the_observation_is_the_context_that_the_next_action_answers():
    env = vector(50, kind="pass-rates", problems=20)
    observations, _ = env.reset(seed=3)
    for _ in range(5):
        following, *_, infos = env.step(np.zeros(50, dtype=np.int64))
        np.testing.assert_array_equal(infos["final_obs"].astype(int), observations)
        observations = following


def test_rewards_and_contexts_of_all_copies_follow_their_law():
    env = vector(20_000, kind="noisy-verifier", contexts=4, arms=3, right=1)
    observations, _ = env.reset(seed=0)
    arms = np.arange(20_000) % 3
    _, rewards, *_ = env.step(arms)
    for context, arm in np.ndindex(4, 3):
        paid = rewards[(observations == context) & (arms == arm)]
        chance = env.unwrapped.bandit.reward[context, arm]
        assert abs(paid.mean() - chance) < 4 * np.sqrt(chance * (1 - chance) / len(paid))
    assert (np.abs(np.bincount(observations) / 20_000 - 1 / 4) < 4 * np.sqrt(3 / 16 / 20_000)).all()


def test_a_seed_repeats_everything_and_another_does_not():
    def run(seed):
        env = vector(200, env="pass-rates")
        trace = [env.reset(seed=seed)[0]]
        for step in range(4):
            observations, rewards, *_ = env.step(np.full(200, step))
            trace += [observations, rewards]
        return np.stack(trace)

    np.testing.assert_array_equal(run(7), run(7))
    assert not np.array_equal(run(7), run(8))


def test_what_is_returned_may_be_written_to():
    env, twin = vector(8, kind="needle", arms=2, contexts=3), vector(8, kind="needle", arms=2, contexts=3)
    env.reset(seed=0)[0][:] = 99
    twin.reset(seed=0)
    for _ in range(3):
        first = env.step(np.zeros(8, dtype=np.int64))
        second = twin.step(np.zeros(8, dtype=np.int64))
        assert data_equivalence(first, second, exact=True)
        first[0][:] = 99
        first[4]["final_info"]["pass_rate"][:] = 99
        first[4]["final_obs"][:] = None


def test_wrappers_work():
    env = RecordEpisodeStatistics(vector(5, env="graded"), buffer_length=10)
    env.reset(seed=0)
    for _ in range(2):
        *_, infos = env.step(np.array([0, 1, 2, 3, 10]))
        np.testing.assert_allclose(infos["episode"]["r"], [0, 0.1, 0.2, 0.3, 1.0])
        np.testing.assert_array_equal(infos["episode"]["l"], 1)
    np.testing.assert_allclose(env.return_queue, [0, 0.1, 0.2, 0.3, 1.0] * 2)

    scaled = TransformReward(vector(5, env="graded"), lambda reward: 10 * reward)
    scaled.reset(seed=0)
    np.testing.assert_allclose(scaled.step(np.arange(5))[1], np.arange(5))


def test_it_can_be_rendered_and_takes_make_vecs_arguments():
    env = vector(2, env="needle", render_mode="ansi", max_episode_steps=1)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    env.reset(seed=0)
    assert env.render() == ("context 0", "context 0")
    *_, truncations, _ = env.step(np.array([0, 1]))
    assert env.render() == ("context 0: arm 0 paid 1", "context 0: arm 1 paid 0")
    assert not truncations.any()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([0, 3]), "actions go from 0 to 3; expected arms from 0 to 2"),
        (np.array([-1, 0]), "actions go from -1 to 0; expected arms from 0 to 2"),
        (np.array([0.0, 1.0]), "dtype float64; expected .2. integers"),
        (np.array([0]), r"actions has shape \[1\]"),
    ],
)
def test_actions_that_do_not_exist_are_refused(actions, message):
    env = vector(2, kind="needle", arms=3)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(actions)


@pytest.mark.parametrize("options", [{"num_envs": 0}, {"max_episode_steps": 0}])
def test_counts_below_one_are_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} is 0; expected an integer >= 1"):
        envs.BanditVectorEnv(**options)
