"""Folders that other programs load: the same model and the same words, there and back."""

import json
from dataclasses import replace

import pytest
import torch
import transformers

from pmdkit import train
from pmdkit.envs.tokens import make_tokens
from pmdkit.toy.model import ModelConfig, Transformer
from pmdkit.toy.sampling import generate
from pmdkit_adapters.toy_hf import load_pretrained, save_pretrained

WORDS = ("0", "1", "10", "+", "=", "<eos>")
FAST = {"backend": "toy", "env": "modular-sum", "seed": 5, "prompts": 16, "group": 8, "ministeps": 2}
TINY = {"model.dimension": 16, "model.layers": 1, "model.heads": 2}
CONFIG = ModelConfig(vocabulary=6, context=24, dimension=32, layers=2, heads=2, inner=48)


def model(tied: bool = False) -> Transformer:
    """Logits differ by nats and no norm is 1, so that nothing cancels by chance."""
    made = Transformer(replace(CONFIG, tied=tied), seed=2)
    with torch.no_grad():
        made.head.weight.mul_(15)
        for weight in made.parameters():
            if weight.ndim == 1:
                weight.copy_(torch.linspace(0.5, 1.5, len(weight)))
    return made


@pytest.mark.parametrize("tied", [False, True])
def test_round_trip_changes_no_bit(tmp_path, tied):
    made = model(tied)
    save_pretrained(made, WORDS, tmp_path / "new" / "folder")
    loaded, words = load_pretrained(tmp_path / "new" / "folder")
    assert words == WORDS
    assert loaded.config == made.config
    assert loaded.head.weight.data_ptr() == (loaded.embedding if tied else loaded.head).weight.data_ptr()
    assert all(torch.equal(a, b) for a, b in zip(made.parameters(), loaded.parameters(), strict=True))


@pytest.mark.parametrize("tied", [False, True])
def test_transformers_loads_model_and_tokenizer(tmp_path, tied):
    made = model(tied)
    save_pretrained(made, WORDS, tmp_path)
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert type(theirs).__name__ == "LlamaForCausalLM"
    assert theirs.dtype == torch.float32
    assert theirs.get_input_embeddings().padding_idx is None  # or <eos> would never learn again
    read = torch.randint(6, (4, 24), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logp, expected = made(read).log_softmax(-1), theirs(read).logits.log_softmax(-1)
    torch.testing.assert_close(logp, expected, atol=1e-5, rtol=0)

    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("1 + 10 =").input_ids == [1, 3, 2, 4]
    assert tokenizer.decode([1, 3, 2, 4, 5]) == "1 + 10 = <eos>"
    assert tokenizer.decode([1, 3, 2, 4, 5], skip_special_tokens=True) == "1 + 10 ="
    assert tokenizer(["1", "1 + 0"], padding=True).input_ids == [[5, 5, 1], [1, 3, 0]]
    with pytest.raises(Exception, match="UNK"):  # an unknown word is an error and not a guess
        tokenizer("1 - 0")

    prompt = tokenizer(["1 + 10 =", "0 + 1 ="], return_tensors="pt")
    answer = theirs.generate(**prompt, do_sample=False, max_new_tokens=12)[:, 4:]
    ours = generate(made, prompt.input_ids, 1, 12, eos=5, seed=0, greedy=True)[0]
    assert torch.equal(ours[:, : answer.shape[1]], answer)


def test_a_folder_that_transformers_wrote_is_read_back(tmp_path):
    """A toy run that another program trained further."""
    made = model()
    save_pretrained(made, WORDS, tmp_path / "ours")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.mul_(1.5)
    theirs.save_pretrained(tmp_path / "theirs")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    loaded, words = load_pretrained(tmp_path / "theirs")
    assert words == WORDS
    assert all(torch.equal(1.5 * a, b) for a, b in zip(made.parameters(), loaded.parameters(), strict=True))


@pytest.mark.parametrize(
    "words",
    [
        WORDS[:5],
        ("0", "1", "2", "+", "=", "."),
        ("0", "1", "1 0", "+", "=", "<eos>"),
        ("0", "1", "0", "+", "=", "<eos>"),
    ],
)
def test_words_that_do_not_fit_are_refused_before_anything_is_written(tmp_path, words):
    with pytest.raises(ValueError, match="expected"):
        save_pretrained(model(), words, tmp_path / "folder")
    assert not list(tmp_path.rglob("*.*"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model_type": "qwen2"}, "model_type"),
        ({"num_key_value_heads": 1}, "num_key_value_heads"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2}}, "rope_parameters"),
        ({"rope_parameters": None}, r"NoneType|folder"),
        ({"vocab_size": 7}, "tokenizer"),
        ({"intermediate_size": 64}, "state_dict"),
        ({"tie_word_embeddings": True}, r"lm_head\.weight"),
        ({"num_hidden_layers": 3}, r"model\.layers\.2"),
        ({"num_attention_heads": 5}, "5 heads"),
    ],
)
def test_a_config_that_is_not_ours_is_a_sentence(tmp_path, change, told):
    save_pretrained(model(), WORDS, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=told):
        load_pretrained(tmp_path)


@pytest.mark.parametrize("damage", [None, b"cut", b'{"model": {"type": "BPE"}}'])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_file_that_is_absent_or_of_another_kind_is_a_sentence(tmp_path, name, damage):
    save_pretrained(model(), WORDS, tmp_path)
    (tmp_path / name).unlink() if damage is None else (tmp_path / name).write_bytes(damage)
    with pytest.raises(ValueError, match=r"cannot be read|folder that save_pretrained wrote"):
        load_pretrained(tmp_path)


def test_a_model_folder_continues_where_it_was_saved(tmp_path):
    """A run that starts from the saved policy of another is evaluated first as that one was last."""
    first = train("pmd-mean", steps=6, out=tmp_path / "first", options=TINY, **FAST)
    setup, _ = first.load_policy()
    save_pretrained(first.policy, setup.task.problem.vocabulary, tmp_path / "model")
    second = train("rloo", steps=1, out=tmp_path / "second", options={"model.path": str(tmp_path / "model")}, **FAST)
    assert second.summary["pass_rate_first"] == first.summary["pass_rate_last"]
    assert first.summary["pass_rate_last"] != first.summary["pass_rate_first"]
    saved, words = load_pretrained(tmp_path / "model")
    assert saved.config.dimension == 16  # the folder's size, not the recipe's 64
    assert words == setup.task.problem.vocabulary


@pytest.mark.parametrize(
    ("table", "context", "turn"),
    [({"kind": "modular-sum", "modulus": 7}, 16, 0), ({"kind": "modular-sum"}, 2, 0), ({"kind": "modular-sum"}, 16, 1)],
)
def test_a_model_of_another_task(call, tmp_path, capsys, table, context, turn):
    """Another vocabulary, a context that the response does not fit in, or the same words in another order."""
    words = make_tokens(table).vocabulary
    model = Transformer(ModelConfig(len(words), context, 16, 1, 2, 32))
    save_pretrained(model, (*words[turn:-1], *words[:turn], words[-1]), tmp_path / "model")
    before = {p: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    assert call("toy", "modular-sum", "--set", f"model.path={tmp_path / 'model'}", "--out", tmp_path / "run") == 2
    assert "model.path" in capsys.readouterr().err
    assert before == {p: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    assert not (tmp_path / "run").exists()
