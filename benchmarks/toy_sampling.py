"""Sampling of the toy transformer against `generate` of transformers: same weights, same prompts.

With the initial weights, whose responses share few prefixes (the worst case), and after a short supervised phase.
Ours returns log-probabilities too; the peer is not asked for them.

Kept because rows toy_sampling/ compare toy rollouts with `generate`.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from harness.clock import ratios, turns
from harness.rows import Measured
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from pmdkit.envs.tokens import KINDS, TokenProblem
from pmdkit.toy.model import ModelConfig, Transformer
from pmdkit.toy.sampling import generate, score
from pmdkit_adapters.toy_hf import EOS, config_to_llama, to_llama

TASKS = ("modular-sum", "sort", "addition")
PROMPTS, FEW, GROUP = 128, 8, 16
WARM_STEPS = 200


def taught(model: Transformer, problem: TokenProblem, eos: int) -> None:
    """Train for a few supervised steps on right answers."""
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


def calls(model: Transformer, problem: TokenProblem, eos: int, count: int) -> dict[str, Callable[[], object]]:
    """Both sides, for the same number of responses."""
    prompts = torch.as_tensor(problem.sample(np.random.default_rng(1), count))
    theirs, seen = peer(model, eos), torch.ones_like(prompts)

    def library() -> Tensor:
        return theirs.generate(
            prompts,
            attention_mask=seen,
            do_sample=True,
            top_k=0,
            num_return_sequences=GROUP,
            max_new_tokens=problem.width,
            pad_token_id=eos,
        )

    return {"pmdkit": lambda: generate(model, prompts, GROUP, problem.width, eos, seed=0), "generate": library}


def measure(rounds: int) -> Iterator[Measured]:
    """Each task with its initial weights and after training, and after training with few prompts."""
    torch.set_num_threads(1)
    for task in TASKS:
        problem = KINDS[task]().build()
        eos = problem.vocabulary.index(EOS)
        model = Transformer(ModelConfig(len(problem.vocabulary), context=problem.prompt_length + problem.width))
        found = {"first": turns(calls(model, problem, eos, PROMPTS), rounds, warm_up=True)}
        taught(model, problem, eos)
        found["taught"] = turns(calls(model, problem, eos, PROMPTS), rounds)
        found["few"] = turns(calls(model, problem, eos, FEW), rounds, least_of=3)
        notes = []
        for state in ("first", "few"):
            over = ratios(found[state]["generate"], found[state]["pmdkit"])
            told = {"first": "with its first weights", "few": f"with {FEW} prompts"}[state]
            notes.append(f"{told} {min(over):.1f}x to {max(over):.1f}x")
        over = ratios(found["taught"]["generate"], found["taught"]["pmdkit"])
        yield Measured(f"toy_sampling/{task}", over, found, note="; ".join(notes))
