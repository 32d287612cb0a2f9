"""Run by test_tensor_parallel.py: one of two processes that form one engine, or are two engines, over gloo."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, Qwen2Config

from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.vllm.colocate import ColocatedEngine
from pmdkit.llm.logprobs import response_logp
from pmdkit.llm.model import prepare_model
from pmdkit.randomness import generator

from .conftest import Starter, tokenizer


def main(out: Path, tensor_parallel: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank = dist.get_rank()
    config = Qwen2Config(
        vocab_size=448,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    torch.manual_seed(0)
    model = prepare_model(AutoModelForCausalLM.from_config(config, dtype=torch.float32))
    starter = Starter(model, tokenizer(), (tokenizer().eos_token_id,))
    engine = ColocatedEngine(starter.wanted(size=2, tensor_parallel=tensor_parallel))
    engine.publish(starter.weights(), 1)
    prompts = [[3, 4, 5], [6, 7]] if tensor_parallel == 2 or rank == 0 else [[9, 9], [8, 7, 6, 5]]
    seeds = generator(0, "seeds").integers(0, 2**63, 8).astype("uint64")
    drawn = engine.generate(prompts, 4, seeds, Sampling(16))
    rows = [tokens[on].tolist() for tokens, on in zip(drawn.tokens, drawn.mask, strict=True)]
    with torch.no_grad():
        trainer = response_logp(model, [p for p in prompts for _ in range(4)], rows)
    engine.publish({name: value * 1.1 for name, value in starter.weights().items()}, 2)
    moved = engine.generate(prompts, 4, seeds, Sampling(16))
    error = float((drawn.logp[drawn.mask] - trainer).abs().max())
    engine.close()
    here = torch.ones(1)
    dist.all_reduce(here)  # the trainer's own group is still there
    found = {"error": error, "rows": rows, "moved": moved.tokens.tolist(), "together": float(here)}
    (out / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
