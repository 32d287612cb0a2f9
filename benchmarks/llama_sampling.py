"""llama.cpp, in this process, against the embedded engine: the rollouts of rollout_cases.py, one thread, float32.

llama.cpp reads each prompt once, shares its cache within the group, is given the length of each row, and uses its own
sampler. It does not compute log-probabilities; our engine does. Needs llama-cpp-python==0.3.36 and gguf.

Kept because rows llama_sampling/ compare the embedded engine with llama.cpp.
"""

import ctypes
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import llama_cpp as c
import numpy as np
import torch
from harness.clock import rate, ratios, turns
from harness.rows import Measured
from rollout_cases import CASES, PROMPT, Case
from transformers import PreTrainedModel

OF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OF_MODEL = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
CLOSE = 1e-2  # for logits of order 1: llama.cpp's attention rounds to half precision; otherwise they agree to 1e-5


@c.llama_log_callback
def silent(*_: object) -> None:
    """Discard the log: llama.cpp prints a screenful per model."""


def named(name: str) -> str:
    """The name of a Qwen2 tensor in llama.cpp."""
    place, kind = name.rsplit(".", 1)
    if place in OF_MODEL:
        return f"{OF_MODEL[place]}.{kind}"
    layer, part = place.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{OF_LAYER[part]}.{kind}"


def saved(model: PreTrainedModel, path: Path) -> None:
    """Save the model as GGUF, in float32, without a tokenizer."""
    config = model.config
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(config.vocab_size)
    for name, weight in model.state_dict().items():
        if not (name == "lm_head.weight" and config.tie_word_embeddings):
            writer.add_tensor(named(name), weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Llama:
    """The model of a case, in llama.cpp."""

    def __init__(self, case: Case, path: Path) -> None:
        saved(case.model(), path)
        self.case = case
        self.model = c.llama_model_load_from_file(str(path).encode(), c.llama_model_default_params())
        given = c.llama_context_default_params()
        given.n_ctx = case.prompts * PROMPT + case.rows * case.cut
        given.n_batch = given.n_ubatch = max(case.prompts * PROMPT, case.rows)
        given.n_seq_max = case.rows
        given.n_threads = given.n_threads_batch = 1
        given.type_k = given.type_v = c.GGML_TYPE_F32
        given.kv_unified = True  # prefixes that sequences share are stored once
        self.context = c.llama_init_from_model(self.model, given)
        self.batch = c.llama_batch_init(given.n_batch, 0, 1)
        self.sampler = c.llama_sampler_init_dist(0)

    def read(self, tokens: list[tuple[int, int, int, bool]]) -> None:
        """One pass over (token, position, sequence, whether logits are needed)."""
        self.batch.n_tokens = len(tokens)
        for place, (token, position, sequence, asked) in enumerate(tokens):
            self.batch.token[place], self.batch.pos[place] = token, position
            self.batch.n_seq_id[place], self.batch.seq_id[place][0] = 1, sequence
            self.batch.logits[place] = asked
        code = c.llama_decode(self.context, self.batch)
        assert code == 0, f"llama_decode returned {code}"

    def begin(self) -> list[int]:
        """Read each prompt once; returns the position in the batch of each prompt's last token."""
        memory, group = c.llama_get_memory(self.context), self.case.group
        c.llama_memory_clear(memory, False)
        self.read(
            [
                (token, at, prompt * group, at == PROMPT - 1)
                for prompt, asked in enumerate(self.case.asked.tolist())
                for at, token in enumerate(asked)
            ]
        )
        for prompt, copy in itertools.product(range(self.case.prompts), range(1, group)):
            c.llama_memory_seq_cp(memory, prompt * group, prompt * group + copy, -1, -1)
        return [(prompt + 1) * PROMPT - 1 for prompt in range(self.case.prompts)]

    def write(self) -> None:
        """Generate all responses, each of the length that the case sets."""
        lengths = self.case.lengths.tolist()
        places = {
            row: place
            for place, row in zip(np.repeat(self.begin(), self.case.group), range(self.case.rows), strict=True)
        }
        written = 0
        for at in range(self.case.cut):
            drawn = {row: c.llama_sampler_sample(self.sampler, self.context, place) for row, place in places.items()}
            written += len(drawn)
            going = [row for row in drawn if lengths[row] > at + 1]
            if not going:
                break
            self.read([(drawn[row], PROMPT + at, row, True) for row in going])
            places = {row: place for place, row in enumerate(going)}
        assert written == self.case.tokens, f"{written} tokens were written where {self.case.tokens} are asked for"

    def logits(self) -> torch.Tensor:
        """[P, V] logits after each prompt."""
        size = ctypes.c_float * self.case.vocabulary
        pointers = [c.llama_get_logits_ith(self.context, place) for place in self.begin()]
        return torch.stack(
            [
                torch.frombuffer(size.from_address(ctypes.addressof(p.contents)), dtype=torch.float32).clone()
                for p in pointers
            ]
        )

    def close(self) -> None:
        """Free all memory."""
        c.llama_batch_free(self.batch)
        c.llama_sampler_free(self.sampler)
        c.llama_free(self.context)
        c.llama_model_free(self.model)


def apart(llama: Llama) -> float:
    """The largest difference between its logits and those of transformers, which reveals a wrong conversion."""
    with torch.inference_mode():
        theirs = llama.case.model()(torch.from_numpy(llama.case.asked)).logits[:, -1]
    return float((llama.logits() - theirs).abs().max())


def measure(rounds: int) -> Iterator[Measured]:
    """One row per case."""
    torch.set_num_threads(1)
    c.llama_log_set(silent, ctypes.c_void_p(0))
    c.llama_backend_init()
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            llama = Llama(case, Path(folder) / "model.gguf")
            difference = apart(llama)
            assert difference < CLOSE, f"logits of llama.cpp and transformers differ by {difference:.2g}"
            calls: dict[str, Callable[[], object]] = {"pmdkit": case.ours(), "llama.cpp": llama.write}
            found = turns(calls, rounds, warm_up=True)
            llama.close()
        speeds = {side: rate(case.tokens, readings) for side, readings in found.items()}
        yield Measured(
            f"llama_sampling/{name}",
            ratios(found["llama.cpp"], found["pmdkit"]),
            {"seconds": found, "tokens a second": speeds, "logits apart": difference},
            note=f"{max(speeds['pmdkit']):.0f} and {max(speeds['llama.cpp']):.0f} tokens a CPU second",
        )
