"""`pmdkit eval` on a language model: draw, keep every response, go on where it stopped, and sum up."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.envs.math_answers import Grader
from pmdkit.errors import UsageError
from pmdkit.evaluation.asked import HELD_OUT, Asked, leaked, named, trained_on
from pmdkit.evaluation.kept import RECORD, describe, open_folder, summarise
from pmdkit.evaluation.subject import Subject
from pmdkit.evaluation.telling import Pace, tell_leaks, tell_unscored
from pmdkit.llm.build import evaluation_problems, make_grader
from pmdkit.llm.engines.embedded import EmbeddedEngine
from pmdkit.llm.engines.protocol import Engine, Sampling, Tokens
from pmdkit.llm.evaluate import Answered, Evaluation
from pmdkit.llm.load import end_tokens, load, pick_device, reader
from pmdkit.llm.prompts import Encoder, limit_prompts
from pmdkit.observe import files
from pmdkit.observe.folder import RunFolder, locked
from pmdkit.randomness import derive
from pmdkit.session import Display, stop_at_once
from pmdkit.spec import Spec
from pmdkit.tables import LanguageModelTable, RewardTable, RolloutTable

STOPPED = "stopped; every whole turn of responses is kept: go on with the same options and --resume --out {out}"


def evaluate(
    subject: Subject,
    asked: Asked,
    out: Path | None,
    resume: bool,
    display: Display,
    device: str | None = None,
    dtype: str | None = None,
) -> dict[str, Any]:
    """Responses, verdicts and shares with intervals; returns what summary.json holds.

    Args:
        subject: from `find`.
        asked: options as given.
        out: folder to write: responses.jsonl, config.json and summary.json; by default the next number under runs/.
        resume: go on with what `out` holds.
        display: told warnings and progress.
        device, dtype: as in [model]; by default those of the run.

    Raises:
        UsageError: options or data that make no sense, a model that does not load.
        ResumeRefused: the folder holds another evaluation.
        Stopped: on a signal; every whole turn of responses is kept.
    """
    asked.check()
    asked = asked.settle(subject.spec)
    assert asked.data is not None
    spec = subject.spec
    table = spec.model if spec is not None and isinstance(spec.model, LanguageModelTable) else LanguageModelTable()
    table = table.model_copy(update={"device": device or table.device, "dtype": dtype or table.dtype})
    chosen = None if asked.data == HELD_OUT else named(asked.data, asked.problems)
    train, lost = trained_on(spec)
    if spec is not None:
        torch.set_num_threads(spec.run.threads)
    model, tokenizer = load(subject.place, pick_device(table.device))
    if table.dtype == "bfloat16":
        model = model.to(torch.bfloat16)  # type: ignore[arg-type]
    encoder = Encoder(tokenizer)
    name, problems = chosen or held_out(spec, train, lost, encoder, asked.problems)
    reward = spec.reward if spec is not None and spec.reward is not None else RewardTable()
    rollout = spec.rollout if spec is not None and spec.rollout is not None else RolloutTable()
    evaluation = make_evaluation(name, problems, encoder, tokenizer, make_grader(reward), asked)
    try:
        check_context(evaluation, model.config)
        told = describe(subject, asked, table.dtype, reward, evaluation)
        folder = open_folder(out, resume, f"eval-{subject.name}-{Path(asked.data).stem}", told)
        for warning in subject.warnings:
            display.warn(warning)
        copies = None if train is None else leaked(train, problems)
        tell_leaks(copies, len(problems), lost, display)
        engine = EmbeddedEngine(model, end_tokens(model, tokenizer), cache_tokens=rollout.cache_tokens)
        answers = answered(evaluation, engine, folder, display)
    finally:
        evaluation.grader.close()
    summary = summarise(subject, asked, answers, copies, folder)
    tell_unscored(answers, display)
    files.replace(folder.summary, files.encode(summary))
    return summary


def held_out(
    spec: Spec | None, problems: MathProblems | None, lost: str | None, encoder: Encoder, most: int | None
) -> tuple[str, list[Problem]]:
    """The problems that the run itself is evaluated on."""
    assert spec is not None
    assert spec.rollout is not None
    if problems is None:
        raise UsageError(f"the problems of the run cannot be read: {lost}")
    if not len(problems.held_out):
        raise UsageError(f"data is 'held-out' and {problems.name} holds none out; give --data aime24, aime25 or a file")
    problems, _ = limit_prompts(problems, encoder, spec.rollout.max_prompt)
    return evaluation_problems(HELD_OUT, problems, most or len(problems.held_out), spec.run.seed)


def make_evaluation(
    name: str, problems: Sequence[Problem], encoder: Encoder, tokenizer: Any, grader: Grader, asked: Asked
) -> Evaluation:
    """The problems with how they are asked."""
    assert asked.width is not None
    assert asked.top_p is not None

    def read(tokens: Tokens) -> str:
        return reader(tokenizer, tokens)

    greedy = asked.temperature == 0
    return Evaluation(
        name=name,
        problems=problems,
        encode=encoder.encode,
        read=read,
        grader=grader,
        k=asked.k,
        sampling=Sampling(asked.width, asked.temperature or 1.0, asked.top_p, greedy),
        seed=derive(asked.seed, "eval"),
    )


def check_context(evaluation: Evaluation, config: Any) -> None:
    """Before anything is drawn: every prompt can be written, and the longest fits into the model with its response."""
    longest = 0
    for problem in evaluation.problems:
        try:
            longest = max(longest, len(evaluation.encode(problem.problem)))
        except UsageError as reason:
            raise UsageError(f"problem '{problem.id}': {reason}") from reason
    context = getattr(config, "max_position_embeddings", None)
    width = evaluation.sampling.width
    if context is not None and longest + width > context:
        room = context - longest
        remedy = f"give --width {room} or less" if room > 0 else "leave such problems out"
        raise UsageError(
            f"the longest prompt has {longest} tokens, and the model's context of {context} has no room for a response "
            f"of {width} after it; {remedy}"
        )


def answered(evaluation: Evaluation, engine: Engine, folder: RunFolder, display: Display) -> list[Answered]:
    """All responses; those on disk are not drawn again."""
    pace = Pace(display)
    try:
        with locked(folder), stop_at_once(STOPPED.format(out=folder.path)):
            return evaluation(engine, folder.path / RECORD, pace.tell)
    finally:
        engine.close()
        display.end()
