"""The parts of a recipe that need no weights: problems, encoder, verifier, task, episodes and evaluation.

A dry run makes them too, so no model class of transformers is imported here: that takes longer than importing torch.
"""

from typing import TYPE_CHECKING

from pmdkit.envs.math import make_math
from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.llm import companions, evaluate, rewards
from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.grading import Rows, SharedGrader, make_grader, make_rows, needs_gold
from pmdkit.llm.model import end_tokens
from pmdkit.llm.prompts import Encoder, encoder_of, limit_prompts
from pmdkit.llm.recipe_checks import PROMPTS
from pmdkit.llm.task import MathTask
from pmdkit.process_group import SINGLE, ProcessGroup
from pmdkit.randomness import derive
from pmdkit.specs import LLMSpec
from strict_answers import Grader

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def load_problems(spec: LLMSpec) -> MathProblems:
    """The problems of [env], which the teacher of phase 0 can read where there is one."""
    problems = make_math(spec.env, needs_gold(spec.reward))
    if spec.warm_start.pass_rate > 0:
        from pmdkit.llm.starter.vocabulary import operands

        operands(problems.problem(int(problems.train[0])).problem)
    return problems


def make_encoder(
    spec: LLMSpec, tokenizer: "PreTrainedTokenizerBase", problems: MathProblems
) -> tuple[Encoder, MathProblems]:
    """The encoder from problems to prompt tokens, and the problems whose prompts are short enough."""
    encoder = encoder_of(spec.prompt, tokenizer)
    return encoder, limit_prompts(problems, encoder, spec.rollout.max_prompt)


def make_verifier(spec: LLMSpec, process_group: ProcessGroup = SINGLE) -> Grader | SharedGrader:
    """The verifier of [reward]; with several processes, the main one grades for all."""
    return make_grader(spec.reward, spec.rollout.cut_off == "score", process_group)


def make_task(
    spec: LLMSpec,
    model: "PreTrainedModel | None",
    encoder: Encoder,
    problems: MathProblems,
    verifier: Grader | SharedGrader,
    process_group: ProcessGroup = SINGLE,
) -> MathTask:
    """The task: which problems a step asks, and how the answers are rewarded."""
    table = spec.reward
    alone = not table.others and table.weight == 1 and spec.rollout.cut_off != "mask"  # the verdict is the reward
    return MathTask(
        problems,
        spec.schedule.prompts or PROMPTS,
        spec.run.seed,
        verifier,
        encoder.decode,
        end_tokens(model, encoder.tokenizer),
        table.scale,
        table.most_unscored,
        reward_rows(spec, encoder),
        None if alone else rewards.make_reward_sum(table, spec.rollout, process_group),
    )


def reward_rows(spec: LLMSpec, encoder: Encoder) -> Rows | None:
    """What makes the arguments of a user's reward functions from a response; None if the verifier alone grades."""
    others = {term.grade for term in (spec.reward, *spec.reward.others)} - {"math", rewards.OVERLONG}
    return make_rows(encoder.messages) if others else None


def make_turns(
    spec: LLMSpec,
    model: "PreTrainedModel | None",
    encoder: Encoder,
    problems: MathProblems,
    process_group: ProcessGroup = SINGLE,
) -> companions.EpisodePlayer | None:
    """What plays the multi-turn episodes of a recipe; None if it has no environment."""
    if spec.rollout.environment is None:
        return None
    ends = end_tokens(model, encoder.tokenizer)
    return companions.find_turns().make(spec, encoder, ends, problems.problem, process_group)


def choose_problems(spec: LLMSpec, problems: MathProblems | None) -> tuple[str, list[Problem]]:
    """The name and the problems of [evaluation]; `problems` are the run's own, of which some may be held out."""
    table = spec.evaluation
    if table.data == "held-out" and problems is not None:
        return table.data, evaluate.held_out_problems(problems, table.problems, spec.run.seed)
    return evaluate.other_problems(table.data, table.problems, needs_gold(spec.reward))


def make_evaluation(
    spec: LLMSpec,
    encoder: Encoder,
    problems: MathProblems | None,
    verifier: Grader | SharedGrader,
    episodes: companions.EpisodePlayer | None = None,
    chosen: tuple[str, list[Problem]] | None = None,
) -> evaluate.Evaluation:
    """The fixed evaluation of [evaluation], by default on `choose_problems`: the same seeds at every call."""
    table, (name, asked) = spec.evaluation, chosen or choose_problems(spec, problems)
    return evaluate.Evaluation(
        name=name,
        problems=asked,
        encode=encoder.encode,
        read=encoder.decode,
        grader=verifier,
        k=table.k,
        sampling=Sampling(table.width or spec.rollout.width, table.temperature or 1.0, table.top_p),
        seed=derive(spec.run.seed, "evaluation"),
        most_unscored=spec.reward.most_unscored,
        rows=reward_rows(spec, encoder),
        turns=episodes,
    )
