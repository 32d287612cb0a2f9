"""The starter trains on puzzles of reasoning-gym, judged by its own verifier in the workers.

The real package has an environment of its own, `make test-reasoning`; everywhere else a stand-in with its two calls
runs the same way, from the recipe to the workers that import it.
"""

import sys

import pytest

from pmdkit import train

from .ranks import ROOT

TINY = ROOT / "tests" / "llm" / "tiny.toml"
STAND_IN = '''
"""What pmdkit calls of reasoning-gym: a table of data sets, and puzzles that judge answers."""
from types import SimpleNamespace

factory = SimpleNamespace(DATASETS={"chain_sum": None})


class Puzzles:
    def __init__(self, size, seed, max_terms):
        self.size, self.seed, self.terms = size, seed, max_terms

    def __len__(self):
        return self.size

    def __getitem__(self, n):
        numbers = [(7 * n + 3 * k + self.seed + (n // 11) * (k + 1)) % 9 + 1 for k in range(self.terms)]
        return {"question": f"Puzzle {chr(65 + n % 26)}: " + " + ".join(map(str, numbers)), "answer": str(sum(numbers))}

    def score_answer(self, answer, entry):
        return 1.0 if answer == entry["answer"] else 0.01


def create_dataset(name, size, seed, max_terms):
    return Puzzles(size, seed, max_terms)
'''
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


def learns(tmp_path, dataset, options):
    """Train, and hold the last evaluation to four standard errors above the first."""
    recipe = tmp_path / "puzzles.toml"
    env = f'[env]\nkind = "reasoning-gym"\ndataset = "{dataset}"\nsize = 3000\nheld_out = 64\noptions = {options}\n'
    recipe.write_text(env + TINY.read_text().partition("problems = 300\n")[2])
    run = train(
        "pmd-mean",
        "llm",
        str(recipe),
        out=tmp_path / "run",
        options=LEARNING,
        steps=20,
    )
    first, last = run.summary["pass_rate_first"], run.summary["pass_rate_last"]
    assert first >= 0.3
    assert last > first + 4 * (0.25 / 128) ** 0.5, (first, last)
    assert all(row["unscored"] == 0 for row in run.metrics)


@pytest.mark.slow
def test_the_starter_learns_from_a_stand_in(tmp_path, monkeypatch):
    package = tmp_path / "stand-in" / "reasoning_gym"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN)
    about = package.parent / "reasoning_gym-0.1.25.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: reasoning-gym\nVersion: 0.1.25\n")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{ROOT}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "reasoning_gym"]:
        monkeypatch.delitem(sys.modules, name)
    try:
        learns(tmp_path, "chain_sum", "{ max_terms = 2 }")
    finally:
        sys.modules.pop("reasoning_gym", None)


@pytest.mark.slow
def test_the_starter_learns_puzzles_of_the_real_package(tmp_path):
    """Sums of three small numbers, which is what the starter's teacher knows."""
    pytest.importorskip("reasoning_gym")
    wanted = "min_terms = 3, max_terms = 3, min_digits = 1, max_digits = 1"
    more = 'operators = ["+"], allow_parentheses = false, allow_negation = false'
    learns(tmp_path, "basic_arithmetic", f"{{ {wanted}, {more} }}")
