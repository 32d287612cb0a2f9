"""The shelf envs/: every spec loads and builds, every program on it runs, the README tells the truth about it."""

import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
import torch

from pmdkit import envs
from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs import tokens
from pmdkit.loop import Schedule, run
from pmdkit.objectives import load_objective
from pmdkit.specs import ToySpec, find

NAMES = find.names("bandit")
SHELF = find.root() / "envs"


@pytest.mark.parametrize("name", NAMES)
def test_every_spec_says_what_it_shows_and_builds(name):
    path = SHELF / "bandit" / f"{name}.toml"
    assert path.read_text(encoding="utf-8").startswith("# ")
    spec = envs.load(name)
    assert (spec.tier, spec.name) == ("bandit", name)
    assert envs.make(spec.env).arms >= 2
    assert load_objective(**({"name_or_path": spec.objective.pop("name")} | spec.objective)).tau > 0
    np.testing.assert_array_equal(envs.make(envs.load(str(path)).env).reward, envs.make(spec.env).reward)


@pytest.mark.parametrize("kind", tokens.KINDS)
def test_every_kind_of_task_has_a_spec_that_says_what_it_shows_and_builds(kind):
    (name,) = (each for each in find.names("toy") if find.read(find.spec_file(each, "toy"))["env"]["kind"] == kind)
    assert (SHELF / "toy" / f"{name}.toml").read_text(encoding="utf-8").startswith("# ")
    spec = ToySpec.read(name)
    envs.make_tokens(spec.env)
    assert load_objective(spec.objective.pop("name"), **spec.objective).tau == 0.05
    assert spec.model.dimension % (2 * spec.model.heads) == 0


def exact(name, steps):
    """Pass rates [steps + 1, S] and mean rewards of the spec's own exact run, by Newton on the full expectation."""
    spec = envs.load(name)
    bandit = envs.make(spec.env)
    features = None if bandit.features is None else torch.tensor(bandit.features)
    learner = BanditLearner(torch.tensor(bandit.log_policy), features, "regression")
    objective = load_objective("pmd-mean", tau=spec.objective["tau"])
    policies = [learner.log_policy().numpy()]
    run(
        objective,
        learner,
        envs.BanditTask(bandit),
        Schedule(steps),
        [lambda *_: policies.append(learner.log_policy().numpy())],
    )
    pass_rates = None if bandit.success is None else np.stack([bandit.pass_rate(policy) for policy in policies])
    return pass_rates, np.stack([bandit.mean_reward(policy) for policy in policies])


@pytest.mark.slow
def test_the_numbers_in_the_comments_are_measured():
    """To the digits printed there."""
    for name in ("needle", "plus-minus"):
        np.testing.assert_allclose(exact(name, 2)[0][:, 0], [0.01, 0.379, 0.9997], atol=5e-4)
    assert exact("two-hills", 20)[0][-1].min() > 0.999
    np.testing.assert_allclose(exact("graded", 3)[1][:, 0], [0.5, 0.866, 0.983, 1], atol=5e-4)
    rates, _ = exact("shared-features", 30)
    np.testing.assert_allclose(rates[[0, -1], :12].mean(1), [0.18, 1], atol=5e-3)
    np.testing.assert_allclose(rates[[0, -1], 12:].mean(1), [0.20, 0], atol=5e-3)
    rates, _ = exact("pass-rates", 1)
    np.testing.assert_allclose(rates[1][[0, 35]], [0.42, 0.998], atol=5e-3)


SHORT = {"optuna_search": ["--trials", "2", "--steps", "2", "--seeds", "1"]}


@pytest.mark.slow
def test_every_program_runs_and_prints(tmp_path):
    elsewhere = {SHELF / "own_gymnasium.py", SHELF / "reasoning_puzzles.py"}  # test_gym.py, test_reasoning_puzzles.py
    for program in sorted({*SHELF.glob("*.py")} - elsewhere):
        words = [sys.executable, str(program), *SHORT.pop(program.stem, [])]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
    assert SHORT == {}


def test_the_own_bandit_has_the_exact_chances_of_dice():
    kind = f"{SHELF / 'own_bandit.py'}:OwnBandit"
    bandit = envs.make({"kind": kind})
    # a total of 7 (context 4): 1/6 with two dice, 15/216 with three; one die cannot
    np.testing.assert_allclose(bandit.success[4, :3], [0, 1 / 6, 15 / 216], atol=1e-15)


def test_the_own_task_has_as_many_answers_as_ways_to_split():
    task = envs.make_tokens({"kind": f"{SHELF / 'own_task.py'}:OwnTask", "highest": 6})
    responses, mask = task.responses()
    right = task.grade(task.grid, np.tile(responses, (7, 1)), np.tile(mask, (7, 1)))
    np.testing.assert_array_equal(right.sum(axis=1), np.arange(7) + 1)


def test_the_readme_names_every_file_kind_and_option():
    text = (SHELF / "README.md").read_text(encoding="utf-8")
    for tier in ("bandit", "toy"):
        for name in find.names(tier):
            assert f"| `{tier}/{name}.toml` |" in text
    for name, kind in (*envs.KINDS.items(), *tokens.KINDS.items()):
        options = ", ".join(f"`{field.name}`" for field in fields(kind))
        assert f"| `{name}` | {options} |" in text
