"""Models made on the meta device and filled are, to the bit, those that transformers loads."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM

from pmdkit.errors import UsageError
from pmdkit.llm import shard_loading, weights
from pmdkit.llm.shard_loading import fill_model, make_empty_model
from pmdkit.observe import checkpoint

from .conftest import KINDS, SIZES, build

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


def test_what_is_filled_is_what_transformers_loads(folder):
    wanted = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = make_empty_model(folder)
    assert all(weight.is_meta for weight in model.parameters())
    assert not any(buffer.is_meta for buffer in model.buffers())
    shard_loading.allocate(model, "cpu")
    fill_model(weights.named_weights(model), folder)
    found, stock = model.state_dict(), wanted.state_dict()
    assert found.keys() == stock.keys()
    assert all(torch.equal(found[name], stock[name]) for name in stock)
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), wanted.buffers(), strict=True))
    assert len(weights.named_weights(model)) == len(weights.named_weights(wanted))  # a tied head is one
    assert model.generation_config.to_dict() == wanted.generation_config.to_dict()


def test_a_folder_that_lacks_a_weight_or_has_another_shape_is_refused(tmp_path):
    model = build("qwen2")
    state = model.state_dict()
    for name, change in (
        ("less", lambda held: held.pop("model.norm.weight")),
        ("narrow", lambda held: held.update({"model.norm.weight": torch.ones(31)})),
        ("odd", lambda held: held["model.norm.weight"].fill_(torch.nan)),
    ):
        held = {key: value.clone() for key, value in state.items()}
        change(held)
        model.config.save_pretrained(tmp_path / name)
        save_file(held, tmp_path / name / "model.safetensors", {"format": "pt"})
        empty = make_empty_model(tmp_path / name)
        shard_loading.allocate(empty, "cpu")
        with pytest.raises(UsageError):
            fill_model(weights.named_weights(empty), tmp_path / name)


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
    checkpoint.Checkpoints(run / "checkpoints").save(3, state, keep=2, extra_files=beside)
    return run


def test_a_checkpoint_is_exported_as_transformers_loads_it(call, tmp_path, capsys):
    """Nothing of the optimizer, and never in place of something."""
    model, out = build("qwen2"), tmp_path / "out"
    run = run_of(tmp_path, model)
    assert call("export", run, 3, out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(told["files"]) == sorted(path.name for path in out.iterdir())
    assert not {"optimizer.safetensors", "state.json", "manifest.json"} & set(told["files"])
    found = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).state_dict()
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())
    for words in ([run, 3, out], [run, 4, tmp_path / "new"], [out, 3, tmp_path / "new"]):
        assert call("export", *words) == 2
    model.config.auto_map = {"AutoModelForCausalLM": "theirs.Model"}
    assert call("export", run_of(tmp_path / "theirs", model), 3, tmp_path / "new") == 2
    weights_file = run / "checkpoints" / "step-3" / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:-1] + b"\x01")
    assert call("export", run, 3, tmp_path / "new") == 5
    assert not (tmp_path / "new").exists()
