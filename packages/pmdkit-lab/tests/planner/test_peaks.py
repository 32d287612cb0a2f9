"""The memory model against PyTorch's own allocator: peaks of updates of small models on the CPU, by its profiler."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.model import prepare_model
from pmdkit.llm.policy import CausalPolicy
from pmdkit.loop import Rollouts
from pmdkit.objectives import OBJECTIVES, Groups, credit
from pmdkit.specs.llm import HEAD_TOKENS, RolloutTable, UpdateTable
from pmdkit.specs.spec import ScheduleTable
from pmdkit_lab.planner.cluster import cluster
from pmdkit_lab.planner.memory import trainer_state, update_parts
from pmdkit_lab.planner.model_size import activations, count
from pmdkit_lab.planner.workload import Sizes, Workload
from tests.nightly import mostly_nightly

SHAPE = {
    "vocab_size": 2048, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": True,
}  # fmt: skip
SPARSE = {"moe_intermediate_size": 64, "num_experts": 8, "num_experts_per_tok": 2, "head_dim": 32}
MODELS = {
    "dense": (Qwen2ForCausalLM, Qwen2Config(**SHAPE)),
    "mixture": (Qwen3MoeForCausalLM, Qwen3MoeConfig(**SHAPE, **SPARSE)),
}
GROUP, LENGTH, PROMPT = 8, 64, [5, 9, 3, 7]
TOKENS = GROUP * LENGTH + len(PROMPT)  # the prompt of a group is read once


def measured(model, bfloat16):
    """Bytes at the peak of an update: weights and moments, and what the allocator hands out beside them."""
    learner = CausalLearner(
        CausalPolicy(model, token_budget=2 * TOKENS, bfloat16=bfloat16),
        None,
        lambda number: PROMPT,
        TransformersEngine(model, 2),
        RolloutTable(width=LENGTH),
        ScheduleTable(lr=1e-4, optimizer="adamw"),
        UpdateTable(token_budget=2 * TOKENS),
    )
    tokens = torch.randint(3, 2000, (GROUP, LENGTH), generator=torch.Generator().manual_seed(0))
    mask, logp = torch.ones(GROUP, LENGTH, dtype=torch.bool), torch.full((GROUP, LENGTH), -7.0)
    mass = torch.full((1, GROUP), 1 / GROUP, dtype=torch.float64)
    rollouts = Rollouts(torch.zeros(1, dtype=torch.long), tokens, logp, mask, mass, True, 0, 0, LENGTH)
    objective = OBJECTIVES["pmd-mean"](tau=0.05)
    reward = torch.arange(GROUP).double()[None] % 2
    batch = credit(objective, Groups(reward, mass), logp, mask, None, LENGTH)
    learner.update(objective, rollouts, batch)  # the optimizer has its moments from here on
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        learner.update(objective, rollouts, batch)
    assert seen.profiler is not None
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert len(events) > 100
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()  # negative where memory is given back
        peak = max(peak, held)
    return 12 * sum(weight.numel() for weight in model.parameters()) + peak


def predicted(config, width, checkpointing):
    """The same by shapes; what silu gives is kept too, since a CPU has no kernel for it."""
    weights, active = count(config)
    sizes = Sizes(
        weights=weights, active=active, experts=0, choices=1, chosen=1, lookup=0, layers=config.num_hidden_layers,
        vocabulary=config.vocab_size, dimension=config.hidden_size, attention=128, kv_bytes=0, kv_heads=2,
        kept_bytes=sum(activations(config, width)), head_tokens=min(HEAD_TOKENS, TOKENS), width_bytes=width,
        trained=weights,
    )  # fmt: skip
    work = Workload(1, GROUP, 1, 1, TOKENS, len(PROMPT), LENGTH, checkpointing, False, False)
    alone = cluster("1xH100")
    return sum(trainer_state(sizes, work, alone).values()) + sum(update_parts(sizes, work, alone).values())


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("width", mostly_nightly([4, 2], 2))
@pytest.mark.parametrize("kind", ["dense", "mixture"])
def test_peaks_are_those_of_the_allocator(kind, width, checkpointing):
    make, config = MODELS[kind]
    torch.manual_seed(0)
    model = prepare_model(make(config), torch.device("cpu"), checkpointing)
    found = predicted(config, width, checkpointing) / measured(model, width == 2)
    assert 0.85 < found < 1.3
