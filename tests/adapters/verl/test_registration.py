"""How the names get into every process of verl, and what happens when another plug-in takes them."""

import importlib
import os
import subprocess
import sys

import pytest
from verl.trainer.ppo import core_algos
from verl_rows import LOSS, config

import pmdkit.adapters.verl as adapter
from pmdkit.adapters.verl import config as loss_config
from pmdkit.adapters.verl.check import checked
from pmdkit.errors import CheckFailed


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
    assert names_after("import verl") == "['pmd', 'pmd_mean', 'pmd_part', 'pmdkit', 'pmdkit']"
    assert names_after("import verl", VERL_USE_EXTERNAL_PLUGINS="none") == "[]"


def test_a_loss_that_disagrees_stops_the_run(monkeypatch):
    """Another plug-in registers a `pmd` of half the size: the first configuration or loss of the process says so."""
    real = core_algos.POLICY_LOSS_REGISTRY["pmd"]

    def other(**arguments):
        loss, metrics = real(**arguments)
        return 0.5 * loss, metrics

    monkeypatch.setattr(loss_config, "STARTED", [])
    loss_config.self_check()
    monkeypatch.setattr(loss_config, "STARTED", [])
    monkeypatch.setitem(core_algos.POLICY_LOSS_REGISTRY, "pmd", other)
    for _ in range(2):  # and says it again
        with pytest.raises(CheckFailed):
            checked(config("+pmd=mean", f"{LOSS}pmd_tau=0.05"))
