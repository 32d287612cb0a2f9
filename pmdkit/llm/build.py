"""From a resolved recipe to a run that can start: problems, model, engine, verifier, learner, task, evaluation."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.envs.math import make_math
from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.envs.math_answers import Grader
from pmdkit.errors import UsageError
from pmdkit.llm import lora
from pmdkit.llm.ahead import ahead
from pmdkit.llm.alarm import Alarm
from pmdkit.llm.card import Beside
from pmdkit.llm.engine import make_writer
from pmdkit.llm.engines.protocol import Sampling, Tokens
from pmdkit.llm.evaluate import Evaluation
from pmdkit.llm.jury import SharedGrader
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.load import end_tokens, load, pick_device, reader, ready
from pmdkit.llm.prompts import Encoder, limit_prompts
from pmdkit.llm.stages import Stages, more_columns
from pmdkit.llm.task import SCALES, MathTask
from pmdkit.llm.team import team_of
from pmdkit.llm.watched import WatchedLearner, remarks
from pmdkit.loop import Schedule
from pmdkit.objectives import Objective
from pmdkit.objectives.traits import traits
from pmdkit.observe.meter import Meter
from pmdkit.randomness import derive, generator
from pmdkit.session import Setup
from pmdkit.spec import Spec
from pmdkit.tables import EvaluationTable, LanguageModelTable, RewardTable, RolloutTable, UpdateTable, WarmStartTable
from pmdkit.team import Team

GAUGED = 128  # responses of each step that are scored again after it, at least two groups


def build(spec: Spec, objective: Objective) -> Setup:
    """Learner, task, schedule and measurements of a resolved recipe."""
    assert isinstance(spec.model, LanguageModelTable)
    assert isinstance(spec.rollout, RolloutTable)
    assert isinstance(spec.reward, RewardTable)
    assert isinstance(spec.update, UpdateTable)
    assert isinstance(spec.evaluation, EvaluationTable)
    assert isinstance(spec.warm_start, WarmStartTable)
    schedule, seed = spec.schedule, spec.run.seed
    assert schedule.group is not None
    assert schedule.prompts is not None
    lora.check(spec)
    team = team_of(spec)
    device, shared = pick_device(spec.model.device), team.strategy == "fsdp2"
    problems = make_math(spec.env)
    # weights that will be shared wait on the host: whole ones may not fit an accelerator, or not twice
    model, tokenizer = make_model(spec.model, spec.env, seed, torch.device("cpu") if shared else device)
    encoder = Encoder(tokenizer)
    problems, _ = limit_prompts(problems, encoder, spec.rollout.max_prompt)
    ends = end_tokens(model, tokenizer)
    sampling = Sampling(spec.rollout.width, spec.rollout.temperature)
    writer = make_writer(spec, model, tokenizer, ends, encoder, problems, device, team)
    lora.adapt(model, spec.lora, seed)  # a copy that the engine runs has been made: it gets merged weights
    warm = spec.warm_start.pass_rate > 0
    # phase 0 teaches whole models, in every process
    pupil = model if team.size == 1 or not warm else deepcopy(model).to(device)  # type: ignore[arg-type]
    learner = (WatchedLearner if spec.run.record else CausalLearner)(
        model,
        tokenizer,
        encode_numbers(problems, encoder),
        writer,
        sampling,
        schedule,
        spec.update,
        bfloat16=spec.model.dtype == "bfloat16",
        reference=traits(objective).uses_reference,
        old=spec.rollout.old,
        correction=spec.rollout.correction,
        correction_cap=spec.rollout.correction_cap,
        team=team,
        alarm=Alarm(SCALES[spec.reward.scale][1] - SCALES[spec.reward.scale][0], spec.rollout.old == "rollout"),
    )
    grader: Grader | SharedGrader = make_grader(spec.reward) if team.size == 1 else shared_grader(spec.reward, team)

    def read(tokens: Tokens) -> str:
        return reader(tokenizer, tokens)

    task = MathTask(problems, schedule.prompts, seed, grader, read, ends, spec.reward.scale, spec.reward.most_unscored)
    evaluation = replace(
        make_evaluation(spec.evaluation, problems, encoder, read, grader, spec.rollout.width, seed),
        most_unscored=spec.reward.most_unscored,
    )
    stages = Stages(learner, task, evaluation, schedule.steps, spec.evaluation.every, spec.rollout.record_every, team)
    sample = max(2, GAUGED // schedule.group)
    passed = (task.low + task.high) / 2
    beside = Beside(spec, model, tokenizer, stages)
    return Setup(
        learner=learner,
        task=task,
        schedule=Schedule(
            schedule.steps, schedule.group, schedule.ministeps, seed, drop_equal_groups=spec.update.drop_equal_groups
        ),
        meter=lambda: Meter(objective, passed, sample, lambda *step: more_columns(learner, task, *step)).row,
        evaluate=stages.evaluate,
        policy=lambda: model,
        prepare=phase_0(spec, learner, pupil, encoder, problems, stages) if warm else None,
        observers=(stages.observe,),
        beside=beside,
        workplace=stages.workplace,
        team=team,
        stream=ahead(spec.rollout.lag),
        remarks=lambda rollouts: remarks(learner, task, passed, rollouts),
    )


def make_model(
    table: LanguageModelTable, env: dict[str, Any], seed: int, device: torch.device | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model of a folder, or a starter with random weights; on its device, switched to packed attention."""
    device = pick_device(table.device) if device is None else device
    if table.path is not None:
        model, tokenizer = load(table.path)
    else:
        from pmdkit.llm.starter.model import build as build_starter
        from pmdkit.llm.starter.tokenizer import train_tokenizer

        assert table.build is not None
        starter = train_tokenizer(make_math(env))
        model, tokenizer = build_starter(table.build, starter, seed), starter
    return ready(model, device, table.checkpointing), tokenizer


def make_grader(table: RewardTable) -> Grader:
    """The verifier pool of [reward]."""
    return Grader(
        table.grade,
        boxed=table.boxed,
        workers=table.workers,
        seconds=table.seconds,
        memory_mb=table.memory_mb,
        most_unscored=table.most_unscored,
    )


def shared_grader(table: RewardTable, team: Team) -> SharedGrader:
    """The verifier pool of the main process, for all."""
    return SharedGrader(make_grader(table) if team.main else None, team)


def encode_numbers(problems: MathProblems, encoder: Encoder) -> Callable[[int], Tokens]:
    """Prompt tokens by the number of a problem; the same object each time, which tells who shares a prompt."""

    @lru_cache(maxsize=65_536)
    def encode(number: int) -> Tokens:
        return encoder.encode(problems.problem(number).problem)

    return encode


def make_evaluation(
    table: EvaluationTable,
    problems: MathProblems,
    encoder: Encoder,
    read: Callable[[Tokens], str],
    grader: Grader | SharedGrader,
    width: int,
    seed: int,
) -> Evaluation:
    """The fixed evaluation of a run."""
    name, asked = evaluation_problems(table.data, problems, table.problems, seed)
    return Evaluation(
        name=name,
        problems=asked,
        encode=encoder.encode,
        read=read,
        grader=grader,
        k=table.k,
        sampling=Sampling(table.width or width, table.temperature, table.top_p),
        seed=derive(seed, "evaluation"),
    )


def evaluation_problems(data: str, problems: MathProblems, most: int, seed: int) -> tuple[str, list[Problem]]:
    """Name and problems: held out of the run's own, a shipped set by name, or a file."""
    if data == "held-out":
        numbers = problems.held_out
        if not len(numbers):
            raise UsageError(
                f"evaluation.data is 'held-out' and {problems.name} holds none out; "
                "set env.held_out, or evaluation.data to aime24, aime25 or a file"
            )
        chosen = generator(seed, "held-out").permutation(len(numbers))[:most]
        return data, [problems.problem(int(numbers[i])) for i in sorted(chosen)]
    table = {"kind": data} if data in ("aime24", "aime25") else {"kind": "file", "path": data}
    other = make_math(table)
    numbers = other.held_out if len(other.held_out) else other.train
    return other.name, [other.problem(int(number)) for number in numbers[:most]]


def phase_0(
    spec: Spec,
    learner: CausalLearner,
    pupil: PreTrainedModel,
    encoder: Encoder,
    problems: MathProblems,
    stages: Stages,
) -> Callable[[Callable[[str], None]], None]:
    """Teach the starter until it passes the target share of the evaluation's problems.

    A team teaches the same in every process and measures together; its phase 0 begins anew after an interruption.
    """
    from pmdkit.llm.starter.warm_start import warm_start

    def rate() -> float:
        learner.take(pupil)  # the warm start moves the weights behind the learner's back
        learner.model.eval()
        found = stages.scores(stages.draw(None))["pass_rate"]
        return 0.0 if found is None else found

    def teach(note: Callable[[str], None]) -> None:
        folder = None if stages.folder is None or learner.team.size > 1 else stages.folder.phase_0
        assert spec.warm_start is not None
        warm_start(
            pupil,
            learner.tokenizer,
            problems,
            encoder.encode,
            spec.warm_start,
            spec.run.seed,
            rate,
            note,
            folder,
        )
        learner.take(pupil)
        learner.after_phase_0()

    return teach
