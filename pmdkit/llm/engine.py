"""The engine of a run as its learner uses it: made from the recipe, over all processes, checked at each publish."""

from importlib import import_module

from transformers import PreTrainedModel

from pmdkit.config import LanguageModelTable, RolloutTable, Spec, VLLMTable
from pmdkit.distributed import SINGLE, ProcessGroup
from pmdkit.envs.math.problem import MathProblems
from pmdkit.llm.engines import CENTRAL, ENGINES
from pmdkit.llm.engines.base import Engine, EngineConfig, ResponseCheck
from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.head import head_weight
from pmdkit.llm.mismatch import TOLERANCE, WeightSyncCheck
from pmdkit.llm.model import end_tokens, pick_device
from pmdkit.llm.prompts import Encoder

TEXT_TOKENS = 64  # of each text of the sync check


def make_engine(
    spec: Spec,
    model: PreTrainedModel,
    encoder: Encoder,
    problems: MathProblems,
    process_group: ProcessGroup = SINGLE,
) -> Engine:
    """The engine that writes the rollouts of a recipe, over all processes. Adapters are put on the model afterwards.

    The engine of transformers on the trainer's own weights, in one process and without a lag, is returned bare: it
    cannot be lost alone, and there is nothing to compare. Every other one is supervised by a DistributedEngine.
    """
    rollout, vllm = spec.rollout, spec.vllm
    assert isinstance(rollout, RolloutTable)
    assert isinstance(vllm, VLLMTable)
    assert isinstance(spec.model, LanguageModelTable)
    tokenizer, central = encoder.tokenizer, rollout.engine in CENTRAL
    ends = end_tokens(model, tokenizer)
    own = process_group.strategy == "fsdp2" or rollout.lag > 0
    engine: Engine | None = None
    if process_group.is_main_process or not central:
        config = EngineConfig(
            model=model,
            tokenizer=tokenizer,
            ends=ends,
            rollout=rollout,
            vllm=vllm,
            dtype=spec.model.dtype,
            context=context(spec, model),
            device=pick_device(spec.model.device),
            own=own,
            rank=process_group.rank,
            size=process_group.size,
            seed=spec.run.seed,
        )
        module, _, name = ENGINES[rollout.engine].partition(":")
        engine = getattr(import_module(module), name)(config)
    inside = rollout.engine == "transformers"
    compared = rollout.canary and not (inside and getattr(engine, "model", None) is model)
    if inside and engine is not None and not compared and process_group.size == 1 and rollout.lag == 0:
        return engine
    return DistributedEngine(
        engine,
        process_group,
        ends[0],
        central=central,
        span=1 if central or inside else vllm.tensor_parallel,
        joined=rollout.engine == "vllm" and process_group.size > 1,
        silence=None if inside else rollout.silence,
        sync_check=sync_check(rollout, spec.model.dtype, encoder, problems) if compared else None,
        response_check=ResponseCheck(ends, head_weight(model).shape[0]),
    )


def context(spec: Spec, model: PreTrainedModel) -> int:
    """Tokens of the longest prompt and response together, as far as the model can read."""
    assert spec.rollout is not None
    assert spec.evaluation is not None
    longest = spec.rollout.max_prompt + max(spec.rollout.width, spec.evaluation.width or 0)
    return min(longest, getattr(model.config, "max_position_embeddings", None) or longest)


def sync_check(rollout: RolloutTable, dtype: str, encoder: Encoder, problems: MathProblems) -> WeightSyncCheck:
    """Fixed prompts and texts: the first problems, each with its own statement and answer as the response."""
    asked = [problems.problem(int(number)) for number in problems.train[: rollout.canary]]
    texts = [f"{problem.problem}\n\nAnswer: {problem.answer}" for problem in asked]
    return WeightSyncCheck(
        prompts=[encoder.encode(problem.problem) for problem in asked],
        responses=[encoder.data(text)[:TEXT_TOKENS] for text in texts],
        tolerance=rollout.canary_tolerance or TOLERANCE[dtype],
    )
