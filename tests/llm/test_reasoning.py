"""The starter trains on puzzles of reasoning-gym, judged by its own verifier in the workers.

The package has an environment of its own, `sh tools/reasoning.sh`.
"""

import pytest

from pmdkit import train

from .ranks import ROOT

TINY = ROOT / "tests" / "llm" / "tiny.toml"
LEARNING = {
    "rollout.width": 32,
    "warm_start.pass_rate": 0.3,
    "warm_start.max_steps": 800,
    "warm_start.look": 20,
    "warm_start.batch": 32,
    "warm_start.lr": 3e-3,
    "reward.grade": "reasoning-gym",
    "reward.seconds": 30.0,
    "schedule.prompts": 16,
    "schedule.group": 16,
    "schedule.lr": 5e-4,
    "evaluation.problems": 64,
    "evaluation.k": 2,
    "evaluation.every": 0,
}


@pytest.mark.slow
def test_the_starter_learns_puzzles_of_the_real_package(tmp_path):
    """Sums of three small numbers; the last evaluation is four standard errors above the first."""
    pytest.importorskip("reasoning_gym")
    options = (
        "{ min_terms = 3, max_terms = 3, min_digits = 1, max_digits = 1, "
        'operators = ["+"], allow_parentheses = false, allow_negation = false }'
    )
    env = f'kind = "reasoning-gym"\ndataset = "basic_arithmetic"\nsize = 3000\nheld_out = 64\noptions = {options}\n'
    recipe = tmp_path / "puzzles.toml"
    recipe.write_text("[env]\n" + env + TINY.read_text().partition("problems = 300\n")[2])
    run = train("pmd-mean", "llm", str(recipe), out=tmp_path / "run", options=LEARNING, steps=20)
    first, last = run.summary["pass_rate_first"], run.summary["pass_rate_last"]
    assert first >= 0.3
    assert last > first + 4 * (0.25 / 128) ** 0.5, (first, last)
    assert all(row["unscored"] == 0 for row in run.metrics)
