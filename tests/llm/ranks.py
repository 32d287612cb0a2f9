"""What test_parallel.py computes alone and in two processes: its cases as a module, one of the two as a program."""

import json
import os
import sys
from copy import deepcopy
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from pmdkit.envs.math_answers import Grader, Item
from pmdkit.llm.engines.embedded import EmbeddedEngine
from pmdkit.llm.engines.protocol import Sampling
from pmdkit.llm.engines.shared import SharedEngine
from pmdkit.llm.jury import SharedGrader
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.load import ready
from pmdkit.llm.shards import whole
from pmdkit.objectives import OBJECTIVES, Groups, credit
from pmdkit.objectives.traits import traits
from pmdkit.observe import checkpoint
from pmdkit.tables import ScheduleTable, UpdateTable
from pmdkit.team import Team

from .conftest import EOS, build

PROMPTS = [[5, 9, 3], [7, 7], [11, 4, 8, 6, 30], [12, 3]]
CASES = {
    # name: kind, objective, prompts, checkpointing
    "fused": ("qwen2", "pmd-mean", 3, False),
    "experts": ("qwen3-moe", "pmd-mean", 3, True),
    "per token": ("qwen2", "grpo", 4, True),
    "whole groups": ("qwen3-moe", "tb", 1, False),
}
STRATEGIES = ("ddp", "fsdp2")


def learner(
    team: Team, kind: str, objective: str, optimizer: str = "sgd", checkpointing: bool = False
) -> CausalLearner:
    """A learner in float32, its head tied, whose token budget cuts a step into several passes."""
    model = build(kind)
    model.config.tie_word_embeddings = True
    model.lm_head.weight = model.model.embed_tokens.weight
    ready(model, checkpointing=checkpointing)
    copy = deepcopy(model).requires_grad_(False) if team.strategy == "fsdp2" else model
    engine = EmbeddedEngine(copy, EOS)
    return CausalLearner(
        model,
        None,
        lambda number: PROMPTS[number],
        engine if team.size == 1 else SharedEngine(engine, team, EOS),
        Sampling(6),
        ScheduleTable(lr=1e-2, optimizer=optimizer),
        UpdateTable(token_budget=14, clip=0.5),
        reference=traits(OBJECTIVES[objective]()).uses_reference,
        team=team,
    )


def step_of(mine: CausalLearner, name: str, prompts: int, seed: int = 0):
    """Rollouts and their batch, with rewards that differ."""
    objective = OBJECTIVES[name]()
    rollouts = mine.rollout(torch.arange(prompts), 4, seed)
    reward = (rollouts.responses[:, 0] % 3).double().view(prompts, 4)
    groups = Groups(reward, rollouts.mass)
    batch = credit(objective, groups, rollouts.logp_old, rollouts.mask, rollouts.logp_ref, rollouts.width)
    return objective, rollouts, batch


def one_case(team: Team, name: str) -> dict[str, Tensor]:
    """Rollouts, two updates, and what they left."""
    kind, objective, prompts, checkpointing = CASES[name]
    mine = learner(team, kind, objective, checkpointing=checkpointing)
    objective, rollouts, batch = step_of(mine, objective, prompts)
    found = {"responses": rollouts.responses, "logp_old": rollouts.logp_old, "mask": rollouts.mask.int()}
    for turn in range(2):
        report = mine.update(objective, rollouts, batch)
        found[f"report {turn}"] = torch.tensor([report["loss"], report["grad_norm"]], dtype=torch.float64)
        for key, weight in mine.model.named_parameters():
            found[f"gradient {turn} {key}"] = whole(weight.grad)
    for key, weight in mine.model.named_parameters():
        found[f"weight {key}"] = whole(weight.detach())
    with torch.no_grad():
        found["logp"] = mine.logp(rollouts)
    mine.version = 1
    again = mine.rollout(torch.arange(prompts), 4, 1)
    found["responses of the new weights"] = again.responses
    return {key: value.contiguous().clone() for key, value in found.items()}


def go_on(team: Team, folder: Path) -> dict[str, Tensor]:
    """A step of AdamW on what the newest checkpoint holds; its own checkpoint is written beside it."""
    mine = learner(team, "qwen2", "pmd-mean", "adamw")
    start, state, _ = checkpoint.load_newest(folder) if team.main else (0, {}, [])
    start, state = team.hand_out(start, state)
    mine.load_state_dict(state)
    objective, rollouts, batch = step_of(mine, "pmd-mean", 3, seed=start)
    mine.update(objective, rollouts, batch)
    mine.version = start + 1
    state = mine.state_dict()
    if team.main:
        checkpoint.save_step(folder, start + 1, state, keep=9)
    return {f"weight {key}": whole(weight.detach()).clone() for key, weight in mine.model.named_parameters()}


def judged(team: Team) -> list[bool | None]:
    """Verdicts of two processes, of which one has a grader."""
    grader = SharedGrader(Grader() if team.main else None, team)
    said = grader.grade([Item("Answer: 34", "34"), Item("Answer: 35", "34")])
    grader.close()
    return [verdict.correct for verdict in said]


def main(out: Path) -> None:
    """Every case as one of two processes; each writes what it found."""
    from pmdkit.llm.team import Ranks

    torch.set_num_threads(1)
    for strategy in STRATEGIES:
        team = Ranks(strategy, timeout=60, cpu=True)
        for name in CASES:
            save_file(one_case(team, name), out / f"{strategy} {name} {team.rank}.safetensors")
        save_file(go_on(team, out / strategy), out / f"{strategy} resumed {team.rank}.safetensors")
    told = {
        "verdicts": judged(team),
        "main": team.tell({"rank": team.rank}),
        "any": [team.any(team.rank == 1), team.any(False)],
        "gathered": [part.tolist() for part in team.gather(torch.arange(team.rank * 2).view(-1, 2) > 0)],
    }
    (out / f"told {team.rank}.json").write_text(json.dumps(told))
    team.leave()


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main(Path(sys.argv[1]))
