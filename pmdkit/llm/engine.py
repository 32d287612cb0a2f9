"""The engine of a run as its learner uses it: made from the recipe, shared by the team, watched by a canary."""

from collections.abc import Sequence
from importlib import import_module

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.envs.math.problem import MathProblems
from pmdkit.llm.canary import TOLERANCE, Canary
from pmdkit.llm.engines import CENTRAL, ENGINES
from pmdkit.llm.engines.answer import Form
from pmdkit.llm.engines.protocol import Engine
from pmdkit.llm.engines.shared import SharedEngine
from pmdkit.llm.engines.wanted import Wanted
from pmdkit.llm.packing import head
from pmdkit.llm.prompts import Encoder
from pmdkit.llm.writer import Writer
from pmdkit.spec import Spec
from pmdkit.tables import LanguageModelTable, RolloutTable, VLLMTable
from pmdkit.team import Team

TEXT = 64  # tokens of a canary's text


def make_writer(
    spec: Spec,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    ends: Sequence[int],
    encoder: Encoder,
    problems: MathProblems,
    device: torch.device,
    team: Team,
) -> Writer:
    """Who writes the rollouts of a recipe. Adapters are put on the model afterwards."""
    rollout, vllm = spec.rollout, spec.vllm
    assert isinstance(rollout, RolloutTable)
    assert isinstance(vllm, VLLMTable)
    assert isinstance(spec.model, LanguageModelTable)
    central = rollout.engine in CENTRAL
    own = team.strategy == "fsdp2" or rollout.lag > 0
    engine: Engine | None = None
    if team.main or not central:
        wanted = Wanted(
            model=model,
            tokenizer=tokenizer,
            ends=ends,
            rollout=rollout,
            vllm=vllm,
            dtype=spec.model.dtype,
            context=context(spec, model),
            device=device,
            own=own,
            rank=team.rank,
            size=team.size,
            seed=spec.run.seed,
        )
        module, _, name = ENGINES[rollout.engine].partition(":")
        engine = getattr(import_module(module), name)(wanted)
    inside = rollout.engine == "transformers"
    compared = rollout.canary and not (inside and getattr(engine, "model", None) is model)
    shared = SharedEngine(
        engine,
        team,
        ends[0],
        central=central,
        span=1 if central or inside else vllm.tensor_parallel,
        joined=rollout.engine == "vllm" and team.size > 1,
        canary=canary(rollout, spec.model.dtype, encoder, problems) if compared else None,
        form=Form(ends, head(model).shape[0]),
    )
    return Writer(shared, ahead=rollout.lag > 0, aside=not inside, silence=rollout.silence, start=vllm.start)


def context(spec: Spec, model: PreTrainedModel) -> int:
    """Tokens of the longest prompt and response together, as far as the model can read."""
    assert spec.rollout is not None
    assert spec.evaluation is not None
    longest = spec.rollout.max_prompt + max(spec.rollout.width, spec.evaluation.width or 0)
    return min(longest, getattr(model.config, "max_position_embeddings", None) or longest)


def canary(rollout: RolloutTable, dtype: str, encoder: Encoder, problems: MathProblems) -> Canary:
    """Fixed prompts and texts: the first problems, each with its own statement and answer as the response."""
    asked = [problems.problem(int(number)) for number in problems.train[: rollout.canary]]
    texts = [f"{problem.problem}\n\nAnswer: {problem.answer}" for problem in asked]
    return Canary(
        prompts=[encoder.encode(problem.problem) for problem in asked],
        responses=[encoder.data(text)[:TEXT] for text in texts],
        tolerance=rollout.canary_tolerance or TOLERANCE[dtype],
    )
