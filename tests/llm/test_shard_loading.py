"""Models made on the meta device and read row by row are, to the bit, those that transformers loads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM

from pmdkit.cli import main
from pmdkit.errors import UsageError
from pmdkit.llm import empty_weights, export, weights
from pmdkit.llm.shard_loading import fill_model, find_sources, make_empty_model
from pmdkit.observe import checkpoint, shards

from .conftest import KINDS, SIZES, build
from .test_parallel import ROOT

MIXTRAL = (MixtralForCausalLM, lambda: MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2))


@pytest.fixture(params=["qwen2", "llama", "qwen3-moe", "mixtral"])
def folder(request, tmp_path, monkeypatch):
    """A model's folder as transformers writes it, in bfloat16 and several files; experts one by one."""
    monkeypatch.setitem(KINDS, "mixtral", MIXTRAL)
    model = build(request.param, torch.bfloat16)
    if request.param == "llama":
        model.config.tie_word_embeddings = True
        model.lm_head.weight = model.model.embed_tokens.weight
    model.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    return tmp_path / "model"


def test_what_is_read_by_rows_is_what_transformers_loads(folder):
    wanted = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = make_empty_model(folder)
    assert all(weight.is_meta for weight in model.parameters())
    assert not any(buffer.is_meta for buffer in model.buffers())
    empty_weights.allocate(model, "cpu")
    fill_model(model, weights.named_weights(model), folder)
    found, stock = model.state_dict(), wanted.state_dict()
    assert found.keys() == stock.keys()
    assert all(torch.equal(found[name], stock[name]) for name in stock)
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), wanted.buffers(), strict=True))
    assert len(weights.named_weights(model)) == len(weights.named_weights(wanted))  # a tied head is one
    assert model.generation_config.to_dict() == wanted.generation_config.to_dict()


def test_some_rows_are_those_rows(folder):
    """Any range of rows of any weight: what a process reads of a weight that is cut."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    named = weights.named_weights(model)
    sources = find_sources(model, named, shards.read_folder(folder, "model"))
    for name, weight in named.items():
        for first, end in ((0, 1), (1, len(weight)), (len(weight) // 2, len(weight) // 2 + 2)):
            rows = weight[first:end]
            target = torch.full_like(rows, -1)
            sources[name].copy_to(target, model, name, tuple(weight.shape), first)
            assert torch.equal(target, rows), name


def test_a_folder_that_lacks_a_weight_or_has_another_shape_is_refused(tmp_path):
    model = build("qwen2")
    state = model.state_dict()
    for name, change, sentence in (
        ("less", lambda held: held.pop("model.norm.weight"), r"weights that no file holds \(model.norm.weight"),
        ("narrow", lambda held: held.update({"model.norm.weight": torch.ones(31)}), r"with the shape \[31\]"),
        ("odd", lambda held: held["model.norm.weight"].fill_(torch.nan), r"not numbers \(NaN in model.norm.weight"),
    ):
        held = {key: value.clone() for key, value in state.items()}
        change(held)
        model.config.save_pretrained(tmp_path / name)
        shards.write_tensors(tmp_path / name / "model.safetensors", held)
        empty = make_empty_model(tmp_path / name)
        empty_weights.allocate(empty, "cpu")
        with pytest.raises(UsageError, match=sentence):
            fill_model(empty, weights.named_weights(empty), tmp_path / name)


def run_of(tmp_path: Path, model) -> Path:
    """The folder of a run with the checkpoint of a model."""
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"tier": "llm"}))
    model.config.save_pretrained(tmp_path / "about")
    state = {
        "model": weights.named_weights(model),
        "optimizer": {"state": {}, "param_groups": [{"lr": 0.1, "params": []}]},
        "version": 3,
    }
    beside = {"config.json": (tmp_path / "about" / "config.json").read_bytes(), "README.md": b"# card\n"}
    checkpoint.save_step(run / "checkpoints", 3, state, keep=2, extra_files=beside)
    return run


@pytest.mark.parametrize("most", [export.FILE_BYTES, 30_000])
def test_a_checkpoint_is_exported_as_transformers_loads_it(tmp_path, monkeypatch, capsys, most):
    """In one file, or in several with an index; nothing of the optimizer, and never in place of something."""
    monkeypatch.setattr(export, "FILE_BYTES", most)
    model, out = build("qwen2"), tmp_path / "out"
    run = run_of(tmp_path, model)
    with pytest.raises(SystemExit) as left:
        main(["export", str(run), "3", str(out), "--json"])
    assert left.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(told["files"]) == sorted(path.name for path in out.iterdir())
    assert ("model.safetensors" in told["files"]) == (most > 30_000)
    assert not {"optimizer.safetensors", "state.json", "manifest.json"} & set(told["files"])
    found = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).state_dict()
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())
    for words, code, sentence in (
        ([str(run), "3", str(out)], 2, "exists; give a new folder"),
        ([str(run), "4", str(tmp_path / "new")], 2, "no checkpoint of step 4; it has those of steps 3"),
        ([str(out), "3", str(tmp_path / "new")], 2, "no checkpoint of step 3"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["export", *words])
        assert left.value.code == code
        assert sentence in capsys.readouterr().err
    weights_file = run / "checkpoints" / "step-3" / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(SystemExit) as left:
        main(["export", str(run), "3", str(tmp_path / "new")])
    assert left.value.code == 5
    assert not (tmp_path / "new").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 4])
def test_a_process_has_its_share_of_the_weights_in_memory_and_little_more(tmp_path, size):
    """Anonymous memory of the host while a model is made, cut and read: at most 1.3 times the process's share."""
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import sharded_saves as s; from pathlib import Path; "
    code += "from transformers import Qwen2Config, Qwen2ForCausalLM; place = Path(sys.argv[1]); "
    code += "Qwen2ForCausalLM(Qwen2Config(**s.SHAPE)).save_pretrained(place / 'model'); "
    code += "found = s.in_ranks(int(sys.argv[2]), 1, place / 'model', place / 'out'); "
    code += "print(max(rank['memory'] for rank in found))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "benchmarks"), str(tmp_path), str(size)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 0.9 < float(done.stdout.split()[-1]) <= 1.3
