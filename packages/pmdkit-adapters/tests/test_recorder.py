"""The gauges that recorders log are those that a run of pmdkit writes to metrics.jsonl."""

import errno
import json
import math
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from pmdkit import train
from pmdkit.errors import UsageError
from pmdkit.observe import files
from pmdkit_adapters.recorder import StepRecorder, cut_off, gauges, row_sums
from pmdkit_lab.autopsy.report import scalar_autopsy
from pmdkit_lab.dumps.recorded import decode


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["pmd-part", "grpo"])
def test_gauges_of_a_recorded_step_are_its_line_in_the_metrics(objective, tmp_path):
    """Given the policy after the step, where a recorder has the one before each update, every number is the same."""
    out = tmp_path / "run"
    run = train(
        objective, "toy", "modular-sum", steps=2, out=out, options={"run.record": 1, "warm_start.pass_rate": 0.3}
    )
    for line in run.metrics:
        path = out / "rollouts" / f"step-{line['step']}.safetensors"
        step = decode(path.read_bytes(), str(path))
        sums = row_sums(step.mask, step["logp_old"], step["logp_after"], step["logp_old"] + 0.5)
        found = gauges(step["reward"], sums, line["tau"], step.about["passed"])
        for name in ("mismatch_mean", "mismatch_kl"):
            assert found.pop(name) == pytest.approx(0.5)
        assert found.pop("token_entropy") * float(step.mask.sum()) == pytest.approx(-float(sums[:, 1].sum()))
        moved = (step["logp_after"] - step["logp_old"])[step.mask].double().mean()
        assert found.pop("off_policy") == pytest.approx(float(moved) - 0.5)
        assert found.pop("unscored") == 0
        assert found.pop("log_ratio_std") >= 0
        assert found == pytest.approx({name: line[name] for name in found}, rel=1e-6, abs=1e-9)
        wanted = {"pass_rate", "zero_variance_groups", "kl", "ess", "log_ratio_min", "log_ratio_max", "noise_share"}
        assert found.keys() >= wanted | ({"anchor"} if objective == "pmd-part" else set())


def test_log_ratio_to_the_engine_is_the_sum_of_its_parts_and_cut_off_responses_count_apart():
    """Two tokens and one: pi_old is 0.1, 0.1 and 0.4 nats below the engine, pi 0.3 above pi_old at the last.

    The mismatch is -0.6/3, the staleness 0.3/3 nats per token. The first response is cut off, and paid.
    """
    old, mask = torch.full((2, 2), -1.0), torch.tensor([[True, True], [True, False]])
    engine, seen = old + torch.tensor([[0.1, 0.1], [0.4, 9.0]]), old + torch.tensor([[0.0, 0.0], [0.3, 9.0]])
    responses = torch.tensor([[7, 8], [1, 0]])
    cut = cut_off(responses, mask, 2, [1])
    assert cut.tolist() == [True, False]
    assert cut_off(responses, mask, 2, [1, 8]).tolist() == [False, False]
    reward = torch.tensor([[1.0, 0.0]])
    found = gauges(reward, row_sums(mask, old, seen, engine, cut), None, 0.5, 0.0, 0.0)
    parts = {name: value for name, value in found.items() if name.startswith("off_policy")}
    wanted = {"": -0.1, "_mismatch": -0.2, "_staleness": 0.1, "_sampler": 0.0}
    assert parts == pytest.approx({f"off_policy{name}": value for name, value in wanted.items()}, abs=1e-7)
    assert (found["cut_off"], found["pass_rate"], found["pass_rate_completed"]) == (1, 0.5, 0.0)
    unknown = gauges(reward, row_sums(mask, old, None, engine), None, 0.5, None, 0.0)  # not null, but not there
    assert {name for name in unknown if name.startswith("off_policy")} == {"off_policy", "off_policy_sampler"}


def test_responses_without_a_verdict_and_masked_ones_count_for_nothing():
    reward, mask = torch.tensor([[1.0, 0.0, torch.nan, 1.0]]), torch.ones(4, 2, dtype=torch.bool)
    mask[3] = False
    change = torch.tensor([[0.1, 0.2], [0.0, -0.1], [5.0, 5.0], [7.0, 7.0]])
    found = gauges(reward, row_sums(mask, torch.zeros(4, 2), change, None), 0.5, 0.5)
    assert found["unscored"] == 2
    assert found["pass_rate"] == pytest.approx(0.5)
    assert found["log_ratio_max"] == pytest.approx(0.3)
    assert "mismatch_mean" not in found


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_never_more_than_the_given_number_of_steps_and_all_over_the_run(steps, tmp_path):
    recorder = StepRecorder(tmp_path, steps=steps)
    recorder.stride = 3
    kept = []
    for count in range(50):
        step = 1 + 3 * count
        if recorder.keeps(step, step):
            kept = [one for one in [*kept, step] if recorder.keeps(one, step)]
        assert kept[0] == 1
        assert len(kept) <= steps
        assert len(kept) > min(count, steps - 1) / 2 - 1
        assert len({b - a for a, b in pairwise(kept)}) <= 1  # evenly
    with pytest.raises(UsageError):
        StepRecorder(tmp_path, steps=0)


def test_only_a_trainer_that_resumes_goes_on_in_a_folder(tmp_path):
    facts = {"env": "trl", "width": 4, "seed": 0, "old": "recompute"}
    StepRecorder(tmp_path / "out").begin(True, False, None, {"name": "grpo"}, **facts)
    with pytest.raises(UsageError):
        StepRecorder(tmp_path / "out").begin(True, False, None, {"name": "grpo"}, **facts)
    StepRecorder(tmp_path / "out").begin(True, True, None, {"name": "grpo"}, **facts)


def recorder_of_rows(out):
    """A recorder that has begun, and the arguments of its `write` after the number of the step."""
    recorder = StepRecorder(out)
    recorder.begin(True, False, None, {"name": "grpo"}, env="trl", width=500, seed=0, old="recompute")
    zero = torch.zeros(4, 500)
    rows = {"prompts": [[3, 4], [5]], "mask": zero == 0, "responses": zero.long(), "logp_old": zero}
    return recorder, (0, 0.5, rows, torch.tensor([[0.0, 1.0], [1.0, 0.0]]))


def fails_with(number):
    """A call of the system that fails."""

    def call(*given):
        raise OSError(number, os.strerror(number))

    return call


FAULTS = {  # what happens to the recorder's folder or to a call of the system, before the second step
    "full disk": lambda patch, folder: patch.setattr(files.os, "write", fails_with(errno.ENOSPC)),
    "read-only": lambda patch, folder: patch.setattr(files.os, "open", fails_with(errno.EROFS)),
    "no rename": lambda patch, folder: patch.setattr(files.os, "replace", fails_with(errno.EIO)),
    "folder in its place": lambda patch, folder: (folder / "step-2.safetensors").mkdir(),
    "removed": lambda patch, folder: shutil.rmtree(folder),
    "not a number": None,  # JSON has no NaN
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_recorder_cannot_write_ends_the_recording_and_not_the_run(fault, tmp_path, monkeypatch, caplog):
    """One warning, the step before stays readable, nothing half written stays, and nothing is tried again."""
    recorder, (version, loss, rows, reward) = recorder_of_rows(tmp_path)
    folder = recorder.folder.rollouts
    recorder.write(1, version, loss, rows, reward)
    with monkeypatch.context() as patch:
        if FAULTS[fault] is not None:
            FAULTS[fault](patch, folder)
        recorder.write(2, version, math.nan if fault == "not a number" else loss, rows, reward)
    recorder.write(3, version, loss, rows, reward)
    (record,) = caplog.records
    assert str(tmp_path) in record.getMessage()
    assert [path.name for path in folder.glob("*") if path.is_file()] == ["step-1.safetensors"] * (fault != "removed")
    for path in folder.glob("step-1.*"):
        assert decode(path.read_bytes(), str(path)).about["step"] == 1


@pytest.mark.slow
def test_on_a_disk_that_is_really_full(tmp_path, caplog):
    """A file system of 100 kB in memory, where the system lets this process mount one of its own."""
    place, program = tmp_path / "small", tmp_path / "record.py"
    place.mkdir()
    program.write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_recorder import recorder_of_rows, decode\n"
        f"recorder, given = recorder_of_rows({str(place / 'out')!r})\n"
        "for step in range(1, 30):\n    recorder.write(step, *given)\n"
        "for path in recorder.folder.rollouts.iterdir():\n    decode(path.read_bytes(), 'it')\n    print(path.name)\n"
    )
    mount = f"mount -t tmpfs -o size=100k tmpfs {place} && exec {sys.executable} {program}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, text=True)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("no file system can be mounted here")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the training goes on") == 1
    assert done.stdout.splitlines()[0].startswith("step-")


STEADY = {"token_entropy": 0.8, "mismatch_mean": 0.004}
CHANGES = {  # what changes in the eleventh step: the side, gauges and rewards
    None: ({}, [0.0, 1.0, 1.0, 0.0]),
    "policy": ({"token_entropy": 1.3}, [0.0, 0.0, 0.0, 0.0]),
    "engine": ({"mismatch_mean": 0.03}, [0.0, 1.0, 1.0, 0.0]),
    "grader": ({}, [0.0, 0.0, 0.0, 0.0]),
    "grader or data": ({}, [0.0, 0.02, 0.0, 0.0]),
}


@pytest.mark.parametrize("side", CHANGES, ids=str)
def test_the_alarm_names_the_side_that_changed_once(side, tmp_path, caplog):
    recorder = StepRecorder(tmp_path, steps=4, alarm=True, halt=True)
    for step in range(1, 15):
        noise = 1 + 0.03 * math.sin(7 * step)
        found, reward = CHANGES[side if step > 10 else None]
        found = {name: x * noise for name, x in (STEADY | found).items()}
        rewards = torch.tensor(reward).view(2, 2) + (0.02 * noise if side is None else 0.0)
        chosen = recorder.note(step, found, rewards, True)
        assert bool(chosen) == recorder.keeps(step, step)
        assert bool(recorder.raised) == (side is not None and step > 10)
    lines = [json.loads(line) for line in (tmp_path / "gauges.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 15))
    assert [line["step"] for line in lines if line["alarm"]] == [11] * (side is not None)
    assert recorder.keeps(11, 1000) == (side is not None)  # the step of the alarm survives thinning
    assert len(caplog.records) == (tmp_path / "alarm.json").exists() == (side is not None)
    if side:
        told = json.loads((tmp_path / "alarm.json").read_text())
        assert (told["step"], told["side"]) == (11, side)
    if side == "grader":  # and an autopsy of the log says so, too
        causes = scalar_autopsy(tmp_path / "gauges.jsonl", {})[0]["causes"]
        assert [(cause["name"], cause["steps"][0]) for cause in causes] == [("grader-changed", 11)]


def test_groups_of_an_alarm_are_among_those_recorded(tmp_path):
    """Of 24 groups the first 16 are recorded; one fell to 0 late in the batch."""
    recorder, generator = StepRecorder(tmp_path, alarm=True), torch.Generator().manual_seed(0)
    for step in range(1, 12):
        reward = 0.5 + 0.1 * torch.rand(24, 4, generator=generator, dtype=torch.float64) - 0.3 * (step == 11)
        reward[22] -= 0.2 * (step == 11)
        chosen = recorder.note(step, dict(STEADY), reward, True)
    told = json.loads((tmp_path / "alarm.json").read_text())
    assert chosen[told["groups"][0]] == 22
    assert len(chosen) == 16
    assert told["rows"] == "rollouts/step-11.safetensors"


def test_a_learning_run_raises_no_alarm(tmp_path):
    generator = torch.Generator().manual_seed(0)
    recorder = StepRecorder(tmp_path, alarm=True)
    for step in range(200):
        rate, drawn = 0.2 + 0.7 * step / 200, torch.rand(16, 8, generator=generator, dtype=torch.float64)
        recorder.note(step, {"token_entropy": 0.9 - 0.7 * step / 200}, (drawn < rate).double(), True)
    assert not recorder.raised
    with pytest.raises(UsageError, match="alarm"):
        StepRecorder(tmp_path, halt=True)
