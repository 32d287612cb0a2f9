"""Build a backend from a resolved recipe: problems, model, engine, verifier, learner, task and evaluation.

There is one function for each. `llm/train.py` takes the step with these parts in the open.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.errors import UsageError
from pmdkit.extras import need
from pmdkit.fit import Backend, TrainerCallback
from pmdkit.hub import fetch
from pmdkit.llm import accelerate_group, checkpointing, companions, evaluate, head, lora, shard_loading
from pmdkit.llm.async_rollouts import PolicySnapshot, RolloutQueue, async_rollouts
from pmdkit.llm.callbacks.evaluation import EvaluationCallback
from pmdkit.llm.callbacks.model_files import ModelFilesCallback
from pmdkit.llm.callbacks.problems import ProblemsCallback
from pmdkit.llm.callbacks.progress import ProgressCallback
from pmdkit.llm.callbacks.resources import ResourcesCallback
from pmdkit.llm.callbacks.responses import ResponsesCallback
from pmdkit.llm.dynamic_sampling import dynamic_sampling
from pmdkit.llm.engines import base, check_engine, engine_class, engine_options, engine_traits, weight_sync_check
from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.in_flight import NewestPolicy, read_changes
from pmdkit.llm.learner import CausalLearner, EngineLearner, Report
from pmdkit.llm.metrics import make_metrics, step_extras
from pmdkit.llm.mismatch import MismatchMonitor
from pmdkit.llm.model import end_tokens, load_model, pick_device, prepare_model
from pmdkit.llm.policy import CausalPolicy
from pmdkit.llm.prompts import Encoder, encode_numbers
from pmdkit.llm.task import MathTask
from pmdkit.llm.task_parts import load_problems as load_problems  # by this name for programs such as llm/train.py
from pmdkit.llm.task_parts import make_encoder as make_encoder
from pmdkit.llm.task_parts import make_evaluation as make_evaluation
from pmdkit.llm.task_parts import make_task as make_task
from pmdkit.llm.task_parts import make_turns
from pmdkit.llm.task_parts import make_verifier as make_verifier
from pmdkit.loop import Schedule, Stream, inline
from pmdkit.objectives import Objective, traits
from pmdkit.observe.input_digests import digest
from pmdkit.observe.metrics import RESCORED, StepMetrics
from pmdkit.process_group import SINGLE, ProcessGroup, launched_ranks
from pmdkit.recording import Recorder
from pmdkit.specs import LLMSpec

TEXT_TOKENS = 64  # of each text in the sync check
PROBE = Problem("probe", "What is 1 + 1?", "2")  # its prompt distinguishes chat templates
GENERATED = 256  # rows that are hashed where problems are generated: code and options determine them


def make_backend(spec: LLMSpec, objective: Objective) -> Backend:
    """Everything that a run of a resolved recipe needs."""
    check_engine(spec)
    if spec.lora.rank and spec.model.backend == companions.HERE:
        need("peft", "[lora]")
    if spec.model.build == "smollm2" and pick_device(spec.model.device).type == "cpu":
        companions.find_model("smollm2").check_memory(spec.update.token_budget)
    alone = spec.parallel.processes == launched_ranks() == 1
    process_group = SINGLE if alone else accelerate_group.make_process_group(spec)
    decisions: dict[str, tuple[Any, str]] = {}
    if spec.model.checkpointing == "auto" and spec.model.backend == companions.HERE:
        decisions = {"model.checkpointing": checkpointing.decide(spec, process_group)}
        spec = spec.override({key: value for key, (value, _) in decisions.items()})
    problems = fetch(lambda: load_problems(spec), process_group)
    named = spec.model.path is not None and not Path(spec.model.path).exists()
    model, tokenizer = fetch(lambda: make_model(spec, process_group), process_group if named else SINGLE)
    encoder, problems = make_encoder(spec, tokenizer, problems)
    if spec.model.backend != companions.HERE:
        return companions.find_backend(spec.model.backend).make(spec, objective, model, encoder, problems)
    verifier = make_verifier(spec, process_group)
    task = make_task(spec, model, encoder, problems, verifier, process_group)
    progress = ProgressCallback()
    engine = make_engine(spec, model, encoder, problems, process_group)
    policy = make_policy(spec, objective, model, process_group)
    learner = make_learner(spec, policy, encoder, problems, engine, progress.progress)
    evaluation = make_evaluation(spec, encoder, problems, verifier, learner.turns)
    return replace(assemble(spec, objective, learner, task, evaluation, progress), decisions=decisions)


def make_model(spec: LLMSpec, process_group: ProcessGroup = SINGLE) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and tokenizer of [model], on their device. Adapters come later: `make_policy`.

    A pretrained model that will be sharded over processes is empty until `make_policy` has sharded it.
    """
    if spec.model.backend != companions.HERE:
        return load_model(str(spec.model.path), "meta")
    if process_group.strategy != "fsdp2":
        return build_model(spec)
    if spec.model.path is None:
        # weights that will be sharded stay on the host: whole ones may not fit an accelerator, or not twice
        return build_model(spec, torch.device("cpu"))
    model, tokenizer = load_model(spec.model.path, empty=True)
    return prepare_model(model, checkpointing=spec.model.checkpointing is True), tokenizer


def build_model(spec: LLMSpec, device: torch.device | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A pretrained model, or a starter with random weights; on its device, switched to packed attention."""
    table = spec.model
    if table.build is None:
        model, tokenizer = load_model(str(table.path))
    elif table.build == "smollm2":
        model, tokenizer = companions.find_model(table.build).load()
    else:
        from pmdkit.llm.starter.model import build
        from pmdkit.llm.starter.tokenizer import train_tokenizer

        tokenizer = train_tokenizer(load_problems(spec))
        model = build(table.build, tokenizer, spec.run.seed)
    return prepare_model(model, device or pick_device(table.device), table.checkpointing is True), tokenizer


def make_engine(
    spec: LLMSpec,
    model: PreTrainedModel,
    encoder: Encoder,
    problems: MathProblems,
    process_group: ProcessGroup = SINGLE,
) -> DistributedEngine:
    """The engine that writes the rollouts of a recipe, over all processes. Adapters are put on the model afterwards."""
    rollout, tokenizer, facts = spec.rollout, encoder.tokenizer, engine_traits(spec)
    ends = end_tokens(model, tokenizer)
    own = process_group.strategy == "fsdp2" or rollout.lag > 0
    width = max(rollout.width, spec.evaluation.width or 0)
    # a later turn continues a response of up to the width; all rows are drawn together, as wide as any has room for
    longest = rollout.max_prompt + width * (1 if rollout.environment is None else 2)
    engine: base.Engine | None = None
    if process_group.is_main_process or not facts.central:
        config = base.EngineConfig(
            model=model,
            tokenizer=tokenizer,
            ends=ends,
            rollout=rollout,
            options=engine_options(spec),
            dtype=spec.model.dtype,
            context=min(longest, getattr(model.config, "max_position_embeddings", None) or longest),
            device=pick_device(spec.model.device),
            own=own,
            size=process_group.size,
            seed=spec.run.seed,
        )
        kind = engine_class(rollout.engine)
        engine = getattr(kind, "from_config", kind)(config)
        if not isinstance(engine, base.Engine):
            raise UsageError(f"{rollout.engine} lacks a method of pmdkit.llm.engines.base.Engine; write all of them")
    check: weight_sync_check.WeightSyncCheck | None = None
    # an engine on the trainer's own weights has nothing to be compared with
    if rollout.canary and getattr(engine, "model", None) is not model:
        # the first problems, each with its own statement and answer as the response
        asked = [problems.problem(int(number)) for number in problems.train[: rollout.canary]]
        texts = [f"{problem.problem}\n\nAnswer: {problem.answer}" for problem in asked]
        check = weight_sync_check.WeightSyncCheck(
            prompts=[encoder.encode(problem) for problem in asked],
            responses=[encoder.data(text)[:TEXT_TOKENS] for text in texts],
            tolerance=rollout.canary_tolerance or weight_sync_check.TOLERANCE[spec.model.dtype],
        )
    return DistributedEngine(
        engine,
        process_group,
        ends[0],
        central=facts.central,
        span=facts.span,
        in_flight=rollout.in_flight,
        sync_check=check,
        response_check=base.ResponseCheck(ends, head.head_weight(model).shape[0]),
    )


def make_policy(
    spec: LLMSpec, objective: Objective, model: PreTrainedModel, process_group: ProcessGroup = SINGLE
) -> CausalPolicy:
    """The policy that is trained: the model, or adapters on it; with a reference policy if the objective uses one."""
    if spec.lora.rank:  # the engine has made its copy: it gets merged weights
        lora.inject_adapters(model, spec.lora, spec.run.seed)
    empty = process_group.strategy == "fsdp2" and spec.model.path is not None
    policy = CausalPolicy(
        model,
        process_group,
        spec.update.token_budget,
        bfloat16=spec.model.dtype == "bfloat16",
        reference=traits(objective).uses_reference,
    )
    if empty:  # its weights have been sharded and now have memory
        shard_loading.fill_model(lora.base_weights(model), Path(str(model.name_or_path)), process_group)
        lora.draw_adapters(model, spec.run.seed)
        policy.reset_reference()
    return policy


def make_learner(
    spec: LLMSpec,
    policy: CausalPolicy,
    encoder: Encoder,
    problems: MathProblems,
    engine: DistributedEngine,
    report: Report = lambda phase, done, total, tokens: None,
) -> CausalLearner:
    """The learner that trains the policy. With a lag it has a queue of rollouts."""
    rollout = spec.rollout
    newest: NewestPolicy[PolicySnapshot] | None = None
    if rollout.in_flight:
        path = rollout.repeat_changes
        points = None if path is None else read_changes(path, spec.run.seed, spec.schedule.steps)
        newest = NewestPolicy(points, policy.process_group.rank)
    return CausalLearner(
        policy,
        encoder.tokenizer,
        encode_numbers(problems, encoder),
        engine,
        rollout,
        spec.schedule,
        spec.update,
        turns=make_turns(spec, policy.model, encoder, problems, policy.process_group),
        queue=RolloutQueue(engine, newest) if rollout.lag else None,
        report=report,
    )


def assemble(
    spec: LLMSpec,
    objective: Objective,
    learner: EngineLearner,
    task: MathTask,
    evaluation: evaluate.Evaluation,
    progress: ProgressCallback | None = None,
) -> Backend:
    """Assemble the parts into one backend, with metrics, phase 0 and callbacks."""
    schedule, rollout = spec.schedule, spec.rollout
    progress = progress or ProgressCallback()
    passed = (task.low + task.high) / 2 * (1.0 if task.rewards is None else task.rewards.table.weight)
    metrics = StepMetrics(objective, passed, max(2, RESCORED // (schedule.group or 1)))
    evaluations = EvaluationCallback(learner, task, evaluation, progress.progress, spec.evaluation.every)
    found: list[TrainerCallback] = [
        progress,
        ResourcesCallback(learner, task),
        ProblemsCallback(task, evaluation),
        MismatchMonitor(),
        *([] if learner.turns is None else learner.turns.callbacks),
    ]
    if spec.run.record:
        found.append(Recorder(spec.run.record, partial(step_extras, learner, task, passed)))
    if rollout.record_every:
        found.append(ResponsesCallback(task, rollout.record_every))
    found.append(evaluations)
    if spec.model.backend == companions.HERE:  # elsewhere a checkpoint holds no weights
        found.append(ModelFilesCallback(spec, evaluations))
    stream: Stream = inline
    if rollout.lag:
        stream = async_rollouts(rollout.lag)
    elif rollout.max_num_gen_batches > 1:
        stream = dynamic_sampling(rollout.max_num_gen_batches)
    return Backend(
        learner=learner,
        task=task,
        schedule=Schedule(
            schedule.steps, schedule.group, schedule.ministeps, spec.run.seed, spec.update.drop_equal_groups
        ),
        metrics=make_metrics(metrics, task, in_target=rollout.old == "rollout"),
        evaluate=evaluations.evaluate,
        policy=lambda: learner.model,
        warm_start=make_warm_start(spec, learner, task, evaluations),
        stream=stream,
        process_group=learner.process_group,
        callbacks=found,
        inputs=lambda: run_inputs(spec, learner, task, evaluation),
    )


def run_inputs(
    spec: LLMSpec, learner: EngineLearner, task: MathTask, evaluation: evaluate.Evaluation
) -> dict[str, str | Sequence[Path]]:
    """Digests of rows, template and tokenizer, and files of weights. Of generated rows only the first count."""
    problems, tokenizer = task.problems, learner.tokenizer
    from_table = isinstance(getattr(problems.problem, "__self__", None), list)
    rows = [problems.problem(int(number)) for number in problems.train[: None if from_table else GENERATED]]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    words = json.dumps(sorted(tokenizer.get_vocab().items())) if backend is None else backend.to_str()
    found: dict[str, str | Sequence[Path]] = {
        "training rows": digest_rows(rows),
        "evaluation rows": digest_rows(evaluation.problems),
        "template": digest([json.dumps(list(evaluation.encode(PROBE)))]),
        "tokenizer": digest([words, str(tokenizer.chat_template)]),
    }
    if task.rows is not None:
        found["columns"] = digest(json.dumps(dict(row.columns), default=str) for row in rows)
    if spec.model.path is not None or spec.model.build == "smollm2":
        loaded = learner.model.config
        folder, commit = Path(spec.model.path or loaded._name_or_path), getattr(loaded, "_commit_hash", None)
        found["weights"] = sorted(folder.glob("*.safetensors")) if folder.is_dir() else str(commit)
    return found


def digest_rows(problems: Iterable[Problem]) -> str:
    """Digest of conversations and answers, in order."""
    return digest(part for problem in problems for part in (problem.conversation, problem.answer))


def make_warm_start(
    spec: LLMSpec, learner: EngineLearner, task: MathTask, evaluations: EvaluationCallback
) -> Callable[[Callable[[str], None]], None] | None:
    """Phase 0: teach the starter until it passes the target share of the evaluation's problems.

    Several processes teach the same whole model and evaluate together; after an interruption their phase 0 starts over.
    """
    options, size = spec.warm_start, learner.process_group.size
    if options.pass_rate == 0:
        return None
    assert isinstance(learner, CausalLearner), "only a starter, which is built here, has a phase 0"

    def teach(note: Callable[[str], None]) -> None:
        from pmdkit.llm.starter.warm_start import warm_start

        # the learner's own model may be sharded over several processes
        student = learner.model if size == 1 else build_model(spec)[0]

        def rate() -> float:
            learner.load_weights(student)  # the warm start moves the weights behind the learner's back
            learner.model.eval()
            found = evaluations.scores(evaluations.draw(None))["pass_rate"]
            return 0.0 if found is None else found

        folder = None if evaluations.folder is None or size > 1 else evaluations.folder.phase_0
        encode, seed = evaluations.evaluation.encode, spec.run.seed
        warm_start(student, learner.tokenizer, task.problems, encode, options, seed, rate, note, folder, learner.turns)
        learner.load_weights(student)
        learner.policy.reset_reference()

    return teach
