"""PMDRecorder in verl's real trainer: what it wrote is what the queue had, and replay and autopsy read it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from trainer_run import GROUP, PROMPTS, STEPS, prompt, response, reward, score, there
from verl_rows import config

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit_adapters.verl import PMDRecorder
from pmdkit_lab.autopsy.report import autopsy
from pmdkit_lab.dumps.recorded import RecordingText, open_step, recorded_steps
from pmdkit_lab.replay import replay

SCRIPT = Path(__file__).with_name("trainer_run.py")


def run(folder, *overrides, **more):
    environment = (
        os.environ
        | more
        | {
            "VERL_FILE_LOGGER_PATH": str(folder / "log.jsonl"),
            "RAY_raylet_start_wait_time_s": "120",
        }
    )
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(folder), *overrides]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600)


def test_recorded_steps_are_what_the_trainer_had_and_can_be_read(tmp_path):
    """Three steps; in the second a session did not end, and verl fills its batch with an empty row."""
    from transformers import Qwen2ForCausalLM

    out = tmp_path / "out"
    done = run(tmp_path, f"+trainer.pmd_recorder.out={out}", "+trainer.pmd_recorder.tau=0.5")
    assert (done.returncode, "pmdkit:" in done.stderr) == (0, False), done.stderr[-3000:]
    logged = [json.loads(line)["data"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert recorded_steps(PMDRecorder(out).folder) == [1, 2, 3]
    first = Qwen2ForCausalLM.from_pretrained(tmp_path / "model")
    for number in range(1, STEPS + 1):
        step = open_step(out, number)
        asked = [tuple(prompt(p)) for p in range(PROMPTS)]
        found = [tuple(x.tolist()) for x in step["prompt_tokens"].split(step["prompt_length"].tolist())]
        assert sorted(found) == sorted(asked)
        assert step.about["version"] == number - 1
        for group, tokens in enumerate(found):  # verl reorders the rows by their length
            p, rows = asked.index(tokens), slice(group * GROUP, (group + 1) * GROUP)
            present = (step["mass"][group] > 0).tolist()
            written = sorted(
                (x[on].tolist(), float(r))
                for x, on, r, here in zip(
                    step["responses"][rows], step.mask[rows], step["reward"][group], present, strict=True
                )
                if here
            )
            assert written == sorted(
                (response(number, p, k), reward(number, p, k)) for k in range(GROUP) if there(number, p, k)
            )
        data = logged[number - 1]
        assert data["pmd/mismatch_mean"] == pytest.approx(0.25, abs=1e-5)
        parts = {part: data[f"pmd/off_policy{part}"] for part in ("", "_mismatch", "_staleness", "_sampler")}
        assert parts["_staleness"] == parts["_sampler"] == 0  # drawn by the newest weights, from the whole softmax
        assert parts[""] == parts["_mismatch"] == pytest.approx(-data["pmd/mismatch_kl"], abs=1e-7)
        assert step.about["golds"] == [f"gold {asked.index(tokens)}" for tokens in found]
        if number == 1:  # verl's own counts the rows that it adds
            assert data["pmd/mismatch_kl"] == pytest.approx(data["rollout_corr/kl"], abs=1e-6)
        assert data["pmd/unscored"] == (number == 2)
        silent = [{reward(number, p, k) for k in range(GROUP) if there(number, p, k)} for p in range(PROMPTS)]
        assert data["pmd/zero_variance_groups"] == sum(len(each) == 1 for each in silent)
        assert data["pmd/anchor"] > 0
        assert "pmd/log_ratio_std" not in data  # it stays in the workers
        assert step.about["updates"] == [{"loss": pytest.approx(data["actor/loss"])}]

    step = open_step(out, 1)
    for row, on in enumerate(step.mask):
        start, length = int(step["prompt_length"][: row // GROUP].sum()), int(step["prompt_length"][row // GROUP])
        whole = torch.cat([step["prompt_tokens"][start : start + length], step["responses"][row][on]])
        wanted = score(first, whole)[-int(on.sum()) :].detach()
        torch.testing.assert_close(step["logp_old"][row][on], wanted, atol=1e-5, rtol=0)
    found = replay.replay(step, replay.make_request(step))
    assert found["recorded"]["objective"] == {
        "name": "grpo",
        "norm": "tokens",
        "std": "sample",
        "clip_low": 0.2,
        "clip_high": 0.2,
    }
    assert found["points"]["old"]["loss"] == pytest.approx(
        step.about["updates"][0]["loss"], abs=1e-4
    )  # 1e-6 beside the std
    assert RecordingText(step, out).response(0)
    report, _ = autopsy(out, {})
    assert report["rows"] == STEPS * PROMPTS * GROUP


@pytest.mark.parametrize("halt", [False, True])
def test_a_grader_that_dies_raises_one_alarm_in_verls_log_and_halt_ends_its_loop(halt, tmp_path):
    out, death = tmp_path / "out", 11
    options = f"+trainer.pmd_recorder={{out: {out}, steps: 2, alarm: true, halt: {halt}}}"
    done = run(tmp_path, options, "trainer.total_epochs=9", GRADER_DIES=str(death))
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((out / "alarm.json").read_text())
    assert (told["step"] in (death, death + 1), told["side"]) == (True, "grader")
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    raised = {line["step"]: line["data"]["pmd/alarm"] for line in logged if "pmd/alarm" in line["data"]}
    assert [step for step, on in raised.items() if on] == [told["step"]]
    assert max(raised) == (told["step"] if halt else death + 3)
    assert done.stderr.count("pmdkit: alarm at") == 1
    assert not open_step(out, told["step"])["reward"][told["groups"]].any()


def test_what_is_refused(tmp_path):
    with pytest.raises(UsageError):
        PMDRecorder(config=config())
    with pytest.raises(UsageError):
        PMDRecorder(tmp_path / "out", steps=0)
    with pytest.raises(EnvironmentLacks):  # a trainer of another version
        PMDRecorder(tmp_path / "out").watch(object)
    assert not (tmp_path / "out").exists()

    def fit(trainer):
        raise AssertionError("the run was started")

    trainer = SimpleNamespace(config=config(), global_steps=0, tokenizer=None)
    (tmp_path / "file").write_text("")
    for out, problem in ((tmp_path, UsageError), (tmp_path / "file" / "out", EnvironmentLacks)):
        with pytest.raises(problem):
            PMDRecorder(out).on_fit(fit, trainer)


def test_no_fault_of_the_recorder_ends_the_training(tmp_path, caplog):
    """What a step is recorded from is missing: verl's update is made all the same, with one warning."""
    recorder, trainer = PMDRecorder(tmp_path / "out"), SimpleNamespace(global_steps=1)
    for step in (1, 2):
        assert recorder.on_update(lambda *given, step=step: step, trainer, None, {}) == step
    assert sum(record.name.startswith("pmdkit") for record in caplog.records) == 1
