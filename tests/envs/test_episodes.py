"""Gymnasium environments that nobody here wrote: exact probabilities, groups from one start, resume, and learning."""

import gymnasium
import numpy as np
import pytest
import torch

from pmdkit import train
from pmdkit.envs import load, make
from pmdkit.envs.episodes import EpisodeProblem, EpisodeTask, make_episodes
from pmdkit.envs.kinds import GYMNASIUM
from pmdkit.errors import UsageError
from pmdkit.recording import open_step
from pmdkit.specs import ToySpec, find
from pmdkit.specs.spec import ScheduleTable
from pmdkit.toy.episodes import ActionPolicy, EpisodeLearner
from pmdkit.training import objective_of

NAMES = [name for name in find.names("toy") if find.read(find.spec_file(name, "toy"))["env"]["kind"] == GYMNASIUM]


def learner(problem, layers=1, seed=0, spread=1.0):
    """A policy that is not uniform, so that a wrong probability shows."""
    policy = ActionPolicy(problem.features, problem.actions, 8, layers, seed)
    torch.manual_seed(seed)
    torch.nn.init.normal_(policy.head.weight, std=spread)
    return EpisodeLearner(problem, policy, ScheduleTable(lr=0.1))


@pytest.mark.parametrize("name", NAMES)
def test_every_spec_of_an_environment_builds(name):
    spec = ToySpec.read(name)
    assert (find.root() / "envs" / "toy" / f"{name}.toml").read_text(encoding="utf-8").startswith("# ")
    problem = make_episodes(spec.env)
    assert problem.actions >= 2
    assert objective_of(spec).tau > 0


def test_three_environments_are_on_the_shelf():
    ids = {ToySpec.read(name).env["id"] for name in NAMES}
    assert ids == {"FrozenLake-v1", "Blackjack-v1", "CartPole-v1"}
    readme = (find.root() / "envs" / "README.md").read_text(encoding="utf-8")
    assert all(f"| `toy/{name}.toml` |" in readme for name in NAMES)


@pytest.mark.parametrize("name", ["FrozenLake-v1", "Blackjack-v1", "CartPole-v1"])
def test_an_episode_replayed_in_a_fresh_environment_is_the_episode(name):
    """Its actions from its start, with its own luck: the same observations, the same return, the same end."""
    problem = EpisodeProblem(name, max_steps=30).build()
    mine = learner(problem)
    rollouts = mine.rollout(torch.tensor([3, 8]), 5, seed=1)
    assert rollouts.mask.sum(1).min() >= 1
    luck = []  # of each episode, drawn as `play` draws it
    from pmdkit.randomness import derive

    for n in range(10):
        luck.append(derive(derive(1, "episodes"), "episode", [3, 8][n // 5], n % 5))
    for n in range(10):
        env = gymnasium.make(name, max_episode_steps=30)
        observation, _ = env.reset(seed=[3, 8][n // 5])
        env.unwrapped.np_random = np.random.default_rng(luck[n])
        paid, over = 0.0, False
        for t in range(int(rollouts.mask[n].sum())):
            assert not over
            flat = gymnasium.spaces.flatten(env.observation_space, observation)
            np.testing.assert_array_equal(rollouts.observations[n, t], flat)
            observation, reward, terminated, truncated, _ = env.step(int(rollouts.responses[n, t]))
            paid, over = paid + reward, terminated or truncated
        assert over
        assert rollouts.returns[n] == pytest.approx(paid, abs=1e-12)


@pytest.mark.slow
def test_the_returns_of_a_table_are_those_of_dynamic_programming():
    """Slippery lake, fixed policy: the share of 4,000 episodes that reach the goal within 20 moves, at 4 errors."""
    problem = EpisodeProblem("FrozenLake-v1", max_steps=20).build()
    mine = learner(problem, spread=0.5)
    pi = mine.model(torch.eye(16, dtype=torch.float64)).exp().detach().numpy()
    table = gymnasium.make("FrozenLake-v1").unwrapped.P
    value = np.zeros(16)
    for _ in range(20):
        value = np.array(
            [
                sum(
                    pi[s, a] * p * (r + (not over) * value[after])
                    for a in range(4)
                    for p, after, r, over in table[s][a]
                )
                for s in range(16)
            ]
        )
    found = torch.cat([mine.rollout(torch.arange(n, n + 8), 50, seed=n).returns for n in range(0, 80, 8)]).numpy()
    error = np.sqrt(value[0] * (1 - value[0]) / len(found))
    assert abs(found.mean() - value[0]) < 4 * error


def test_log_probabilities_are_of_the_actions_and_have_gradients():
    problem = EpisodeProblem("CartPole-v1", max_steps=12).build()
    mine = learner(problem, layers=2)
    rollouts = mine.rollout(torch.arange(3), 4, seed=2)
    logp = mine.logp(rollouts)
    torch.testing.assert_close(logp.detach(), rollouts.logp_old, atol=1e-12, rtol=0)
    n, t = map(int, rollouts.mask.nonzero()[-1])
    row = mine.model(rollouts.observations[n, t])
    assert logp[n, t].item() == pytest.approx(row[rollouts.responses[n, t]].item(), abs=1e-12)
    logp.sum().backward()
    assert mine.model.head.weight.grad.abs().sum() > 0
    part = rollouts.part(slice(1, 2))
    torch.testing.assert_close(mine.logp(part), logp[4:8])


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({"id": "Pendulum-v1"}, "actions of Pendulum-v1 are Box"),
        ({"id": "NoSuchThing-v0"}, "env.id is 'NoSuchThing-v0'"),
        ({"id": "os:Any-v0"}, "without a module"),
        ({"id": "CartPole-v1", "options": {"colour": 1}}, "give arguments of CartPole-v1"),
        ({"id": "CartPole-v1", "max_steps": 0}, "env.max_steps is 0"),
    ],
)
def test_what_cannot_be_trained_is_refused(table, wanted):
    with pytest.raises(ValueError, match=wanted):
        make_episodes({"kind": GYMNASIUM, **table})


def test_code_that_options_name_does_not_run_unless_somebody_trusts_it(tmp_path):
    """An environment of pmdkit's own trusts whoever makes it; a spec is not somebody."""
    own = tmp_path / "own.py"
    own.write_text("raise SystemExit('it ran')\n")
    table = {"kind": GYMNASIUM, "id": "pmdkit/Bandit-v0", "max_steps": 1, "options": {"kind": f"{own}:Kind"}}
    with pytest.raises(UsageError, match="add --trust"):
        make_episodes(table)


@pytest.mark.slow
def test_a_one_step_environment_is_a_contextual_bandit():
    """Through the adapter, 2,000 pulls of the shelf's bandit: each context and arm pays what its table says."""
    problem = EpisodeProblem("pmdkit/Bandit-v0", {"env": "two-hills"}, max_steps=1).build()
    bandit = make(load("two-hills").env)
    assert (problem.features, problem.actions, problem.width) == (bandit.contexts, bandit.arms, 1)
    rollouts = learner(problem).rollout(torch.arange(20), 100, seed=4)
    contexts, arms = rollouts.observations[:, 0].argmax(1).numpy(), rollouts.responses[:, 0].numpy()
    surprise = rollouts.returns.numpy() - bandit.reward[contexts, arms]
    assert abs(surprise.mean()) < 4 * surprise.std() / np.sqrt(len(surprise))
    assert surprise.std() > 0


def test_groups_and_warm_starts_that_have_no_meaning_are_refused(tmp_path):
    for options, wanted in (
        ({"schedule.group": None}, "group is not set"),
        ({"warm_start.pass_rate": 0.2}, "no teacher"),
    ):
        with pytest.raises(UsageError, match=wanted):
            train("pmd-mean", "toy", "frozen-lake", out=tmp_path / "run", options=options)


@pytest.mark.slow
def test_a_run_resumes_to_the_same_bits_and_is_evaluated(tmp_path):
    options = {"env.max_steps": 12}
    whole = train(
        "pmd-mean", "toy", "blackjack", steps=2, prompts=4, group=4, out=tmp_path / "whole", options=options, record=2
    )
    assert open_step(whole.path)["responses"].max() < 2
    train("pmd-mean", "toy", "blackjack", steps=1, prompts=4, group=4, out=tmp_path / "two", options=options)
    again = train(
        "pmd-mean", "toy", "blackjack", steps=2, prompts=4, group=4, out=tmp_path / "two", options=options, resume=True
    )
    for a, b in zip(whole.policy.parameters(), again.policy.parameters(), strict=True):
        assert torch.equal(a, b)
    found = whole.evaluate(4, problems=8)
    assert 0 <= found["avg_at_k"]["value"] <= 1
    task = EpisodeTask(make_episodes(whole.spec.env), 4, seed=0)
    assert not set(task.prompts(1).tolist()) & set(task.held_out(64).tolist())
    with pytest.raises(UsageError, match="actions have no text"):
        _ = whole.tokenizer


@pytest.mark.nightly  # half a minute
@pytest.mark.parametrize(
    ("name", "steps", "more"), [("frozen-lake", 30, 0.3), ("blackjack", 30, 0.15), ("cart-pole", 20, 0.2)]
)
def test_it_learns_what_it_is_paid_for(tmp_path, name, steps, more):
    """Mean reward on starts that no step took, before and after."""
    run = train("pmd-mean", "toy", name, steps=steps, out=tmp_path / name)
    assert run.summary["reward_last"] > run.summary["reward_first"] + more
