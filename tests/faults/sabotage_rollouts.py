"""Planted bugs in what is done with rollouts, evaluations and the verifier's processes."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pmdkit import training
from pmdkit.bandit.learner import BanditLearner
from pmdkit.llm import callbacks, evaluate, rollouts
from pmdkit.toy.learner import ToyLearner

from .sabotage_resume import around_all

DEAF = (
    "import runpy, sys, time; import pmdkit.envs.verifier.worker as worker; "
    "worker.die_with_parent = lambda parent: None; heard = worker.receive_request; "
    "worker.receive_request = lambda pipe: heard(pipe) or time.sleep(600); "
    "import json; worker.main(json.loads(sys.argv[1]))"
)


def reuse() -> None:
    """The rollout that was written down last is used first after a resume, whatever step and policy it is of."""
    run, folders, used = training.fit, [], []

    def execute(spec: Any, objective: Any, setup: Any, folder: Any, display: Any) -> Any:
        folders.append(folder.path)
        summary = run(spec, objective, setup, folder, display)
        (folder.path / ".journal").unlink()
        return summary

    def make(real: Any) -> Any:
        def rollout(self: Any, *given: Any, **named: Any) -> Any:
            journal: Path = folders[0] / ".journal"
            if journal.exists() and not used:
                used.append(True)
                return pickle.loads(journal.read_bytes())
            used.append(True)
            found = real(self, *given, **named)
            (folders[0] / ".journal.new").write_bytes(pickle.dumps(found))
            os.replace(folders[0] / ".journal.new", journal)
            return found

        return rollout

    training.fit = execute
    around_all((BanditLearner, ToyLearner), "rollout", make)


def lose_pending() -> None:
    """What was written ahead of a checkpoint is written again, by the weights of the checkpoint."""
    rollouts.RolloutQueue.load_state_dict = lambda self, state: None


def recompute_old() -> None:
    """pi_old of a rollout from a checkpoint is scored by the present weights."""
    restored, real = set[int](), rollouts.RolloutQueue.collect
    load = rollouts.RolloutQueue.load_state_dict

    def load_state_dict(self: Any, state: Any) -> None:
        load(self, state)
        restored.update(self.restored)

    def collect(self: Any, request: Any) -> Any:
        found = real(self, request)
        return replace(found, logp_old=self.learner.logp(found).detach()) if request.seed in restored else found

    rollouts.RolloutQueue.load_state_dict = load_state_dict
    rollouts.RolloutQueue.collect = collect


def evaluate_again() -> None:
    """Whether an evaluation is done is not looked at."""
    real = callbacks.EvaluationCallback.evaluate

    def again(self: Any) -> Any:
        name = f"{self.evaluation.name}-step-{self.learner.version}"
        for ending in (".json", ".jsonl"):
            (self.folder.evaluations / f"{name}{ending}").unlink(missing_ok=True)
        return real(self)

    callbacks.EvaluationCallback.evaluate = again


def count_twice() -> None:
    """An evaluation that was interrupted begins anew and leaves its record as it is."""
    evaluate.read_record = lambda record, k: {}


def orphan() -> None:
    """A worker of the verifier does not notice that its run is gone."""
    real = subprocess.Popen

    class Popen(real):  # type: ignore[misc, valid-type]
        def __init__(self, command: list[str], **options: Any) -> None:
            super().__init__([sys.executable, "-c", DEAF, command[-1]], **options)

    subprocess.Popen = Popen
