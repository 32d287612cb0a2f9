"""How the names get into every process of verl."""

import importlib
import os
import subprocess
import sys

from verl.trainer.ppo import core_algos

import pmdkit_adapters.verl as adapter


def test_registering_again_changes_nothing():
    before = dict(core_algos.ADV_ESTIMATOR_REGISTRY), dict(core_algos.POLICY_LOSS_REGISTRY)
    importlib.reload(adapter)
    assert before == (core_algos.ADV_ESTIMATOR_REGISTRY, core_algos.POLICY_LOSS_REGISTRY)


def names_after(statement, **environment):
    """The names of pmdkit in verl's registries of a new process."""
    code = (
        f"{statement}\nfrom verl.trainer.ppo import core_algos as c\n"
        "print(sorted(n for n in [*c.POLICY_LOSS_REGISTRY, *c.ADV_ESTIMATOR_REGISTRY] if n.startswith('pmd')))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip().splitlines()[-1]


def test_importing_verl_is_enough():
    """By the entry point `verl.plugins`: no key of the run names pmdkit's module."""
    assert names_after("import verl") == "['pmd', 'pmd']"
    assert names_after("import verl", VERL_USE_EXTERNAL_PLUGINS="none") == "[]"
