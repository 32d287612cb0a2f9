"""A hand-written alternative to a toy run: GRPO in one file of torch and transformers; nothing is saved or shown.

`generate` for the rollouts, one forward pass for the old log-probabilities, the clipped loss of GRPO, fused AdamW.

Kept because by_hand.py runs it as the peer of a toy run.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaForCausalLM

CLIP, NORM, EPSILON = 0.2, 1.0, 1e-4  # of the ratio, of the gradient, in the standardised reward


def logps(model: LlamaForCausalLM, ids: Tensor, width: int) -> Tensor:
    """[N, T] log-probabilities of the last T tokens of each row."""
    scores = model(ids[:, :-1], logits_to_keep=width).logits
    return -F.cross_entropy(scores.flatten(0, 1), ids[:, -width:].flatten(), reduction="none").view(-1, width)


def step(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, problem, prompts: np.ndarray, schedule) -> float:
    """Draw G responses to each prompt [P, L], grade them, and update once per ministep; returns the mean reward."""
    group, parts = schedule.group, schedule.ministeps
    asked = torch.from_numpy(prompts)
    with torch.no_grad():
        ids = model.generate(
            asked,
            attention_mask=torch.ones_like(asked),
            do_sample=True,
            top_k=0,
            num_return_sequences=group,
            max_new_tokens=problem.width,
            eos_token_id=problem.eos,
            pad_token_id=problem.eos,
        )
        width = ids.shape[1] - asked.shape[1]
        responses = ids[:, -width:]
        ends = (responses == problem.eos).int()
        mask = ends.cumsum(1) - ends == 0  # up to and including the first end token
        logp_old = logps(model, ids, width)
    reward = torch.from_numpy(problem.grade(prompts, responses.numpy(), mask.numpy()))
    advantage = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + EPSILON)).view(-1, 1).float()
    for rows in torch.arange(len(ids)).chunk(parts):
        ratio = (logps(model, ids[rows], width) - logp_old[rows]).exp()
        gain = torch.minimum(ratio * advantage[rows], ratio.clamp(1 - CLIP, 1 + CLIP) * advantage[rows])
        loss = -((gain * mask[rows]).sum(1) / mask[rows].sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
    return float(reward.mean())


def trained(path: str, problem, batches: list[np.ndarray], schedule, after) -> list[float]:
    """The mean reward of each step; `after` is called at the end of each."""
    torch.manual_seed(1)
    model = LlamaForCausalLM.from_pretrained(path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=schedule.lr, weight_decay=0.0, fused=True)
    found = []
    for prompts in batches:
        found.append(step(model, optimizer, problem, prompts, schedule))
        after()
    return found
