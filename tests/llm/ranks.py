"""What test_parallel.py computes alone and in two processes: its cases as a module, one of the two as a program."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.llm import checkpointing, lora
from pmdkit.llm.async_rollouts import RolloutQueue, async_rollouts
from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.grading import SharedGrader
from pmdkit.llm.in_flight import NewestPolicy
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.model import prepare_model
from pmdkit.llm.weights import GatheredWeights, full_tensor, named_weights
from pmdkit.loop import Schedule, inline, run
from pmdkit.objectives import OBJECTIVES, traits
from pmdkit.process_group import ProcessGroup
from pmdkit.randomness import derive
from pmdkit.specs.llm import LLMSpec, LoraTable, UpdateTable
from pmdkit.specs.spec import ScheduleTable
from strict_answers import Grader, Item

from .conftest import EOS, build, learner_of, step_gradients, step_of

PROMPTS = [[5, 9, 3], [7, 7], [11, 4, 8, 6, 30], [12, 3]]
CASES = {
    # name: kind, objective, prompts, checkpointing, layers with adapters
    "fused": ("qwen2", "pmd-mean", 3, False, ()),
    "experts": ("qwen3-moe", "pmd-mean", 3, True, ()),
    "per token": ("qwen2", "grpo", 4, True, ()),
    "whole batch": ("qwen2", "reinforce-pp", 3, False, ()),
    "whole groups": ("qwen3-moe", "tb", 1, False, ()),
    "adapters": ("qwen2", "dro", 3, True, ("q_proj", "down_proj")),
}
STRATEGIES = ("ddp", "fsdp2")

ROOT = Path(__file__).parents[2]


def run_two(module: str, folder: Path, seconds: float, *more: str) -> None:
    """Run a module as two processes that meet over loopback; both have to end with 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "packages" / "strict-answers")))
    shared = {
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
        "PYTHONPATH": paths,
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(folder), *more],
            cwd=ROOT,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        told = [rank.communicate(timeout=seconds)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], told


def tied(kind: str) -> PreTrainedModel:
    """A model whose head is its embedding."""
    model = build(kind)
    model.config.tie_word_embeddings = True
    model.lm_head.weight = model.model.embed_tokens.weight
    return model


def learner(
    process_group: ProcessGroup,
    kind: str,
    objective: str,
    optimizer: str = "sgd",
    checkpointing: bool = False,
    adapters: Sequence[str] = (),
    given: DistributedEngine | None = None,
    **more: Any,
) -> CausalLearner:
    """A learner in float32, its head tied, whose token budget cuts a step into several passes."""
    model = prepare_model(tied(kind), checkpointing=checkpointing)
    copy = deepcopy(model).requires_grad_(False) if process_group.strategy == "fsdp2" else model
    engine = TransformersEngine(copy, EOS)
    if adapters:
        lora.inject_adapters(model, LoraTable(rank=2, targets=list(adapters)), seed=3)
        with torch.no_grad():
            for layer in lora.adapter_layers(model).values():
                layer.lora_B[lora.ADAPTER].weight.fill_(0.05)  # or A would have no gradient in the first update
    supervised = given or (engine if process_group.size == 1 else DistributedEngine(engine, process_group, EOS))
    return learner_of(
        model, supervised, lambda number: PROMPTS[number], 6, ScheduleTable(lr=1e-2, optimizer=optimizer),
        UpdateTable(token_budget=14, clip=0.5), reference=traits(OBJECTIVES[objective]()).uses_reference,
        process_group=process_group, **more,
    )  # fmt: skip


def one_case(process_group: ProcessGroup, name: str) -> dict[str, Tensor]:
    """Rollouts, two updates, and what they left."""
    kind, objective, prompts, checkpointing, adapters = CASES[name]
    mine = learner(process_group, kind, objective, checkpointing=checkpointing, adapters=adapters)
    objective, rollouts, batch = step_of(mine, objective, prompts)
    found = {"responses": rollouts.responses, "logp_old": rollouts.logp_old, "mask": rollouts.mask.int()}
    gradients = step_gradients(mine)
    for turn in range(2):
        report = mine.update(objective, rollouts, batch)
        found[f"report {turn}"] = torch.tensor([report["loss"], report["grad_norm"]], dtype=torch.float64)
        found |= {f"gradient {turn} {key}": full_tensor(gradient) for key, gradient in gradients.items()}
    for key, weight in GatheredWeights(lora.MergedWeights(mine.model)).items():
        found[f"weight {key}"] = weight.detach()
    for key, weight in named_weights(mine.model).items():
        sent = GatheredWeights({key: weight}, torch.bfloat16)[key]
        assert sent.dtype == torch.bfloat16
        assert torch.equal(sent.bfloat16(), full_tensor(weight).bfloat16())
    with torch.no_grad():
        found["logp"] = mine.logp(rollouts)
    mine.version = 1
    again = mine.rollout(torch.arange(prompts), 4, 1)
    found["responses of the new weights"] = again.responses
    return {key: value.contiguous().clone() for key, value in found.items()}


def go_on(process_group: ProcessGroup, folder: Path) -> dict[str, Tensor]:
    """A step of AdamW on what the newest checkpoint holds; its own checkpoint is written beside it."""
    mine = learner(process_group, "qwen2", "pmd-mean", "adamw")
    checkpoints = process_group.checkpoints(folder)
    start, state, _ = checkpoints.load_newest()
    if state:
        mine.load_state_dict(state)
    objective, rollouts, batch = step_of(mine, "pmd-mean", seed=start)
    mine.update(objective, rollouts, batch)
    mine.version = start + 1
    checkpoints.save(start + 1, mine.state_dict(), keep=9)
    checkpoints.wait()
    return {f"weight {key}": full_tensor(weight.detach()).clone() for key, weight in mine.model.named_parameters()}


class Problems:
    """Two prompts a step; the first token decides."""

    def prompts(self, step):
        return torch.tensor([step % 4, (step + 1) % 4])

    def reward(self, rollouts):
        return (rollouts.responses[:, 0] % 3).double().view(rollouts.mass.shape)


ENGINES = {
    # name: lag, only the main process has an engine
    "ahead": (1, False),
    "central": (0, True),
    "ahead, central": (1, True),
    "in flight": (1, False),
}
WRITERS = {"ddp": ["ahead, central"], "fsdp2": [*ENGINES]}


def trained(process_group: ProcessGroup, name: str) -> dict[str, Tensor]:
    """Four steps with engines of some kind."""
    lag, central = ENGINES[name]
    elsewhere = central and not process_group.is_main_process
    engine = None if elsewhere else TransformersEngine(tied("qwen2"), EOS)
    in_flight = {"lag": lag, "in_flight": True} if name == "in flight" else {}
    supervised = DistributedEngine(engine, process_group, EOS, central=central, in_flight=bool(in_flight))
    newest = None
    if in_flight:  # each engine takes a policy when each of its rows has two tokens: 8 of all rows begin together
        changes = {step: [(0, max(0, step - 2)), (9, step - 1)] for step in range(1, 5)}
        points = {
            derive(5, "rollout", step): [(process_group.rank, *change) for change in some]
            for step, some in changes.items()
        }
        newest = NewestPolicy(points, process_group.rank)
    queue = RolloutQueue(supervised, newest) if lag else None
    mine = learner(process_group, "qwen2", "pmd-mean", given=supervised, queue=queue, rollout=in_flight)
    stream = async_rollouts(lag) if lag else inline
    seen: dict[str, Tensor] = {}

    def keep(step, learner, rollouts, *rest):
        seen[f"responses {step}"] = rollouts.responses
        seen[f"version {step}"] = torch.tensor([rollouts.version])
        if rollouts.versions is not None:
            seen[f"versions {step}"] = rollouts.versions.masked_fill(~rollouts.mask, -1)

    run(OBJECTIVES["pmd-mean"](), mine, Problems(), Schedule(4, 4, 2, seed=5), [keep], stream)
    return seen | {
        f"weight {key}": full_tensor(weight.detach()).clone() for key, weight in mine.model.named_parameters()
    }


def judged(process_group: ProcessGroup) -> list[bool | None]:
    """Verdicts of two processes, of which one has a grader."""
    grader = SharedGrader(Grader() if process_group.is_main_process else None, process_group)
    said = grader.grade([Item("Answer: 34", "34"), Item("Answer: 35", "34")])
    grader.close()
    return [verdict.correct for verdict in said]


def main(out: Path) -> None:
    """Every case as one of two processes; each writes what it found."""
    from pmdkit.llm.accelerate_group import AccelerateGroup

    torch.set_num_threads(1)
    for strategy in STRATEGIES:
        process_group = AccelerateGroup(strategy, timeout=60, cpu=True)
        for name in CASES:
            save_file(one_case(process_group, name), out / f"{strategy} {name} {process_group.rank}.safetensors")
        for name in WRITERS[strategy]:
            save_file(trained(process_group, name), out / f"{strategy} {name} {process_group.rank}.safetensors")
        save_file(go_on(process_group, out / strategy), out / f"{strategy} resumed {process_group.rank}.safetensors")
    # HSDP: both processes have a whole replica, whose gradients are summed over the two once in an update
    replicas = AccelerateGroup("fsdp2", timeout=60, cpu=True, replicas=2)
    save_file(one_case(replicas, "fused"), out / f"hsdp fused {replicas.rank}.safetensors")
    save_file(go_on(replicas, out / "hsdp"), out / f"hsdp resumed {replicas.rank}.safetensors")
    checkpointing.accelerator_gib = lambda name: (80.0, 24.0)[process_group.rank]  # unequal accelerators
    checkpointing.companions.option = lambda name: lambda spec, gib: (gib < 50, f"{gib:g} GiB")  # in place of the plan
    pairs = torch.arange(process_group.rank * 2).view(-1, 2)
    told = {
        "verdicts": judged(process_group),
        "checkpointing": checkpointing.decide(LLMSpec(name="tiny", env={}, objective={}), process_group),
        "main": process_group.broadcast_object({"rank": process_group.rank}),
        "any": [process_group.any_rank(process_group.rank == 1), process_group.any_rank(False)],
        "gathered": [part.tolist() for part in process_group.gather(pairs > 0)],
    }
    (out / f"told {process_group.rank}.json").write_text(json.dumps(told))
    process_group.accelerator.end_training()


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main(Path(sys.argv[1]))
