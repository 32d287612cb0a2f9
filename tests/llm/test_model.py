"""Which model folders are taken, which are refused, and how that is said."""

import json
import shutil

import pytest
import torch

from pmdkit.errors import UsageError
from pmdkit.llm.model import end_tokens, load_model


@pytest.fixture
def folder(model_folder, tmp_path):
    return shutil.copytree(model_folder, tmp_path / "model")


def test_a_whole_folder_loads_in_float32_and_has_an_end(folder):
    model, tokenizer = load_model(str(folder))
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert end_tokens(model, tokenizer) == (tokenizer.eos_token_id,)


def test_every_end_counts(folder):
    """Chat models end at the end of a message, base models at the end of a text; generation_config names both."""
    model, tokenizer = load_model(str(folder))
    model.generation_config.eos_token_id = [5, tokenizer.eos_token_id]
    assert set(end_tokens(model, tokenizer)) == {5, tokenizer.eos_token_id}


def edit(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda f: (f / "tokenizer.json").unlink(),
        lambda f: (f / "model.safetensors").unlink(),
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        lambda f: (f / "config.json").unlink(),
        lambda f: (f / "config.json").write_text("{"),
        lambda f: edit(f / "config.json", auto_map={"AutoModel": "x.Y"}),
        lambda f: (f / "model.safetensors").write_bytes(b"no"),
    ],
)
def test_what_cannot_be_trusted_or_is_incomplete_is_refused(spoil, folder):
    spoil(folder)
    with pytest.raises(UsageError):
        load_model(str(folder))
