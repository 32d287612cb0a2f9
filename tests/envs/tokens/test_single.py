"""The Gymnasium environment: its own checker, episodes that end where they must, rewards that are the grade."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from pmdkit import envs
from pmdkit.envs.tokens import KINDS
from pmdkit.envs.tokens.split import is_held_out


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
        ({"env": envs.make_tokens({"kind": "copy"}), "length": 3}, "were given beside a TokenProblem"),
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
