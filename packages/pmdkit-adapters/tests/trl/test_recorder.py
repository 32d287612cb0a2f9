"""PMDRecorder beside the real GRPOTrainer: what it wrote is what TRL computed, and replay and autopsy read it."""

import json
import os

import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.objectives import TAUS, PMDMean
from pmdkit_adapters.trl import PMDRecorder
from pmdkit_lab.autopsy.report import autopsy
from pmdkit_lab.dumps.recorded import RecordingText, open_step, recorded_steps
from pmdkit_lab.replay import replay

from . import train_tiny as tiny

GRPO = {"trainer": GRPOTrainer, "kind": GRPOConfig}
PLAIN = {"loss_type": "grpo", "scale_rewards": "none"}  # without TRL's 1e-4 beside the std


def scored(row):
    """Log-probabilities of a response under the first policy, without padding."""
    model, _ = tiny.model_and_tokenizer()
    asked, answer = tiny.prompt(row // tiny.SIZE), tiny.response(row)
    logits = model(torch.tensor([asked + answer])).logits[0, len(asked) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0].detach()


def gauges(log, name):
    return [row[f"pmd/{name}"] for row in log if f"pmd/{name}" in row]


def assert_rows_are_the_first_ones(step, prompts):
    for row in range(prompts * tiny.SIZE):
        on = step.mask[row]
        assert step["responses"][row][on].tolist() == tiny.response(row)
        torch.testing.assert_close(step["logp_old"][row][on], scored(row), atol=1e-5, rtol=0)
        group, place = divmod(row, tiny.SIZE)
        reward = tiny.reward(row)
        assert bool(step["mass"][group, place] > 0) == (reward is not None)
        assert step["reward"][group, place] == (reward or 0.0)
    assert step["prompt_tokens"].tolist() == [token for p in range(prompts) for token in tiny.prompt(p)]


def test_recorded_steps_are_what_trl_computed_and_can_be_read(tmp_path, monkeypatch):
    """Two rollout batches of two updates: TRL shuffles the rows of each over the two.

    Every response has a verdict: TRL counts one without in the mean of the loss, pmdkit does not.
    """
    plain, out = tiny.reward, tmp_path / "out"
    monkeypatch.setattr(tiny, "reward", lambda row: plain(row) or 0.0)
    record = {"out": out, "tau": 0.5}
    made, log, _ = tiny.train(8, 4, 2, 4, 4, lr=0.05, record=record, **GRPO, **PLAIN)
    first = open_step(out, 1)
    assert first.about["version"] == 0
    assert_rows_are_the_first_ones(first, 4)
    # half of the rows had their update first; the others were seen by a policy that had moved
    moved = torch.where(first.mask, first["logp_seen"] - first["logp_old"], 0.0).sum(1)
    assert sorted((moved.abs() > 1e-5).tolist()) == [False] * 8 + [True] * 8
    assert gauges(log, "log_ratio_std")[0] == pytest.approx(moved.std(correction=0))
    assert gauges(log, "zero_variance_groups")[0] == sum(
        len({tiny.reward(row) for row in range(4 * p, 4 * p + 4)}) == 1 for p in range(4)
    )

    assert min(gauges(log, "anchor")) > 0

    found = replay.replay(first, replay.make_request(first))
    assert found["recorded"]["objective"]["name"] == "grpo"
    assert found["recorded"]["replayed"] == pytest.approx(found["recorded"]["losses"], abs=1e-6)
    text = RecordingText(first, out)
    assert text.prompt(2).endswith(": w16 w17 w18")
    assert text.response(0) == "w1"

    report, _ = autopsy(out, {})
    assert report["rows"] == 32
    assert recorded_steps(PMDRecorder(out).folder) == [1, 3]
    made.args.num_generations = made.num_generations_eval = tiny.SIZE
    made.evaluate(made.train_dataset)  # which is not recorded
    assert recorded_steps(PMDRecorder(out).folder) == [1, 3]


@pytest.mark.parametrize("loss", ["dapo", "dr_grpo"])
def test_other_losses_of_trl_are_replayed_exactly(loss, tmp_path, monkeypatch):
    plain = tiny.reward
    monkeypatch.setattr(tiny, "reward", lambda row: plain(row) or 0.0)
    tiny.train(4, 2, 4, 8, 2, lr=0.02, record={"out": tmp_path / "out"}, **GRPO, **PLAIN | {"loss_type": loss})
    step = open_step(tmp_path / "out")
    found = replay.replay(step, replay.make_request(step))
    assert found["recorded"]["replayed"] == pytest.approx(found["recorded"]["losses"], abs=1e-6)


def test_an_objective_of_pmdkit_is_replayed_exactly(tmp_path):
    record = {"out": tmp_path / "out"}
    made, log, _ = tiny.train(4, 2, 4, 8, 2, lr=0.02, objective=PMDMean(tau=0.5), record=record)
    (recorder,) = (one for one in made.callback_handler.callbacks if isinstance(one, PMDRecorder))
    hook = made._compute_loss
    assert recorder.watch(made).trainer._compute_loss is hook, "a second call wraps nothing"
    step = open_step(tmp_path / "out")
    found = replay.replay(step, replay.make_request(step))
    assert found["recorded"]["objective"] == {**found["objective"], "name": "pmd-mean", "tau": 0.5}
    assert found["recorded"]["replayed"] == pytest.approx(found["recorded"]["losses"], abs=1e-6)
    assert len(gauges(log, "anchor")) == 1  # at the objective's tau
    rule = TAUS["pass-rate"](scale=0.5)
    _, log, _ = tiny.train(4, 2, 4, 8, 2, lr=0.02, objective=PMDMean(tau=rule), record={"out": tmp_path / "rule"})
    step = open_step(tmp_path / "rule")
    assert replay.make_request(step).objective == PMDMean(tau=rule)
    assert gauges(log, "anchor") == []


def test_the_engines_log_probabilities_give_the_mismatch(tmp_path, monkeypatch):
    """An engine that is 0.25 nats off on every token, in turns up and down."""
    plain = tiny.rollout

    def rollout(prompts, trainer):
        found = plain(prompts, trainer)
        logp = [[x + 0.25 * (-1) ** t for t, x in enumerate(scored(row).tolist())] for row in found["row"]]
        return found | {"logprobs": logp}

    monkeypatch.setattr(tiny, "rollout", rollout)
    _, log, _ = tiny.train(4, 4, 4, 4, 1, record={"out": tmp_path / "out"}, **GRPO)
    assert gauges(log, "mismatch_mean") == pytest.approx([0.25], abs=1e-5)
    whole, *parts = (gauges(log, f"off_policy{part}") for part in ("", "_mismatch", "_staleness", "_sampler"))
    assert whole == pytest.approx([sum(part[0] for part in parts)], abs=1e-7)
    assert parts[0] == pytest.approx([-gauges(log, "mismatch_kl")[0]], abs=1e-7)
    assert "logp_engine" in open_step(tmp_path / "out").tensors


@pytest.mark.parametrize("split", [(2, 3, 3, 1), (4, 2, 2, 2)], ids=str)
def test_two_processes(split, launch, tmp_path):
    """In the first case a group lies on both processes."""
    names, prompts = ("micro", "accumulation", "per_rollout", "updates"), 2 * split[0] * split[2] // tiny.SIZE
    record = {"out": str(tmp_path / "run"), "groups": prompts}
    options = dict(zip(names, split, strict=True)) | {"prompts": 2 * prompts, "tau": 0.5, "record": record}
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", tiny.__file__]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    launch(*command, str(tmp_path / "log.json"), json.dumps(options), env=environment)
    step = open_step(tmp_path / "run", 1)
    assert_rows_are_the_first_ones(step, prompts)
    found = replay.replay(step, replay.make_request(step))
    assert found["recorded"]["replayed"] == pytest.approx(found["recorded"]["losses"], abs=1e-6)
    log = json.loads((tmp_path / "log.json").read_text())["log"]
    assert gauges(log, "unscored")[0] == 1.0


def test_the_size_is_bounded_and_what_stays_covers_the_run(tmp_path):
    _, log, _ = tiny.train(14, 8, 1, 1, 7, record={"out": tmp_path / "out", "steps": 2, "groups": 1}, **GRPO)
    folder = PMDRecorder(tmp_path / "out").folder
    assert recorded_steps(folder) == [1, 5]
    assert open_step(folder.path, 5)["mass"].shape == (1, tiny.SIZE)
    assert len(gauges(log, "unscored")) == 7


@pytest.mark.parametrize("halt", [False, True])
def test_a_grader_that_dies_during_a_real_run_raises_one_alarm(halt, tmp_path, caplog):
    """TRL generates and learns; from the eleventh step on the grader pays nothing. Two other steps are kept."""
    seen, out, (model, tokenizer) = [], tmp_path / "out", tiny.model_and_tokenizer()

    def even(completion_ids, **_):
        seen.append(len(completion_ids))
        return [float(len(seen) < 11 and ids[0] % 2 == 0) for ids in completion_ids]

    config = GRPOConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, per_device_train_batch_size=32, num_generations=tiny.SIZE,
        max_steps=14, max_completion_length=4, learning_rate=1e-3, lr_scheduler_type="constant", save_strategy="no",
        logging_steps=1, report_to="none", disable_tqdm=True, gradient_checkpointing=False, seed=1,
    )  # fmt: skip
    data = Dataset.from_dict(
        {"prompt": [f"w{n}" for n in range(20, 39)], "answer": [f"w{n + 1}" for n in range(20, 39)]}
    )
    trainer = GRPOTrainer(model, even, config, data, processing_class=tokenizer)
    PMDRecorder(out, steps=2, groups=4, alarm=True, halt=halt).watch(trainer)
    trainer.train()
    told = json.loads((out / "alarm.json").read_text())
    assert told["step"] in (11, 12)
    assert told["side"] == "grader"
    raised = [row["step"] for row in trainer.state.log_history if row.get("pmd/alarm")]
    assert raised == [told["step"]]
    assert sum("alarm" in record.getMessage() for record in caplog.records) == 1
    assert trainer.state.global_step == len(seen) == (told["step"] if halt else 14)
    assert told["step"] in recorded_steps(PMDRecorder(out).folder)
    step = open_step(out, told["step"])
    assert (out / told["rows"]).exists()
    assert not step["reward"][told["groups"]].any()
    # gold of the data and cut-offs are there for an autopsy
    assert step.about["golds"] == [f"w{token + 1}" for token in step["prompt_tokens"].tolist()]
    ended = [tiny.END in row[on].tolist() for row, on in zip(step["responses"], step.mask, strict=True)]
    assert step["cut"].tolist() == [not each for each in ended]
    steps = autopsy(out, {})[1]
    assert all(
        {"ess", "log_ratio_std", "cut", "passed_completed", "off_policy_staleness"} <= known(each) for each in steps
    )


def known(measures):
    return {name for name, value in measures.items() if value is not None}


@pytest.mark.parametrize("part", ["encode", "gauges", "row_sums", "response_mask"])
def test_no_fault_of_the_recorder_ends_the_training(part, tmp_path, monkeypatch, caplog):
    """Two rollout batches: one warning, whichever part of the recorder fails, and the weights of a run without it."""

    def fails(*given):
        raise OSError("the disk is full")

    place = "pmdkit_adapters.recorder" if part == "encode" else "pmdkit_adapters.trl.recorder"
    monkeypatch.setattr(f"{place}.{part}", fails)
    options = (4, 4, 4, 4, 2)
    made, log, _ = tiny.train(*options, record={"out": tmp_path / "out"}, **GRPO)
    assert sum("the disk is full" in record.getMessage() for record in caplog.records) == 1
    assert recorded_steps(PMDRecorder(tmp_path / "out").folder) == []
    assert len(gauges(log, "unscored")) == (2 if part == "encode" else 0)
    plain = tiny.train(*options, **GRPO)[0]
    for one, other in zip(made.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_is_refused_before_the_first_step(tmp_path, monkeypatch):
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    for out, problem in (
        (full, UsageError),
        (tmp_path / "file", UsageError),
        (tmp_path / "file/out", EnvironmentLacks),
    ):
        with pytest.raises(problem):
            tiny.train(4, 16, 1, 1, 1, record={"out": out}, **GRPO)
    assert [path.name for path in full.iterdir()] == ["thesis.tex"]
    with pytest.raises(UsageError):
        PMDRecorder(tmp_path / "new", groups=0)
    with pytest.raises(UsageError):  # a callback that was given no trainer
        PMDRecorder(tmp_path / "new").on_train_begin(None, None, None)
    with pytest.raises(UsageError):
        PMDRecorder(tmp_path / "new").watch("grpo")
    monkeypatch.delattr(GRPOTrainer, "_compute_loss")
    with pytest.raises(EnvironmentLacks):
        PMDRecorder(tmp_path / "new").watch(GRPOTrainer.__new__(GRPOTrainer))
    assert not (tmp_path / "new").exists()
