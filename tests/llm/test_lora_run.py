"""Runs that train adapters: what their checkpoints hold, and that an interrupted one ends on the same bits."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("peft")

from transformers import AutoModelForCausalLM

from pmdkit import train
from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.llm import adapted
from pmdkit.llm.learner import CausalLearner
from pmdkit.observe import checkpoint

TINY = str(Path(__file__).with_name("tiny.toml"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"warm_start.pass_rate": 0.1}, r"phase 0 .* model\.path=DIR"),
        ({"lora.targets": ["nowhere"]}, "nowhere"),
        ({"lora.rank": -1}, r"lora\.rank"),
        ({"lora.alpha": 0.0}, r"lora\.alpha"),
        ({"lora.rnk": 1}, r"lora\.rank"),
    ],
)
def test_bad_options_stop_before_anything_is_trained(options, told, tmp_path):
    with pytest.raises(UsageError, match=told):
        train("pmd-mean", "llm", TINY, out=tmp_path / "run", options={"lora.rank": 2, **options})
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A starter that ends its answers and has some of them right."""
    place = tmp_path_factory.mktemp("base")
    taught = {"warm_start.pass_rate": 0.01, "warm_start.max_steps": 200, "warm_start.look": 20, "warm_start.batch": 16}
    run = train("pmd-mean", "llm", TINY, out=place / "run", steps=1, options={**taught, "evaluation.problems": 16})
    shutil.copytree(run.path / "checkpoints" / "step-1", place / "model")
    return place / "model"


def go(out, base, **more):
    options = {"model.path": str(base), "model.build": None, "lora.rank": 4, "schedule.lr": 1e-2}
    return train("pmd-mean", "llm", TINY, out=out, options={**options, **more.pop("options", {})}, **more)


def digest(folder):
    """Checkpoint and metrics without wall-clock keys."""
    last = folder / "checkpoints" / f"step-{checkpoint.steps(folder / 'checkpoints')[-1]}"
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in last.iterdir()}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return found, [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


class Killed(BaseException):
    """Stands for a kill: nothing of pmdkit catches it."""


def test_a_run_interrupted_ends_on_the_same_bits(base, tmp_path, monkeypatch):
    whole = go(tmp_path / "whole", base)
    last = whole.path / "checkpoints" / "step-3"
    adapter = load_file(last / "adapter.safetensors")
    assert adapter.keys() == adapted.adapter(whole.policy).keys()
    assert all(torch.equal(adapter[name], weight) for name, weight in adapted.adapter(whole.policy).items())
    assert all(weight.abs().max() > 0 for name, weight in adapter.items() if "lora_B" in name)
    merged = AutoModelForCausalLM.from_pretrained(last).state_dict()
    assert all(torch.equal(merged[name], weight) for name, weight in adapted.merged(whole.policy).items())

    step, calls = CausalLearner.step, 0

    def dies(*given):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise Killed
        return step(*given)

    with monkeypatch.context() as patch:
        patch.setattr(CausalLearner, "step", dies)
        with pytest.raises(Killed):
            go(tmp_path / "run", base)
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [1]
    resumed = go(tmp_path / "run", base, resume=True)
    assert digest(resumed.path) == digest(whole.path)


def test_a_base_that_was_exchanged_is_refused(base, tmp_path):
    mine = tmp_path / "base"
    shutil.copytree(base, mine)
    go(tmp_path / "run", mine, steps=1)
    model = AutoModelForCausalLM.from_pretrained(mine)
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight.add_(1e-2)
    model.save_pretrained(mine)
    with pytest.raises(ResumeRefused, match="base model is not the one"):
        go(tmp_path / "run", mine, steps=2, resume=True)


def test_in_bfloat16_the_engine_writes_with_merged_weights(base, tmp_path):
    """Its copy is rounded, so that log-probabilities differ by a few hundredths, and not by what was learned."""
    run = go(tmp_path / "run", base, options={"model.dtype": "bfloat16", "schedule.lr": 3e-2})
    assert len(run.metrics) == 3
    assert all(row["mismatch_max"] < 0.3 for row in run.metrics)
    assert max(abs(row[f"log_ratio_{end}"]) for row in run.metrics[:2] for end in ("min", "max")) > 1.0


def test_a_run_folder_without_the_table_goes_on(base, tmp_path):
    """As an older version wrote it: no [lora] in config.json means none."""
    out = tmp_path / "run"
    go(out, base, steps=1, options={"lora.rank": 0})
    config = json.loads((out / "config.json").read_text())
    assert config.pop("lora")["rank"] == 0
    (out / "config.json").write_text(json.dumps(config))
    assert len(go(out, base, steps=2, options={"lora.rank": 0}, resume=True).metrics) == 2
    with pytest.raises(ResumeRefused, match=r"lora\.rank was 0 and is now 4"):
        go(out, base, steps=2, resume=True)
