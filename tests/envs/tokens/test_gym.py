"""The Gymnasium environment: its own checker, episodes that end where they must, rewards that are the grade."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from pmdkit import envs
from pmdkit.envs.tokens import KINDS
from pmdkit.envs.tokens.problem import is_held_out


@pytest.mark.parametrize("kind", KINDS)
def test_gymnasiums_checker_finds_nothing(kind):
    """Its warnings are errors here."""
    env = gymnasium.make("pmdkit/TokenTask-v0", kind=kind, render_mode="ansi")
    check_env(env.unwrapped)


def test_it_is_made_from_a_name_a_path_a_problem_or_a_kind(tmp_path):
    def problem(**options):
        return gymnasium.make("pmdkit/TokenTask-v0", **options).unwrapped.problem

    assert problem().name == "modular-sum"
    assert problem(env="copy").name == "copy"
    assert problem(env="copy", length=2).length == 2
    path = tmp_path / "own.toml"
    path.write_text('[env]\nkind = "sort"\nlength = 3\n[objective]\nname = "pmd-mean"\n', encoding="utf-8")
    assert problem(env=str(path)) == problem(kind="sort", length=3)
    parity = envs.make_tokens({"kind": "parity"})
    assert problem(env=parity) is parity


@pytest.mark.parametrize("kind", KINDS)
def test_the_teacher_earns_one_at_its_last_token(kind):
    env = envs.TokenEnv(kind=kind)
    problem, length = env.problem, env.problem.prompt_length
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        assert info == {}
        answer = problem.answer(observation[:length], np.random.default_rng(seed))
        for said, token in enumerate(answer, 1):
            observation, reward, terminated, truncated, _ = env.step(token)
            assert (reward, terminated, truncated) == (float(said == len(answer)), said == len(answer), False)
            assert observation[length : length + said].tolist() == answer[:said]
            assert (observation[length + said :] == len(problem.vocabulary)).all()  # padding


def test_an_episode_without_eos_ends_at_the_width_with_nothing():
    env = envs.TokenEnv(kind="copy", length=2, symbols=2, render_mode="ansi")
    observation, _ = env.reset(seed=0)
    prompt = env.problem.text(observation[:2])
    assert env.render() == f"{prompt} ->"
    outcomes = [env.step(token)[1:3] for token in (*observation[:2], 0)]
    assert outcomes == [(0.0, False), (0.0, False), (0.0, True)]
    assert env.render() == f"{prompt} -> {prompt} 0"


def test_held_out_prompts_are_asked_only_when_asked_for():
    for held_out in (False, True):
        env = envs.TokenEnv(kind="sort", held_out=held_out)
        prompts = np.stack([env.reset(seed=seed)[0][:4] for seed in range(100)])
        assert (is_held_out(prompts) == held_out).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"render_mode": "human"}, "render_mode is 'human'; expected None or 'ansi'"),
        ({"env": "copy", "kind": "copy"}, "both env 'copy' and kind 'copy' were given"),
        ({"env": "modular-sums"}, "did you mean 'modular-sum'"),
        ({"modulos": 3}, "did you mean 'env.modulus'"),
        ({"env": envs.make_tokens({"kind": "copy"}), "length": 3}, "were given with a TokenProblem"),
    ],
)
@pytest.mark.parametrize("make", [envs.TokenEnv, envs.TokenVectorEnv])
def test_bad_arguments_are_refused(options, message, make):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_a_token_that_does_not_exist_is_refused():
    env = envs.TokenEnv(kind="copy", symbols=2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="the action is 3; expected a token from 0 to 2"):
        env.step(3)


# The native vector environment: a twin of one environment and of Gymnasium's own vectoriser.


def vector(num_envs, **options):
    return gymnasium.make_vec("pmdkit/TokenTask-v0", num_envs=num_envs, **options)


def taught(problem, observations, rng):
    """The teacher's next token for each copy, a random one for a tenth of them: episodes of every length."""
    length, pad = problem.prompt_length, len(problem.vocabulary)
    tokens = []
    for row in observations:
        said = row[length:][row[length:] < pad]
        answer = problem.answer(row[:length], np.random.default_rng(0))
        follows = len(said) < len(answer) and said.tolist() == answer[: len(said)]
        tokens.append(answer[len(said)] if follows and rng.random() > 0.1 else int(rng.integers(pad)))
    return np.array(tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_one_copy_is_gymnasiums_vectoriser_of_one_environment_to_the_bit(kind):
    """Same generator, same order of draws; observations, rewards, infos, masks, types: everything is equal."""
    problem = envs.make_tokens({"kind": kind})
    ours = vector(1, env=problem)
    theirs = SyncVectorEnv([lambda: envs.TokenEnv(problem)], autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    mine, other = ours.reset(seed=5), theirs.reset(seed=5)
    rng, paid = np.random.default_rng(0), []
    for _ in range(150):
        assert data_equivalence(mine, other, exact=True)
        tokens = taught(problem, mine[0], rng)
        mine, other = ours.step(tokens), theirs.step(tokens)
        paid += mine[1][mine[2]].tolist()
    assert set(paid) == {0.0, 1.0}


@pytest.mark.parametrize("kind", ["copy", "maze"])
def test_many_copies_are_many_environments_each_with_its_own_prompts(kind):
    """Every copy is replayed in a single environment that is given its prompts, episode by episode."""
    problem = envs.make_tokens({"kind": kind})
    ours = vector(7, env=problem, render_mode="ansi")
    single = [envs.TokenEnv(problem, render_mode="ansi") for _ in range(7)]
    length, rng = problem.prompt_length, np.random.default_rng(1)

    def restart(copy, observation):
        single[copy].reset(seed=0)
        single[copy].tokens[:length] = observation[:length]

    observations, _ = ours.reset(seed=2)
    for copy in range(7):
        restart(copy, observations[copy])
    ends = 0
    for _ in range(40):
        tokens = taught(problem, observations, rng)
        observations, rewards, terminations, truncations, infos = ours.step(tokens)
        assert not truncations.any()
        assert ("final_obs" in infos) == terminations.any()
        for copy, token in enumerate(tokens):
            expected, reward, terminated, _, _ = single[copy].step(token)
            assert (reward, terminated) == (rewards[copy], terminations[copy])
            assert ours.render()[copy] == single[copy].render()
            if terminated:
                np.testing.assert_array_equal(infos["final_obs"][copy], expected)
                assert infos["_final_obs"][copy]
                assert (observations[copy, length:] == len(problem.vocabulary)).all()
                restart(copy, observations[copy])
                ends += 1
            else:
                np.testing.assert_array_equal(observations[copy], expected)
                assert "final_obs" not in infos or infos["final_obs"][copy] is None
    assert ends > 20


def test_the_infos_are_those_of_gymnasiums_vectoriser():
    problem = envs.make_tokens({"kind": "copy", "symbols": 2, "length": 2})
    ours = vector(4, env=problem)
    theirs = SyncVectorEnv([lambda: envs.TokenEnv(problem)] * 4, autoreset_mode=AutoresetMode.SAME_STEP)
    ours.reset(seed=0), theirs.reset(seed=0)
    for tokens in ([0, 1, 0, 1], [2, 0, 2, 1], [0, 2, 0, 0], [2, 2, 2, 2]):
        mine, other = ours.step(np.array(tokens))[4], theirs.step(np.array(tokens))[4]
        assert mine.keys() == other.keys()
        for key in mine:
            if key == "final_obs":
                assert [row is None for row in mine[key]] == [row is None for row in other[key]]
            else:
                assert data_equivalence(mine[key], other[key], exact=True)


def test_a_seed_repeats_everything_and_another_does_not():
    def run(seed):
        env = vector(50, env="sort")
        trace = [env.reset(seed=seed)[0]]
        for step in range(12):
            trace.append(env.step((np.arange(50) + step) % 7)[0])
        return np.stack(trace)

    np.testing.assert_array_equal(run(7), run(7))
    assert not np.array_equal(run(7), run(8))


def test_what_is_returned_may_be_written_to():
    env, twin = vector(8, kind="copy"), vector(8, kind="copy")
    env.reset(seed=0)[0][:] = 0
    twin.reset(seed=0)
    for _ in range(12):
        tokens = np.arange(8) % 5
        first, second = env.step(tokens), twin.step(tokens)
        assert data_equivalence(first[:4], second[:4], exact=True)
        first[0][:] = 0
        first[2][:] = True
        for row in first[4].get("final_obs", []):
            if row is not None:
                row[:] = 0


def test_statistics_of_gymnasium_count_whole_episodes():
    env = RecordEpisodeStatistics(vector(3, kind="modular-sum"), buffer_length=10)
    observations, _ = env.reset(seed=0)
    right = observations[:, :2].sum(axis=1) % 10
    *_, infos = env.step(right + np.array([0, 0, 1]) * (1 - 10 * (right == 9)))
    np.testing.assert_array_equal(infos["episode"]["r"], [1, 1, 0])
    np.testing.assert_array_equal(infos["episode"]["l"], 1)


def test_it_takes_make_vecs_arguments():
    env = vector(2, kind="copy", max_episode_steps=5)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    env.reset(seed=0)
    assert env.render() is None
    with pytest.raises(ValueError, match="max_episode_steps is 4; expected at least 5, the width of copy"):
        vector(2, kind="copy", max_episode_steps=4)
    with pytest.raises(ValueError, match="num_envs is 0; expected an integer >= 1"):
        envs.TokenVectorEnv(num_envs=0)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([0, 5]), "actions go from 0 to 5; expected tokens from 0 to 4"),
        (np.array([-1, 0]), "actions go from -1 to 0; expected tokens from 0 to 4"),
        (np.array([0.0, 1.0]), "dtype float64; expected .2. integers"),
        (np.array([0]), r"actions has shape \[1\]"),
    ],
)
def test_actions_that_do_not_exist_are_refused(actions, message):
    env = vector(2, kind="copy")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(actions)
