"""`pmdkit llm --dry-run`: refuse a recipe as a run would, and show its batch and staleness."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

from pmdkit.llm import checkpointing, companions, task_parts
from pmdkit.llm.engines.base import check_context
from pmdkit.llm.model import load_model
from pmdkit.llm.starter.vocabulary import LONGEST
from pmdkit.specs import LLMSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def check(spec: LLMSpec) -> float | None:
    """Read data, reward, environment and model as a run does, up to its first prompts; its errors are the run's.

    Of a folder's weights only names and shapes are read. Whether this machine has what the run needs, such as a GPU or
    vLLM, is not asked: the run may take place on another.

    Returns: mean number of tokens of the first step's prompts; None if no model is here.
    """
    problems = task_parts.load_problems(spec)
    path = spec.model.path
    if spec.model.build == "smollm2":
        folder = companions.find_model(spec.model.build).model_folder()
        if not folder.exists():
            return None  # a dry run downloads no weights
        path = str(folder)
    model: PreTrainedModel | None = None
    tokenizer: PreTrainedTokenizerBase
    if path is not None:
        model, tokenizer = load_model(path, "meta")
    else:  # a starter: its tokenizer and LONGEST are all that is read of it here
        from pmdkit.llm.starter.tokenizer import train_tokenizer

        tokenizer = train_tokenizer(problems)
    encoder, problems = task_parts.make_encoder(spec, tokenizer, problems)
    with ExitStack() as opened:
        verifier = task_parts.make_verifier(spec)
        opened.callback(verifier.close)
        task = task_parts.make_task(spec, model, encoder, problems, verifier)
        for grader in task.graders[1:]:
            opened.callback(grader.close)
        episodes = task_parts.make_turns(spec, model, encoder, problems)
        evaluation = task_parts.make_evaluation(spec, encoder, problems, verifier, episodes)
    first = [problems.problem(number) for number in task.prompts(1).tolist()]
    context = LONGEST if model is None else getattr(model.config, "max_position_embeddings", None)
    lengths = [len(encoder.encode(problem)) for problem in first]
    for asked, width in ((evaluation.problems, evaluation.sampling.width), (first, spec.rollout.width)):
        check_context(max(len(encoder.encode(problem)) for problem in asked), width, context)
    return sum(lengths) / len(lengths)


def decisions(spec: LLMSpec) -> list[str]:
    """What a run on this machine would decide about options that are auto, a sentence for each."""
    here = spec.model.checkpointing == "auto" and spec.model.backend == companions.HERE
    return [checkpointing.decide(spec)[1]] if here else []


def batch(spec: LLMSpec, prompt: float | None = None) -> dict[str, float]:
    """Prompts, responses, updates and staleness; on a server also the costs, with prompts of `prompt` tokens."""
    schedule, rollout = spec.schedule, spec.rollout
    prompts, group = schedule.prompts or 0, schedule.group or 0  # a resolved recipe has both
    responses = prompts * group
    costs: dict[str, int] = {}
    if prompt is not None and spec.model.backend != companions.HERE:
        costs = companions.find_backend(spec.model.backend).costs(spec, prompt)
    return {
        "steps": schedule.steps,
        "prompts per step": prompts,
        "responses per prompt": group,
        "responses per step": responses,
        "tokens per response, at most": rollout.width,
        "tokens per step, at most": responses * rollout.width,
        "ministeps per step": schedule.ministeps,
        "prompts per ministep": prompts / schedule.ministeps,
        "responses per ministep": responses / schedule.ministeps,
        "optimizer steps": schedule.steps * schedule.ministeps * schedule.passes,
        "staleness of the last ministep, updates": spec.staleness,
        **costs,
    }
