"""Logged responses: a step from its own recording is the step, other forms of the same log, and what is refused."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pmdkit import train
from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.llm.contrib.offline import read_log
from pmdkit.recording import open_step

from .ranks import ROOT

TINY = str(ROOT / "tests" / "llm" / "tiny.toml")
GRADE = "def odd(response, cut_off):\n    return float(sum(map(ord, response)) % 4 == 0)\n"
OPTIONS = {"rollout.width": 6, "evaluation.problems": 4, "evaluation.every": 0, "schedule.optimizer": "sgd"}


def trained(folder, name, **options):
    own = folder / "own.py"
    own.write_text(GRADE)
    resume, steps = options.pop("resume", False), options.pop("steps", 1)
    changes = {**OPTIONS, "reward.grade": f"{own}:odd", "schedule.ministeps": 1, "schedule.lr": 0.1, **options}
    place = folder / name
    return train(
        "pmd-mean", "llm", TINY, out=place, trust=str(own), options=changes, steps=steps, record=1, resume=resume
    )


def weights(run, step):
    return load_file(run.path / "checkpoints" / f"step-{step}" / "model.safetensors")


def lines_of(run, step=1):
    """A recorded step as another program may write it down."""
    part = open_step(run.path, step)
    ids, size = part.about["problems"], part["mass"].shape[1]
    rows = zip(part["responses"], part["logp_old"], part.mask, strict=True)
    return [
        {"id": ids[n // size], "token_ids": tokens[mask].tolist(), "logprobs": logp[mask].double().tolist()}
        for n, (tokens, logp, mask) in enumerate(rows)
    ]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A step with drawn responses, whose rewards differ."""
    folder = tmp_path_factory.mktemp("drawn")
    run = trained(folder, "drawn")
    assert 0 < run.metrics[0]["pass_rate"] < 1
    return folder, run


@pytest.mark.slow  # runs of a language model
@pytest.mark.parametrize("form", ["run", "file", "jsonl"])
def test_a_step_from_its_own_recording_is_the_step(drawn, form):
    """The same groups, in another order: the same loss and, but for rounding, the same weights."""
    folder, run = drawn
    log = {"run": run.path, "file": run.path / "rollouts" / "step-1.safetensors", "jsonl": folder / "log.jsonl"}[form]
    if form == "jsonl":
        log.write_text("\n".join(json.dumps(line) for line in lines_of(run)))
    again = trained(folder, form, **{"rollout.log": str(log)})
    for name, value in weights(run, 1).items():
        torch.testing.assert_close(weights(again, 1)[name], value, atol=1e-6, rtol=1e-5)
    assert again.metrics[0]["loss"] == pytest.approx(run.metrics[0]["loss"], rel=1e-6)
    assert again.metrics[0]["pass_rate"] == run.metrics[0]["pass_rate"]
    assert again.metrics[0]["scored_by_reference"] == 0


@pytest.mark.slow  # runs of a language model
def test_what_has_no_log_probabilities_is_scored_by_the_first_policy_also_after_a_resume(drawn, capsys):
    """Here that policy wrote the log: they are its own to float32. A resumed run has the bits of a whole one."""
    folder, run = drawn
    log = folder / "unscored.jsonl"
    log.write_text("\n".join(json.dumps({k: v for k, v in line.items() if k != "logprobs"}) for line in lines_of(run)))
    whole = trained(folder, "whole", **{"rollout.log": str(log), "steps": 2})
    assert "16 logged responses have no log-probabilities" in capsys.readouterr().err
    assert [row["scored_by_reference"] for row in whole.metrics] == [16, 16]
    assert [row["staleness"] for row in whole.metrics] == [0, 1]  # the log does not get younger
    found, wanted = open_step(whole.path, 1), open_step(run.path, 1)
    order = [wanted.about["problems"].index(name) for name in found.about["problems"]]
    logp = wanted["logp_old"].view(4, 4, -1)[order].view(16, -1)
    torch.testing.assert_close(found["logp_old"].float(), logp.float(), atol=1e-5, rtol=0)
    trained(folder, "resumed", **{"rollout.log": str(log), "steps": 1})
    resumed = trained(folder, "resumed", **{"rollout.log": str(log), "steps": 2, "resume": True})
    for name, value in weights(whole, 2).items():
        assert torch.equal(weights(resumed, 2)[name], value), name


ENCODER = SimpleNamespace(encode=lambda text: [3, len(text)], data=lambda text: [5] * len(text))
PROBLEMS = MathProblems(
    "two", [Problem("a", "1 + 1", "2"), Problem("b", "2 + 2", "4")].__getitem__, np.arange(1), np.arange(1, 2)
)


def read(folder, *lines, size=2):
    path = folder / "log.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return read_log(path, PROBLEMS, ENCODER, [9], size, 4, 50)


def test_groups_are_of_one_problem_and_one_policy_and_what_is_left_out_is_counted(tmp_path):
    """Texts end with the end token unless they were cut off; `b` is held out."""
    log = read(
        tmp_path,
        {"id": "a", "response": "xy"},
        {"problem": "1  +\n1", "response": "x", "cut_off": True},
        {"id": "a", "response": "x", "policy": "other"},
        {"id": "b", "response": "x"},
        {"id": "a", "response": "xxxxxxx"},
    )
    assert [[list(row.tokens) for row in group] for group in log.groups] == [[[5, 5, 9], [5]]]
    assert log.problems.tolist() == [0]
    assert log.unscored == 2
    assert sorted(log.left_out.values()) == [1, 1, 1]
