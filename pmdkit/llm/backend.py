"""From a resolved recipe to a backend: problems, model, engine, verifier, learner, task, evaluation, one call for each.

`llm/train.py` is the same as a program in which each of them can be replaced.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.config import EvaluationTable, LanguageModelTable, RewardTable, RolloutTable, Spec, UpdateTable
from pmdkit.distributed import SINGLE, ProcessGroup
from pmdkit.envs.math import make_math
from pmdkit.envs.math.problem import MathProblems
from pmdkit.envs.verifier import Grader
from pmdkit.llm import lora
from pmdkit.llm.callbacks import (
    DataCallback,
    EvaluationCallback,
    ModelFilesCallback,
    ResourcesCallback,
    ResponsesCallback,
    llm_columns,
    step_extras,
)
from pmdkit.llm.distributed import make_process_group
from pmdkit.llm.engine import make_engine
from pmdkit.llm.engines.base import Engine, Sampling, Tokens
from pmdkit.llm.evaluate import Evaluation, fixed_evaluation
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.mismatch import MismatchMonitor
from pmdkit.llm.model import decode_response, end_tokens, load_model, pick_device, prepare_model
from pmdkit.llm.prompts import Encoder, limit_prompts
from pmdkit.llm.recipe import check_engine
from pmdkit.llm.rollouts import RolloutQueue, async_rollouts
from pmdkit.llm.task import SCALES, MathTask, SharedGrader, make_grader
from pmdkit.loop import Schedule, inline
from pmdkit.objectives import Objective
from pmdkit.objectives.traits import traits
from pmdkit.observe.metrics import StepMetrics
from pmdkit.replay.recorder import Recorder
from pmdkit.trainer import Backend, TrainerCallback

GAUGED = 128  # responses of each step that are scored again after it, at least two groups


def make_backend(spec: Spec, objective: Objective) -> Backend:
    """Everything that a run of a resolved recipe needs."""
    assert spec.rollout is not None
    check_machine(spec)
    process_group = make_process_group(spec)
    problems = load_problems(spec)
    model, tokenizer = make_model(spec, process_group)
    encoder = Encoder(tokenizer)
    problems = limit_prompts(problems, encoder, spec.rollout.max_prompt)[0]
    engine = make_engine(spec, model, encoder, problems, process_group)
    learner = make_learner(spec, objective, model, encoder, problems, engine, process_group)
    verifier = make_verifier(spec, process_group)
    task = make_task(spec, model, encoder, problems, verifier)
    evaluation = make_evaluation(spec, encoder, problems, verifier)
    return assemble(spec, objective, learner, task, evaluation)


def check_machine(spec: Spec) -> None:
    """Raise where this machine lacks what the recipe asks for, before anything is loaded."""
    assert spec.rollout is not None
    check_engine(spec.rollout.engine, elsewhere=spec.vllm is not None and bool(spec.vllm.urls))
    lora.check_lora(spec)


def load_problems(spec: Spec) -> MathProblems:
    """The problems of [env]."""
    return make_math(spec.env)


def make_model(spec: Spec, process_group: ProcessGroup = SINGLE) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and tokenizer of [model], on their device. Adapters come later: `make_learner`."""
    assert isinstance(spec.model, LanguageModelTable)
    # weights that will be shared wait on the host: whole ones may not fit an accelerator, or not twice
    device = torch.device("cpu") if process_group.strategy == "fsdp2" else None
    return build_model(spec.model, spec.env, spec.run.seed, device)


def build_model(
    table: LanguageModelTable, env: dict[str, Any], seed: int, device: torch.device | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model of a folder, or a starter with random weights; on its device, switched to packed attention."""
    device = pick_device(table.device) if device is None else device
    if table.path is not None:
        model, tokenizer = load_model(table.path)
    else:
        from pmdkit.llm.starter.model import build, train_tokenizer

        assert table.build is not None
        tokenizer = train_tokenizer(make_math(env))
        model = build(table.build, tokenizer, seed)
    return prepare_model(model, device, table.checkpointing), tokenizer


def make_verifier(spec: Spec, process_group: ProcessGroup = SINGLE) -> Grader | SharedGrader:
    """The verifier of [reward]; of several processes the main one judges for all."""
    assert spec.reward is not None
    if process_group.size == 1:
        return make_grader(spec.reward)
    return SharedGrader(make_grader(spec.reward) if process_group.is_main_process else None, process_group)


def make_learner(
    spec: Spec,
    objective: Objective,
    model: PreTrainedModel,
    encoder: Encoder,
    problems: MathProblems,
    engine: Engine,
    process_group: ProcessGroup = SINGLE,
) -> CausalLearner:
    """The learner that trains the model, or adapters on it. With a lag it has a queue of rollouts."""
    rollout, reward = spec.rollout, spec.reward
    assert isinstance(spec.model, LanguageModelTable)
    assert isinstance(rollout, RolloutTable)
    assert isinstance(reward, RewardTable)
    assert isinstance(spec.update, UpdateTable)
    lora.inject_adapters(model, spec.lora, spec.run.seed)  # the engine has made its copy: it gets merged weights
    low, high = SCALES[reward.scale]
    learner = CausalLearner(
        model,
        encoder.tokenizer,
        encode_numbers(problems, encoder),
        engine,
        Sampling(rollout.width, rollout.temperature),
        spec.schedule,
        spec.update,
        bfloat16=spec.model.dtype == "bfloat16",
        reference=traits(objective).uses_reference,
        old=rollout.old,
        correction=rollout.correction,
        correction_cap=rollout.correction_cap,
        process_group=process_group,
        monitor=MismatchMonitor(high - low, rollout.old == "rollout"),
    )
    if rollout.lag:
        assert spec.vllm is not None
        RolloutQueue(learner, rollout.silence, spec.vllm.start)
    return learner


def encode_numbers(problems: MathProblems, encoder: Encoder) -> Callable[[int], Tokens]:
    """Prompt tokens by the number of a problem; the same object each time, which shows who shares a prompt."""

    @lru_cache(maxsize=65_536)
    def encode(number: int) -> Tokens:
        return encoder.encode(problems.problem(number).problem)

    return encode


def make_task(
    spec: Spec, model: PreTrainedModel, encoder: Encoder, problems: MathProblems, verifier: Grader | SharedGrader
) -> MathTask:
    """Which problems a step asks, and what the answers earn."""
    assert spec.reward is not None
    assert spec.schedule.prompts is not None
    return MathTask(
        problems,
        spec.schedule.prompts,
        spec.run.seed,
        verifier,
        partial(decode_response, encoder.tokenizer),
        end_tokens(model, encoder.tokenizer),
        spec.reward.scale,
        spec.reward.most_unscored,
    )


def make_evaluation(
    spec: Spec, encoder: Encoder, problems: MathProblems, verifier: Grader | SharedGrader
) -> Evaluation:
    """The fixed evaluation of [evaluation]."""
    assert isinstance(spec.evaluation, EvaluationTable)
    assert spec.rollout is not None
    assert spec.reward is not None
    evaluation = fixed_evaluation(spec.evaluation, problems, encoder, verifier, spec.rollout.width, spec.run.seed)
    return replace(evaluation, most_unscored=spec.reward.most_unscored)


def assemble(
    spec: Spec, objective: Objective, learner: CausalLearner, task: MathTask, evaluation: Evaluation
) -> Backend:
    """The parts as one backend, with metrics, phase 0 and what else happens in a run."""
    schedule, rollout, process_group = spec.schedule, spec.rollout, learner.process_group
    assert rollout is not None
    assert schedule.group is not None
    assert spec.evaluation is not None
    assert spec.update is not None
    passed, sample = (task.low + task.high) / 2, max(2, GAUGED // schedule.group)
    metrics = StepMetrics(objective, passed, sample, lambda *step: llm_columns(learner, task, *step))
    evaluations = EvaluationCallback(learner, task, evaluation, schedule.steps, spec.evaluation.every, process_group)
    callbacks: list[TrainerCallback] = [ResourcesCallback(learner, task), DataCallback(task, evaluation)]
    if spec.run.record:
        extras = lambda rollouts: step_extras(learner, task, passed, metrics.logp_after, rollouts)  # noqa: E731
        callbacks.append(Recorder(spec.run.record, extras))
    if rollout.record_every:
        callbacks.append(ResponsesCallback(task, rollout.record_every))
    callbacks += [evaluations, ModelFilesCallback(spec, learner.model, learner.tokenizer, evaluations)]
    return Backend(
        learner=learner,
        task=task,
        schedule=Schedule(
            schedule.steps,
            schedule.group,
            schedule.ministeps,
            spec.run.seed,
            drop_equal_groups=spec.update.drop_equal_groups,
        ),
        metrics=metrics.row,
        evaluate=evaluations.evaluate,
        policy=lambda: learner.model,
        warm_start=make_warm_start(spec, learner, task, evaluations),
        stream=async_rollouts(rollout.lag) if rollout.lag else inline,
        process_group=process_group,
        callbacks=callbacks,
    )


def make_warm_start(
    spec: Spec, learner: CausalLearner, task: MathTask, evaluations: EvaluationCallback
) -> Callable[[Callable[[str], None]], None] | None:
    """Phase 0: teach the starter until it passes the target share of the evaluation's problems.

    Several processes teach the same whole model and measure together; their phase 0 begins anew after an interruption.
    """
    table, options, size = spec.model, spec.warm_start, learner.process_group.size
    assert isinstance(table, LanguageModelTable)
    assert options is not None
    if options.pass_rate == 0:
        return None

    def teach(note: Callable[[str], None]) -> None:
        from pmdkit.llm.starter.warm_start import warm_start

        # the learner's own model may be cut into the shards of several processes
        student = learner.model if size == 1 else build_model(table, spec.env, spec.run.seed)[0]

        def rate() -> float:
            learner.load_weights(student)  # the warm start moves the weights behind the learner's back
            learner.model.eval()
            found = evaluations.scores(evaluations.draw(None))["pass_rate"]
            return 0.0 if found is None else found

        folder = None if evaluations.folder is None or size > 1 else evaluations.folder.phase_0
        warm_start(
            student,
            learner.tokenizer,
            task.problems,
            evaluations.evaluation.encode,
            options,
            spec.run.seed,
            rate,
            note,
            folder,
        )
        learner.load_weights(student)
        learner.reset_reference()

    return teach
