"""Sampling of the toy transformer against `generate` of transformers: same weights, same prompts, one thread, one run.

Each task twice: with the first weights, whose responses hardly share a beginning (the worst case), and after a short
supervised phase. Ours returns log-probabilities too; the peer is not asked for them. Times are the least of alternating
repeats. Needs transformers (pip install 'pmdkit[llm]').
"""

import json
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from pmdkit.envs.tokens import KINDS, TokenProblem
from pmdkit.toy.convert import EOS, config_to_llama
from pmdkit.toy.llama import to_llama
from pmdkit.toy.model import ModelConfig, Transformer
from pmdkit.toy.sampling import generate, score

TASKS = ("modular-sum", "addition", "sort", "parity", "maze")
SIZES = ((8, 16), (128, 16))  # prompts and responses per prompt
REPEATS = 4
WARM_STEPS = 200


def taught(model: Transformer, problem: TokenProblem, eos: int) -> None:
    """A few supervised steps on right answers."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    rng = np.random.default_rng(0)
    for _ in range(WARM_STEPS):
        prompts = problem.sample(rng, 128)
        answers = [problem.answer(prompt, rng) for prompt in prompts]
        responses = torch.full((128, problem.width), eos)
        mask = torch.zeros((128, problem.width), dtype=torch.bool)
        for row, answer in enumerate(answers):
            responses[row, : len(answer)] = torch.tensor(answer)
            mask[row, : len(answer)] = True
        optimizer.zero_grad()
        (-score(model, torch.as_tensor(prompts), responses, mask).sum() / mask.sum()).backward()
        optimizer.step()


def peer(model: Transformer, eos: int) -> LlamaForCausalLM:
    """The same model in transformers."""
    table = {k: v for k, v in config_to_llama(model.config, eos).items() if k not in ("architectures", "model_type")}
    theirs = LlamaForCausalLM(LlamaConfig(**table)).eval()
    theirs.load_state_dict(to_llama(model.state_dict(), model.config), strict=not model.config.tied)
    return theirs


def alternate(*calls: Callable[[], object]) -> list[float]:
    """Least seconds of each call."""
    seconds = [float("inf")] * len(calls)
    for repeat in range(REPEATS + 1):  # the first is warm-up
        for i, call in enumerate(calls):
            began = time.perf_counter()
            call()
            if repeat:
                seconds[i] = min(seconds[i], time.perf_counter() - began)
    return seconds


def measure(model: Transformer, prompts: Tensor, group: int, width: int, eos: int) -> dict[str, float]:
    """Milliseconds of both for the same number of responses, and what they look like."""
    theirs = peer(model, eos)
    seen = torch.ones_like(prompts)

    def library() -> Tensor:
        return theirs.generate(
            prompts,
            attention_mask=seen,
            do_sample=True,
            top_k=0,
            num_return_sequences=group,
            max_new_tokens=width,
            pad_token_id=eos,
        )

    ours_s, library_s = alternate(lambda: generate(model, prompts, group, width, eos, seed=0), library)
    _, logp, mask = generate(model, prompts, group, width, eos, seed=0)
    return {
        "length": mask.sum(1).double().mean().item(),
        "nats_per_token": -(logp.sum() / mask.sum()).item(),
        "ours_ms": ours_s * 1e3,
        "generate_ms": library_s * 1e3,
        "ratio": library_s / ours_s,
    }


def main() -> None:
    """One line per task, state of training and size, then the same as JSON."""
    torch.set_num_threads(1)
    rows = []
    for task in TASKS:
        problem = KINDS[task]().build()
        eos = problem.vocabulary.index(EOS)
        model = Transformer(ModelConfig(len(problem.vocabulary), context=problem.prompt_length + problem.width))
        for state in ("first weights", "supervised"):
            if state == "supervised":
                taught(model, problem, eos)
            for prompts, group in SIZES:
                drawn = torch.as_tensor(problem.sample(np.random.default_rng(1), prompts))
                row = measure(model, drawn, group, problem.width, eos)
                rows.append({"task": task, "state": state, "prompts": prompts, "group": group, **row})
                print(
                    f"{task:11s} {state:13s} {prompts:3d} x {group}: "
                    f"{row['length']:4.1f} of {problem.width:2d} tokens, "
                    f"{row['nats_per_token']:4.2f} nats each; ours {row['ours_ms']:6.1f} ms, "
                    f"generate {row['generate_ms']:6.1f} ms = {row['ratio']:4.1f}x",
                    flush=True,
                )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
